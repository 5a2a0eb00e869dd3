"""The team of threads: the same bits with any number, many callers at once, fork, exit, signals, settings."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import fxgrad as fx
from fxgrad import errors
from fxgrad.runtime import team
from fxgrad.runtime.table import OWNER, TEAM
from fxgrad.testing.bits import assert_same_bits
from tests.four_parts import assert_four_parts, raised

ROOT = Path(__file__).resolve().parent.parent


def floats(*shape, dtype="f4", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def block(x, w, g):
    """Products, row statistics, maps."""
    h = np.tanh(x @ w)
    centred = h - np.mean(h, axis=-1, keepdims=True)
    return softmax(centred * g / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5))


CASES = {
    "map": (lambda a, b: np.maximum(a * b + 1, 0), (floats(333_333), floats(333_333, seed=1))),
    "map of rows": (lambda a, b: np.exp(a) * b, (floats(700, 501), floats(501, seed=1))),
    "transposed": (lambda a: a.T * 2 + 1, (floats(700, 501),)),
    "sum": (lambda a: np.sum(a * a), (floats(1_000_003),)),
    "row sums": (lambda a: np.sum(np.exp(a), axis=1), (floats(900, 777),)),
    "column sums": (lambda a: np.sum(a * a, axis=0), (floats(900, 777),)),
    "middle": (lambda a: np.max(a, axis=1), (floats(40, 50, 600),)),
    "softmax": (softmax, (floats(500, 400),)),
    "products": (block, (floats(300, 200), floats(200, 500, seed=1), floats(500, seed=2))),
    "batched product": (lambda a, b: a @ b, (floats(12, 70, 90), floats(12, 90, 110, seed=1))),
    "copies": (lambda a: (a, a.T, a[::2], a.reshape(-1)), (floats(700, 501),)),
    "gradient": (fx.grad(lambda w, x, g: np.sum(block(x, w, g) ** 2)), (floats(200, 500), floats(300, 200), floats(500))),
}


@pytest.mark.parametrize("case", CASES)
def test_the_number_of_threads_changes_no_bit(case, use_threads):
    f, args = CASES[case]
    jitted, results = fx.jit(f), []
    for n in (1, 2, 3, 8):
        use_threads(n)
        results.append((jitted(*args), f(*args) if n in (1, 3) else None))
    for compiled, eager in results:
        assert_same_bits(compiled, results[0][0])
        if eager is not None and case in ("sum", "products", "softmax"):
            assert_same_bits(fx.jit(f)(*args), compiled)


def test_large_eager_operations_use_the_team(use_threads):
    x = floats(400_000)
    found = []
    for n in (1, 2, 5):
        use_threads(n)
        found.append(fx.numpy.tanh(x))
        assert bool(team.settings[TEAM]) == (n > 1)
    assert_same_bits(found[1], found[0])
    assert_same_bits(found[2], found[0])


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_many_callers_at_once(threads, use_threads):
    """One has the team, the others run alone; all get the same."""
    use_threads(threads)
    f, args = CASES["softmax"]
    jitted = fx.jit(f)
    want, wrong, barrier = jitted(*args), [], threading.Barrier(6)

    def call():
        barrier.wait()
        wrong.extend(not np.array_equal(jitted(*args), want) for _ in range(15))

    callers = [threading.Thread(target=call) for _ in range(6)]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    assert wrong and not any(wrong)
    assert not team.settings[TEAM] or not team._teams[-1].words[OWNER]


def test_the_number_may_change_while_others_compute(use_threads):
    f, args = CASES["softmax"]
    jitted = fx.jit(f)
    want, wrong, end = jitted(*args), [], threading.Event()

    def call():
        while not end.is_set():
            wrong.append(not np.array_equal(jitted(*args), want))

    callers = [threading.Thread(target=call) for _ in range(2)]
    for t in callers:
        t.start()
    for n in [1, 2, 3, 4] * 10:
        use_threads(n)
        assert np.array_equal(jitted(*args), want)
    end.set()
    for t in callers:
        t.join()
    assert wrong and not any(wrong)
    use_threads(1)
    use_threads(2)
    assert len(team._teams) <= 2


def test_small_work_wakes_nobody(use_threads):
    use_threads(1)
    use_threads(2)
    f = fx.jit(lambda x: np.tanh(x) * 2)
    for n in (1, 10, 1000, 8000):
        f(floats(n))
    assert not team.settings[TEAM]
    f(floats(300_000))
    assert team.settings[TEAM]


# ---- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux" or team.cores() < 2, reason="a worker moves where there are cores, and only on Linux")
def test_a_worker_leaves_the_callers_core(use_threads):
    """Both are put on one core, then on another, until the worker goes to the one it left before; no bit changes."""
    cores = sorted(os.sched_getaffinity(0))
    use_threads(2)
    f, x = fx.jit(lambda x: np.tanh(x) * 2), floats(300_000)
    expected, (thread,) = f(x), team._teams[-1].threads
    worker, end = thread.native_id, time.monotonic() + 20
    here, other = cores[:2]
    try:
        while time.monotonic() < end:
            here, other = other, here
            for one in (0, worker):
                os.sched_setaffinity(one, {here})
            for _ in range(20):
                assert_same_bits(f(x), expected)
            if os.sched_getaffinity(worker) != {here}:
                break
    finally:
        os.sched_setaffinity(0, cores)
    assert os.sched_getaffinity(worker) == {other}


def test_settings(use_threads):
    use_threads(3)
    assert fx.get_num_threads() == 3
    use_threads(np.int64(2))
    assert fx.get_num_threads() == 2
    for wrong in (0, -1, 1.5, True, "2", None, 100_000):
        error = raised(lambda: fx.set_num_threads(wrong), errors.FxValueError)  # type: ignore[arg-type]
        assert_four_parts(error, what=repr(wrong), line="fx.set_num_threads(wrong)", why="integer from 1 to", fix="fx.set_num")
    assert fx.get_num_threads() == 2


def script(code, threads="2", timeout=60, **options):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "FXGRAD_NUM_THREADS": threads}
    head = "import numpy as np, fxgrad as fx\n"
    command = [sys.executable, "-W", "error", "-c", head + code]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False, **options)


def test_the_environment_sets_the_number():
    assert script("print(fx.get_num_threads())", "5").stdout == "5\n"
    cores = len(os.sched_getaffinity(0))
    found = int(script("print(fx.get_num_threads())", "").stdout)
    assert 1 <= found <= cores
    for wrong in ("two", "0", "1.5", "-3"):
        done = script("fx.jit(lambda x: x + 1)(np.ones(3))", wrong)
        assert done.returncode == 1 and "FxValueError: the environment variable FXGRAD_NUM_THREADS is" in done.stderr


def test_cores_respects_a_quota(monkeypatch):
    allowed = len(os.sched_getaffinity(0))
    monkeypatch.setattr(team, "_quota", lambda: 0.5)
    assert team.cores() == 1
    monkeypatch.setattr(team, "_quota", lambda: 1000.0)
    assert team.cores() == allowed
    monkeypatch.setattr(team, "_quota", lambda: None)
    assert team.cores() == allowed


# ---- processes ---------------------------------------------------------------------------------------------------------

WORK = """
x = np.linspace(-1, 1, 600_000, dtype="f4")
f = fx.jit(lambda x: np.tanh(x) * np.exp(x) + np.sum(x))
want = f(x)
same = lambda: np.array_equal(f(x), want)
"""


@pytest.mark.parametrize("threads", ["2", "4"])
def test_forked_children_make_their_own_team(threads):
    code = (
        WORK
        + """
