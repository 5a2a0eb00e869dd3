"""Kernels against NumPy: maps, the reduction tree in every layout, the recurrence, launching."""

from __future__ import annotations

import ctypes
import itertools
from functools import partial

import numpy as np
import pytest

import fxgrad as fx
from fxgrad.compile import single
from fxgrad.compile.cache import kernel_addresses
from fxgrad.compile.layout import Layout, apply_view, contiguous, map_plan
from fxgrad.compile.layout import Place as P
from fxgrad.ir.types import Lit, aval_of
from fxgrad.kernels import language
from fxgrad.kernels.scan import _numpy_recurrence, linear_recurrence
from fxgrad.kernels.spec import Kernel, Op, Operand
from fxgrad.primitives import elementwise as E
from fxgrad.primitives import reduce as R
from fxgrad.primitives import transcendental as T
from fxgrad.runtime import launch as native
from fxgrad.runtime.eager import evaluate, operation
from fxgrad.runtime.table import UNFIT
from fxgrad.runtime.tree import reduce_tree
from fxgrad.testing.bits import assert_same_bits

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
LAYOUTS = {
    "plain": lambda x: x,
    "reversed": lambda x: x[::-1] if x.ndim else x,
    "fortran": np.asfortranarray,
    "spread": lambda x: np.broadcast_to(x[:1], x.shape) if x.ndim else x,
    "gapped": lambda x: np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x,
}


