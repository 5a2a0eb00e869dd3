"""What compilation costs: literals, kernels compiled once, the cache on disk, in memory and between processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fxgrad as fx
from fxgrad.compile import cache, lower, store
from fxgrad.compile.cache import Recent
from fxgrad.compile.lower import compile_program
from fxgrad.config import config
from fxgrad.primitives import elementwise as E
from fxgrad.primitives import reduce as R
from fxgrad.primitives import shape as S
from fxgrad.primitives import transcendental as T
from fxgrad.runtime.eager import evaluate, run_program
from fxgrad.testing.bits import assert_same_bits
from tests.test_compile import floats, traced

# ---- literals ------------------------------------------------------------------------------------------------------------

VALUES = {
    "f4": (2.0, 0.0, -0.0, 1.0, -0.5, 3.0, np.inf, -np.inf, np.nan, 1e-45, 2.0**-126, 2.0**127, 3e38),
    "f8": (2.0, 0.0, -0.0, 1.0, -0.5, 3.0, np.inf, -np.inf, np.nan, 5e-324, 2.0**-1022, 2.0**1023, 1e308),
    "i1": (5, 0, 1, -1, 7, -128), "i2": (-300, 0, 7), "i4": (5, 0, -(2**31)), "i8": (3, 0, -(2**63)),
    "u1": (7, 0, 255), "u8": (9, 0, 2**64 - 1),
}  # fmt: skip


def literal_program(value, x):
    """Literals in every place one can stand: operands, results, what is reduced, an epilogue."""

    def f(x):
        full = S.broadcast(value, shape=x.shape, dims=())
        big = E.gt(x, value)
        picked = E.select(big, value, x)
        total = E.mul(R.max_(E.add(x, value), axes=(0,)), value)
        return [E.add(E.mul(x, value), value), picked, total, R.max_(full, axes=(1,)), E.or_(big, np.bool_(True))]

    return traced(f, x)


@pytest.mark.parametrize("dtype", VALUES)
def test_another_literal_compiles_nothing_and_changes_no_bit(dtype):
    x = (np.arange(-30, 30).reshape(3, 20) % 100).astype(dtype)
    for i, value in enumerate(VALUES[dtype]):
        program = literal_program(np.dtype(dtype).type(value), x)
        want, before = run_program(program, [x]), len(cache.generated)
        assert_same_bits(compile_program(program)(x), want)
        if i and value not in (0, 1, -1):  # x+(-0.0), x*1 and the like are simplified away: another program
            assert len(cache.generated) == before


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_division_by_any_literal(dtype):
    values = [*VALUES[dtype], 1.0, 0.25, -(2.0**-100), 2.0**100, 7.0, 2.0 ** (-1 - np.finfo(dtype).maxexp)]
    x = np.concatenate(
        [np.asarray(VALUES[dtype], dtype), floats(30, dtype=dtype), np.finfo(dtype).tiny * floats(30, dtype=dtype)]
    )
    for value in values:
        (got,) = compile_program(traced(lambda x: [E.div(x, x.dtype.type(value))], x))(x)
        with np.errstate(all="ignore"):
            assert_same_bits(got, x / x.dtype.type(value), f"/ {value}")


def test_integers_divided_by_a_literal():
    x = np.arange(-40, 40, dtype=np.int32)
    for c in (7, -3, 8, 1, -1, 0):
        program = traced(lambda x: [E.floordiv(x, np.int32(c)), E.rem(x, np.int32(c))], x)
        with np.errstate(all="ignore"):
            assert_same_bits(compile_program(program)(x), [x // np.int32(c), x % np.int32(c)])


def test_rebinding_a_captured_number_compiles_nothing():
    rate = 0.125
    step = fx.jit(lambda w, g: w - rate * g)
    w, g = floats(64), floats(64, seed=1)
    step(w, g)
    before = len(cache.generated)
    for rate in (0.25, 1e-3, 3.0):
        assert_same_bits(step(w, g), w - np.float32(rate) * g)
    assert len(cache.generated) == before


# ---- kernels are compiled once -------------------------------------------------------------------------------------------


def test_identical_kernels_are_generated_once():
    x = floats(123)
    f = lambda x: [E.mul(T.exp(E.neg(x)), np.float32(1.2345))]  # noqa: E731
    compile_program(traced(f, x))(x)
    before = len(cache.generated)
    compile_program(traced(f, floats(77)))(floats(77))
    compile_program(traced(f, floats(11, 7)))(floats(11, 7))
    assert len(cache.generated) == before


def test_regions_of_one_structure_in_a_program_are_one_kernel():
    x = floats(64, 3)
    program = traced(
        lambda x: [R.sum_(T.cosh(S.slice_(x, start=(0, i), stop=(64, i + 1), step=(1, 1))), axes=(0, 1)) for i in range(3)], x
    )
    before = len(cache.generated)
    compile_program(program)(x)
    assert len(cache.generated) - before <= 1


def test_compiled_programs_of_one_operation_share_the_kernel_of_eager_evaluation():
    x = floats(50)
    (want,) = evaluate(T.expm1, [x], {})
    before = len(cache.generated)
    assert_same_bits(compile_program(traced(lambda x: [T.expm1(x)], x))(x)[0], want)
    assert len(cache.generated) == before


def test_another_size_compiles_nothing():
    """Also where one of the sizes is a power of two, by which a mean divides with a product."""
    loss = fx.jit(fx.value_and_grad(lambda w, x: np.mean(np.tanh(x @ w) ** 2)))
    w = floats(8, 5)
    loss(w, floats(16, 8))
    before = len(cache.generated)
    results = [loss(w, floats(n, 8)) for n in (12, 7, 32, 33)]
    assert len(cache.generated) == before
    with fx.disable_jit():
        assert_same_bits(results, [loss(w, floats(n, 8)) for n in (12, 7, 32, 33)])


def test_memory_of_programs_is_bounded():
    recent = Recent(3)
    for i in range(5):
        recent[i] = -i
        assert recent.get(min(i, 2)) is not None
    assert list(recent) == [3, 4, 2] and recent.get(0) is None
    assert lower._executables.limit >= 256


# ---- on disk -------------------------------------------------------------------------------------------------------------

SCRIPT = """
import sys
import numpy as np
from fxgrad.compile import cache, store
from fxgrad.compile.lower import compile_program
from fxgrad.ir.types import aval_of
from fxgrad.primitives import elementwise as E, reduce as R, transcendental as T
from fxgrad.runtime.eager import evaluate
from fxgrad.trace.tracing import build
x = np.linspace(-1, 1, 100).astype("f4")
program = build([aval_of(x)], lambda x: [E.mul(T.log1p(x * x), x), R.sum_(E.mul(x, x), axes=(0,))])
y, s = compile_program(program)(x)
z = evaluate(E.lin_mul, [x, x], {})[0]
print(len(cache.generated), "numba" in sys.modules, y.tobytes().hex()[:64], s, float(z.sum()))
"""

MANY = """
import sys, numpy as np
from fxgrad.compile import cache, store
from fxgrad.compile.lower import compile_program
from fxgrad.ir.types import aval_of
from fxgrad.primitives import elementwise as E
from fxgrad.trace.tracing import build
from fxgrad.runtime.eager import evaluate, run_program
x = np.linspace(-1, 1, 40)
def chain(x, n):
    for i in range(n):
        x = E.add(E.mul(x, x), x) if n >> i & 1 else E.sub(x, E.abs_(x))
    return x
