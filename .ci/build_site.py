"""Builds the site without Quarto, and checks its links.

    python .ci/build_site.py [--out _docs]

Quarto (`nbdev_docs`) builds the site that is published. Where Quarto cannot be installed, this builds the same
pages from the same notebooks and `_quarto.yml` with smalldocs, which is pure Python. Exit status 1 when a page
cannot be built, a page is missing from the sidebar, a link leads nowhere, or a setting is not understood.
"""
import argparse
import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def process(source: Path) -> None:
    """Run nbdev's processors over the notebooks and copy the result to `source`."""
    from nbdev.quarto import refresh_quarto_yml
    from nbdev.serve import proc_nbs

    refresh_quarto_yml()
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(proc_nbs(n_workers=0, force=True), source)


def rename(source: Path) -> None:
    """Give each page the name that Quarto gives it: `01_xmm.ipynb` becomes `xmm.ipynb`, its links too."""
    renamed = {}
    for path in sorted(source.glob("*.ipynb")):
        text = path.read_text(encoding="utf-8")
        if found := re.search(r"output-file: ([\w.-]+)\.html\\n", text):
            path.write_text(text.replace(found[0], ""), encoding="utf-8")
            renamed[path.name] = f"{found[1]}.ipynb"
    if len(set(renamed.values())) < len(renamed):
        sys.exit(f"two notebooks would have one address: {renamed}")
    if not renamed:
        return
    for old, new in renamed.items():
        (source / old).rename(source / new)
    names = re.compile(r"(?<![\w/.-])(" + "|".join(map(re.escape, renamed)) + r")(?=[\s)#\"'\\]|$)", re.M)
    for path in [*source.glob("*.ipynb"), *source.glob("*.yml")]:
        text = path.read_text(encoding="utf-8")
        path.write_text(names.sub(lambda m: renamed[m[1]], text), encoding="utf-8")


def broken_links(site: Path) -> list[str]:
    """Links from one built page to another, or to a place on it, that lead nowhere."""
    pages = {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    places = {name: set(re.findall(r'\bid="([^"]+)"', text)) for name, text in pages.items()}
    broken = []
    for name, text in pages.items():
        for link in re.findall(r'\bhref="([^"]+)"', re.sub(r"<(pre|script)\b.*?</\1>", "", text, flags=re.S)):
            if re.match(r"[a-z]+:|//", link) or link == "#":
                continue
            target, _, place = link.partition("#")
            page = os.path.normpath(target) if target else name
            if not (site / page).exists():
                broken.append(f"{name}: {link}: no such page")
            elif place and page in places and place not in places[page]:
                broken.append(f"{name}: {link}: no such place on that page")
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="_docs", help="where the site goes (default: _docs)")
    out = Path(parser.parse_args().out).resolve()
    os.chdir(ROOT)
    source = ROOT / "_site_src"

    process(source)
    rename(source)
    from smalldocs.cli import main as smalldocs

    failed = smalldocs(["render", "--strict", str(source)])
    built = source / "_docs"
    if not built.is_dir():
        return 1
    sidebar = (source / "sidebar.yml").read_text(encoding="utf-8")
    wrong = [f"{p.name}: not in nbs/sidebar.yml" for p in sorted(source.glob("*.ipynb")) if p.name not in sidebar]
    wrong += broken_links(built)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(built, out)
    print(f"{len(list(out.rglob('*.html')))} pages, {len(wrong)} broken links, in {out}")
    return int(bool(failed or wrong))


if __name__ == "__main__":
    sys.exit(main())
