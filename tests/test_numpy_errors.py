"""What users read when NumPy code cannot be followed: what failed, where, why, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as ss

import fxgrad as fx
import fxgrad.numpy as fnp

plain, ones = np.zeros(3), np.ones(3)


def add_to(b: Any, v: Any) -> None:
    b += v


def buffer(x: Any) -> Any:
    buf = np.zeros(3)
    add_to(buf, x)
    return np.sum(buf)


EMPTY = "zero-size array to reduction operation maximum which has no identity"
Case = tuple[Callable[..., Any], Any, type[Exception], list[str]]
UNDER_GRAD: dict[str, Case] = {
    "+= on a plain array": (buffer, ones, fx.MutationError, ["in-place operation", "b += v", "a = a + v"]),
    "out=": (lambda x: np.add(ones, x, out=plain), ones, fx.MutationError, ["np.add(..., out=...)", "y = np.add(...)"]),
    "ufunc.at": (lambda x: np.add.at(plain, 0, x), 2.0, fx.MutationError, ["np.add.at", ".at[i].add(v)"]),
    "np.full": (lambda x: np.full(3, x, dtype=float).sum(), 2.0, fx.FxError, ["np.full(shape, v) of fxgrad.numpy"]),
    "np.full_like": (lambda x: np.full_like(plain, x).sum(), 2.0, fx.MutationError, ["np.copyto", "np.full_like(x, v)"]),
    "nan_to_num": (lambda x: np.nan_to_num(plain, nan=x).sum(), 2.0, fx.MutationError, ["np.copyto", "np.nan_to_num"]),
    "copyto": (lambda x: np.copyto(plain, x), ones, fx.MutationError, ["np.copyto", "np.where(mask, v, a)"]),
    "put": (lambda x: np.put(plain, 0, x), 2.0, fx.MutationError, ["np.put", ".at[i].set(v)"]),
    "place": (lambda x: np.place(plain, plain == 0, x), ones, fx.MutationError, ["np.place", "np.where(mask, v, a)"]),
    "putmask": (lambda x: np.putmask(plain, plain == 0, x), ones, fx.MutationError, ["np.putmask", "np.where(mask, v, a)"]),
    "list of traced values": (lambda x: np.mean([x, x + 2]), 0.0, fx.ConcretizationError, ["plain NumPy array", "np.stack"]),
    "dates": (lambda x: np.is_busday(x), ones, fx.UnsupportedError, ["np.is_busday is not supported", "Dates and times"]),
    "similar": (lambda x: np.isnat(x), ones, fx.UnsupportedError, ["Similar names", "isnan"]),
    "scipy ufunc": (lambda x: ss.airy(x)[0], 1.0, fx.UnsupportedError, ["scipy.special.airy is not supported"]),
    "reduceat": (lambda x: np.add.reduceat(x, [0, 1]), ones, fx.UnsupportedError, ["np.add.reduceat", "accumulate"]),
    "max of nothing": (lambda x: np.max(x[:0]), ones, ValueError, [EMPTY]),
    "argmax of nothing": (lambda x: np.argmax(x[:0]), ones, ValueError, ["attempt to get argmax of an empty sequence"]),
    "where= needs initial=": (lambda x: np.max(x, where=x > 0), ones, ValueError, ["specify 'initial'", "initial=-np.inf"]),
    "where= of another shape": (lambda x: np.sum(x, where=np.ones((2, 3), bool)), ones, ValueError, ["(2, 3)", "(3,)"]),
    "index": (lambda x: x[5], ones, IndexError, ["index 5 is out of bounds for axis 0 with size 3"]),
    "index array": (lambda x: x[[5]], ones, IndexError, ["index 5 is out of bounds for axis 0 with size 3"]),
    "mask of another shape": (lambda x: x[np.array([True])], ones, IndexError, ["boolean index did not match"]),
    "index arrays of other shapes": (lambda x: x[None, ...][[0, 0], [0, 1, 2]], ones, IndexError, ["(2,) (3,)", "np.ix_"]),
    "too many indices": (lambda x: x[0, 0], ones, IndexError, ["too many indices", "1-dimensional, but 2"]),
    "value of another shape": (lambda x: x.at[:2].set(ones), ones, ValueError, ["(3,)", "(2,)"]),
    "float into integers": (lambda x: fnp.arange(3).at[0].add(x), 1.0, TypeError, ["float64 does not fit into int64", "astype"]),
    "reshape": (lambda x: x.reshape(2, 2), ones, ValueError, ["cannot reshape array of size 3 into shape (2, 2)", "-1"]),
    "order": (lambda x: np.reshape(x, 3, order="F"), ones, fx.UnsupportedError, ["order='F'", "Transpose first"]),
    "broadcast": (lambda x: x + np.ones(2), ones, ValueError, ["(3,) and (2,)", "x[:, None]"]),
    "broadcast_to": (lambda x: np.broadcast_to(x, (2,)), ones, ValueError, ["(3,) to (2,)", "x[:, None]"]),
    "matmul": (lambda x: x @ np.ones((2, 2)), ones, ValueError, ["(3,) and (2, 2) do not fit: 3 (axis 0) != 2 (axis 0)"]),
    "matmul with a number": (lambda x: np.matmul(x, 2.0), ones, ValueError, ["does not have enough dimensions", "Use *"]),
    "concatenate": (lambda x: np.concatenate([x[None], np.ones((1, 2))]), ones, ValueError, ["(1, 3) and (1, 2)", "np.stack"]),
    "stack": (lambda x: np.stack([x, x[:2]]), ones, ValueError, ["must have the same shape", "np.concatenate"]),
    "split": (lambda x: np.split(x, 2), ones, ValueError, ["equal division", "np.array_split"]),
    "ragged list": (lambda x: fnp.array([x, x[:2]]), ones, ValueError, ["(3,), (2,)", "np.concatenate"]),
    "einsum": (lambda x: np.einsum("ij", x), ones, ValueError, ["'ij'", "rank 1"]),
    "pad mode": (lambda x: np.pad(x, 1, "linear"), ones, ValueError, ["'linear' is not supported"]),
    "quantile method": (lambda x: np.quantile(x, 0.5, method="weib"), ones, ValueError, ["weibull", "linear"]),
}  # fmt: skip
UNDER_JIT: dict[str, Case] = {
    "mask": (lambda x: x[x > 0], ones, fx.ConcretizationError, ["boolean mask", "np.where(mask, x, 0)", "np.sum(x, where=mask)"]),
    "nonzero": (lambda x: np.nonzero(x), ones, fx.ConcretizationError, ["boolean mask"]),
    "repeat": (lambda x: np.repeat(ones, x.astype(int)), ones, fx.ConcretizationError, ["size"]),
    "slice bound": (lambda x: x[: x.astype(int)[0]], ones, fx.ConcretizationError, ["bound of a slice", "fx.lax.dynamic_slice"]),
    "lax promotes not": (lambda x: fx.lax.add(x, np.ones(3, np.float32)), ones, TypeError, ["float64, float32", "astype"]),
    "lax broadcasts not": (lambda x: fx.lax.add(x, np.ones(2)), ones, TypeError, ["(3,)", "(2,)"]),
}  # fmt: skip


def check(transform: Callable[..., Any], case: Case) -> None:
    f, x, kind, words = case
    with pytest.raises(kind) as caught:
        transform(f)(x)
    text = str(caught.value)
    missing = [w for w in words if w not in text]
    assert not missing, f"{missing} not in:\n{text}"
    if isinstance(caught.value, fx.FxError):
        assert "at test_numpy_errors.py:" in text, text


@pytest.mark.parametrize("name", UNDER_GRAD)
def test_under_grad(name: str) -> None:
    check(fx.grad, UNDER_GRAD[name])


@pytest.mark.parametrize("name", UNDER_JIT)
def test_under_jit(name: str) -> None:
    check(fx.jit, UNDER_JIT[name])


def test_missing_names() -> None:
    with pytest.raises(fx.UnsupportedError, match="np.savetxt is not supported") as caught:
        fnp.savetxt  # noqa: B018
    assert isinstance(caught.value, AttributeError) and "outside the transformed function" in str(caught.value)
    with pytest.raises(AttributeError, match="Did you mean: cumsum"):
        fnp.cumsun  # noqa: B018
    with pytest.raises(AttributeError, match="Did you mean: norm"):
        fnp.linalg.nrm  # noqa: B018


def test_assignment_into_a_plain_array() -> None:
    """NumPy asks the value for a number; the line that does so is an assignment."""

    def f(x: Any) -> Any:
        plain[0] = x[0]

    with pytest.raises(fx.MutationError, match=r"plain\[0\] = x\[0\]") as caught:
        fx.grad(f)(ones)
    assert "np.zeros_like(x, shape=n)" in str(caught.value) and not plain.any()