start, stop = map(int, sys.argv[1:])
for n in range(start, stop):
    program = build([aval_of(x)], lambda x: [chain(x, n)])
    assert compile_program(program)(x)[0].tobytes() == run_program(program, [x])[0].tobytes()
print(len(cache.generated))
"""


def environment(directory, **more):
    root = str(Path(__file__).resolve().parent.parent)
    return {**os.environ, "FXGRAD_CACHE_DIR": str(directory), "PYTHONPATH": root, **more}


def run_process(directory, script=SCRIPT, *args, warnings="error", **more):
    command = [sys.executable, "-W", warnings, "-c", script, *args]
    done = subprocess.run(command, env=environment(directory, **more), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def stored(directory):
    return [p for p in directory.rglob("[kun]_*") if p.is_file()]


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    """What a process with an empty cache says, and its cache."""
    directory = tmp_path_factory.mktemp("cache")
    return run_process(directory), directory


@pytest.mark.slow
def test_second_process_generates_nothing_and_needs_no_numba(answer):
    (count, _, *values), directory = answer
    assert int(count) == 3
    assert run_process(directory) == ["0", "False", *values]


@pytest.mark.slow
@pytest.mark.parametrize("damage", [lambda b: b[:-7], lambda b: b"", lambda b: b[:90] + b"XXXX" + b[94:], lambda b: b + b"\0"])
@pytest.mark.parametrize("files", ["u_*", "k_*", "n_*"])
def test_damage_is_found_and_repaired(answer, tmp_path, files, damage):
    (_, _, *values), directory = answer
    shutil.copytree(directory, tmp_path / "cache")
    paths = [p for p in stored(tmp_path) if p.match(files)]
    assert paths
    for path in paths:
        path.write_bytes(damage(path.read_bytes()))
    count, numba, *again = run_process(tmp_path / "cache")
    assert again == values and (int(count) > 0 or numba == "True")
    assert run_process(tmp_path / "cache") == ["0", "False", *values]


@pytest.mark.slow
def test_a_disk_that_takes_nothing_is_no_obstacle(answer, tmp_path):
    (_, _, *values), directory = answer
    told = "default"  # tests/test_config.py looks at the warning
    assert run_process("/proc/none", warnings=told)[2:] == values
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"  # every write fails, as on a full disk
    assert run_process(tmp_path, full + SCRIPT, warnings=told)[2:] == values
    assert not stored(tmp_path)
    assert run_process(directory, full + SCRIPT) == ["0", "False", *values]
    (tmp_path / "file").write_text("in the way")
    assert run_process(tmp_path / "file", warnings=told)[2:] == values


@pytest.mark.slow
def test_processes_may_race_and_die(tmp_path):
    """Some compile the same, some overlap, some are killed in the middle; what is left is whole."""
    ranges = [("1", "9"), ("1", "9"), ("5", "14"), ("3", "12")]
    command = [sys.executable, "-W", "error", "-c", MANY]
    running = [
        subprocess.Popen([*command, *r], env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for r in (*ranges, *ranges)
    ]
    doomed, others = running[: len(ranges)], running[len(ranges) :]
    deadline = time.monotonic() + 120
    for process, files in zip(doomed, (1, 4, 7, 10), strict=True):
        while len(stored(tmp_path)) < files and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        process.kill()
    for process in doomed:
        process.communicate(timeout=60)
    for process in others:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    assert run_process(tmp_path, MANY, "1", "14") == ["0"]


@pytest.mark.slow
def test_space_is_bounded_and_the_least_recently_used_goes(tmp_path):
    def size():
        return sum(p.stat().st_blocks * 512 for p in stored(tmp_path))

    run_process(tmp_path, MANY, "1", "5")
    first = set(stored(tmp_path))
    hour = time.time() - 3600
    for path in first:
        os.utime(path, (hour, hour))
    limit = 160_000
    run_process(tmp_path, MANY, "5", "14", FXGRAD_CACHE_SIZE=str(limit))
    run_process(tmp_path, MANY, "14", "22", FXGRAD_CACHE_SIZE=str(limit))
    assert size() <= limit * 17 // 16 + 8192
    assert not any(p.exists() for p in first if p.name.startswith("u_"))
    assert int(run_process(tmp_path, MANY, "1", "3")[0]) > 0
    run_process(tmp_path, MANY, "1", "22", FXGRAD_CACHE_SIZE="1")  # no room at all


def test_environments_nobody_uses_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "cache_dir", str(tmp_path))
    old, recent, foreign = (tmp_path / name for name in ("0" * 24, "1" * 24, "photos"))
    for path in (old, recent, foreign):
        path.mkdir()
        (path / "used").touch()
        (path / "u_x").write_bytes(b"data")
    month = time.time() - 40 * 86400
    for path in (old, foreign):
        os.utime(path / "used", (month, month))
    torn = store.cache_directory() / ".tmp-torn"
    torn.write_bytes(b"half")
    os.utime(torn, (month, month))
    monkeypatch.setattr(store, "_written", 0)
    store.write("k_test", b"something")
    assert store.read("k_test") == b"something"
    assert not old.exists() and not torn.exists() and (recent / "u_x").exists() and (foreign / "u_x").exists()
    store.discard("k_test")
    assert store.read("k_test") is None


def test_clearing_the_caches_leaves_executables_in_use_valid(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "cache_dir", str(tmp_path))
    x = floats(50)
    program = traced(lambda x: [E.mul(T.asin(E.div(x, np.float32(9))), x)], x)
    compiled = compile_program(program)
    (want,) = compiled(x)
    assert stored(tmp_path)
    fx.clear_caches()
    assert not stored(tmp_path)
    assert_same_bits(compiled(x)[0], want)
    assert_same_bits(compile_program(traced(lambda x: [E.mul(T.asin(E.div(x, np.float32(9))), x)], x))(x)[0], want)
    assert stored(tmp_path)


@pytest.mark.slow
def test_a_child_forked_while_a_thread_compiles_can_compile(tmp_path):
    script = (
        MANY.replace("start, stop = map(int, sys.argv[1:])", "import os, threading, time")
        + """
