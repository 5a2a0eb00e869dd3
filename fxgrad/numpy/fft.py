"""Discrete Fourier transforms: numpy.fft, linear and differentiable. float32 stays float32, as in NumPy 2."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import as_dtype, canonical_axis, refuse_out, static_int, tensor
from fxgrad.numpy.creation import arange
from fxgrad.numpy.prepared import prepared
from fxgrad.numpy.repetition import roll
from fxgrad.primitives import complex as cx
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import fft as p
from fxgrad.primitives.reduce import cut, pad_axis

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft", "irfft2",
    "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

_SWAPPED = {"backward": "forward", None: "forward", "ortho": "ortho", "forward": "backward"}


# ---- what all of them do -----------------------------------------------------------------------------------------------


def _complex(a: Any) -> Any:
    x = tensor(a)
    if x.dtype.kind == "c":
        return x
    return as_dtype(x, np.dtype(np.complex64 if x.dtype in (np.float16, np.float32) else np.complex128))


def _real(a: Any) -> Any:
    x = tensor(a)
    if x.dtype.kind == "c":
        raise errors.FxTypeError(
            f"the transform of a real array got {x.dtype}",
            why="It computes half of the terms, which are those of all only for real numbers.",
            fix="Use np.fft.fft, or pass np.real(x).",
        )
    return as_dtype(x, np.dtype(np.float32 if x.dtype in (np.float16, np.float32) else np.float64))


def _length(n: Any, default: int) -> int:
    n = default if n is None else static_int(n)
    if n < 1:
        raise errors.FxValueError(
            f"Invalid number of FFT data points ({n}) specified.",
            why="A transform has at least one point.",
            fix="Pass n= (or s=) of at least 1, or arrays with elements.",
        )
    return n


def _sized(x: Any, axis: int, n: int) -> Any:
    """x cut, or filled up with zeros, to n along an axis."""
    have = x.shape[axis]
    if have > n:
        return cut(x, axis, 0, n)
    return x if have == n else pad_axis(x, x.dtype.type(0), axis, 0, n - have)


def _scaled(x: Any, n: int, norm: str | None, inverse: bool) -> Any:
    """x divided by what `norm` asks for a transform of n points."""
    if norm not in _SWAPPED:
        raise errors.FxValueError(
            f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".',
            why="It says which of a transform and its inverse is divided by n, or both by its root.",
            fix="Leave norm away for NumPy's usual one, backward.",
        )
    if norm == "ortho":
        by = 1 / math.sqrt(n)
    elif (norm == "forward") != inverse:
        by = 1 / n
    else:
        return x
    factor = cx.real_dtype(x.dtype).type(by)
    if x.dtype.kind != "c":
        return e.mul(x, factor)
    return cx.complex_(e.mul(cx.real(x), factor), e.mul(cx.imag(x), factor))


def _axes(x: Any, s: Sequence[int] | None, axes: Sequence[int] | None) -> tuple[list[int], list[Any]]:
    """Axes and lengths of a transform over several; None or -1: as long as the axis is."""
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    s = [-1] * len(axes) if s is None else s
    if len(s) != len(axes):
        raise errors.FxValueError(
            "Shape and axes have different lengths.",
            why="s= has one length for each axis.",
            fix="Pass both of one length, or leave s= away.",
        )
    return [canonical_axis(static_int(a), x.ndim) for a in axes], [None if n is None or n == -1 else n for n in s]


# ---- one axis ------------------------------------------------------------------------------------------------------------


@prepared(1)
def fft(a: Any, n: Any = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """The discrete Fourier transform along an axis, as numpy.fft.fft.

    Arguments:
        a: any array; real numbers count as complex ones.
        n: how many points to take, the array being cut or filled up with zeros; by default all.
        axis: which axis.
        norm: "backward" (the inverse is divided by n), "ortho" (both by its root), "forward" (the transform).

    Returns:
        A complex array, complex64 for float32 and complex64.

    Example:
        >>> import numpy as np, fxgrad.numpy as fnp
        >>> fnp.fft.fft(np.array([1.0, 0.0, 0.0, 0.0]))
        array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j])
    """
    refuse_out("fft.fft", out)
    return _along(a, n, axis, norm, False)


@prepared(1)
def ifft(a: Any, n: Any = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """The inverse transform along an axis, as numpy.fft.ifft; arguments as of `fft`."""
    refuse_out("fft.ifft", out)
    return _along(a, n, axis, norm, True)


def _along(a: Any, n: Any, axis: int, norm: str | None, inverse: bool) -> Any:
    x = _complex(a)
    axis = canonical_axis(axis, x.ndim)
    n = _length(n, x.shape[axis])
    return _scaled(p.fft(_sized(x, axis, n), axis=axis, inverse=inverse), n, norm, inverse)


@prepared(1)
def rfft(a: Any, n: Any = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """The terms 0 to n//2 of the transform of a real array, as numpy.fft.rfft; arguments as of `fft`."""
    refuse_out("fft.rfft", out)
    x = _real(a)
    axis = canonical_axis(axis, x.ndim)
    n = _length(n, x.shape[axis])
    return _scaled(p.rfft(_sized(x, axis, n), axis=axis), n, norm, False)