def sample(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 3
    return np.asarray(x > 0 if np.dtype(dtype) == bool else x).astype(dtype)


# ---- reductions ----------------------------------------------------------------------------------------------------------

SHAPES = [(), (7,), (3, 0), (33,), (8193,), (5, 3), (50, 3), (33, 64), (6, 7, 11), (2, 8200, 3)]


def reductions(dtype):
    return (R.any_, R.all_, R.max_) if dtype == "?" else (R.sum_, R.prod, R.max_, R.min_)


@pytest.mark.parametrize(
    "layout,dtype",
    [*((layout, d) for layout in LAYOUTS for d in ("f4", "f8")), *(("plain", d) for d in ("i4", "i8", "u1", "?"))],
)
def test_reduction_is_the_documented_tree_in_every_layout(layout, dtype):
    for shape in SHAPES:
        x = LAYOUTS[layout](sample(shape, dtype))
        for r in range(len(shape) + 1):
            for axes in itertools.combinations(range(len(shape)), r):
                for prim in reductions(dtype):
                    if x.size == 0 and prim in (R.max_, R.min_):
                        continue
                    with np.errstate(all="ignore"):
                        want = reduce_tree(partial(prim.body, language), prim.identity(x.dtype), x, axes)
                    (got,) = evaluate(prim, [x], {"axes": axes})
                    assert_same_bits(got, want, f"{prim} of {dtype}{shape} over {axes}")


def test_sums_of_zeros_have_numpys_signs():
    for dtype in (F32, F64):
        for x in (np.full(5, -0.0, dtype), np.zeros(0, dtype), np.full((3, 4), -0.0, dtype), np.zeros((3, 0), dtype)):
            for axis in range(x.ndim):
                assert_same_bits(evaluate(R.sum_, [x], {"axes": (axis,)})[0], x.sum(axis))


def test_rows_of_a_matrix_sum_as_they_do_alone():
    x = sample((50, 777), "f4")
    (rows,) = evaluate(R.sum_, [x], {"axes": (1,)})
    (columns,) = evaluate(R.sum_, [np.ascontiguousarray(x.T)], {"axes": (0,)})
    alone = np.array([evaluate(R.sum_, [row], {"axes": (0,)})[0] for row in x])
    assert_same_bits(rows, alone)
    assert_same_bits(columns, alone)


def test_max_propagates_nan():
    x = sample((40, 40), "f8")
    x[3, 5] = np.nan
    assert np.isnan(evaluate(R.max_, [x], {"axes": (0, 1)})[0])
    assert np.isnan(evaluate(R.max_, [x], {"axes": (0,)})[0]).tolist() == [i == 5 for i in range(40)]


# ---- maps ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_map_of_any_layout_equals_its_numpy_form(dtype, layout):
    for shape in [(), (1,), (5,), (0,), (16,), (17,), (100,), (3, 5), (5, 1, 33), (2, 3, 4, 5), (0, 3)]:
        x, y = LAYOUTS[layout](sample(shape, dtype)), sample(shape, dtype, 1)
        for a, b in ((x, y), (y, x), (x, x.dtype.type(2)), (x.dtype.type(0), y)):
            (got,) = evaluate(E.lin_mul, [a, b], {})
            assert_same_bits(got, np.where(a == 0, np.zeros((), dtype), a * b)[()], f"{shape}")


def run_kernel(kernel, *arrays, out):
    places = [P(a.strides, 0, a.itemsize) for a in (*arrays, out)]
    plan = kernel.bind(map_plan(out.shape, places, 1).plan)
    (address,) = kernel_addresses([kernel])
    operands = (*arrays, out)
    native.launch(address, plan.ctypes.data, id(operands))
    return address, plan


def unit(dtype, n):
    return [Operand(np.dtype(dtype), "unit")] * n


def test_product_and_sum_are_not_contracted():
    kernel = Kernel("map", unit("f4", 3), [Op(E.mul, (), (0, 1), F32), Op(E.add, (), (3, 2), F32)], [4], unit("f4", 1))
    a, b, c = (sample(1000, "f4", s) for s in range(3))
    out = np.empty_like(a)
    run_kernel(kernel, a, b, c, out=out)
    assert_same_bits(out, a * b + c)


def test_kernel_of_mixed_widths_and_bools():
    half = Lit(np.float64(0.5))
    ops = [
        Op(E.convert, (("dtype", F64),), (0,), F64),
        Op(E.gt, (), (2, half), np.dtype(bool)),
        Op(E.and_, (), (3, 1), np.dtype(bool)),
        Op(E.convert, (("dtype", np.dtype(np.int8)),), (4,), np.dtype(np.int8)),
    ]
    kernel = Kernel("map", [Operand(F32, "unit"), Operand(np.dtype(bool), "unit")], ops, [5], unit("i1", 1))
    a, m = sample(77, "f4"), sample(77, "?", 1)
    out = np.full(77, 9, np.int8)
    run_kernel(kernel, a, m, out=out)
    assert_same_bits(out, ((a > 0.5) & m).astype(np.int8))


def test_masked_tail_writes_nothing_beyond_the_end():
    kernel = Kernel("map", unit("f4", 1), [Op(E.neg, (), (0,), F32)], [1], unit("f4", 1))
    for n in range(1, 40):
        buffer = np.full(64, 7, np.float32)
        run_kernel(kernel, sample(n, "f4"), out=buffer[:n])
        assert (buffer[n:] == 7).all()


def test_strided_results():
    kernel = Kernel("map", unit("f8", 1), [Op(E.neg, (), (0,), F64)], [1], [Operand(F64, "strided")])
    for n in (2, 7, 8, 9, 50):
        x, buffer = sample(n, "f8"), np.zeros((n, 3))
        run_kernel(kernel, x, out=buffer[:, 1])
        assert_same_bits(buffer[:, 1].copy(), -x)
        assert not buffer[:, [0, 2]].any()


def test_work_can_be_split_by_ranges():
    """Any split of the outermost range gives the same result: rows, columns of a single row, reduced rows and columns."""
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    x = sample((37, 100), "f4")

    def halves(kernel, plan, source, out):
        (address,) = kernel_addresses([kernel])
        pointers = (ctypes.c_void_p * 2)(source.ctypes.data, out.ctypes.data)
        for cut in (1, 17, 36):
            out[...] = 0
            for lo, hi in ((0, cut), (cut, int(plan[0]))):
                call(address)(ctypes.addressof(pointers), plan.ctypes.data, lo, hi)
            yield out

    kernel = Kernel("map", unit("f4", 1), [Op(E.neg, (), (0,), F32)], [1], unit("f4", 1))
    wide = sample((37, 200), "f4")[:, :100]
    out = np.empty((37, 100), np.float32)
    for source in (x, wide):
        plan = map_plan(out.shape, [P(a.strides, 0, 4) for a in (source, out)], 1).plan
        for got in halves(kernel, plan, source, out):
            assert_same_bits(got, -source)
    for axis in (0, 1):
        (want,) = evaluate(R.sum_, [x], {"axes": (axis,)})
        kernel, plan = single._reduce(R.sum_, aval_of(x), (axis,), aval_of(want), x.strides)
        assert kernel.form == ("cols", "row")[axis]
        for got in halves(kernel, plan, x, np.empty_like(want)):
            assert_same_bits(got, want)


def test_text_of_a_kernel():
    kernel = Kernel(
        "map", [Operand(F32, "unit"), Operand(F32, "splat")],
        [
            Op(T.exp, (), (0,), F32), Op(E.mul, (), (2, 1), F32), Op(E.integer_pow, (("n", 3),), (3,), F32),
            Op(E.add, (), (4, Lit(np.float32(-0.0))), F32),
        ],
        [5], unit("f4", 1),
    )  # fmt: skip
    assert kernel.text == (
        "kernel map(a: f32 unit, b: f32 splat, s0: f32 literal) -> (f32 unit) {\n  t0: f32 = exp a\n  t1: f32 = mul t0 b\n"
        "  t2: f32 = integer_pow[n=3] t1\n  t3: f32 = add t2 s0\n  return t3\n}"
    )


# ---- views and plans -----------------------------------------------------------------------------------------------------


def test_layouts_of_views_are_numpys():
    x = np.arange(4 * 5 * 6, dtype=np.int16).reshape(4, 5, 6)
    start = contiguous(x.shape, 2)
    steps = [
        ("transpose", {"perm": (2, 0, 1)}, lambda v: v.transpose(2, 0, 1)),
        ("reverse", {"axes": (0, 2)}, lambda v: np.flip(v, (0, 2))),
        ("slice", {"start": (1, 0, 2), "stop": (6, 4, 5), "step": (2, 3, 1)}, lambda v: v[1:6:2, 0:4:3, 2:5]),
        ("broadcast", {"shape": (3, 2, 7, 3), "dims": (0, 1, 3)}, lambda v: np.broadcast_to(v[:, :, None], (3, 2, 7, 3))),
    ]
    view, layout = x, start
    for name, params, numpy in steps:
        view, layout = numpy(view), apply_view(name, layout, params)
        assert layout.shape == view.shape
        assert layout.offset == view.__array_interface__["data"][0] - x.__array_interface__["data"][0]
        assert all(n == 1 or s == t for n, s, t in zip(view.shape, layout.strides, view.strides, strict=True))


@pytest.mark.parametrize("shape", [(120,), (20, 6), (4, 30), (2, 2, 5, 6), (1, 120, 1), (4, 5, 1, 6), (8, 15)])
def test_reshape_of_a_layout_when_numpy_needs_no_copy(shape):
    x = np.arange(240, dtype=np.int32).reshape(4, 5, 12)
    for view in (x[..., :6], x[..., ::2], x[..., :6].transpose(1, 0, 2), np.broadcast_to(x[:1, :, ::2], (4, 5, 6))):
        offset = view.__array_interface__["data"][0] - x.__array_interface__["data"][0]
        layout = apply_view("reshape", Layout(view.shape, view.strides, offset), {"shape": shape})
        try:
            want = np.reshape(view, shape, copy=False)
        except ValueError:
            assert layout is None
            continue
        assert layout is not None and all(n == 1 or s == t for n, s, t in zip(shape, layout.strides, want.strides, strict=True))


# ---- the recurrence --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4"])
def test_linear_recurrence_equals_its_loop(dtype):
    for shape in [(5,), (1,), (0,), (40, 3), (7, 33), (3, 20, 18), (2, 0, 4)]:
        a, b = sample(shape, dtype), sample(shape, dtype, 1)
        for axis, reverse in itertools.product(range(len(shape)), (False, True)):
            with np.errstate(all="ignore"):
                wide = "f4" if dtype == "f2" else dtype
                want = _numpy_recurrence(a.astype(wide), b.astype(wide), axis, reverse).astype(dtype)
            got = linear_recurrence(a, b, axis, reverse)
            assert_same_bits(got, want)
    inf = np.array([np.inf, 2.0], dtype if dtype != "i4" else "f4")
    assert linear_recurrence(inf, np.ones_like(inf)).tolist() == [1.0, 3.0]


# ---- launching -------------------------------------------------------------------------------------------------------------


def test_arguments_are_checked_natively():
    kernel = Kernel("map", unit("f4", 1), [Op(E.neg, (), (0,), F32)], [1], unit("f4", 1))
    x = sample((4, 6), "f4")
    address, plan = run_kernel(kernel, x, out=np.empty_like(x))
    table = native.expected_table([aval_of(x), aval_of(x)])
    cases = [
        x, x.copy(), x.T.copy().T, x[:, ::-1], x.astype("f8"), x.astype(">f4"), x.reshape(6, 4), x.reshape(24),
        np.float32(1), x[:0],
        np.ma.masked_array(x), np.frombuffer(b"\0" * 97, np.uint8)[1:].view("f4").reshape(4, 6), [1.0], None,
    ]  # fmt: skip
    for a, out in itertools.product(cases, [np.zeros((4, 6), np.float32), np.zeros((6, 4), np.float32)]):
        good = type(a) is np.ndarray and a.shape == (4, 6) and a.dtype == x.dtype and a.dtype.isnative and a.flags.carray
        bad = not good or out.shape != x.shape
        pair = (a, out)
        out[...] = 0
        assert native.launch_checked(address, plan.ctypes.data, id(pair), table) == (UNFIT if bad else 0)
        assert out.any() == (not bad)


def test_byte_swapped_unaligned_and_foreign_arrays():
    x = sample(20, "f4")
    raw = np.zeros(81, np.uint8)
    raw[1:] = x.view(np.uint8)
    run = operation(T.exp, [aval_of(x)], {})
    for y in (x.astype(">f4"), raw[1:].view("f4"), np.ma.masked_array(x)):
        assert_same_bits(evaluate(T.exp, [y], {})[0], run(x))


def _numbers(dtype, shape, kind, rng):
    """Numbers that are hard to divide: of any size, of like size, with mantissas near a power of two, any bits at all."""
    word = np.dtype(f"u{dtype.itemsize}")
    if kind == "bits":
        return rng.integers(0, np.iinfo(word).max, shape, word).view(dtype)
    digits, low, high = np.finfo(dtype).nmant, np.finfo(dtype).minexp - np.finfo(dtype).nmant, np.finfo(dtype).maxexp
    mantissa = rng.integers(0, 1 << digits, shape)
    if kind == "edge":
        mantissa = np.where(rng.random(shape) < 0.5, mantissa & 15, (1 << digits) - 1 - (mantissa & 15))
    exponent = rng.integers(-20, 20, shape) if kind == "near" else rng.integers(low, high, shape)
    # the float64 of any float32 is normal; a float64 below that is scaled in two steps, the second of which rounds
    half = exponent // 2
    x = np.ldexp(np.ldexp(1 + mantissa / 2.0**digits, half), exponent - half) * rng.choice([-1.0, 1.0], shape)
    return x.astype(dtype)


@pytest.mark.parametrize("kind", ["near", "edge", "wide", "bits"])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_dividing_by_a_value_known_before_the_loop_is_division(dtype, kind):
    """By a literal, a scalar operand, one number a row, a result of a reduction: what NumPy's division gives, to the bit."""
    rng = np.random.default_rng(5)
    by_row, by_largest = fx.jit(lambda x, s: x / s), fx.jit(lambda x: x / np.max(x, axis=-1, keepdims=True))
    with np.errstate(all="ignore"):
        for _ in range(20):
            x = _numbers(dtype, (9, 203), kind, rng)
            x[:, 3], x[:, 4] = 0.0, -0.0
            s = _numbers(dtype, (9, 1), kind, rng)
            one = s[0, 0]
            assert_same_bits(by_row(x, s), x / s)
            assert_same_bits(by_row(x, np.asarray(one)), x / one)
            assert_same_bits(by_largest(x), x / np.max(x, axis=-1, keepdims=True))
            assert_same_bits(fx.jit(lambda x, one=one: x / one)(x), x / one)


def test_exp_scales_with_one_rounding_whatever_the_cpu_has():
    """Where results are subnormal or leave the range too; the NumPy form scales by two factors."""
    for dtype, scale in ((F32, 1.0), (F64, 7.2)):
        x = np.concatenate([np.linspace(-108, 92, 40_001) * scale, [np.inf, -np.inf, np.nan, 0.0, -0.0]]).astype(dtype)
        with np.errstate(all="ignore"):
            assert_same_bits(fx.jit(np.exp)(x), language.exp(x))
