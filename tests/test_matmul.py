"""Our own matrix products: every path gives the fixed sum to the bit, and the sum is accurate."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from llvmlite import ir
from numba import njit
from numba.extending import intrinsic

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.compile.cache import kernel_addresses
from fxgrad.config import config
from fxgrad.kernels.matmul import PLAN, MatmulKernel, block_length
from fxgrad.kernels.matmul_plan import Matrix, Product, plan_product
from fxgrad.kernels.matmul_tile import _interleave, register_block
from fxgrad.runtime.matmul import matmul
from fxgrad.testing.bits import assert_same_bits

FLOATS = [np.dtype(np.float32), np.dtype(np.float64)]
INTEGERS = [np.dtype(n) for n in ("int32", "int64", "uint32", "uint64")]
K_BLOCK = block_length(FLOATS[0])


@intrinsic
def _fma(typing_context, a, b, c):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        t = args[0].type
        name = "llvm.fma.f32" if isinstance(t, ir.FloatType) else "llvm.fma.f64"
        return builder.call(builder.module.declare_intrinsic(name, (), ir.FunctionType(t, [t] * 3)), args)

    return a(a, a, a), codegen


@njit
def _fixed_sums(a, b, c, length, zero):  # type: ignore[no-untyped-def]
    for g in range(a.shape[0]):
        for i in range(a.shape[1]):
            for j in range(b.shape[2]):
                total = zero
                for start in range(0, a.shape[2], length):
                    chain = zero
                    for k in range(start, min(a.shape[2], start + length)):
                        chain = _fma(a[g, i, k], b[g, k, j], chain)
                    total = chain if start == 0 else total + chain
                c[g, i, j] = total


def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The contract, written down: blocks of k, chains of fma, blocks added in order."""
    if a.dtype.kind != "f":
        return np.matmul(a, b)
    c = np.empty((a.shape[0], a.shape[1], b.shape[2]), a.dtype)
    _fixed_sums(np.ascontiguousarray(a), np.ascontiguousarray(b), c, block_length(a.dtype), a.dtype.type(0))
    return c


def _columns_first(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1)


def _reversed(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x[::-1, ::-1, ::-1])[::-1, ::-1, ::-1]


def _strided(x: np.ndarray) -> np.ndarray:
    y = np.zeros((x.shape[0], 2 * x.shape[1], 3 * x.shape[2]), x.dtype)[:, ::2, ::3]
    y[...] = x
    return y


def _unaligned(x: np.ndarray) -> np.ndarray:
    memory = np.empty(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    memory[...] = x
    return memory


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rows first": lambda x: x,
    "columns first": _columns_first,
    "reversed": _reversed,
    "strided": _strided,
    "one batch repeated": lambda x: np.broadcast_to(x[:1], x.shape),
    "one row repeated": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "batch last": lambda x: np.ascontiguousarray(x.transpose(1, 2, 0)).transpose(2, 0, 1),
    "unaligned": _unaligned,
}


def values(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2**63, shape).astype(dtype)


def check(m: int, k: int, n: int, g: int, dtype: np.dtype, left: str, right: str) -> None:
    a = LAYOUTS[left](values((g, m, k), dtype, m + 10 * k))
    b = LAYOUTS[right](values((g, k, n), dtype, n + 7 * k))
    assert_same_bits(matmul(a, b), reference(a, b))