@prepared(1)
def irfft(a: Any, n: Any = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """The n real numbers whose transform begins with `a`, as numpy.fft.irfft; n is by default even: 2*(m - 1)."""
    refuse_out("fft.irfft", out)
    x = _complex(a)
    axis = canonical_axis(axis, x.ndim)
    n = _length(n, 2 * (x.shape[axis] - 1))
    return _scaled(p.irfft(_sized(x, axis, n // 2 + 1), axis=axis, n=n), n, norm, True)


def hfft(a: Any, n: Any = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """The real transform of an array with Hermitian symmetry, given by its first half, as numpy.fft.hfft."""
    refuse_out("fft.hfft", out)
    return irfft(ew.conjugate(_complex(a)), n, axis, _SWAPPED.get(norm, norm))


def ihfft(a: Any, n: Any = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """The inverse of `hfft`: the first half of an array with Hermitian symmetry, as numpy.fft.ihfft."""
    refuse_out("fft.ihfft", out)
    return ew.conjugate(rfft(a, n, axis, _SWAPPED.get(norm, norm)))


# ---- several axes --------------------------------------------------------------------------------------------------------


def fftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: Any = None) -> Any:
    """The transform along several axes (all), one after the other, as numpy.fft.fftn; `s` are the numbers of points."""
    refuse_out("fft.fftn", out)
    return _over(_complex(a), s, axes, norm, False)


def ifftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: Any = None) -> Any:
    """The inverse of `fftn`, as numpy.fft.ifftn."""
    refuse_out("fft.ifftn", out)
    return _over(_complex(a), s, axes, norm, True)


def _over(x: Any, s: Any, axes: Any, norm: str | None, inverse: bool) -> Any:
    for axis, n in reversed(list(zip(*_axes(x, s, axes), strict=True))):
        x = (ifft if inverse else fft)(x, n, axis, norm)
    return x


def fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: Any = None) -> Any:
    """The transform along two axes, as numpy.fft.fft2."""
    return fftn(a, s, axes, norm, out)


def ifft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: Any = None) -> Any:
    """The inverse of `fft2`, as numpy.fft.ifft2."""
    return ifftn(a, s, axes, norm, out)


def rfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: Any = None) -> Any:
    """`rfft` along the last of several axes, `fft` along the others, as numpy.fft.rfftn."""
    refuse_out("fft.rfftn", out)
    x = _real(a)
    over, sizes = _axes(x, s, axes)
    x = rfft(x, sizes[-1], over[-1], norm)
    for axis, n in zip(over[-2::-1], sizes[-2::-1], strict=True):
        x = fft(x, n, axis, norm)
    return x


def irfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: Any = None) -> Any:
    """The inverse of `rfftn`, as numpy.fft.irfftn."""
    refuse_out("fft.irfftn", out)
    x = _complex(a)
    over, sizes = _axes(x, s, axes)
    for axis, n in zip(over[:-1], sizes[:-1], strict=True):
        x = ifft(x, n, axis, norm)
    return irfft(x, sizes[-1], over[-1], norm)


def rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: Any = None) -> Any:
    """`rfftn` along two axes, as numpy.fft.rfft2."""
    return rfftn(a, s, axes, norm, out)


def irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: Any = None) -> Any:
    """The inverse of `rfft2`, as numpy.fft.irfft2."""
    return irfftn(a, s, axes, norm, out)


# ---- frequencies ---------------------------------------------------------------------------------------------------------


def fftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of the terms of `fft` for samples `d` apart, in cycles per unit of d, as numpy.fft.fftfreq."""
    n = static_int(n)
    k = arange(n, device=device)
    return _frequencies(ew.where(ew.less(k, (n - 1) // 2 + 1), k, ew.subtract(k, n)), n, d, dtype)


def rfftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of the terms of `rfft`, as numpy.fft.rfftfreq."""
    n = static_int(n)
    return _frequencies(arange(n // 2 + 1, device=device), n, d, dtype)


def _frequencies(k: Any, n: int, d: Any, dtype: Any) -> Any:
    y = ew.multiply(k, ew.divide(1.0, ew.multiply(n, d)))
    return y if dtype is None else as_dtype(y, np.dtype(dtype))


def fftshift(x: Any, axes: Any = None) -> Any:
    """The term of frequency 0 moved to the middle, as numpy.fft.fftshift."""
    return _shift(x, axes, lambda n: n // 2)


def ifftshift(x: Any, axes: Any = None) -> Any:
    """The inverse of `fftshift`, as numpy.fft.ifftshift."""
    return _shift(x, axes, lambda n: -(n // 2))


def _shift(x: Any, axes: Any, by: Any) -> Any:
    x = tensor(x)
    over = range(x.ndim) if axes is None else axes if isinstance(axes, (tuple, list)) else (axes,)
    over = tuple(canonical_axis(a, x.ndim) for a in over)
    return roll(x, tuple(by(x.shape[a]) for a in over), over) if over else x


def __getattr__(name: str) -> Any:
    from fxgrad.numpy.missing import missing

    raise missing("fxgrad.numpy.fft", "np.fft", name, np.fft, globals())
