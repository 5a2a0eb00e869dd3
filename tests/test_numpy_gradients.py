"""Gradients of fxgrad.numpy and scipy.special where other libraries answered NaN, counted wrong, or did not dispatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as ss

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad import lax, nn
from fxgrad.scipy import special as sp

mask = np.array([True, False])
ones = np.ones
Case = tuple[Callable[..., Any], Any, Any]

# function, point, gradient; reported cases are in test_reported_cases.py
CASES: dict[str, Case] = {
    "1 where": (lambda x: np.sum(np.where(x > 0, np.sqrt(x), 0.0)), np.array([-1.0, 4.0]), [0, 0.25]),
    "np.where of one": (lambda x: x[np.where(x > 0)].sum(), np.array([1.0, -1.0]), [1, 0]),
    "nested list": (lambda x: fnp.array([[x, 0.0], [1.0, x]]).sum(), 0.0, 2.0),
    "at set": (lambda x: (x.at[1].set(5.0) * x).sum(), np.array([1.0, 2.0, 3.0]), [2, 5, 6]),
    "at multiply twice": (lambda x: x.at[[0, 0]].multiply(x[1]).sum(), np.array([1.0, 2.0, 3.0]), [4, 5, 1]),
    "at mask": (lambda x: x.at[x > 1].set(x[0]).sum(), np.array([1.0, 2.0, 3.0]), [3, 0, 0]),
    "at overwrites": (lambda x: x.at[0].set(np.sqrt(x[0])).at[0].set(x[0] - 1.0)[0], np.zeros(1), [1]),
    "at last stays": (lambda x: np.zeros_like(x, shape=1).at[np.array([0, 0])].set(x).sum(), ones(2), [0, 1]),
    "at apply": (lambda x: x.at[0].apply(np.sin).sum(), np.zeros(2), [1, 1]),
    "zeros_like": (lambda x: np.zeros_like(x, shape=3).at[0].set(x).sum(), 2.0, 1.0),
    "softmax": (lambda x: sp.softmax(x)[0], np.array([1e4, -1e4, -np.inf]), [0, 0, 0]),
    "log_softmax": (lambda x: sp.log_softmax(x)[1], np.array([1e4, -1e4, -np.inf]), [-1, 1, 0]),
    "nn.softmax": (
        lambda x: nn.softmax(x, where=np.array([True, True, False]))[0],
        np.array([0.0, 0.0, np.nan]),
        [0.25, -0.25, 0],
    ),
    "logsumexp with 0 weight": (
        lambda x: sp.logsumexp(x, b=np.array([1.0, 0, 2.0])),
        np.array([0.0, 1e5, 0.0]),
        [1 / 3, 0, 2 / 3],
    ),
    "logsumexp": (sp.logsumexp, np.array([-np.inf, 0.0, 0.0]), [0, 0.5, 0.5]),
    "logsumexp of -inf": (sp.logsumexp, np.array([-np.inf, -np.inf]), [0.5, 0.5]),
    "xlogy by x": (lambda x: sp.xlogy(x, 3.0), 0.0, np.log(3.0)),
    "xlogy by y": (lambda y: sp.xlogy(0.0, y), 0.0, 0.0),
    "xlog1py by x": (lambda x: sp.xlog1py(x, 3.0), 0.0, np.log(4.0)),
    "log_ndtr": (sp.log_ndtr, 0.0, np.sqrt(2 / np.pi)),
    "log_ndtr far down": (lambda x: sp.log_ndtr(x) / 40, -40.0, 40.02496884 / 40),
    "entr": (sp.entr, 1.0, -1.0),
    "rel_entr": (lambda x: sp.rel_entr(x, 2.0), 2.0, 1.0),
    "scipy ufuncs": (lambda x: ss.erf(x) + ss.xlogy(x, 2.0), 0.0, 2 / np.sqrt(np.pi) + np.log(2)),
    "einsum": (lambda x: np.einsum("ij,jk,kl->", x, x, x), np.eye(2), np.full((2, 2), 3.0)),
    "einsum diagonal": (lambda x: np.einsum("ii", x), ones((2, 2)), np.eye(2)),
    "matmul": (lambda x: (x @ ones((2, 3))).sum(), ones((4, 2)), np.full((4, 2), 3.0)),
    "kron": (lambda x: np.kron(x, ones((2, 2))).sum(), ones((2, 2)), np.full((2, 2), 4.0)),
    "convolve": (lambda x: np.convolve(x, np.array([1.0, 2.0])).sum(), ones(3), [3, 3, 3]),
    "ufunc.reduce": (lambda x: np.add.reduce(x) + np.multiply.reduce(x) + np.maximum.reduce(x), np.array([1.0, 2.0]), [3, 3]),
    "ufunc.accumulate": (lambda x: np.add.accumulate(x).sum(), ones(2), [2, 1]),
    "ufunc.outer": (lambda x: np.multiply.outer(x, ones(3)).sum(), ones(2), [3, 3]),
    "interp by fp": (lambda y: np.interp(0.25, [0.0, 1.0], y), np.array([1.0, 3.0]), [0.75, 0.25]),
    "interp by x": (lambda x: np.interp(x, [0.0, 1.0], [1.0, 3.0]), 0.3, 2.0),
    "linspace": (lambda x: np.linspace(0, x, 5).sum(), 3.0, 2.5),
    "tile": (lambda x: np.tile(x, (2, 2)).sum(), ones(2), [4, 4]),
    "repeat": (lambda x: (np.repeat(x, [1, 0, 2])).sum(), ones(3), [1, 0, 2]),
    "pad reflect": (lambda x: np.pad(x, 1, "reflect").sum(), ones(3), [1, 3, 1]),
    "pad by the constant": (lambda c: fnp.pad(ones(3), 1, constant_values=c).sum(), 2.0, 2.0),
    "roll": (lambda x: (np.roll(x, 1) * np.arange(3.0)).sum(), ones(3), [1, 2, 0]),
    "split": (lambda x: (np.split(x, 3)[1] * 2).sum(), ones(3), [0, 2, 0]),
    "diag and trace": (lambda x: np.diag(x).sum() + np.trace(np.diag(x)), ones(3), [2, 2, 2]),
    "tril": (lambda x: np.tril(x).sum(), ones((2, 2)), [[1, 0], [1, 1]]),
    "compress": (lambda x: x.compress([1, 0, 1]).sum() + np.compress([1, 0, 0], x).sum(), ones(3), [2, 0, 1]),
    "ptp": (np.ptp, np.array([1.0, 2.0, 3.0]), [-1, 0, 1]),
    "nan_to_num": (lambda x: np.nan_to_num(x).sum(), np.array([np.nan, 1.0]), [0, 1]),
    "cumulative_sum": (lambda x: np.cumulative_sum(x, include_initial=True).sum(), ones(2), [2, 1]),
    "sinc at 0": (np.sinc, 0.0, 0.0),
    "nn.relu": (lambda x: nn.relu(x).sum(), np.array([-1.0, 0.0, 1.0]), [0, 0, 1]),
    "nn.silu": (lambda x: nn.silu(x).sum(), np.array([-np.inf, 0.0]), [0, 0.5]),
    "nn.gelu": (nn.gelu, 0.0, 0.5),
    "nn.layer_norm": (lambda x: nn.layer_norm(x, ones(2), ones(2)).sum(), ones((3, 2)), np.zeros((3, 2))),
    "lax.top_k": (lambda x: lax.top_k(x, 2)[0].sum(), np.array([3.0, 1.0, 3.0, 2.0]), [1, 0, 1, 0]),
    "lax.dynamic_slice": (lambda x: lax.dynamic_slice(x, (1,), (2,)).sum(), ones(4), [0, 1, 1, 0]),
    "lax.pad": (lambda x: lax.pad(x, 0.0, [(1, -1, 1)]).sum(), ones(3), [1, 1, 0]),
}


@pytest.mark.parametrize("name", CASES)
def test_gradient(name: str) -> None:
    f, x, want = CASES[name]
    got = fx.grad(f)(x)
    assert np.shape(got) == np.shape(x) and not np.any(np.isnan(got))
    np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-12)


def test_second_derivatives() -> None:
    assert fx.grad(fx.grad(np.sinc))(0.0) == pytest.approx(-(np.pi**2) / 3)


LIKE: dict[str, tuple[Any, ...]] = {
    "full": (2, 3.0),
    **dict.fromkeys(("zeros", "ones", "empty", "eye", "identity", "arange", "tri"), (2,)),
}


@pytest.mark.parametrize("name", LIKE)
def test_creation_like_a_traced_array(name: str) -> None:
    assert fx.grad(lambda x: x * getattr(np, name)(*LIKE[name], like=x).sum())(1.5) == getattr(np, name)(*LIKE[name]).sum() * (
        name != "empty"
    )


@pytest.mark.parametrize("name", ["array", "asarray", "ascontiguousarray"])
def test_conversion_like_a_traced_array(name: str) -> None:
    assert fx.grad(lambda x: getattr(np, name)([x, x, 1.0], like=x).sum())(1.5) == 2


def test_float16_is_accumulated_in_float32() -> None:
    x = np.full(5000, 0.1, np.float16)
    assert fnp.sum(x) == np.float16(np.sum(x, dtype=np.float64)) and fnp.sum(x).dtype == np.float16


ROWS: dict[str, Callable[..., Any]] = {
    "sort": fnp.sort,
    "median": fnp.median,
    "quantile": lambda x: fnp.quantile(x, 0.3),
    "softmax": sp.softmax,
    "std": fnp.std,
    "norm": lambda x: fnp.linalg.norm(x, 3),
    "reversed cumsum": lambda x: fnp.cumsum(x)[::-2],
    "log_ndtr": sp.log_ndtr,
    "searchsorted": lambda x: fnp.searchsorted(fnp.sort(x), x),
    "interp": lambda x: fnp.interp(0.1, fnp.sort(x), x),
    "diag": lambda x: fnp.diag(x).sum(0),
    "argmax": lambda x: fnp.asarray(x)[fnp.argmax(x)],
    "einsum": lambda x: fnp.einsum("i,j,i", x, x, x),
    "layer_norm": nn.layer_norm,
    "convolve": lambda x: fnp.convolve(x, x[:2]),
    "descending": lambda x: fnp.argsort(x, descending=True),
    "digitize": lambda x: fnp.digitize(x, [1, 0, -1]),
    "take": lambda x: fnp.take(x, fnp.array([4, -5])),
    "nanmedian": fnp.nanmedian,
}


@pytest.mark.parametrize("name", ROWS)
def test_jit_and_vmap_have_the_bits_of_eager(name: str) -> None:
    f, x = ROWS[name], np.random.default_rng(0).normal(size=(4, 5))
    eager = np.stack([f(row) for row in x])
    np.testing.assert_array_equal(np.stack([fx.jit(f)(row) for row in x]), eager)
    np.testing.assert_array_equal(fx.vmap(f)(x), eager)