"""
    )
    script = (
        script[: script.index("for n in range(start")]
        + """
def work(numbers):
    for n in numbers:
        program = build([aval_of(x)], lambda x: [chain(x, n)])
        assert compile_program(program)(x)[0].tobytes() == run_program(program, [x])[0].tobytes()
thread = threading.Thread(target=work, args=(range(1, 12),))
thread.start()
for i in range(6):
    time.sleep(0.02)
    child = os.fork()
    if child == 0:
        work(range(20 + i, 22 + i))
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
thread.join()
print("done")
"""
    )
    run_process(tmp_path, MANY, "1", "2")  # so that numba, which takes long, is done
    command = [sys.executable, "-c", script]  # without -W error: Python warns of forks beside threads
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.split() == ["done"], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["fxgrad.compile.lower", "fxgrad.runtime.launch", "fxgrad.runtime.executor"])
def test_a_child_forked_while_a_thread_compiles_the_executor_can_compile(tmp_path, moment):
    """The cache is empty; the thread is importing our modules, or numba works for it. The child has neither's locks."""
    script = f"""
import faulthandler, os, sys, threading, time
import numpy as np, fxgrad as fx, fxgrad.numpy as fnp
x = np.linspace(0, 1, 7)
def work(k):
    assert np.array_equal(fx.jit(lambda x: fnp.tanh(x) * x + k)(x), fnp.tanh(x) * x + k)
thread = threading.Thread(target=work, args=(1.0,))
thread.start()
while {moment!r} not in sys.modules:
    time.sleep(0.001)
assert thread.is_alive()
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(60, exit=True)
    work(2.0)
    os._exit(7)
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    command = [sys.executable, "-c", script]  # without -W error: Python warns of forks beside threads
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.split() == ["7"], done.stderr


def test_import_does_not_load_the_compiler():
    script = "import sys, fxgrad; print('numba' in sys.modules, 'llvmlite' in sys.modules)"
    assert run_process("/tmp", script) == ["False", "False"]
