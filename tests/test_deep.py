"""Programs of 100,000 chained operations: nothing recurses or overflows the stack.

All of it runs in one process of its own with a low recursion limit, so that a recursion anywhere is an error here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import gc, sys, weakref
import numpy as np
import fxgrad as fx

N, SECOND = 100_000, 10_000
sys.setrecursionlimit(220)
x = np.array([0.5, 0.25])


def chain(n):
    def f(x):
        y = x
        for _ in range(n // 2):
            y = y * 1.00001 + 1e-6
        return y
    return f


def total(n):
    return lambda x: np.sum(chain(n)(x))


def expected(n):
    y, slope = x.copy(), 1.0
    for _ in range(n // 2):
        y, slope = y * 1.00001 + 1e-6, slope * 1.00001
    return y, slope


value, slope = expected(N)
same = np.testing.assert_array_equal
close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9)

program = fx.make_ir(chain(N))(x)
assert len(program.eqns) == N

y, pullback = fx.vjp(chain(N), x)
same(y, value)
close(pullback(np.ones(2))[0], np.full(2, slope))
close(fx.grad(total(N))(x), np.full(2, slope))
close(fx.jvp(chain(N), (x,), (np.ones(2),))[1], np.full(2, slope))
y, f_jvp = fx.linearize(chain(N), x)
close(f_jvp(np.ones(2)), np.full(2, slope))
same(fx.vmap(chain(N))(np.stack([x, x]))[1], value)
close(fx.grad(fx.checkpoint(total(N)))(x), np.full(2, slope))
assert int(fx.grad(lambda x: np.sum(x) * int(np.sum(chain(N)(x)) > 0))(x)[0]) == 1


def cubic(x):
    y = x
    for _ in range(SECOND // 3):
        y = y + 1e-5 * y * y
    return np.sum(y)


unit, e = np.array([1.0, 0.0]), 1e-5
gradient = fx.grad(cubic)
forward = fx.hvp(cubic, (x,), (unit,))
reverse = fx.grad(lambda x: gradient(x)[0])(x)
difference = (gradient(x + e * unit) - gradient(x - e * unit)) / (2 * e)
close(forward, reverse)
assert forward[1] == 0 and abs(difference[0] / forward[0] - 1) < 1e-6

text = str(program)
assert fx.parse_ir(text) == program and len(text) > N * 10
assert len(program.content_hash()) == 64 and hash(program) == hash(fx.parse_ir(text))

# chains of objects that hold each other are freed without recursion: programs, tracers, residuals
alive = weakref.ref(program)
stash = []
fx.grad(lambda x: (stash.append(chain(N)(x)), np.sum(stash[-1]))[1])(x)
del program, stash, y, f_jvp, pullback
fx.clear_caches()
gc.collect()
assert alive() is None
wide = lambda x: sum((x * k for k in range(5000)), 0.0 * x)
close(fx.grad(lambda x: np.sum(wide(x)))(x), np.full(2, 12497500.0))
print("OK")
"""


@pytest.mark.slow
def test_a_hundred_thousand_operations(tmp_path: Path) -> None:
    environment = {**os.environ, "FXGRAD_CACHE_DIR": str(tmp_path)}  # the script clears it
    command = [sys.executable, "-W", "error", "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and done.stdout.endswith("OK\n"), done.stdout + done.stderr[-3000:]
