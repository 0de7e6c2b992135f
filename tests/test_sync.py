"""What is generated is what its source gives: the modules, the README, clean notebooks, the site's settings."""
import json
import re
import shutil
from importlib.util import module_from_spec, spec_from_file_location

import pytest
from conftest import ROOT

NOTEBOOKS = sorted((ROOT / "nbs").glob("*.ipynb"))
MAX_BYTES = 500_000


@pytest.fixture(scope="module")
def regenerated(tmp_path_factory, run_python):
    """A copy of the notebooks, exported and cleaned from nothing."""
    copy = tmp_path_factory.mktemp("sync")
    (copy / "nbs").mkdir()
    (copy / "mixlit").mkdir()
    for path in [ROOT / "settings.ini", ROOT / "pyproject.toml"]:
        shutil.copy(path, copy)
    for path in NOTEBOOKS:
        shutil.copy(path, copy / "nbs")
    script = "from nbdev.doclinks import nbdev_export; nbdev_export.__wrapped__()\n" \
             "from nbdev.clean import nbdev_clean; nbdev_clean.__wrapped__()"
    result = run_python("-c", script, cwd=copy)
    assert result.returncode == 0, result.stderr[-4000:]
    return copy


def generated(folder):
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
            for path in folder.rglob("*.py") if "__pycache__" not in path.parts}


def test_modules_are_what_the_notebooks_export(regenerated):
    expected, found = generated(regenerated / "mixlit"), generated(ROOT / "mixlit")
    assert sorted(found) == sorted(expected), "run `nbdev_export`: a module has no notebook, or a notebook no module"
    stale = [name for name in expected if found[name] != expected[name]]
    assert not stale, f"{stale} differ from what the notebooks export: run `nbdev_export`, and edit only notebooks"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_is_clean(path, regenerated):
    same = path.read_bytes() == (regenerated / "nbs" / path.name).read_bytes()
    assert same, f"run `nbdev_clean` on {path.name}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_keeps_only_what_a_reader_needs(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) <= MAX_BYTES, f"{path.name} holds {len(text):,} bytes: save smaller figures"
    for number, cell in enumerate(json.loads(text)["cells"]):
        for out in cell.get("outputs", []):
            assert out["output_type"] != "error", f"{path.name}, cell {number}: an error is kept"
            assert out.get("name") != "stderr", f"{path.name}, cell {number}: a warning or a log is kept: {out['text']}"
            assert not re.search(r"/(home|root|Users|tmp)/", json.dumps(out)), f"{path.name}, cell {number}: a path"


def test_first_cell_is_title_and_summary_alone():
    # anything after the summary in that cell is lost when the site is built
    for path in NOTEBOOKS:
        first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]
        assert first["cell_type"] == "markdown", path.name
        assert re.fullmatch(r"# [^\n]+\n\n> [^\n]+\n?", "".join(first["source"])), path.name


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_source_of_every_definition_is_on_the_page(path):
    # the site drops `#| export` cells, which suits imports, and shows `#| exports` cells
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and re.search(r"^#\|\s*export\b", source, re.M):
            found = re.search(r"^(?:def|class) ([A-Za-z]\w*)", source, re.M)
            assert not found, f"{path.name}: `{found[1]}` is in a cell marked `export`; use `exports`"


def test_site_settings_have_one_source():
    link = ROOT / "nbs" / "_quarto.yml"
    assert link.is_symlink(), "nbs/_quarto.yml must be a symlink to ../_quarto.yml, or nbdev writes its own"
    assert link.resolve() == ROOT / "_quarto.yml"


def test_every_page_is_in_the_sidebar():
    listed = re.findall(r"- (\w+\.ipynb)", (ROOT / "nbs" / "sidebar.yml").read_text(encoding="utf-8"))
    assert sorted(listed) == [path.name for path in NOTEBOOKS]


def test_readme_is_what_the_index_gives():
    spec = spec_from_file_location("readme", ROOT / ".ci" / "readme.py")
    readme = module_from_spec(spec)
    spec.loader.exec_module(readme)
    index = json.loads((ROOT / "nbs" / "index.ipynb").read_text(encoding="utf-8"))
    found = (ROOT / "README.md").read_text(encoding="utf-8")
    assert found == readme.markdown(index), "run `python .ci/readme.py`"


def test_every_page_has_an_address_of_its_own():
    # the site drops the number in front: 01b_training and 03b_training would be one page
    stems = [re.sub(r"^\d+[a-z]?_", "", path.stem) for path in NOTEBOOKS]
    assert len(set(stems)) == len(stems), sorted(s for s in set(stems) if stems.count(s) > 1)
