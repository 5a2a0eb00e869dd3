"""What a release states about itself. `make release` builds and installs it."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import fxgrad as fx
from tests import release

ROOT = Path(__file__).resolve().parent.parent


def test_the_version_has_one_place() -> None:
    """pyproject.toml reads it from the package; the citation has none to keep in step."""
    assert release.version() == fx.__version__ and re.fullmatch(r"\d+\.\d+\.\d+", fx.__version__)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"] and "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "fxgrad/__init__.py"
    assert not re.search(r"^version:", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)


def test_the_citation_agrees_with_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    fields = dict(re.findall(r"^([\w-]+): (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    assert {"cff-version", "message", "title", "type"} <= set(fields)
    assert fields["license"] == project["license"] and fields["title"].strip('"').startswith(project["name"])


def test_the_clean_environment_expects_the_run_time_dependencies() -> None:
    named = {re.split(r"[<>=!~ ]", d)[0] for d in importlib.metadata.requires("fxgrad") or () if "extra ==" not in d}
    assert named | {"fxgrad"} == release.RUN_TIME
