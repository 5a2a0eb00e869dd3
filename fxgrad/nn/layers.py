"""Layers as functions of arrays and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import fxgrad.numpy as fnp
from fxgrad import errors, random
from fxgrad.nn.common import as_float, constant
from fxgrad.numpy.core import broadcast_to_shape, canonical_axis, tensor
from fxgrad.primitives import elementwise as e

__all__ = ["dense", "dropout", "embed", "one_hot"]


def dense(x: Any, w: Any, b: Any = None) -> Any:
    """x @ w + b.

    Arguments:
        x: (..., n).
        w: (n, m), as flax has it (PyTorch's Linear keeps the transpose).
        b: (m,), optional.

    Returns:
        (..., m).

    Raises:
        ValueError: the lengths do not fit.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.dense(np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 3.0]]), np.array([0.5, 0.0]))
        array([1.5, 6. ])
    """
    y = fnp.matmul(x, w)
    return y if b is None else fnp.add(y, b)


def embed(ids: Any, table: Any) -> Any:
    """Rows of a table: table[ids].

    Arguments:
        ids: integers of any shape, 0 to n - 1; negative ones count from the end, as in NumPy.
        table: (n, ...), usually (n, d).

    Returns:
        ids.shape + table.shape[1:]. The table's gradient adds up, in order, what each use of a row receives.

    Raises:
        FxTypeError: ids are no integers.
        FxIndexError: an id is out of bounds; of traced ids, when the compiled function runs.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.embed(np.array([2, 0]), np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]))
        array([[4., 5.],
               [0., 1.]])
    """
    ids = tensor(ids)
    if ids.dtype.kind not in "iu":
        raise errors.FxTypeError(
            f"embed got ids of dtype {ids.dtype}",
            why="An id is the number of a row of the table.",
            fix="Pass integers first and the table second; convert with ids.astype(np.int64) if they are whole numbers.",
        )
    return fnp.take(table, ids, axis=0)


def dropout(key: Any, x: Any, rate: float, deterministic: bool = False, broadcast_axes: Sequence[int] = ()) -> Any:
    """x with each element set to 0 with probability `rate`, the others divided by 1 - rate (Srivastava et al., 2014).

    Arguments:
        key: of fx.random; the same key drops the same elements, so give every layer and every step its own.
        x: any shape.
        rate: a number from 0 to 1: how much is dropped.
        deterministic: whether to return x as it is, as for inference; then key may be None.
        broadcast_axes: axes along which all elements share one fate, (1, 2) for whole channels of (N, H, W, C).

    Returns:
        The shape and dtype of x. What is dropped gets the gradient 0.

    Raises:
        FxValueError: rate is no number from 0 to 1.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> y = fx.nn.dropout(fx.random.key(0), np.ones(1000), 0.5)
        >>> sorted({float(v) for v in y}), bool(abs(y.mean() - 1) < 0.1)
        ([0.0, 2.0], True)
    """
    x = as_float(tensor(x))
    if not isinstance(rate, (int, float, np.number)) or not 0 <= rate <= 1:
        raise errors.FxValueError(
            f"dropout got rate={rate!r}",
            why="It is the probability that an element is dropped, a Python number.",
            fix="Pass a number from 0 to 1: dropout(key, x, 0.1).",
        )
    if deterministic or rate == 0:
        return x
    if rate == 1:
        return fnp.zeros_like(x)
    shared = {canonical_axis(axis, x.ndim) for axis in broadcast_axes}
    shape = tuple(1 if i in shared else n for i, n in enumerate(x.shape))
    keep = random.bernoulli(key, np.float32(1 - rate), shape)
    # a product, not a division by 1 - rate: what PyTorch computes
    return e.select(broadcast_to_shape(keep, x.shape), e.mul(x, constant(x, 1 / (1 - float(rate)))), constant(x, 0))


def one_hot(x: Any, num_classes: int, *, dtype: Any = float, axis: int = -1) -> Any:
    """Rows with a 1 at the place that x numbers, 0 elsewhere; all 0 if it is out of range. As jax.nn.one_hot.

    Arguments:
        x: integers of any shape.
        num_classes: the length of a row.
        dtype: of the result.
        axis: where the new axis stands in the result.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.one_hot(np.array([1, 0, 5]), 2)
        array([[0., 1.],
               [1., 0.],
               [0., 0.]])
    """
    x = tensor(x)
    axis = axis % (x.ndim + 1)
    lengths = tuple(num_classes if i == axis else 1 for i in range(x.ndim + 1))
    classes = fnp.reshape(fnp.arange(num_classes, dtype=x.dtype), lengths)
    return fnp.astype(fnp.equal(fnp.expand_dims(x, axis), classes), dtype)
