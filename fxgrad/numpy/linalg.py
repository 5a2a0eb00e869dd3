"""`fxgrad.numpy.linalg`: products and norms, and the names of numpy/decompositions.py and numpy/systems.py.

Every product comes down to the primitive `dot`.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy import elementwise as ew
from fxgrad.numpy import systems
from fxgrad.numpy.core import (
    as_dtype,
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    refuse_out,
    result_type,
    static_int,
    tensor,
)
from fxgrad.numpy.decompositions import cholesky, eig, eigh, eigvals, eigvalsh, qr, svd, svdvals
from fxgrad.numpy.manipulation import matrix_transpose as matrix_transpose
from fxgrad.numpy.manipulation import moveaxis, reshape, stack
from fxgrad.numpy.operands import inexact, linalg_error, matrices, square
from fxgrad.numpy.prepared import prepared
from fxgrad.numpy.reductions import root
from fxgrad.numpy.reductions import sum as _sum
from fxgrad.numpy.selection import diagonal as _diagonal
from fxgrad.numpy.selection import trace as _trace
from fxgrad.numpy.systems import det, inv, lstsq, pinv, slogdet, solve, tensorinv, tensorsolve
from fxgrad.primitives import complex as cx
from fxgrad.primitives import dot as d
from fxgrad.primitives import elementwise as e

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "dot", "eig", "eigh", "eigvals", "eigvalsh", "inner", "inv", "kron", "lstsq",
    "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "matvec", "multi_dot", "norm", "outer", "pinv",
    "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace", "vdot", "vecdot", "vecmat",
    "vector_norm",
]  # fmt: skip

LinAlgError = np.linalg.LinAlgError

# ---- the primitive, in any dtype -------------------------------------------------------------------------------------------


def contract(
    x: Any, y: Any, axes: tuple[Sequence[int], Sequence[int]], batch: tuple[Sequence[int], Sequence[int]] = ((), ())
) -> Any:
    """Sums of products over the pairs of `axes`, side by side over those of `batch`: batch axes, free axes of x, those of y."""
    dtype = result_type(x, y)
    pairs = (tuple(axes[0]), tuple(axes[1])), (tuple(batch[0]), tuple(batch[1]))
    if dtype.kind == "b":  # any(and): counted in integers
        x, y = (e.convert(as_dtype(t, dtype), dtype=np.dtype(np.int64)) for t in (x, y))
        return e.ne(d.dot(x, y, contract=pairs[0], batch=pairs[1], strong=None), np.int64(0))
    return d.dot(as_dtype(x, dtype), as_dtype(y, dtype), contract=pairs[0], batch=pairs[1], strong=None)


def _mismatch(name: str, x: Any, y: Any, i: int, j: int) -> errors.FxValueError:
    return errors.FxValueError(
        f"{name}: shapes {x.shape} and {y.shape} do not fit: "
        f"{x.shape[i]} (axis {i % x.ndim}) != {y.shape[j]} (axis {j % y.ndim})",
        why="The lengths of the axes that are summed over must be equal.",
        fix="Transpose or reshape one of them: x @ w.T, for example.",
    )


def out_dtype(name: str, kwargs: dict[str, Any]) -> Any:
    refuse_out(name, kwargs.pop("out", None))
    dtype = kwargs.pop("dtype", None)
    for ignored in ("casting", "order", "subok"):
        kwargs.pop(ignored, None)
    if kwargs:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(kwargs))}'")
    return dtype


@prepared(2)
def matmul(x1: Any, x2: Any, /, **kwargs: Any) -> Any:
    """The matrix product over the last two axes, the others broadcast, as numpy.matmul (the operator @)."""
    dtype = out_dtype("matmul", kwargs)
    x, y = tensor(x1), tensor(x2)
    for i, t in enumerate((x, y)):
        if not t.ndim:
            raise errors.FxValueError(
                f"matmul: Input operand {i} does not have enough dimensions "
                "(has 0, gufunc core with signature (n?,k),(k,m?)->(n?,m?) requires 1)",
                why="A number is no matrix.",
                fix="Use * to multiply by a number.",
            )
    if dtype is not None:
        x, y = as_dtype(x, np.dtype(dtype)), as_dtype(y, np.dtype(dtype))
    j = -2 if y.ndim > 1 else -1
    if x.shape[-1] != y.shape[j]:
        raise _mismatch("matmul", x, y, -1, j)
    if x.ndim <= 2 and y.ndim <= 2:
        return contract(x, y, ((x.ndim - 1,), (max(0, y.ndim - 2),)))
    if y.ndim <= 2:
        return contract(x, y, ((x.ndim - 1,), (max(0, y.ndim - 2),)))
    if x.ndim <= 2:
        z = contract(x, y, ((x.ndim - 1,), (y.ndim - 2,)))  # (row, batch..., column)
        return moveaxis(z, 0, -2) if x.ndim == 2 else z
    lead = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = broadcast_to_shape(x, (*lead, *x.shape[-2:])), broadcast_to_shape(y, (*lead, *y.shape[-2:]))
    axes = tuple(range(len(lead)))
    return contract(x, y, ((x.ndim - 1,), (y.ndim - 2,)), (axes, axes))


@prepared(2)
def dot(a: Any, b: Any, out: Any = None) -> Any:
    """The product of numbers, vectors or matrices, as numpy.dot: over the last axis of a and the last but one of b."""
    refuse_out("dot", out)
    x, y = tensor(a), tensor(b)
    if not x.ndim or not y.ndim:
        return ew.multiply(x, y)
    j = -2 if y.ndim > 1 else -1
    if x.shape[-1] != y.shape[j]:
        raise _mismatch("dot", x, y, -1, j)
    return contract(x, y, ((x.ndim - 1,), (y.ndim + j,)))


def conjugated(x: Any) -> Any:
    """NumPy's products conjugate complex operands only; its conjugate of a bool is an int8."""
    return ew.conjugate(x) if x.dtype.kind == "c" else x