def grid() -> Iterator[tuple[int, int, int, int, str, str]]:
    """Sizes around those of register blocks and blocks of k; every pair of layouts comes up."""
    names = list(LAYOUTS)
    count = 0
    for m in (1, 2, 5, 12, 13, 16, 17, 31, 97):
        for k in (1, 3, 17, K_BLOCK - 1, K_BLOCK, K_BLOCK + 1, 2 * K_BLOCK + 88):
            for n in (1, 2, 8, 15, 17, 32, 33, 65, 130):
                count += 1
                yield m, k, n, 1 + count % 2, names[count % 8], names[count // 8 % 8]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_size_and_layout_gives_the_fixed_sum(dtype: np.dtype) -> None:
    for m, k, n, g, left, right in grid():
        check(m, k, n, g, dtype, left, right)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_wrap_as_numpys(dtype: np.dtype) -> None:
    for m, k, n, g, left, right in list(grid())[::7]:
        check(m, k, n, g, dtype, left, right)


@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_pair_of_layouts(dtype: np.dtype, left: str, right: str) -> None:
    for m, k, n in ((70, 300, 600), (150, 40, 141), (1, 300, 40), (40, 300, 1), (1, 600, 1)):  # packed, direct, vectors
        check(m, k, n, 2, dtype, left, right)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_dot_of_two_vectors(dtype: np.dtype) -> None:
    group = K_BLOCK * 64 // dtype.itemsize
    around = (1, 5, K_BLOCK, 1000, group // 2, group, 2 * group, 5 * group)
    for k in sorted({n + d for n in around for d in (-1, 0, 1)} - {0}):
        check(1, k, 1, 2, dtype, "rows first", "rows first")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("layout", ["rows first", "columns first", "reversed"])
def test_matrix_and_vector(dtype: np.dtype, layout: str) -> None:
    for n, k in ((15, 400), (16, 5000), (47, 3), (100, 2001), (2500, 65), (4101, 300)):
        check(n, k, 1, 2, dtype, layout, "rows first")
        check(1, k, n, 2, dtype, "rows first", layout)


def test_nothing_to_add_up() -> None:
    for shape in ((0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 0, 4), (2, 3, 4, 0)):
        g, m, k, n = shape
        assert_same_bits(matmul(np.ones((g, m, k)), np.ones((g, k, n))), np.zeros((g, m, n)))


SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 3e38, -3e38, 1e-45]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(14, 1, 37), (14, 300, 37), (1, 300, 37), (37, 300, 1), (1, 900, 1), (2, 9000, 4), (1, 1, 1)])
def test_special_values(dtype: np.dtype, shape: tuple[int, int, int]) -> None:
    """NaN, infinities, overflow, denormals; a block that is -0.0 stays so."""
    m, k, n = shape
    rng = np.random.default_rng(k)
    for rare in (1.0, 0.01):
        pools = np.where(rng.random((2, 40 * 900)) < rare, rng.choice(SPECIAL, (2, 40 * 900)), rng.standard_normal((2, 40 * 900)))
        with np.errstate(all="ignore"):
            a, b = (p[: s[0] * s[1]].astype(dtype).reshape(1, *s) for p, s in zip(pools, ((m, k), (k, n)), strict=True))
        assert_same_bits(matmul(a, b), reference(a, b))
    tiny = np.full((1, m, k), 1e-30 if dtype.itemsize == 4 else 1e-200, dtype)
    product = matmul(tiny, np.broadcast_to(-tiny.ravel()[0], (1, k, n)))
    assert_same_bits(product, np.full((1, m, n), -0.0, dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(30, 5000, 20), (1, 100_000, 1), (64, 5000, 1)])
def test_accuracy(dtype: np.dtype, shape: tuple[int, int, int]) -> None:
    """The error stays below that of blocked summation: blocks and their lengths add up, not their product."""
    m, k, n = shape
    a, b = values((1, m, k), dtype, 1), values((1, k, n), dtype, 2)
    wide = np.float64 if dtype.itemsize == 4 else np.longdouble
    exact, sizes = (np.matmul(x.astype(wide), y.astype(wide)) for x, y in ((a, b), (abs(a), abs(b))))
    bound = (K_BLOCK + k / K_BLOCK) * np.finfo(dtype).eps / 2 * sizes
    error = abs(matmul(a, b) - exact)
    assert (error <= bound).all()
    assert error.max() <= 0.05 * bound.max()  # rounding errors cancel: the bound is not nearly reached


