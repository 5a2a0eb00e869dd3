"""Several processes: how many threads each uses, what other threads draw, and the example's engines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import fxgrad as fx
from tests.test_examples import run

ROOT = Path(__file__).resolve().parent.parent

CHILDREN = """
import multiprocessing as mp, os, sys
from concurrent.futures import ProcessPoolExecutor
import numpy as np
import fxgrad as fx
from fxgrad.runtime import team
team.cores = lambda: 4

x = np.ones(2_000_000, np.float32)
f = fx.jit(lambda x: np.tanh(x) * 2)

def used(_):
    team.cores = lambda: 4
    f(x)
    return fx.get_num_threads(), bool(team.settings[team.TEAM])

if __name__ == "__main__":
    f(x)
    found = [used(0)]
    for method in ("fork", "spawn"):
        with ProcessPoolExecutor(1, mp_context=mp.get_context(method)) as pool:
            found.append(pool.submit(used, 0).result())
    child = os.fork()
    if not child:
        os._exit(used(0) == (4, True))
    found.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    fx.set_num_threads(3)
    with ProcessPoolExecutor(1, mp_context=mp.get_context("fork")) as pool:
        found.append(pool.submit(used, 0).result())
    print(found)
"""


def test_children_of_multiprocessing_use_one_thread(tmp_path: Path) -> None:
    """Their siblings want the other cores. A child of a plain fork has none; a number that was asked for is kept."""
    script = tmp_path / "script.py"
    script.write_text(CHILDREN)
    env = {k: v for k, v in os.environ.items() if not k.endswith("NUM_THREADS")}
    env |= {"PYTHONPATH": str(ROOT), "FXGRAD_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, env=env, check=False)
    assert done.stdout.strip() == "[(4, True), (1, False), (1, False), 1, (3, True)]", done.stderr


@pytest.mark.parametrize(
    "ours, openmp, wanted",
    [("", "", 4), ("3", "1", 3), ("", "2", 2), ("", "1,4", 1), ("", "64", 4), ("6", "", 6), ("", "true", 4), ("", "0", 4)],
)
def test_variables_of_the_environment(monkeypatch: pytest.MonkeyPatch, ours: str, openmp: str, wanted: int) -> None:
    from fxgrad.runtime import team

    monkeypatch.setattr(team, "cores", lambda: 4)
    monkeypatch.setenv("FXGRAD_NUM_THREADS", ours)
    monkeypatch.setenv("OMP_NUM_THREADS", openmp)
    assert team._first() == wanted


def test_draws_of_other_threads_are_not_those_of_the_function() -> None:
    """A dask worker's event loop draws all the time: tracing was refused."""
    import random

    over, started = threading.Event(), threading.Event()

    def draw() -> None:
        while not over.is_set():
            random.random()
            started.set()

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        started.wait(10)
        for n in (3, 4):
            f = fx.jit(lambda x: fx.fori_loop(0, 3, lambda i, c: c * 2, np.sin(x)))
            np.testing.assert_array_equal(f(np.zeros(n)), np.zeros(n))
        for drawing in (random.random, lambda: random.gauss(0.0, 1.0), np.random.standard_normal):
            with pytest.raises(fx.errors.UnsupportedError, match="draws random numbers"):
                fx.jit(lambda x, drawing=drawing: x * drawing())(np.ones(2))
    finally:
        over.set()
        thread.join()
    assert sys.getprofile() is None


def test_the_bits_are_the_same_with_any_engine() -> None:
    """Of the parameters after data-parallel steps, and of a sweep; workers use one thread each."""
    code, out = run("scale_out.py", "--steps", "2", "--width", "16", "--workers", "2", "--sweep-steps", "2")
    assert code == 0, out
    assert "The same bits everywhere." in out
    lines = {line.split()[0]: line.split() for line in out.splitlines()}
    assert lines["dask"][1:3] == lines["joblib"][1:3] == ["2", "1"]
    assert re.fullmatch("[0-9a-f]{16}", lines["dask"][5])