def vdot(a: Any, b: Any, /) -> Any:
    """The dot product of the flattened arguments, the first one conjugated, as numpy.vdot."""
    return dot(reshape(conjugated(tensor(a)), -1), reshape(tensor(b), -1))


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, **kwargs: Any) -> Any:
    """Dot products of vectors along an axis, the first ones conjugated, the others broadcast, as numpy.vecdot."""
    dtype = out_dtype("vecdot", kwargs)
    x, y = conjugated(tensor(x1)), tensor(x2)
    if dtype is not None:
        x, y = as_dtype(x, np.dtype(dtype)), as_dtype(y, np.dtype(dtype))
    x, y = moveaxis(x, axis, -1), moveaxis(y, axis, -1)
    if x.shape[-1] != y.shape[-1]:
        raise _mismatch("vecdot", x, y, -1, -1)
    shape = broadcast_shapes(x.shape, y.shape)
    x, y = broadcast_to_shape(x, shape), broadcast_to_shape(y, shape)
    axes = tuple(range(len(shape) - 1))
    return contract(x, y, ((len(axes),), (len(axes),)), (axes, axes))


def matvec(x1: Any, x2: Any, /, **kwargs: Any) -> Any:
    """Matrices times vectors in the last axes, as numpy.matvec."""
    return matmul(x1, tensor(x2)[..., None], **kwargs)[..., 0]


def vecmat(x1: Any, x2: Any, /, **kwargs: Any) -> Any:
    """Vectors, conjugated, times matrices in the last axes, as numpy.vecmat."""
    return matmul(conjugated(tensor(x1))[..., None, :], x2, **kwargs)[..., 0, :]


def inner(a: Any, b: Any, /) -> Any:
    """Sums of products over the last axes, as numpy.inner."""
    x, y = tensor(a), tensor(b)
    if not x.ndim or not y.ndim:
        return ew.multiply(x, y)
    if x.shape[-1] != y.shape[-1]:
        raise _mismatch("inner", x, y, -1, -1)
    return contract(x, y, ((x.ndim - 1,), (y.ndim - 1,)))


