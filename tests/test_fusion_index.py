"""Regions written in place, scalar programs, gathers and scatters: what runs, and that every way to run it has the same bits."""

from __future__ import annotations

import sys
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


def test_the_work_of_compiling_is_linear():
    """Counted in calls of Python functions, which no other load on the machine changes."""

    def calls(sweeps):
        program = fx.make_ir(fx.grad(sum_of(lambda x: gauss_seidel(x, sweeps))))(SQUARE)
        program.memo.clear()
        count = 0

        def note(frame, event, argument):
            nonlocal count
            count += event == "call"

        sys.setprofile(note)
        try:
            lower._compile(program, True)
        finally:
            sys.setprofile(None)
        return count

    calls(1)
    assert calls(8) < 4.4 * calls(2)


def test_slices_of_what_was_written_are_that():
    def f(x, u):
        y = put(x, u, slice(2, 5))
        y = put(y, u + 1.0, slice(6, 9))
        return y[2:5] * y[6:9] + y[10:13]

    names = [e.prim.name for e in flatten(fx.make_ir(f)(LINE, np.ones(3))).eqns]
    assert "update_slice" not in names


# ---- gathers ---------------------------------------------------------------------------------------------------------------

TABLE, FLAT = RNG.standard_normal((50, 40)), RNG.standard_normal(1000).astype(np.float32)
FEW, MANY = RNG.integers(-40, 40, (7, 9)), RNG.integers(-1000, 1000, 777)

GATHERS: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "rows": (lambda x, i: fnp.take(x, i, axis=0) * 2.0 + 1.0, TABLE, FEW),
    "columns": (lambda x, i: np.exp(fnp.take(x, i, axis=1)), TABLE, FEW),
    "computed index": (lambda x, i: fnp.take(x, (i * 3 + 1) % 1000) * 2.0, FLAT, MANY),
    "two indices": (lambda x, i: x[i, i % 40] * x[i, (i + 1) % 40] - 1.0, TABLE, FEW),
    "32 bits": (lambda x, i: fnp.take(x, i) * 2.0, FLAT, MANY.astype(np.int32)),
    "unsigned": (lambda x, i: fnp.take(x, i) * 2.0, FLAT, (MANY % 256).astype(np.uint8)),
    "unsigned 64": (lambda x, i: fnp.take(x, i) * 2.0, FLAT, (MANY % 999).astype(np.uint64)),
    "transposed": (lambda x, i: fnp.take(x.T, i, axis=0) * 2.0, TABLE, FEW),
    "computed array": (lambda x, i: fnp.take(x * x, i) * 2.0 + fnp.take(x, i), FLAT, MANY),
    "by what was gathered": (lambda x, i: fnp.take(x, fnp.take(i, i % 777) + 0) * 2.0, FLAT, MANY),
    "in pieces": (lambda x, i: np.concatenate([fnp.take(x, i) * 2.0, x[:5]]) * 3.0, FLAT, MANY),
    "then summed": (lambda x, i: np.sum(fnp.take(x, i, axis=0) * 2.0, axis=-1), TABLE, FEW),
    "written over": (lambda x, i: put(x * 2.0, fnp.take(x * 2.0, i) + 1.0, slice(0, 777)), FLAT, MANY),
    "booleans": (lambda x, i: fnp.take(x > 0, i) & (i > 0), FLAT, MANY),
    "nothing": (lambda x, i: fnp.take(x, i[:0]) * 2.0, FLAT, MANY),
    "along an axis": (lambda x, i: fnp.take_along_axis(x, i.reshape(-1)[None, :40] % 50, axis=0) + 1.0, TABLE, FEW),
}


@pytest.mark.parametrize("name", GATHERS)
def test_gathers_have_the_same_bits(name, use_threads, cut_finely):
    f, x, i = GATHERS[name]
    works = [work(name, f, x, i)]
    if name != "booleans":
        works.append(work(f"{name} gradient", fx.grad(lambda x, i: np.sum(f(x, i) ** 2)), x, i))
    check(works, use_threads)


def test_a_gather_is_one_kernel_with_its_index_and_what_follows():
    for name in ("rows", "computed index", "two indices", "32 bits"):
        f, x, i = GATHERS[name]
        assert [s.launch.kernel.form for s in compiled(f, x, i).steps] == ["map"], name
    rows_, other = compiled(*GATHERS["rows"]), compiled(*GATHERS["computed index"])
    assert "b: i64 index" in rows_.text and "b: f32 indirect" in other.text
    assert rows_.text == compiled(GATHERS["rows"][0], RNG.standard_normal((5, 16)), FEW[:2] % 5).text  # no sizes in kernels


@pytest.mark.parametrize("wrong", [1000, -1001, 2**62, -(2**62)])
@pytest.mark.parametrize("place", [0, 5, 776])
def test_index_out_of_bounds_in_a_kernel(wrong, place):
    def f(x, i):
        return fnp.take(x, i) * 2.0

    i = MANY.copy()
    i[place] = wrong
    step = fx.jit(f)
    step(FLAT, MANY)
    with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for axis 0 with size 1000") as found:
        step(FLAT, i)
    assert "test_fusion_index.py" in str(found.value)
    with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for axis 0 with size 1000"), fx.disable_jit():
        step(FLAT, i)
    assert_same_bits(step(FLAT, MANY), np.take(FLAT, MANY) * np.float32(2))


def test_which_of_two_index_arrays_is_wrong():
    step = fx.jit(lambda x, i, j: x[i, j] * 2.0)
    i, j = np.array([1, 2, 49]), np.array([3, 39, 40])
    with pytest.raises(IndexError, match="index 40 is out of bounds for axis 1 with size 40"):
        step(TABLE, i, j)
    with pytest.raises(IndexError, match="index 50 is out of bounds for axis 0 with size 50"):
        step(TABLE, i + 1, j - 1)


# ---- tiles -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(64, 512), (70, 1024), (80, 1000), (3, 64, 576), (521, 521)])
def test_transposed_reads_go_in_tiles(shape, use_threads, cut_finely):
    x, y = RNG.standard_normal(shape), RNG.standard_normal((*shape[:-2], shape[-1], shape[-2]))
    check([work(f"{shape}", lambda x, y: np.swapaxes(y, -1, -2) * 2.0 + x, x, y)], use_threads)


def test_a_tile_is_as_wide_as_the_length_allows():
    def plan_of(n):
        (launch,) = compiled(lambda x, y: y.T + x, np.zeros((128, n)), np.zeros((n, 128))).steps[0].launches
        return launch.plan[2:8].tolist()  # rows, their dimensions, elements of a row, 0, sizes

    assert plan_of(1024) == [16 * 128, 2, 64, 0, 16, 128]
    assert plan_of(1040) == [65 * 128, 2, 16, 0, 65, 128]  # whole vectors before wider tiles
    assert plan_of(1021)[:4] == [128, 1, 1021, 0]  # a prime: row by row
