"""Every code block of the pages in docs/ and of the README runs: `python` blocks as they stand, `pycon` blocks as doctests."""

from __future__ import annotations

import doctest
import linecache
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import fxgrad as fx

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(p for p in (*ROOT.glob("docs/*.md"), ROOT / "README.md") if "```py" in p.read_text())
ALONE = {"adding_a_primitive.md"}  # declares a primitive, which other tests would find
BLOCK = re.compile(r"^```(python|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_page(path: Path) -> int:
    """Run the blocks of a page one after the other in one module; answers how many there were."""
    text = path.read_text()
    module = types.ModuleType("page")
    sys.modules["page"] = module
    count = 0
    for found in BLOCK.finditer(text):
        kind, block = found.groups()
        line = text[: found.start(2)].count("\n")
        name = f"{path.name}:{line + 1}"
        if kind == "python":
            linecache.cache[name] = len(block), None, block.splitlines(keepends=True), name
            exec(compile(block, name, "exec"), module.__dict__)
        else:
            test = doctest.DocTestParser().get_doctest(block, module.__dict__, name, str(path), line)
            test.globs = module.__dict__
            runner = doctest.DocTestRunner(optionflags=FLAGS)
            failures: list[str] = []
            runner.run(test, out=failures.append, clear_globs=False)
            assert not failures, "".join(failures)
        count += 1
    return count


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in ALONE], ids=lambda p: p.name)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    threads = fx.get_num_threads()
    assert run_page(page) > 0
    fx.set_num_threads(threads)


def test_blocks_that_declare_a_primitive_run(tmp_path: Path) -> None:
    page = ROOT / "docs" / "adding_a_primitive.md"
    shown, own = [m.group(2) for m in BLOCK.finditer(page.read_text())]
    assert shown in (ROOT / "fxgrad" / "primitives" / "transcendental.py").read_text()  # the page shows the source as it is
    (tmp_path / "own.py").write_text(own)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, str(tmp_path / "own.py")], env=environment, check=True)


def test_every_page_is_in_the_site() -> None:
    listed = set(re.findall(r":\s*([\w/]+\.md)$", (ROOT / "docs" / "theme" / "mkdocs.yml").read_text(), re.MULTILINE))
    there = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert listed == there


def test_the_map_names_every_module() -> None:
    text = (ROOT / "docs" / "design.md").read_text()
    modules = [p for p in (ROOT / "fxgrad").rglob("*.py") if p.name != "__init__.py" and "scipy" not in p.parts]
    assert not [str(p.relative_to(ROOT)) for p in modules if f"`{p.name}`" not in text]