def outer(a: Any, b: Any, out: Any = None) -> Any:
    """All products of an element of each, as a matrix, as numpy.outer."""
    refuse_out("outer", out)
    return ew.multiply(reshape(a, -1)[:, None], reshape(b, -1)[None, :])


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Sums of products over the given pairs of axes, as numpy.tensordot."""
    x, y = tensor(a), tensor(b)
    if isinstance(axes, (tuple, list)):
        left, right = ([v] if isinstance(v, int) else list(v) for v in axes)
    else:
        n = static_int(axes)
        left, right = list(range(x.ndim - n, x.ndim)), list(range(n))
    if len(left) != len(right) or len(left) > min(x.ndim, y.ndim):
        raise ValueError("shape-mismatch for sum")
    left, right = [canonical_axis(i, x.ndim) for i in left], [canonical_axis(i, y.ndim) for i in right]
    for i, j in zip(left, right, strict=True):
        if x.shape[i] != y.shape[j]:
            raise errors.FxValueError(
                f"shape-mismatch for sum: axis {i} of {x.shape} and axis {j} of {y.shape}",
                why="Paired axes have one length.",
                fix="Pass axes= of equal lengths in both operands.",
            )
    return contract(x, y, (left, right))


def kron(a: Any, b: Any) -> Any:
    """The Kronecker product, as numpy.kron."""
    x, y = tensor(a), tensor(b)
    ndim = max(x.ndim, y.ndim)
    xs, ys = (1,) * (ndim - x.ndim) + x.shape, (1,) * (ndim - y.ndim) + y.shape
    wide = ew.multiply(reshape(x, tuple(n for m in xs for n in (m, 1))), reshape(y, tuple(n for m in ys for n in (1, m))))
    return reshape(wide, tuple(m * n for m, n in zip(xs, ys, strict=True)))


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """The cross product of vectors of length 3 (or 2, which NumPy deprecates), as numpy.cross."""
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        raise ValueError(
            "Both input arrays must be (arrays of) 3-dimensional vectors, "
            f"but they are {x.shape[-1]} and {y.shape[-1]} dimensional instead."
        )
    (x0, x1, x2), (y0, y1, y2) = ([v[..., i] for i in range(3)] for v in (x, y))
    parts = [(x1, y2, x2, y1), (x2, y0, x0, y2), (x0, y1, x1, y0)]
    return moveaxis(stack([ew.subtract(ew.multiply(p, q), ew.multiply(r, t)) for p, q, r, t in parts], -1), -1, axisc)


def multi_dot(arrays: Any, *, out: Any = None) -> Any:
    """The product of several matrices in the cheapest order, as numpy.linalg.multi_dot."""
    refuse_out("multi_dot", out)
    xs = [tensor(x) for x in arrays]
    if len(xs) < 2:
        raise ValueError("Expecting at least two arrays.")
    letters = [chr(ord("a") + i) for i in range(len(xs) + 1)]
    terms = [letters[i] + letters[i + 1] for i in range(len(xs))]
    if xs[0].ndim == 1:
        terms[0] = letters[1]
    if xs[-1].ndim == 1:
        terms[-1] = letters[-2]
    ends = (letters[0] if xs[0].ndim == 2 else "") + (letters[-1] if xs[-1].ndim == 2 else "")
    from fxgrad.numpy.contraction import einsum

    return einsum(f"{','.join(terms)}->{ends}", *xs)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The sum of the diagonal of the last two axes, as numpy.linalg.trace."""
    return _trace(x, offset, -2, -1, dtype)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """The diagonal of the last two axes, as numpy.linalg.diagonal."""
    return _diagonal(x, offset, -2, -1)


# ---- norms -------------------------------------------------------------------------------------------------------------


def _float(x: Any) -> Any:
    x = tensor(x)
    return x if x.dtype.kind in "fc" else e.convert(x, dtype=np.dtype(float))


def _squared(x: Any) -> Any:
    """|x|**2, smooth at 0."""
    if x.dtype.kind != "c":
        return ew.square(x)
    return ew.add(ew.square(cx.real(x)), ew.square(cx.imag(x)))


