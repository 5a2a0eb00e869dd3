"""What the models share: checks of their configs, parameters of a dense layer, the loss of a classifier."""

from __future__ import annotations

from typing import Any

import numpy as np

import fxgrad.numpy as fnp
from fxgrad import errors
from fxgrad.nn import initializers
from fxgrad.nn.layers import dense
from fxgrad.nn.losses import softmax_cross_entropy_with_integer_labels

Params = dict[str, Any]


def require(config: Any, holds: bool, field: str, why: str, fix: str) -> None:
    """An error about a field of a config, unless `holds`."""
    if not holds:
        name = type(config).__module__.rpartition(".")[2]
        raise errors.FxValueError(f"models.{name}.Config got {field}={getattr(config, field)!r}", why=why, fix=fix)


def require_sizes(config: Any, *fields: str) -> None:
    """These fields are positive ints, or tuples of them."""
    for field in fields:
        value = getattr(config, field)
        sizes = value if isinstance(value, tuple) else (value,)
        require(
            config,
            all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n > 0 for n in sizes),
            field,
            "It is a length of arrays (a tuple of lengths, where there are several), fixed and hashable.",
            "Pass positive ints.",
        )


def require_floating(config: Any) -> None:
    """`dtype` is a floating one, by its name, so that configs are plain text in files."""
    require(
        config,
        config.dtype in ("float16", "float32", "float64"),
        "dtype",
        "It names the dtype of all parameters.",
        'Pass "float32", "float64" or "float16".',
    )


def init_dense(key: Any, n: int, m: int, dtype: Any, make: Any = None) -> Params:
    """{"w": (n, m), "b": (m,)}, biases zero; w by he_normal unless another initializer is given."""
    return {"w": (make or initializers.he_normal())(key, (n, m), dtype), "b": fnp.zeros(m, dtype)}


def apply_dense(params: Params, x: Any) -> Any:
    return dense(x, params["w"], params["b"])


def classification_loss(logits: Any, labels: Any) -> Any:
    """The mean cross entropy with integer labels."""
    return fnp.mean(softmax_cross_entropy_with_integer_labels(logits, labels))
