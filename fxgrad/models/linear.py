"""A linear model: regression as it is, logistic regression with `loss`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fxgrad.models.common import (
    Params,
    apply_dense,
    classification_loss,
    init_dense,
    require_floating,
    require_sizes,
)
from fxgrad.nn import initializers

__all__ = ["Config", "apply", "init", "loss"]


@dataclass(frozen=True)
class Config:
    """Sizes of a linear model.

    Arguments:
        inputs: features of an example.
        outputs: numbers that come out: classes, for logistic regression.
        dtype: of the parameters.

    Raises:
        FxValueError: a field that is no such thing; so for every Config of fx.models.

    Example:
        >>> import fxgrad as fx
        >>> fx.models.linear.Config(64, 10)
        Config(inputs=64, outputs=10, dtype='float32')
    """

    inputs: int
    outputs: int
    dtype: str = "float32"

    def __post_init__(self) -> None:
        require_sizes(self, "inputs", "outputs")
        require_floating(self)


def init(key: Any, config: Config) -> Params:
    """Parameters {"w": (inputs, outputs), "b": (outputs,)}: w by lecun_normal, b zero.

    Example:
        >>> import fxgrad as fx
        >>> linear = fx.models.linear
        >>> linear.init(fx.random.key(0), linear.Config(64, 10))["w"].shape
        (64, 10)
    """
    return init_dense(key, config.inputs, config.outputs, config.dtype, initializers.lecun_normal())


def apply(params: Params, x: Any) -> Any:
    """x @ w + b.

    Arguments:
        params: of `init`.
        x: (..., inputs).

    Returns:
        (..., outputs).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.models.linear.apply({"w": np.ones((2, 1)), "b": np.zeros(1)}, np.array([1.0, 2.0]))
        array([3.])
    """
    return apply_dense(params, x)


def loss(params: Params, x: Any, labels: Any) -> Any:
    """The mean cross entropy of softmax(apply(params, x)) with integer labels: logistic regression.

    Arguments:
        params: of `init`.
        x: (..., inputs).
        labels: (...,) integers, 0 to outputs - 1.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> zero = {"w": np.zeros((2, 4)), "b": np.zeros(4)}
        >>> fx.models.linear.loss(zero, np.ones((3, 2)), np.array([0, 1, 3])).round(4) == np.log(4).round(4)
        np.True_
    """
    return classification_loss(apply(params, x), labels)