def _vector_norm(x: Any, order: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    from fxgrad.numpy.reductions import max, min

    if order is None or order == 2:
        return root(_sum(_squared(x), axes, keepdims=keepdims))
    if order == math.inf:
        return max(ew.absolute(x), axes, keepdims=keepdims)
    if order == -math.inf:
        return min(ew.absolute(x), axes, keepdims=keepdims)
    if order == 0:
        return _sum(e.convert(ew.not_equal(x, 0), dtype=cx.real_dtype(x.dtype)), axes, keepdims=keepdims)
    if order == 1:
        return _sum(ew.absolute(x), axes, keepdims=keepdims)
    if isinstance(order, str) or np.ndim(order):
        raise ValueError(f"Invalid norm order '{order}' for vectors")
    total = _sum(ew.power(ew.absolute(x), float(order)), axes, keepdims=keepdims)
    zero = ew.equal(total, 0)  # the corner: derivative 0, as for the Euclidean norm
    if order < 0:
        return ew.power(total, 1 / float(order))
    return ew.where(zero, 0.0, ew.power(ew.where(zero, 1.0, total), 1 / float(order)))


def _matrix_norm(x: Any, order: Any, axes: tuple[int, int], keepdims: bool) -> Any:
    from fxgrad.numpy.reductions import max, min

    row, column = axes
    if row == column:
        raise ValueError("Duplicate axes given.")
    if order in (None, "fro", "f"):
        return root(_sum(_squared(x), axes, keepdims=keepdims))
    if order in (1, -1, math.inf, -math.inf):
        over, then = (row, column) if abs(order) == 1 else (column, row)
        return (
            (max if order > 0 else min)(_sum(ew.absolute(x), over, keepdims=True), axes, keepdims=keepdims) if then >= 0 else None
        )
    if order in (2, -2, "nuc"):
        s = svdvals(moveaxis(x, axes, (-2, -1)))
        y = _corner_at_zero(s, {2: max, -2: min, "nuc": _sum}[order])
        return reshape(y, tuple(1 if i in axes else n for i, n in enumerate(x.shape))) if keepdims else y
    raise ValueError("Invalid norm order for matrices.")


def _corner_at_zero(s: Any, reduce: Any) -> Any:
    """A norm of singular values; its derivative at the zero matrix is 0, as for the Euclidean norm."""
    zero = ew.equal(_sum(s, -1, keepdims=True), 0)
    return reduce(ew.where(zero, s.dtype.type(0), s), axis=-1)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """A vector or matrix norm, as numpy.linalg.norm; where the norm is 0 its derivative is 0."""
    x = _float(x)
    if axis is None:
        if ord is None or (ord in ("f", "fro") and x.ndim == 2) or (ord == 2 and x.ndim == 1):
            return _vector_norm(x, None, tuple(range(x.ndim)), keepdims)
        if x.ndim not in (1, 2):
            raise ValueError("Improper number of dimensions to norm.")
        axes: tuple[int, ...] = tuple(range(x.ndim))
    else:
        axes = tuple(canonical_axis(i, x.ndim) for i in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    if len(axes) == 1:
        return _vector_norm(x, ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, ord, (axes[0], axes[1]), keepdims)
    raise ValueError("Improper number of dimensions to norm.")


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """A vector norm over axes, as numpy.linalg.vector_norm."""
    x = _float(x)
    return _vector_norm(x, ord, canonical_axes(axis, x.ndim), keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """A matrix norm over the last two axes, as numpy.linalg.matrix_norm."""
    x = _float(x)
    return _matrix_norm(x, ord, (x.ndim - 2, x.ndim - 1), keepdims)


# ---- what is made of norms, inverses and products --------------------------------------------------------------------------


def matrix_power(a: Any, n: int) -> Any:
    """A square matrix multiplied with itself n times, or (n < 0) its inverse |n| times, as numpy.linalg.matrix_power."""
    x = square("matrix_power", tensor(a))
    n = static_int(n)
    if n == 0:
        from fxgrad.numpy.creation import eye

        return broadcast_to_shape(tensor(eye(x.shape[-1], dtype=x.dtype)), x.shape)
    if n < 0:
        x, n = inv(x), -n
    result = None
    while n:
        if n & 1:
            result = x if result is None else matmul(result, x)
        n >>= 1
        if n:
            x = matmul(x, x)
    return result


def cond(x: Any, p: Any = None) -> Any:
    """The condition number in a matrix norm (the 2-norm by default), as numpy.linalg.cond; inf if the matrix is singular."""
    a = inexact("cond", x)
    if not a.size:
        raise linalg_error("cond is not defined on empty arrays", "An empty matrix has no singular values.", "Test x.size first.")
    if p is None or p in (2, -2):
        s = svdvals(matrices("cond", a))
        large, small = (s[..., 0], s[..., -1]) if p != -2 else (s[..., -1], s[..., 0])
        ratio = ew.divide(large, small)
    else:
        a = square("cond", a)
        ratio = ew.multiply(norm(a, p, (-2, -1)), norm(systems.inverse_or_nan(a), p, (-2, -1)))
    given = ew.logical_not(ew.isnan(_sum(a, (-2, -1))))
    return ew.where(ew.logical_and(ew.isnan(ratio), given), ratio.dtype.type(math.inf), ratio)


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """How many singular values are above a threshold, as numpy.linalg.matrix_rank."""
    from fxgrad.numpy.reductions import max

    x = inexact("matrix_rank", A)
    if x.ndim < 2:
        return ew.UFUNCS["invert"](tensor(_all_zero(x))).astype(np.int64)
    s = ew.absolute(eigvalsh(x)) if hermitian else svdvals(x)
    if tol is None:
        rtol = builtins.max(x.shape[-2:]) * np.finfo(s.dtype).eps if rtol is None else rtol
        tol = ew.multiply(max(s, axis=-1, keepdims=True, initial=0), tensor(rtol)[..., None])
    else:
        tol = tensor(tol)[..., None]
    return _sum(ew.UFUNCS["greater"](s, tol), -1)


def _all_zero(x: Any) -> Any:
    from fxgrad.numpy.reductions import all

    return all(ew.equal(x, 0))


def __getattr__(name: str) -> Any:
    from fxgrad.numpy.missing import missing

    raise missing("fxgrad.numpy.linalg", "np.linalg", name, np.linalg, globals())
