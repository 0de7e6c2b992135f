"""What the tests share: where the repository is, and how to run Python in a fresh process."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def run_python():
    """A function that runs Python in a fresh process that imports mixlit from this tree."""

    def run(*args: str, cwd: Path = ROOT, timeout: float = 600, **env: str) -> subprocess.CompletedProcess:
        environment = {**os.environ, "PYTHONPATH": str(cwd), **env}
        return subprocess.run([sys.executable, *args], cwd=cwd, env=environment, timeout=timeout,
                              capture_output=True, text=True, encoding="utf-8")

    return run


@pytest.fixture
def plt():
    """pyplot without a screen; its figures are closed after the test."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    yield pyplot
    pyplot.close("all")
