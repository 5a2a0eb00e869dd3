"""Every public name has an example in its docstring, every example runs, and every public name is in the site's reference."""

from __future__ import annotations

import doctest
import importlib
import os
import subprocess
import sys
import types
import typing
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import fxgrad as fx
from fxgrad.compile.jit import Jitted, Lowered
from fxgrad.compile.lower import Executable
from fxgrad.numpy import examples, registry

ROOT = Path(__file__).resolve().parents[1]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PUBLIC = [
    "fxgrad", "fxgrad.errors", "fxgrad.io", "fxgrad.lax", "fxgrad.lax_linalg", "fxgrad.models", "fxgrad.nn",
    "fxgrad.nn.initializers", "fxgrad.optim", "fxgrad.random", "fxgrad.scipy.linalg", "fxgrad.scipy.special",
    "fxgrad.scipy.stats", "fxgrad.testing", "fxgrad.tree", *(f"fxgrad.models.{name}" for name in fx.models.__all__),
]  # fmt: skip
COMPILED = [Jitted, Lowered, Executable]
READ = [
    "lower", "cache_info", "clear_cache", "as_text", "plan_text", "compile", "cost_analysis", "memory_analysis", "measure_steps",
]  # fmt: skip


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


# Modules with examples, by their text: to import all of the package would take longer than to run what is in them.
SOURCES = [module_name(p) for p in sorted((ROOT / "fxgrad").rglob("*.py")) if ">>> " in p.read_text()]


def public(module: types.ModuleType) -> Iterator[tuple[str, object]]:
    """Names and values of what a module offers, without modules and names of types."""
    for name in module.__all__:
        value = getattr(module, name)
        if not isinstance(value, types.ModuleType) and typing.get_origin(value) is None:
            yield name, value


def run(test: doctest.DocTest) -> None:
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=failures.append)
    assert not failures, "".join(failures)


def parsed(text: str, name: str, namespace: dict[str, object] | None = None) -> doctest.DocTest:
    return doctest.DocTestParser().get_doctest(text, namespace or {}, name, None, 0)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Examples may change the number of threads."""
    threads = fx.get_num_threads()
    yield
    fx.set_num_threads(threads)


# ---- there is one ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name: str) -> None:
    module = importlib.import_module(name)
    assert not [n for n, value in public(module) if ">>> " not in (value.__doc__ or "")]


def test_every_function_of_numpy_has_an_example() -> None:
    lacking, wanted = [], set()
    for spelling, original, ours, name in registry.names():
        if registry.status(ours, original, name) not in ("differentiable", "constant"):
            continue
        value = getattr(ours, name)
        if callable(value):
            lacking += [f"{spelling}.{name}"] if ">>> " not in (value.__doc__ or "") else []
            wanted.add(f"{spelling}.{name}".removeprefix("np."))
        elif hasattr(value, "__getitem__") and not isinstance(value, (tuple, dict, np.generic)):  # np.r_ and its like
            wanted.add(name)
    assert not lacking
    assert set(examples.EXAMPLES) == wanted


def test_what_is_read_of_a_compiled_function_has_an_example() -> None:
    there = {name: getattr(cls, name) for name in READ for cls in COMPILED if hasattr(cls, name)}
    assert list(there) == READ
    assert not [name for name, method in there.items() if ">>> " not in (method.__doc__ or "")]


# ---- they run ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOURCES)
def test_examples_of_a_module(name: str) -> None:
    module = importlib.import_module(name)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        if test.examples:
            run(test)


@pytest.mark.parametrize("name", PUBLIC)
def test_examples_of_what_factories_make(name: str) -> None:
    """Their docstrings stand in no source file, so the test above does not find them."""
    module = importlib.import_module(name)
    for n, value in public(module):
        text = value.__doc__ or ""
        found = getattr(value, "__module__", None) in SOURCES and isinstance(value, (type, types.FunctionType))
        made = not found or getattr(sys.modules[value.__module__], value.__name__, None) is not value
        if ">>> " in text and made:
            run(parsed(text, f"{name}.{n}"))


@pytest.mark.parametrize("part", ["", "linalg", "fft"])
def test_examples_of_numpy(part: str) -> None:
    rows = {k: v for k, v in examples.EXAMPLES.items() if k.rpartition(".")[0] == part}
    assert len(rows) > 15
    failures = []
    for name, (code, result) in rows.items():
        try:
            run(parsed(f">>> {code}\n{result}\n", name, {"np": fx.numpy}))
        except AssertionError as failure:
            failures.append(str(failure))
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("make", [lambda: fx.numpy.sin, lambda: fx.scipy.special.erf, lambda: fx.lax.reduce_sum])
def test_an_example_that_does_not_hold_is_seen(make: Callable[[], Callable[..., object]]) -> None:
    text = make().__doc__ or ""
    run(parsed(text, "right"))
    with pytest.raises(AssertionError, match="Failed example"):
        run(parsed(text[:-3] + "7" + text[-2:], "wrong"))


# ---- they are in the site ----------------------------------------------------------------------------------------------


def newest(*paths: Path) -> float:
    return max(p.stat().st_mtime for path in paths for p in path.rglob("*") if p.suffix in (".py", ".md", ".yml"))


def inventory(scratch: Path) -> set[str]:
    """The names that the site describes: of the one `make site` has built if it is up to date, else of one built here."""
    site = ROOT / "build" / "site"
    listed = site / "objects.inv"
    if not listed.exists() or listed.stat().st_mtime < newest(ROOT / "fxgrad", ROOT / "docs"):
        site = scratch
        command = [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-f", "docs/theme/mkdocs.yml", "-d", str(site)]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True, timeout=300)
    text = zlib.decompress((site / "objects.inv").read_bytes().partition(b"zlib.\n")[2]).decode()
    return {line.split()[0] for line in text.splitlines()}


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(tmp_path: Path) -> None:
    described = inventory(tmp_path / "site")
    missing = []
    for name in PUBLIC:
        for n, _ in public(importlib.import_module(name)):
            if not {f"{name}.{n}", f"{name}.{n}.{n}"} & described:  # the function explain is in the module explain
                missing.append(f"{name}.{n}")
    missing += [m for m in READ if not any(f"{cls.__module__}.{cls.__name__}.{m}" in described for cls in COMPILED)]
    assert not missing
