"""Attention, and positions turned into it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import fxgrad.numpy as fnp
from fxgrad import errors
from fxgrad.nn.activations import softmax
from fxgrad.nn.common import as_float, constant
from fxgrad.numpy.core import result_type, tensor

__all__ = ["attention", "rotary"]


def attention(q: Any, k: Any, v: Any, causal: bool = False, mask: Any = None, scale: float | None = None) -> Any:
    """softmax(scale * q @ k.T) @ v: each query's mean of the values, weighted by how its key fits (Vaswani et al., 2017).

    Shapes and masks are those of PyTorch's scaled_dot_product_attention: heads, if any, stand before the sequence.

    Arguments:
        q: (..., H, T, D), or (T, D) without heads.
        k: (..., K, S, D); axes in front broadcast. If H is a multiple of K, H / K neighbouring heads of q share one of k and v
            (grouped-query attention, Ainslie et al., 2023).
        v: (..., K, S, E).
        causal: whether query t attends to keys 0 to t only.
        mask: of a shape that broadcasts to (..., H, T, S): bools, True where a query attends to a key; or floats that are
            added to the scores. A query that attends to nothing gets zeros.
        scale: of the scores; 1/sqrt(D) by default.

    Returns:
        (..., H, T, E).

    Raises:
        FxValueError: shapes that do not fit. FxTypeError: a mask of integers.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> q, v = np.zeros((3, 2)), np.array([[3.0], [1.0], [2.0]])
        >>> fx.nn.attention(q, q, v, causal=True)
        array([[3.],
               [2.],
               [2.]])
    """
    q, k, v = (as_float(tensor(x)) for x in (q, k, v))
    _check_shapes(q, k, v)
    groups = _groups(q, k, v)
    if groups:  # heads that share a key become an axis of their own, along which k and v broadcast
        q = fnp.reshape(q, (*q.shape[:-3], q.shape[-3] // groups, groups, *q.shape[-2:]))
        k, v = fnp.expand_dims(k, -3), fnp.expand_dims(v, -3)
        mask = _grouped(mask, groups)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = fnp.multiply(fnp.matmul(q, fnp.swapaxes(k, -1, -2)), scale)
    y = fnp.matmul(_weights(scores, causal, mask), v)
    return fnp.reshape(y, (*y.shape[:-4], y.shape[-4] * groups, *y.shape[-2:])) if groups else y


def _weights(scores: Any, causal: bool, mask: Any) -> Any:
    """softmax of the scores (..., T, S) that are not masked."""
    allowed = None
    if causal:
        t, s = scores.shape[-2:]
        allowed = fnp.greater_equal(fnp.arange(t)[:, None], fnp.arange(s))
    if mask is not None:
        mask = tensor(mask)
        if mask.dtype.kind == "f":
            scores = fnp.add(scores, mask)
        elif mask.dtype.kind == "b":
            allowed = mask if allowed is None else fnp.logical_and(allowed, mask)
        else:
            raise errors.FxTypeError(
                f"attention got a mask of dtype {mask.dtype}",
                why="A mask of bools says what is attended to; a mask of floats is added to the scores.",
                fix="Pass mask=mask.astype(bool) for the first, a floating dtype for the second.",
            )
    if allowed is None:
        return softmax(scores)
    weights = softmax(fnp.where(allowed, scores, constant(scores, -math.inf)))
    # rows without a single key are NaN there; elsewhere this changes nothing
    return weights if mask is None else fnp.where(allowed, weights, constant(weights, 0))


def _check_shapes(q: Any, k: Any, v: Any) -> None:
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2] or not q.shape[-1]:
        raise errors.FxValueError(
            f"attention got q, k, v of shapes {q.shape}, {k.shape}, {v.shape}",
            why="They are (..., T, D), (..., S, D) and (..., S, E): queries and keys of one length D, a value for each key.",
            fix="Bring heads in front of the sequence, as in PyTorch: np.swapaxes(x, -3, -2) for x of (B, T, H, D).",
        )


def _groups(q: Any, k: Any, v: Any) -> int:
    """How many heads of q share one of k and v; 0 if their axes broadcast as they are."""
    heads = [x.shape[-3] if x.ndim > 2 else 1 for x in (q, k, v)]
    if heads[1] != heads[2] or heads[0] == heads[1] or 1 in heads[:2]:
        return 0
    if heads[0] % heads[1] or not heads[1]:
        raise errors.FxValueError(
            f"attention got {heads[0]} heads of queries and {heads[1]} of keys and values",
            why="Each key and value head serves as many query heads.",
            fix="Make the number of query heads a multiple of the others.",
        )
    return heads[0] // heads[1]


def _grouped(mask: Any, groups: int) -> Any:
    """A mask for (..., H, T, S) as one for (..., K, groups, T, S)."""
    if mask is None or np.ndim(mask) < 3:
        return mask
    mask = tensor(mask)
    heads = mask.shape[-3]
    return fnp.reshape(mask, (*mask.shape[:-3], *((1, 1) if heads == 1 else (heads // groups, groups)), *mask.shape[-2:]))


def rotary(x: Any, positions: Any = None, base: float = 10000.0) -> Any:
    """Rotary position embedding (Su et al., 2021): pairs of features turned by angles that grow with the position.

    Feature i goes with feature i + D/2, as in GPT-NeoX and Llama. Apply it to queries and keys: their product then depends on
    the distance of their positions.

    Arguments:
        x: (..., T, D), D even.
        positions: (T,), or a shape that broadcasts to (..., T); 0 to T - 1 by default.
        base: the pair i turns by base ** (-2 i / D) radians a position.

    Returns:
        The shape and dtype of x.

    Raises:
        FxValueError: D is odd, or x has one axis.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.rotary(np.array([[1.0, 0.0], [1.0, 0.0]])).round(4)
        array([[1.    , 0.    ],
               [0.5403, 0.8415]])
    """
    x = as_float(tensor(x))
    if x.ndim < 2 or x.shape[-1] % 2:
        raise errors.FxValueError(
            f"rotary got x of shape {x.shape}",
            why="It turns pairs of features of (..., T, D), so D is even.",
            fix="Give heads an even number of features.",
        )
    half = x.shape[-1] // 2
    wide = result_type(x, np.float32)
    rates = (float(base) ** (-np.arange(half) / max(half, 1))).astype(wide)
    positions = fnp.arange(x.shape[-2]) if positions is None else tensor(positions)
    angles = fnp.multiply(fnp.astype(positions, wide)[..., None], rates)
    cos, sin = fnp.cos(angles), fnp.sin(angles)
    a, b = fnp.astype(x[..., :half], wide), fnp.astype(x[..., half:], wide)
    first = fnp.subtract(fnp.multiply(a, cos), fnp.multiply(b, sin))
    second = fnp.add(fnp.multiply(b, cos), fnp.multiply(a, sin))
    return fnp.astype(fnp.concatenate([first, second], axis=-1), x.dtype)