def in_pieces(a: np.ndarray, b: np.ndarray, cuts: Callable[[int], list[int]]) -> tuple[np.ndarray, list[str]]:
    """The product by runs of ranges of units, the last range first, and the forms of the kernels; nothing else is written."""
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    (g, m, k), n, size, guard = a.shape, b.shape[2], a.dtype.itemsize, 64
    strides = (Matrix(0, x.strides[0], *x.strides) for x in (a, b, np.empty((g, m, n), a.dtype)))
    runs = plan_product(Product(a.dtype, 1, g, m, n, k, *strides))
    written = {"c": np.full(g * m * n + guard, -1, a.dtype), "p": np.full(runs[0].passed // size + guard, -1, a.dtype)}
    arrays = {"a": a, "b": b, **written}
    for run, kernel in zip(runs, kernel_addresses([r.kernel for r in runs]), strict=True):
        pointers = np.array([arrays[x].ctypes.data for x in run.pointers])
        for lo, hi in reversed(list(itertools.pairwise(cuts(int(run.plan[0]))))):
            signature(kernel)(pointers.ctypes.data, run.plan.ctypes.data, lo, hi)
    assert all((x[-guard:] == -1).all() for x in written.values())
    return written["c"][:-guard].reshape(g, m, n), [r.kernel.form for r in runs]


@pytest.mark.parametrize(
    "shape, forms",
    [
        ((100, 300, 200), ["pack", "matmul"]),
        ((7, 600, 300), ["matmul"]),
        ((100, 300, 1), ["matvec"]),
        ((1, 300, 100), ["matvec"]),
        ((1, 900, 1), ["dot"]),
        ((1, 90_001, 1), ["dot", "sum of parts"]),
        ((300, 600, 700), ["pack", "matmul"]),
    ],
)
def test_work_can_be_split_anywhere(shape: tuple[int, int, int], forms: list[str]) -> None:
    """Ranges of units of work, each run on its own, give together what one run gives."""
    m, k, n = shape
    a, b = values((3, m, k), FLOATS[0], 1), values((3, k, n), FLOATS[0], 2)
    found = in_pieces(a, b, lambda extent: sorted([0, 1, 1, extent // 3, extent // 2, extent - 1, extent]))  # one is empty
    assert found[1] == forms
    assert_same_bits(found[0], reference(a, b))
    assert_same_bits(matmul(a, b), found[0])


@pytest.mark.parametrize("right", [False, True], ids=["b", "b transposed"])
@pytest.mark.parametrize("left", [False, True], ids=["a", "a transposed"])
@pytest.mark.parametrize("dtype", [*FLOATS, INTEGERS[0]], ids=str)
@pytest.mark.parametrize("shape", [(4, 9001, 5), (40, 8192, 30), (3, 10_000, 1), (20, 8448, 1), (1, 9000, 7), (60, 8200, 68)])
def test_blocks_of_a_long_k_are_units_of_work(shape: tuple[int, int, int], dtype: np.dtype, left: bool, right: bool) -> None:
    """Where the results are few; the last block may be short, and any may be computed by itself."""
    m, k, n = shape
    a, b = values((1, m, k), dtype, 1), values((1, k, n), dtype, 2)
    a, b = (_columns_first(x) if turn else x for x, turn in ((a, left), (b, right)))
    found, forms = in_pieces(a, b, lambda extent: list(range(extent + 1)))
    assert forms[-1] == "sum of parts"
    assert_same_bits(found, reference(a, b))
    assert_same_bits(matmul(a, b), found)


def test_results_with_gaps_are_not_sums_of_blocks_side_by_side() -> None:
    """Rows of the result that lie apart, with others' memory between them."""
    a, b, size = values((1, 4, 9000), FLOATS[0], 1), values((1, 9000, 5), FLOATS[0], 2), FLOATS[0].itemsize
    strides = (Matrix(0, 0, 0, *x.strides[1:]) for x in (a, b))
    runs = plan_product(Product(FLOATS[0], 1, 1, 4, 5, 9000, *strides, Matrix(0, 0, 0, 8 * size, size)))
    assert "sum of parts" not in [r.kernel.form for r in runs]


@pytest.mark.parametrize("right", [False, True], ids=["b", "b transposed"])
@pytest.mark.parametrize("left", [False, True], ids=["a", "a transposed"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_unit_by_itself(dtype: np.dtype, left: bool, right: bool) -> None:
    """Sizes around those of units, blocks and panels, and in all four cases of transposed operands."""
    edges = (1, 7, 48, 49, 255, 256, 257)
    for i, (m, k, n) in enumerate([*itertools.product(edges, repeat=3)][3::11]):
        a, b = values((1 + i % 3, m, k), dtype, i), values((1 + i % 3, k, n), dtype, i + 1)
        a, b = (_columns_first(x) if turn else x for x, turn in ((a, left), (b, right)))
        assert_same_bits(in_pieces(a, b, lambda extent: list(range(extent + 1)))[0], reference(a, b))


@pytest.mark.parametrize("right", [False, True], ids=["b", "b transposed"])
@pytest.mark.parametrize("left", [False, True], ids=["a", "a transposed"])
@pytest.mark.parametrize("dtype", [*FLOATS, INTEGERS[0]], ids=str)
def test_threads_pack_the_columns_that_they_take(dtype: np.dtype, left: bool, right: bool) -> None:
    """Where rows are too few to share panels of b: columns are units of work, and the only kernel packs them."""
    for m, k, n in ((100, 300, 200), (256, 260, 257), (97, 520, 130)):
        a, b = values((1, m, k), dtype, 1), values((1, k, n), dtype, 2)
        a, b = (_columns_first(x) if turn else x for x, turn in ((a, left), (b, right)))
        found, forms = in_pieces(a, b, lambda extent: list(range(extent + 1)))
        assert forms == ["matmul"]
        assert_same_bits(found, reference(a, b))


def test_gradients_of_wide_weights_share_columns() -> None:
    a, b = values((1, 300, 260), FLOATS[0], 1).transpose(0, 2, 1), values((1, 300, 600), FLOATS[0], 2)
    found, forms = in_pieces(a, b, lambda extent: list(range(extent + 1)))
    assert forms == ["matmul"] and in_pieces(a, b[:, :, :400], lambda extent: [0, extent])[1] == ["pack", "matmul"]
    assert_same_bits(found, reference(a, b))


def test_panels_of_a_b_that_batches_share_are_packed_once() -> None:
    a, b = (
        values((3, 200, 64), FLOATS[0], 1).transpose(1, 0, 2)[:, ::2],
        np.broadcast_to(values((64, 700), FLOATS[0], 2), (200, 64, 700)),
    )
    tall = np.ascontiguousarray(values((3, 200, 300), FLOATS[0], 3).transpose(1, 2, 0)).transpose(2, 0, 1)
    wide = np.broadcast_to(values((300, 700), FLOATS[0], 4), (3, 300, 700))
    for x, y in ((a, b), (tall, wide)):
        assert_same_bits(in_pieces(x, y, lambda extent: list(range(extent + 1)))[0], reference(x, y))
    strides = (Matrix(0, 0, *x.strides) for x in (tall, wide, np.empty((3, 200, 700), np.float32)))
    packing = plan_product(Product(FLOATS[0], 1, 3, 200, 700, 300, *strides))[0]
    assert packing.kernel.form == "pack" and packing.passed < 2 * wide[0].nbytes


def test_a_batch_is_its_parts() -> None:
    a, b = values((6, 33, 300), FLOATS[0], 1), values((6, 300, 70), FLOATS[0], 2)
    whole = matmul(a, b)
    for i in range(6):
        assert_same_bits(matmul(a[i : i + 1], b[i : i + 1])[0], whole[i])
    rows = np.concatenate([matmul(a[:, i : i + 1], b) for i in range(33)], axis=1)
    assert_same_bits(rows, whole)
    columns = np.concatenate([matmul(a, b[:, :, j : j + 1]) for j in range(70)], axis=2)
    assert_same_bits(columns, whole)


def test_the_transposed_product_is_the_product_transposed() -> None:
    a, b = values((2, 40, 500), FLOATS[1], 1), values((2, 500, 70), FLOATS[1], 2)
    assert_same_bits(matmul(b.transpose(0, 2, 1), a.transpose(0, 2, 1)), matmul(a, b).transpose(0, 2, 1))


def test_several_threads_at_once() -> None:
    a, b = values((1, 200, 500), FLOATS[0], 1), values((1, 500, 300), FLOATS[0], 2)
    expected, found = matmul(a, b), []
    threads = [threading.Thread(target=lambda: found.extend(matmul(a, b) for _ in range(20))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 160
    for c in found:
        assert_same_bits(c, expected)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        matmul(np.ones((1, 2, 3)), np.ones((1, 2, 3)))
    with pytest.raises(TypeError, match="no product"):
        matmul(np.ones((1, 2, 3)), np.ones((1, 3, 2), np.float32))


def test_kernels_say_what_they_compute() -> None:
    kernel = MatmulKernel(FLOATS[0])
    assert f"blocks of {K_BLOCK} k" in kernel.text and "fma" in kernel.text
    assert kernel.digest != MatmulKernel(FLOATS[1]).digest
    assert PLAN[0] == "extent"
    assert register_block(FLOATS[0]).columns % 4 == 0
    assert _interleave(8, 4, 1, 0) == [0, 8, 1, 9, 4, 12, 5, 13]  # AVX's unpcklps


# ---- through fxgrad ------------------------------------------------------------------------------------------------------


@pytest.fixture
def blas() -> Iterator[None]:
    config.matmul = "blas"
    yield
    config.matmul = "own"


def test_products_of_programs_are_fixed_sums() -> None:
    x, y = values((5, 7, 300), FLOATS[1], 1), values((300, 11), FLOATS[1], 2)
    expected = reference(x.reshape(1, 35, 300), y[None]).reshape(5, 7, 11)
    assert_same_bits(fnp.matmul(x, y), expected)
    assert_same_bits(fx.jit(fnp.matmul)(x, y), expected)
    assert_same_bits(fx.vmap(fnp.matmul, (0, None))(x, y), expected)
    assert_same_bits(np.stack([fnp.matmul(v, y) for v in x]), expected)
    assert_same_bits(fnp.einsum("abk,kc->cba", x, y), expected.transpose(2, 1, 0))


@pytest.mark.usefixtures("blas")
def test_blas_is_there_for_those_who_want_it() -> None:
    x, y = values((40, 300), FLOATS[1], 1), values((300, 50), FLOATS[1], 2)
    assert_same_bits(fnp.matmul(x, y), np.matmul(x, y))


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="own"):
        config.matmul = "mkl"
    assert config.matmul == "own"
