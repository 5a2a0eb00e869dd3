"""What compilation costs: literals, kernels compiled once, the cache on disk, in memory and between processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import fxgrad as fx
from fxgrad.compile import cache
from fxgrad.compile.lower import compile_program
from fxgrad.primitives import elementwise as E
from fxgrad.primitives import reduce as R
from fxgrad.primitives import shape as S
from fxgrad.primitives import transcendental as T
from fxgrad.runtime.eager import run_program
from fxgrad.testing.bits import assert_same_bits
from tests.test_compile import floats, traced

# ---- literals ------------------------------------------------------------------------------------------------------------

VALUES = {
    "f4": (0.0, -0.0, 2.0, -0.5, 3.0, np.inf, -np.inf, np.nan, 1e-45, 2.0**-126, 2.0**127, 3e38),
    "f8": (0.0, -0.0, 2.0, -0.5, 3.0, np.inf, -np.inf, np.nan, 5e-324, 2.0**-1022, 2.0**1023, 1e308),
    "i1": (0, 1, -1, 7, -128), "i2": (0, -300), "i4": (0, 5, -(2**31)), "i8": (0, 3, -(2**63)),
    "u1": (0, 255), "u8": (0, 2**64 - 1),
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
    generated = None
    for value in VALUES[dtype]:
        program = literal_program(np.dtype(dtype).type(value), x)
        assert_same_bits(compile_program(program)(x), run_program(program, [x]))
        if value not in (0, 1):  # these are simplified away
            assert generated is None or len(cache.generated) == generated
            generated = len(cache.generated)


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


# ---- the cache -------------------------------------------------------------------------------------------------------------

SCRIPT = """
import numpy as np
from fxgrad.compile import cache
from fxgrad.compile.lower import compile_program
from fxgrad.ir.types import aval_of
from fxgrad.primitives import elementwise as E, reduce as R, transcendental as T
from fxgrad.runtime.eager import evaluate
from fxgrad.trace.tracing import build
x = np.linspace(-1, 1, 100).astype("f4")
program = build([aval_of(x)], lambda x: [E.mul(T.log1p(x * x), x), R.sum_(E.mul(x, x), axes=(0,))])
y, s = compile_program(program)(x)
z = evaluate(E.lin_mul, [x, x], {})[0]
print(len(cache.generated), y.tobytes().hex()[:64], s, float(z.sum()), str(cache.cache_directory()).startswith({directory!r}))
"""


def run_process(directory, script=SCRIPT):
    env = {**os.environ, "FXGRAD_CACHE_DIR": str(directory), "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    script = script.replace("{directory!r}", repr(str(directory)))
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_second_process_loads_machine_code_and_damage_is_survived(tmp_path):
    count, *values, inside = run_process(tmp_path)
    assert int(count) == 3 and inside == "True"
    assert run_process(tmp_path) == ["0", *values, "True"]
    for damages in [
        {"*.nbc": lambda b: b[:300], "u_*.py": lambda b: b[:40]},
        {"*.nbc": lambda b: b[:4000] + b"XXXX" + b[4004:], "*.nbi": lambda b: b[:9]},
    ]:
        for pattern, damage in damages.items():
            for path in tmp_path.rglob(pattern):
                path.write_bytes(damage(path.read_bytes()))
        assert run_process(tmp_path)[1:] == [*values, "True"]
        assert run_process(tmp_path)[0] == "0"


@pytest.mark.slow
def test_processes_may_race_and_an_unwritable_directory_is_replaced(tmp_path):
    found: list = []
    threads = [threading.Thread(target=lambda: found.append(run_process(tmp_path))) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({tuple(f[1:]) for f in found}) == 1
    assert run_process(Path("/proc/none"))[1:] == [*found[0][1:-1], "False"]


def test_identical_kernels_are_generated_once():
    x = floats(123)
    f = lambda x: [E.mul(T.exp(E.neg(x)), np.float32(1.2345))]  # noqa: E731
    compile_program(traced(f, x))(x)
    before = len(cache.generated)
    compile_program(traced(f, floats(77)))(floats(77))
    compile_program(traced(f, floats(11, 7)))(floats(11, 7))
    assert len(cache.generated) == before


def test_clearing_the_caches_leaves_executables_in_use_valid(tmp_path, monkeypatch):
    from fxgrad.config import config

    monkeypatch.setattr(config, "cache_dir", str(tmp_path))
    x = floats(50)
    program = traced(lambda x: [E.mul(T.exp(x), np.float32(4.321))], x)
    compiled = compile_program(program)
    (want,) = compiled(x)
    cache.clear_caches()
    assert_same_bits(compiled(x)[0], want)
    assert_same_bits(compile_program(traced(lambda x: [E.mul(T.exp(x), np.float32(4.321))], x))(x)[0], want)


def test_import_does_not_load_the_compiler():
    script = "import sys, fxgrad; print('numba' in sys.modules, 'llvmlite' in sys.modules)"
    assert run_process("/tmp", script) == ["False", "False"]
