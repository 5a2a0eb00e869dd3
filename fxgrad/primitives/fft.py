"""Discrete Fourier transforms along one axis, not scaled: library calls of numpy.fft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.ir.types import Aval, aval_of
from fxgrad.primitives import elementwise as e
from fxgrad.primitives.base import Doc, Primitive, linear_map, type_error
from fxgrad.primitives.complex import complex_dtype, conj, real_dtype
from fxgrad.primitives.reduce import cut

__all__ = ["fft", "irfft", "rfft"]

_REFERENCE = "the matrix of the transform is symmetric"


def _check(name: str, x: Aval, axis: int, kinds: str) -> None:
    fine = x.dtype.kind == "c" if kinds == "c" else x.dtype in (np.float32, np.float64)
    if not fine or not 0 <= axis < x.ndim or x.shape[axis] < 1:
        raise type_error(
            name, (x,), f"It takes {'complex' if kinds == 'c' else 'real'} numbers and an axis {axis} of some length."
        )


def _fft_typ(x: Aval, *, axis: int, inverse: bool) -> list[Aval]:
    _check("fft", x, axis, "c")
    return [x]


def _fft_numpy(x: Any, *, axis: int, inverse: bool) -> np.ndarray:
    if not x.size:
        return np.zeros(x.shape, x.dtype)
    return np.fft.ifft(x, axis=axis, norm="forward") if inverse else np.fft.fft(x, axis=axis)


def _batch(prim: Callable[[], Primitive]) -> Callable[..., tuple[list, list[bool]]]:
    def rule(size: int, args: Sequence[Any], batched: Sequence[bool], *, axis: int, **params: Any) -> tuple[list, list[bool]]:
        return [prim()(args[0], axis=axis + 1, **params)], [True]

    return rule


fft = linear_map(
    "fft",
    "host",
    _fft_typ,
    Doc("sum of x[j] exp(-2 pi i jk/n) over an axis (inverse: +)", "the same of g", _REFERENCE),
    transpose=lambda cts, inputs, **params: [fft(cts[0], **params)],
    batch=_batch(lambda: fft),
    numpy=_fft_numpy,
    cheap=False,
)


def _rfft_typ(x: Aval, *, axis: int) -> list[Aval]:
    _check("rfft", x, axis, "f")
    return [Aval(_resized(x.shape, axis, x.shape[axis] // 2 + 1), complex_dtype(x.dtype))]


def _resized(shape: tuple[int, ...], axis: int, n: int) -> tuple[int, ...]:
    return (*shape[:axis], n, *shape[axis + 1 :])


def _rfft_numpy(x: Any, *, axis: int) -> np.ndarray:
    if not x.size:
        return np.zeros(_resized(x.shape, axis, x.shape[axis] // 2 + 1), complex_dtype(x.dtype))
    return np.fft.rfft(x, axis=axis)


def _rfft_transpose(cts: Sequence[Any], inputs: Sequence[Any], *, axis: int) -> list:
    """The half that was not computed receives nothing: each term that stands for two in the inverse counts half."""
    n = inputs[0].aval.shape[axis]
    return [irfft(_scaled_inside(conj(cts[0]), axis, n, 0.5), axis=axis, n=n)]


def _scaled_inside(g: Any, axis: int, n: int, factor: float) -> Any:
    """Half a transform of n real numbers, its terms times a factor but the first and, of an even number, the last."""
    from fxgrad.primitives.shape import concatenate

    m = n // 2 + 1
    if m == 1:
        return g
    last = m - 1 if n % 2 == 0 else m
    inside = e.mul(cut(g, axis, 1, last), aval_of(g).dtype.type(factor))
    return concatenate(cut(g, axis, 0, 1), inside, cut(g, axis, last, m), axis=axis)


rfft = linear_map(
    "rfft",
    "host",
    _rfft_typ,
    Doc("the first n//2 + 1 terms of the transform of a real array", "irfft(conj g), half but at the ends", _REFERENCE),
    transpose=_rfft_transpose,
    batch=_batch(lambda: rfft),
    numpy=_rfft_numpy,
    cheap=False,
)


def _irfft_typ(x: Aval, *, axis: int, n: int) -> list[Aval]:
    _check("irfft", x, axis, "c")
    if n < 1 or x.shape[axis] != n // 2 + 1:
        raise type_error("irfft", (x,), f"A real array of {n} has {n // 2 + 1} terms.")
    return [Aval(_resized(x.shape, axis, n), real_dtype(x.dtype))]


def _irfft_numpy(x: Any, *, axis: int, n: int) -> np.ndarray:
    if not x.size:
        return np.zeros(_resized(x.shape, axis, n), real_dtype(x.dtype))
    return np.fft.irfft(x, n, axis=axis, norm="forward")


def _irfft_transpose(cts: Sequence[Any], inputs: Sequence[Any], *, axis: int, n: int) -> list:
    """Each term stands for itself and its conjugate in the other half, but the first and, of an even number, the last."""
    return [_scaled_inside(conj(rfft(cts[0], axis=axis)), axis, n, 2.0)]


irfft = linear_map(
    "irfft",
    "host",
    _irfft_typ,
    Doc("n real numbers from the terms of the first half of their transform", "conj rfft(g), twice but at the ends", _REFERENCE),
    transpose=_irfft_transpose,
    batch=_batch(lambda: irfft),
    numpy=_irfft_numpy,
    cheap=False,
)