import os
from fxgrad.runtime import team
for generation in range(3):
    assert same() and team.settings[0]
    child = os.fork()
    if child == 0:
        assert not team.settings[0]
        ok = same() and team.settings[0] and all(t.is_alive() for t in team._teams[-1].threads)
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(0 if same() else 1)
        ok = ok and os.waitpid(grandchild, 0)[1] == 0 and same()
        os._exit(0 if ok else 1)
    assert same()
    assert os.waitpid(child, 0)[1] == 0
print("fine")
"""
    )
    done = script(code, threads)
    assert done.stdout == "fine\n", done.stderr


def test_fork_while_the_team_works():
    code = (
        WORK
        + """
import os, threading
end = threading.Event()
def work():
    while not end.is_set():
        assert same()
other = threading.Thread(target=work)
other.start()
children = []
for _ in range(8):
    child = os.fork()
    if child == 0:
        os._exit(0 if all(same() for _ in range(3)) else 1)
    children.append(child)
ok = all(os.waitpid(c, 0)[1] == 0 for c in children)
end.set()
other.join()
print("fine" if ok and same() else "wrong")
"""
    )
    done = script(code)
    assert done.stdout == "fine\n", done.stderr


@pytest.mark.parametrize("busy", [False, True])
def test_interpreter_exit(busy):
    """With workers asleep; and with another thread inside a call."""
    code = WORK + "assert same()\n"
    if busy:
        code += """
import threading, time
def work():
    while True:
        same()
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""
    for _ in range(3):
        done = script(code + "print('end')")
        assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


LONG = """
import os, signal, threading, time
def f(x):
    for _ in range(400):
        x = np.tanh(np.exp(np.sin(x) * 0.5)) + np.sum(x) * 1e-9
    return x
f = fx.jit(f)
x = np.linspace(-1, 1, 400_000, dtype="f4")
start = time.perf_counter()
want = f(x)
start = time.perf_counter()
assert np.array_equal(f(x), want)
whole = time.perf_counter() - start
"""


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "2", "3"])
def test_an_interrupt_ends_a_long_call(threads):
    code = (
        LONG
        + """
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in a shell's background inherits that it is ignored
for _ in range(3):
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    start = time.perf_counter()
    timer.start()
    try:
        while True:
            f(x)
    except KeyboardInterrupt:
        took = time.perf_counter() - start
    timer.join()
    assert took < 0.1 + max(0.6, 0.5 * whole), (took, whole)
    assert np.array_equal(f(x), want)
print("fine")
"""
    )
    done = script(code, threads, timeout=200)
    assert done.stdout == "fine\n", done.stderr


@pytest.mark.slow
def test_signals_with_handlers_that_return_do_no_harm():
    code = (
        LONG
        + """
count = 0
def tick(*_):
    global count
    count += 1
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
for _ in range(3):
    assert np.array_equal(f(x), want)
signal.setitimer(signal.ITIMER_REAL, 0)
print("fine", count > 2)
"""
    )
    done = script(code, "3", timeout=200)
    assert done.stdout == "fine True\n", done.stderr


@pytest.mark.slow
def test_other_python_threads_run_meanwhile():
    """A long call does not hold the GIL."""
    code = (
        LONG
        + """
ticks = 0
def count():
    global ticks
    while not end.is_set():
        ticks += 1
        time.sleep(0.001)
end = threading.Event()
other = threading.Thread(target=count)
other.start()
before = ticks
f(x)
during = ticks - before
end.set()
other.join()
print("fine" if during > 20 * min(1, whole) else during)
"""
    )
    done = script(code, "2", timeout=200)
    assert done.stdout == "fine\n", done.stderr
