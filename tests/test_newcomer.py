"""Findings of a first day with fxgrad: dtypes of products with numbers, rounding of integers, errors that name what is wrong."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.testing.bits import assert_same_bits

NUMBERS = [2.5, 3, True]
DTYPES = ["float32", "float16", "float64", "uint8", "int32"]


@pytest.mark.parametrize("name", ["dot", "inner", "outer", "kron", "multiply", "tensordot"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", NUMBERS)
def test_a_product_with_a_number_has_the_dtype_of_numpy(name: str, dtype: str, number: Any) -> None:
    f = getattr(fnp, name)
    if name == "tensordot":
        f = partial(f, axes=0)
    x = np.arange(1, 4).astype(dtype)
    want = getattr(np, name)(x, number, **({"axes": 0} if name == "tensordot" else {}))
    for got in (f(x, number), fx.jit(f)(x, number), fx.jit(lambda x: f(x, number))(x), fx.vjp(f, x, number)[0]):
        assert_same_bits(got, want)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "int8"])
@pytest.mark.parametrize("decimals", [-3, -2, -1, 0, 1])
def test_integers_are_rounded(dtype: str, decimals: int) -> None:
    x = np.array([123, -257, 5, 15, 25, 0, 99])[:: 1 if dtype.startswith("int") and dtype != "int8" else 6].astype(dtype)
    want = np.round(x, decimals)
    for f in (fnp.round, fnp.around):
        assert_same_bits(f(x, decimals), want)
        assert_same_bits(fx.jit(lambda x, f=f: f(x, decimals))(x), want)
    assert_same_bits(fx.jit(lambda x: x.round(decimals))(x), want)


@pytest.mark.parametrize("name", ["round", "vdot", "vecdot", "vecmat"])
def test_complex_numbers_have_rules_of_their_own(name: str) -> None:
    z = np.array([1.26 + 2.74j, 3j])
    args = (z,) if name == "round" else (z, z) if name != "vecmat" else (z, np.ones((2, 2)))
    for f in (getattr(fnp, name), fx.jit(getattr(np, name))):
        np.testing.assert_allclose(f(*args), getattr(np, name)(*args), rtol=1e-15)


def test_every_combination_of_traced_indices() -> None:
    x = np.arange(20.0).reshape(4, 5)
    i, j = np.array([3, 0]), np.array([1, 4, 2])
    want = x[np.ix_(i, j)]
    for ix_ in (np.ix_, fnp.ix_):
        assert_same_bits(fx.jit(lambda x, i, j, ix_=ix_: x[ix_(i, j)])(x, i, j), want)
        assert_same_bits(fx.jit(lambda x, i, ix_=ix_: x[ix_(i, [1, 4, 2])])(x, i), want)
    assert_same_bits(x[fnp.ix_(i, j)], want)
    assert_same_bits(fnp.ix_([], i)[0], np.ix_([], i)[0])
    mask = np.array([True, False, False, True])
    assert_same_bits(fx.grad(lambda x: fnp.sum(x[np.ix_(mask, fx.stop_gradient(x)[0].astype(int))]))(x), want_gradient(x, mask))
    with pytest.raises(ValueError, match="rank 1"):
        fx.jit(lambda i: np.ix_(i, i))(x)


def want_gradient(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    g = np.zeros_like(x)
    np.add.at(g, np.ix_(mask, x[0].astype(int)), 1.0)
    return g


def parts(caught: pytest.ExceptionInfo[BaseException]) -> list[str]:
    out = str(caught.value).split("\n  ")
    assert len(out) == 4, out
    assert "test_newcomer.py" in out[1]
    return out


def test_too_large_an_int_is_named() -> None:
    x = np.arange(3)
    with pytest.raises(OverflowError) as caught:
        fx.jit(lambda x, n: x + n)(x, 2**63)
    assert "argument 'n' of the jitted '<lambda>'" in parts(caught)[0]
    with pytest.raises(TypeError) as caught:
        fx.jit(lambda k, x, *, w: x, static_argnums=0)(1, x, w={"b": [1.0, "no"]})
    assert "argument 'w'['b'][1] of the jitted '<lambda>' is a str" in parts(caught)[0]
    with pytest.raises(TypeError) as caught:
        fx.jit(lambda k, x: x, static_argnums=0)(1, [x, "no"])
    assert "argument 'x'[1] of the jitted '<lambda>' is a str" in parts(caught)[0]
    for f in (fnp.dot, fnp.array_equal, fnp.inner):
        with pytest.raises(OverflowError) as caught:
            f(x, 2**70)
        assert str(2**70) in parts(caught)[0]


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": 3},
        {"static_argnums": -2},
        {"static_argnums": (0, 1)},
        {"static_argnums": "x"},
        {"static_argnums": 1.5},
        {"static_argnums": None},
        {"static_argnames": 0},
        {"donate_argnums": "x"},
    ],
)
def test_static_arguments_must_be_there(options: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        fx.jit(lambda x: x, **options)
    assert next(iter(options)) in parts(caught)[0]


def test_static_arguments_of_a_variadic_function() -> None:
    assert fx.jit(lambda x, *more: x * len(more[0]), static_argnums=1)(np.ones(2), "abc")[0] == 3.0
    assert fx.jit(lambda x, n: x * n, static_argnums=np.int64(-1))(np.ones(2), 2)[0] == 2.0


def test_a_lowered_program_has_the_name_of_its_function() -> None:
    def first(x: Any) -> Any:
        return fnp.sin(x) * 7.25

    def second(x: Any) -> Any:
        return fnp.sin(x) * 7.25

    x = np.ones(2)
    fx.jit(first)(x)
    lowered = fx.jit(second).lower(x)
    assert lowered.as_text().startswith("program second(")
    assert lowered.program == fx.jit(first).lower(x).program
    assert_same_bits(lowered.compile()(x)[0], first(x))


def test_an_index_known_at_run_time_only_is_named() -> None:
    x = np.ones((2, 3))

    def read(x: Any, i: Any) -> Any:
        return x[:, i] * 2.0  # the line

    def write(x: Any, i: Any) -> Any:
        return x.at[i].add(1.0)  # the line

    for f, i, what in ((read, 7, "index 7 is out of bounds for axis 1 with size 3"), (write, -3, "index -3 is out of bounds")):
        g = fx.jit(f)
        with pytest.raises(fx.errors.FxIndexError) as caught:
            g(x, np.array([0, i]))
        assert what in parts(caught)[0]
        assert "# the line" in parts(caught)[1]
        assert g(x, np.array([0, 1])).shape is not None
        with fx.disable_jit(), pytest.raises(fx.errors.FxIndexError, match=what):
            g(x, np.array([0, i]))


class Model:
    def __init__(self) -> None:
        self.w = 2.0
        self.inner = {"b": 1.0}
        self.table = np.ones(2)

    @partial(fx.jit, static_argnums=0)
    def run(self, v: Any) -> Any:
        return v * self.w + self.inner["b"] + self.table


def test_attributes_of_static_arguments_are_guarded() -> None:
    m, v = Model(), np.ones(2)
    assert m.run(v)[0] == 4.0
    m.w = 5.0
    assert m.run(v)[0] == 7.0
    m.inner["b"] = 0.0
    assert m.run(v)[0] == 6.0
    m.table[:] = 3.0  # read at each call
    assert m.run(v)[0] == 8.0
    m.table = np.zeros(2)
    assert m.run(v)[0] == 5.0
    before = Model.run.cache_info()
    assert m.run(v)[0] == 5.0
    after = Model.run.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)

    f = fx.jit(lambda v, m: v * m.w, static_argnames="m")
    assert f(v, m=m)[0] == 5.0
    m.w = 1.0
    assert f(v, m=m)[0] == 1.0


def test_a_draw_of_the_random_module_is_refused() -> None:
    with pytest.raises(fx.errors.UnsupportedError, match="draws random numbers"):
        fx.jit(lambda x: x * random.random())(np.ones(2))
    held = np.random.default_rng(0)
    with pytest.raises(fx.errors.UnsupportedError, match="draws random numbers"):
        fx.jit(lambda x, rng: x * rng.normal(), static_argnums=1)(np.ones(2), held)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("axis", [0, 1, -2])
def test_running_extremes(name: str, axis: int) -> None:
    ufunc = getattr(np, name)
    x = np.array([[3.0, 1.0, np.nan, 2.0, 9.0], [1.0, 5.0, 2.0, -1.0, 0.5], [4.0, 0.0, 7.0, 7.5, 8.0]])
    for a in (x, x.astype(np.float32), np.nan_to_num(x).astype(int), x[:, :0], x[:1]):
        assert_same_bits(fx.jit(lambda a: ufunc.accumulate(a, axis))(a), ufunc.accumulate(a, axis))
    g = fx.grad(lambda a: np.sum(ufunc.accumulate(a, axis)[-1]))(x[1:])
    at = np.argmax if name == "maximum" else np.argmin
    want = np.zeros((2, 5))
    if axis == 1:
        for k in range(5):
            want[1, at(x[2, : k + 1])] += 1
    else:
        want[at(x[1:], axis=0), np.arange(5)] = 1
    assert_same_bits(g, want)


@pytest.mark.parametrize("compiled", [False, True])
def test_too_large_a_result_is_a_memory_error(compiled: bool) -> None:
    def f(x: Any) -> Any:
        return np.broadcast_to(x, (10**7, 10**6)) * 2

    with pytest.raises(MemoryError, match="Unable to allocate"):
        (fx.jit(f) if compiled else lambda x: fx.vjp(f, x))(1.0)
