"""Every notebook is a test: all its cells run, in order, in a process of its own.

Cells marked `#| notest` or `#| slow` are skipped, as `tst_flags` in settings.ini says.
"""
import pytest
from conftest import ROOT

NOTEBOOKS = sorted(path.name for path in (ROOT / "nbs").glob("*.ipynb"))

RUN = """
import sys
from pathlib import Path
from nbdev.config import get_config
from nbdev.test import test_nb
passed, seconds = test_nb(Path(sys.argv[1]).resolve(), skip_flags=get_config().tst_flags.split(), basepath=Path.cwd())
sys.exit(0 if passed else 1)
"""


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_runs(name, run_python, tmp_path):
    result = run_python("-c", RUN, f"nbs/{name}", IPYTHONDIR=str(tmp_path), MPLCONFIGDIR=str(tmp_path))
    assert result.returncode == 0, f"{name} failed:\n{result.stdout[-2000:]}\n{result.stderr[-6000:]}"


def test_there_are_notebooks():
    assert "index.ipynb" in NOTEBOOKS
