"""Writes README.md from nbs/index.ipynb, with the outputs kept in the notebook.

    python .ci/readme.py [--check]

With --check nothing is written, and the exit status is 1 when README.md is not what the notebook gives.
"""
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HIDDEN = re.compile(r"^#\|\s*(hide|default_exp|export\w*|include:\s*false)\b", re.M)
DIRECTIVE = re.compile(r"^#\|.*\n?", re.M)


def text_of(lines: str | list[str]) -> str:
    """A notebook keeps a text as one string or as a list of lines."""
    return lines if isinstance(lines, str) else "".join(lines)


def fence(text: str, language: str = "") -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def output(out: dict) -> str | None:
    """One output of a code cell as Markdown; pictures are left to the site."""
    if out["output_type"] == "stream":
        return fence(text_of(out["text"])) if out["name"] == "stdout" else None
    data = out.get("data", {})
    if "text/markdown" in data:
        return text_of(data["text/markdown"]).strip()
    if "text/plain" in data and not any(kind.startswith("image/") for kind in data):
        return fence(text_of(data["text/plain"]))
    return None


def markdown(notebook: dict) -> str:
    """The notebook as Markdown for a reader at the top of the repository."""
    parts = ["<!-- Generated from nbs/index.ipynb by .ci/readme.py. Do not edit. -->"]
    for cell in notebook["cells"]:
        source = text_of(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"\]\((\w+\.ipynb)", r"](nbs/\1", source.strip()))
        elif cell["cell_type"] == "code" and not HIDDEN.search(source):
            parts.append(fence(DIRECTIVE.sub("", source).strip(), "python"))
            parts += filter(None, map(output, cell["outputs"]))
    return "\n\n".join(parts) + "\n"


def main() -> int:
    target = ROOT / "README.md"
    text = markdown(json.loads((ROOT / "nbs" / "index.ipynb").read_text(encoding="utf-8")))
    if "--check" in sys.argv[1:]:
        same = target.read_text(encoding="utf-8") == text
        print("README.md is what nbs/index.ipynb gives." if same else "README.md is stale: run `python .ci/readme.py`.")
        return int(not same)
    target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
