"""The standard's tables of special cases, plain and under jit, in both precisions."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as xp
from tests.array_api import special


def _check(what: str, got: float, word: str, dtype: str) -> None:
    want = special.number(word)
    if np.isnan(want):
        assert np.isnan(got), f"{what} is {got}, not NaN"
        return
    if word[0] == "~":
        got, want = abs(got), abs(want)
    assert np.isclose(got, want, rtol=4 * np.finfo(dtype).eps, atol=0), f"{what} is {got}, not {word}"
    assert np.signbit(got) == np.signbit(want), f"{what} is {got}, not {word}: the sign is wrong"


def _cases(table: str) -> tuple[list[tuple[float, ...]], list[str]]:
    at, words = [], []
    for left, right in special.rows(table):
        for values in product(*map(special.operands, left)):
            at.append(values)
            words.append(right)
    return at, words


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_real(dtype: str) -> None:
    cases = {name: _cases(table) for name, table in special.REAL.items()}
    arrays = {name: [np.array(column, dtype) for column in zip(*at, strict=True)] for name, (at, _) in cases.items()}

    def everything(arrays: dict[str, list[Any]]) -> dict[str, Any]:
        return {name: getattr(xp, name)(*xs) for name, xs in arrays.items()}

    for run in (everything, fx.jit(everything)):
        for name, found in run(arrays).items():
            assert found.dtype == dtype
            for at, got, word in zip(cases[name][0], found.tolist(), cases[name][1], strict=True):
                _check(f"{name}{at}", got, word, dtype)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex(dtype: str) -> None:
    cases = {}
    for name, table in special.COMPLEX.items():
        at, words = [], []
        for (left,), right in special.rows(table):
            for x, y in product(*map(special.operands, left.split(","))):
                at.append(complex(x, y))
                words.append(right.split(","))
        cases[name] = np.array(at, dtype), words
    real = np.finfo(dtype).dtype.name

    def everything(arrays: dict[str, Any]) -> dict[str, Any]:
        return {name: (getattr(xp, name)(z), getattr(xp, name)(xp.conj(z))) for name, z in arrays.items()}

    arrays = {name: z for name, (z, _) in cases.items()}
    for run in (everything, fx.jit(everything)):
        for name, (found, mirrored) in run(arrays).items():
            z, words = cases[name]
            assert found.dtype == dtype
            for at, got, other, (re, im) in zip(z.tolist(), found.tolist(), mirrored.tolist(), words, strict=True):
                _check(f"{name}({at}).real", got.real, re, real)
                _check(f"{name}({at}).imag", got.imag, im, real)
                if math.isnan(at.imag):  # the conjugate of NaN is NaN
                    continue
                flipped = im[1:] if im[0] == "-" else im if im[0] == "~" or im == "nan" else f"-{im}"
                _check(f"{name}(conj {at}).real", other.real, re, real)
                _check(f"{name}(conj {at}).imag", other.imag, flipped, real)


def test_floor_divide_of_floats() -> None:
    """x // y is floor(x / y); the standard leaves a zero divisor to the library, which takes NumPy's answers."""
    x, y = (v.ravel() for v in np.meshgrid([0.0, -0.0, 5.0, -5.0, np.inf, -np.inf, np.nan], [2.0, -2.0, np.inf, np.nan, 0.0]))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(fx.jit(xp.floor_divide)(x, y), x // y)


def test_tables_name_every_function_that_has_one() -> None:
    assert all(hasattr(xp, name) for name in (*special.REAL, *special.COMPLEX))
    assert len(special.REAL) >= 40 and len(special.COMPLEX) >= 13
