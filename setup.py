"""Reads settings.ini and hands it to setuptools; what never changes is in pyproject.toml."""
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
config = ConfigParser(delimiters=["="])
config.read(here / "settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]

extras = {name: cfg[f"{name}_requirements"].split() for name in ("notebook", "experiments", "dev")}
status = {"3": "3 - Alpha", "4": "4 - Beta", "5": "5 - Production/Stable"}[cfg["status"]]

setup(
    version=cfg["version"],
    description=cfg["description"],
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author=cfg["author"],
    keywords=cfg["keywords"].split(),
    url=cfg["git_url"],
    project_urls={
        "Documentation": cfg["doc_host"] + cfg["doc_baseurl"],
        "Source": cfg["git_url"],
        "Changelog": f"{cfg['git_url']}/blob/{cfg['branch']}/CHANGELOG.md",
    },
    classifiers=[
        f"Development Status :: {status}",
        f"Intended Audience :: {cfg['audience']}",
        f"Natural Language :: {cfg['language']}",
        "Operating System :: OS Independent",
        "Programming Language :: Python :: 3",
        *[f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)],
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Information Analysis",
    ],
    packages=find_packages(include=["mixlit", "mixlit.*"]),
    package_data={"mixlit": ["*.mplstyle", "*.json", "*.csv", "py.typed"]},
    include_package_data=True,
    install_requires=cfg["requirements"].split(),
    extras_require=extras,
    entry_points={
        "console_scripts": cfg["console_scripts"].split(),
        "nbdev": [f"mixlit={cfg['lib_path']}._modidx:d"],
    },
    zip_safe=False,
)
