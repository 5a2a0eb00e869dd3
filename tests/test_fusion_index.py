"""Regions written in place, scalar programs, gathers and scatters: what runs, and that every way to run it has the same bits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.compile import lower
from fxgrad.compile.inline import flatten
from fxgrad.primitives.update import update_slice
from fxgrad.testing.bits import assert_same_bits
from tests.works import check, work

RNG = np.random.default_rng(0)
SQUARE, LINE = RNG.standard_normal((20, 20)), RNG.standard_normal(37)


def put(x: Any, u: Any, *index: Any) -> Any:
    """x[index] = u, as a value."""
    parts = [i if isinstance(i, slice) else slice(i, i + 1) for i in index]
    bounds = [p.indices(n) for p, n in zip(parts, x.shape, strict=False)] + [(0, n, 1) for n in x.shape[len(parts) :]]
    shape = tuple(len(range(*b)) for b in bounds)
    u = fnp.asarray(u, x.dtype)
    u = fnp.reshape(u, shape) if u.size == np.prod(shape) else fnp.broadcast_to(u, shape)
    start, stop, step = (tuple(b[k] for b in bounds) for k in range(3))
    return update_slice(x, u, start=start, stop=tuple(max(a, b) for a, b in zip(start, stop, strict=True)), step=step)


def jacobi(y):
    for _ in range(3):
        y = put(y, (y[:-2, 1:-1] + y[2:, 1:-1] + y[1:-1, :-2] + y[1:-1, 2:]) * 0.25, slice(1, -1), slice(1, -1))
    return y


def rows(x):
    y = put(fnp.zeros((20, x.size), x.dtype), x, 0)
    for i in range(1, 20):
        y = put(y, np.sin(y[i - 1]) * x, i)
    return y


def red_black(y):
    n = y.shape[0]
    for _ in range(2):
        for a, b in ((1, 1), (1, 2), (2, 1), (2, 2)):
            rows_, columns = slice(a, n - 1, 2), slice(b, n - 1, 2)
            count = len(range(a, n - 1, 2))
            new = (y[a - 1 :: 2, columns][:count] + y[a + 1 :: 2, columns][:count]) * 0.5
            y = put(y, new, rows_, columns)
    return y


def through_a_transpose(x):
    z = put((x * 2.0).T, x.T[1:3] + 1.0, slice(1, 3))
    return z.T * 3.0, z


def shifted_onto_itself(x):
    y = x * 2.0
    return put(y, y[0:5] + y[1:6], slice(1, 6))


def old_value_later(x):
    y = x * 2.0
    z = put(y, x[:3], slice(0, 3))
    return z, y * np.sum(z)


def twice_from_one(x):
    y = x * 2.0
    return put(y, x[0], 0) + put(y, x[1], 1)


def padded_into(x):
    return put(x * 2.0, np.pad(x[1:5, 1:5], 1) * 3.0, slice(2, 8), slice(2, 8))


def with_a_reduction(x):
    y = x * 1.0
    for i in range(1, 6):
        y = put(y, np.sum(y[i - 1] * y[i]), i, 3)
    return y


def gauss_seidel(x, sweeps=2):
    x = x * 1.5
    for _ in range(sweeps):
        for i in range(1, 7):
            for j in range(1, 7):
                x = put(x, (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]) * 0.25, i, j)
    return x


def recurrence(x):
    y = x * 1.0
    for i in range(2, x.size):
        y = put(y, np.tanh(y[i - 1]) * y[i - 2] + np.where(y[i] > 0, y[i], x[0]), i)
    return y


def old_elements(x):
    """Elements are read of the array that was before they were written."""
    y = z = x * 2.0
    for i in range(1, 9):
        z = put(z, y[i - 1] + z[i - 1], i)
    return z


def sum_of(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: sum(np.sum(r * r) for r in fx.tree.leaves(f(x)))


IN_PLACE: dict[str, tuple[Callable[..., Any], Any]] = {
    "jacobi": (jacobi, SQUARE),
    "rows": (rows, LINE),
    "red black": (red_black, SQUARE),
    "through a transpose": (through_a_transpose, SQUARE),
    "shifted onto itself": (shifted_onto_itself, SQUARE),
    "old value later": (old_value_later, SQUARE),
    "twice from one": (twice_from_one, SQUARE),
    "padded into": (padded_into, SQUARE),
    "with a reduction": (with_a_reduction, SQUARE),
    "gauss seidel": (gauss_seidel, SQUARE),
    "recurrence": (recurrence, LINE),
    "old elements": (old_elements, LINE),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_same_bits(name, use_threads, cut_finely):
    f, x = IN_PLACE[name]
    signs = np.where(np.arange(x.size).reshape(x.shape) % 3 == 0, -0.0, x)
    single = x.astype(np.float32)
    kinds = {"": x, "with -0": signs, "single": single}
    check([work(f"{name} {kind}", g, y) for kind, y in kinds.items() for g in (f, fx.grad(sum_of(f)))], use_threads)


@pytest.mark.parametrize("name", IN_PLACE)
def test_with_memory_of_its_own(name):
    f, x = IN_PLACE[name]
    w = work(name, fx.grad(sum_of(f)), x)
    for fusion in (True, False):
        assert_same_bits(lower._compile(w.program, fusion, reuse=False)(*w.arrays), w.answer)
        assert_same_bits(lower._compile(w.program, fusion, [len(w.arrays) - 1])(*w.program.consts, x.copy()), w.answer)


def compiled(f: Callable[..., Any], *args: Any) -> lower.Executable:
    return lower._compile(fx.make_ir(f)(*args), True)


def test_rows_are_written_in_place():
    few, many = compiled(rows, LINE), compiled(rows, np.zeros(3700))
    assert len(few.steps) == 3  # zeros, and two kernels for the rows
    assert many.bytes_written == 3700 * 8 * 41  # zeros and each row, once; a row that the second kernel needs again
    assert few.text == many.text


def test_stencil_is_a_kernel_and_a_copy_a_step():
    steps = compiled(jacobi, SQUARE).steps
    assert [s.title for s in steps] == ["copy", "add add add mul"] * 3
    assert all("copies" in s.why[0] for s in steps[::2])


def test_colours_are_in_place():
    assert [s.title for s in compiled(red_black, SQUARE).steps] == ["copy", "add mul add mul"] + ["add mul"] * 6


def test_small_region_read_elsewhere_is_put_aside():
    big = np.zeros((1000, 20))
    executable = compiled(shifted_onto_itself, big)
    assert [s.title for s in executable.steps] == ["mul", "add", "copy"]
    assert executable.steps[1].why == ["the kernel reads other places of what it updates"]
    assert executable.bytes_written == big.nbytes + 2 * 5 * 20 * 8


def test_elements_are_one_kernel():
    assert [s.launch.kernel.form for s in compiled(gauss_seidel, SQUARE).steps] == ["map", "tape"]
    steps = compiled(fx.grad(sum_of(gauss_seidel)), SQUARE).steps
    assert sum(s.launch.kernel.form == "tape" for s in steps) == 2
    assert len(steps) <= 8


def test_cost_of_writing_elements_does_not_depend_on_the_array():
    def f(x):
        for i in range(400):
            x = put(x, x[i] * 2.0, i)
        return x

    small, large = (compiled(lambda x: f(x * 1.0), np.zeros(n)) for n in (400, 400_000))
    assert len(large.steps) == 2
    assert large.bytes_written - small.bytes_written == 8 * (400_000 - 400)


def test_compile_time_is_linear():
    def seconds(sweeps):
        program = fx.make_ir(fx.grad(sum_of(lambda x: gauss_seidel(x, sweeps))))(SQUARE)
        program.memo.clear()
        start = time.process_time()
        lower._compile(program, True)
        return time.process_time() - start

    seconds(1)
    assert seconds(12) < 8 * seconds(3)


def test_slices_of_what_was_written_are_that():
    def f(x, u):
        y = put(x, u, slice(2, 5))
        y = put(y, u + 1.0, slice(6, 9))
        return y[2:5] * y[6:9] + y[10:13]

    names = [e.prim.name for e in flatten(fx.make_ir(f)(LINE, np.ones(3))).eqns]
    assert "update_slice" not in names
