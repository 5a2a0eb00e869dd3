"""NumPy's functions against NumPy: values, dtypes and shapes, on plain arrays and traced ones.

A case is an expression of `m`, which is numpy or fxgrad.numpy, and of the arrays below. It is evaluated three times: by NumPy,
by fxgrad on plain arrays, and with all arrays traced (by jit, or where the result's size depends on values, by jvp).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.testing.bits import assert_same_bits
from tests.names_table import CASES, KNOWN

rng = np.random.default_rng(5)
ARRAYS: dict[str, np.ndarray] = {
    "x": rng.normal(size=11),
    "y": rng.normal(size=11),
    "w": rng.uniform(0.5, 2.0, 11),
    "s": np.sort(rng.normal(size=7)),
    "a": rng.normal(size=(3, 4)),
    "b": rng.normal(size=(4, 5)),
    "sq": rng.normal(size=(4, 4)),
    "c": rng.normal(size=(2, 3, 4)),
    "nans": np.where(np.add.outer(np.arange(4), np.arange(6)) % 3 == 1, np.nan, rng.normal(size=(4, 6))),
    "ties": np.array([2.0, 1.0, 2.0, 0.0, 1.0, 2.0, -0.0]),
    "f32": rng.normal(size=9).astype(np.float32),
    "i": rng.integers(0, 6, 13),
    "j": rng.integers(-20, 20, 13),
    "k": rng.integers(1, 30, 13),
    "i8": rng.integers(-128, 128, 9).astype(np.int8),
    "u8": rng.integers(0, 256, (3, 4)).astype(np.uint8),
    "m2": rng.integers(0, 3, (5, 4)),
    "mask": rng.uniform(size=11) < 0.5,
    "p": np.array([2.0, -3.0, 1.0, 0.5]),
    "q": np.array([1.0, 0.5, -2.0]),
}


def _leaves(tree: Any) -> list[Any]:
    if isinstance(tree, (tuple, list)):
        return [leaf for part in tree for leaf in _leaves(part)]
    return [tree]


def _close(actual: Any, expected: Any, ulps: float) -> None:
    actual, expected = _leaves(actual), _leaves(expected)
    assert len(actual) == len(expected)
    for got, wanted in zip(actual, expected, strict=True):
        got, wanted = np.asarray(got), np.asarray(wanted)
        assert got.dtype == wanted.dtype and got.shape == wanted.shape, (
            f"{got.dtype}{got.shape}, not {wanted.dtype}{wanted.shape}"
        )
        if wanted.dtype.kind in "fc" and ulps:
            scale = max(1.0, float(np.nanmax(np.abs(wanted[np.isfinite(wanted)]), initial=0.0)))
            tolerance = ulps * float(np.finfo(wanted.dtype).eps)
            np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * scale)
        else:
            assert_same_bits(got, wanted)


def _used(code: str) -> list[str]:
    names = compile(code, "case", "eval").co_names
    inner = [c.co_names for c in compile(code, "case", "eval").co_consts if hasattr(c, "co_names")]
    return [n for n in ARRAYS if n in names or any(n in more for more in inner)]


def _evaluate(code: str, module: Any, arrays: dict[str, Any]) -> Any:
    return eval(code, {"m": module, "np": np, **arrays})


@pytest.mark.parametrize("code", CASES)
def test_values_of_numpy(code: str) -> None:
    used = _used(code)
    arrays = {n: ARRAYS[n] for n in used}
    before = {n: v.copy() for n, v in arrays.items()}
    expected = _evaluate(code, np, arrays)
    plain = _evaluate(code, fnp, arrays)
    _close(plain, expected, CASES[code])
    values = tuple(arrays.values())

    def f(*xs: Any) -> Any:
        return tuple(fnp.asarray(y) for y in _leaves(_evaluate(code, fnp, dict(zip(used, xs, strict=True)))))

    compiled = fx.jit(f)(*values)
    for got, wanted in zip(compiled, _leaves(plain), strict=True):
        assert_same_bits(np.asarray(got), np.asarray(wanted))
    for n, v in before.items():
        assert_same_bits(arrays[n], v)


@pytest.mark.parametrize("code", KNOWN)
def test_values_where_the_size_depends_on_values(code: str) -> None:
    used = _used(code)
    arrays = {n: ARRAYS[n] for n in used}
    expected = _evaluate(code, np, arrays)
    plain = _evaluate(code, fnp, arrays)
    _close(plain, expected, KNOWN[code])
    values = tuple(arrays.values())

    def f(*xs: Any) -> Any:
        return tuple(fnp.asarray(y) for y in _leaves(_evaluate(code, fnp, dict(zip(used, xs, strict=True)))))

    tangents = tuple(np.ones_like(v) if v.dtype.kind == "f" else None for v in values)
    traced, _ = fx.jvp(f, values, tangents)
    for got, wanted in zip(traced, _leaves(plain), strict=True):
        assert_same_bits(np.asarray(got), np.asarray(wanted))
    with pytest.raises(fx.ConcretizationError):
        fx.jit(f)(*values)
