"""The package as it is shipped: what it imports, what its wheel holds, and that its names and versions agree."""
import configparser
import re
import shutil
import tomllib
import zipfile
from importlib.util import find_spec

import pytest
from conftest import ROOT

HEAVY = ("torch", "pandas", "matplotlib", "nflows", "sklearn", "scipy", "pyarrow")


@pytest.fixture(scope="module")
def settings():
    config = configparser.ConfigParser(delimiters=["="])
    config.read(ROOT / "settings.ini", encoding="utf-8")
    return config["DEFAULT"]


def imported(run_python, statement):
    result = run_python("-c", f"{statement}; import sys; print(*sys.modules)")
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_import_is_light(run_python):
    assert not imported(run_python, "import mixlit") & set(HEAVY)


@pytest.mark.parametrize("module, never", [
    ("rules", ("torch", "pandas", "matplotlib")),
    ("figures", ("torch", "pandas", "matplotlib")),
    ("generators", ("torch", "matplotlib")),
])
def test_modules_that_need_less(module, never, run_python):
    assert not imported(run_python, f"import mixlit.{module}") & set(never)


def test_rules_run_without_torch(run_python):
    script = "import sys; sys.modules['torch'] = None; import mixlit.rules as r; " \
             "print(r.Rule([r.Condition('x', low=1)]).to_text())"
    result = run_python("-c", script)
    assert result.stdout == "x >= 1\n", result.stderr


def test_one_version(settings):
    version = settings["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert f'__version__ = "{version}"' in (ROOT / "mixlit" / "__init__.py").read_text(encoding="utf-8")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    newest = re.search(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert newest[1] == version


def test_python_versions_agree(settings):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == f">={settings['min_python']}"
    assert project["name"] == settings["lib_name"]
    assert project["license"] == settings["license"]


def test_constraints_satisfy_requirements(settings):
    requirement = pytest.importorskip("packaging.requirements").Requirement
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.lower().split("==") for line in lines if line and not line.startswith("#"))
    for key in settings:
        if key.endswith("requirements"):
            for req in map(requirement, settings[key].split()):
                assert req.name.lower() in pins, f"{req.name} ({key}) is not pinned in constraints.txt"
                assert req.specifier.contains(pins[req.name.lower()]), f"{req} and constraints.txt disagree"


def test_command_has_a_home(settings):
    module, function = settings["console_scripts"].split("=")[1].split(":")
    assert find_spec(module) is not None
    assert f"def {function}(" in (ROOT / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, run_python):
    """The wheel, built from a copy so that nothing is left in the tree."""
    copy = tmp_path_factory.mktemp("wheel")
    for name in ("settings.ini", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "mixlit", copy / "mixlit", ignore=shutil.ignore_patterns("__pycache__"))
    result = run_python("-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", cwd=copy)
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]
    (path,) = (copy / "dist").glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_wheel_holds_the_package_and_its_data(wheel):
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    tree = {path.relative_to(ROOT).as_posix() for path in (ROOT / "mixlit").rglob("*")
            if path.is_file() and "__pycache__" not in path.parts}
    assert held == tree
    assert "mixlit/mixlit.mplstyle" in held


def test_wheel_says_what_it_is(wheel, settings):
    info = f"mixlit-{settings['version']}.dist-info"
    text = wheel.read(f"{info}/METADATA").decode()
    assert f"\nVersion: {settings['version']}\n" in text
    assert "\nLicense-Expression: Apache-2.0\n" in text
    assert {f"Provides-Extra: {name}" for name in ("notebook", "experiments", "dev")} <= set(text.splitlines())
    for name in settings["requirements"].split():
        assert f"Requires-Dist: {name}" in text
    assert "mixlit = mixlit.experiments:main" in wheel.read(f"{info}/entry_points.txt").decode()
    assert f"{info}/licenses/LICENSE" in wheel.namelist()
