"""Settings: what they accept, in the process and from the environment, and what clearing the caches beside other threads does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fxgrad as fx

ROOT = str(Path(__file__).resolve().parent.parent)


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": ROOT, **environment}
    return subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    "name, value",
    [
        ("fusion", "no"),
        ("fusion", 1),
        ("background_compile", "0"),
        ("log", "foo"),
        ("log", None),
        ("log", ["cache", "foo"]),
        ("cache_size", -1),
        ("cache_size", "1G"),
        ("cache_size", True),
        ("cache_size", 1e9),
        ("cache_dir", None),
        ("cache_dir", ""),
        ("matmul", "mkl"),
    ],
)
def test_nonsense_is_refused(name: str, value: Any) -> None:
    before = getattr(fx.config, name)
    with pytest.raises(fx.errors.FxValueError) as caught:
        setattr(fx.config, name, value)
    what, where, why, fix = str(caught.value).split("\n  ")
    assert f"fxgrad.config.{name}" in what
    assert "test_config.py" in where
    assert why
    assert "Set it to" in fix
    assert getattr(fx.config, name) == before


def test_settings_have_one_form(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fx.config, "log", "cache, eager")
    assert fx.config.log == {"cache", "eager"}
    monkeypatch.setattr(fx.config, "log", ())
    assert fx.config.log == frozenset()
    monkeypatch.setattr(fx.config, "cache_dir", tmp_path)
    assert fx.config.cache_dir == str(tmp_path)


SHOW = "import fxgrad as fx; print(fx.config.cache_size, fx.config.background_compile, sorted(fx.config.log))"


def test_the_environment() -> None:
    done = run(SHOW, FXGRAD_CACHE_SIZE="3M", FXGRAD_BACKGROUND_COMPILE="false", FXGRAD_LOG="eager")
    assert done.stdout.split("\n")[0] == f"{3 << 20} False ['eager']"
    done = run(SHOW, FXGRAD_CACHE_SIZE="", FXGRAD_BACKGROUND_COMPILE="", FXGRAD_LOG="")
    assert done.stdout.split("\n")[0] == f"{1 << 30} True []"


@pytest.mark.parametrize(
    "name, value",
    [
        ("FXGRAD_CACHE_SIZE", "abc"),
        ("FXGRAD_CACHE_SIZE", "1e9"),
        ("FXGRAD_CACHE_SIZE", "-1"),
        ("FXGRAD_BACKGROUND_COMPILE", "perhaps"),
        ("FXGRAD_LOG", "foo"),
    ],
)
def test_nonsense_in_the_environment_is_named(name: str, value: str) -> None:
    done = run(SHOW, **{name: value})
    assert done.returncode == 1
    assert f"FxValueError: the environment variable {name} cannot be {value!r}\n" in done.stderr
    assert "Set it to" in done.stderr


PROGRAM = """
import numpy as np, fxgrad as fx
for n in (1.5, 2.5):
    assert fx.jit(lambda x: np.sin(x) * n)(np.ones(3)).shape == (3,)
"""


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for place in ("/dev/null", str(tmp_path / "file")):
        done = run(PROGRAM, FXGRAD_CACHE_DIR=place)
        assert done.returncode == 0
        assert done.stderr.count("RuntimeWarning") == 1
        assert f"cannot keep compiled kernels in {place}" in done.stderr
        assert "FXGRAD_CACHE_DIR" in done.stderr
    assert run(PROGRAM, FXGRAD_CACHE_DIR=str(tmp_path / "good")).stderr == ""


CLEARING = """
import threading, sys
import numpy as np, fxgrad as fx
sys.setswitchinterval(1e-5)
problems, done = [], threading.Event()
def call():
    try:
        for n in range(3):
            fx.jit(lambda x: np.sin(x) * n + n)(np.ones(3))
    except BaseException as e:
        problems.append(repr(e))
    done.set()
thread = threading.Thread(target=call)
thread.start()
while not done.is_set():
    fx.clear_caches()
thread.join()
print(problems)
"""


@pytest.mark.slow
def test_clearing_while_another_thread_compiles_for_the_first_time(tmp_path: Path) -> None:
    run(PROGRAM, FXGRAD_CACHE_DIR=str(tmp_path / "warm"))
    done = run(CLEARING, FXGRAD_CACHE_DIR=str(tmp_path / "cleared"))
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
