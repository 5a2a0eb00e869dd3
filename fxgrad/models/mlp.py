"""A multilayer perceptron: dense layers with an activation between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fxgrad import random
from fxgrad.models.common import (
    Params,
    apply_dense,
    classification_loss,
    init_dense,
    require,
    require_floating,
    require_sizes,
)
from fxgrad.nn.activations import relu

__all__ = ["Config", "apply", "init", "loss"]


@dataclass(frozen=True)
class Config:
    """Sizes of a multilayer perceptron.

    Arguments:
        inputs: features of an example.
        outputs: numbers that come out.
        hidden: a tuple with the width of each hidden layer; () for none.
        dtype: of the parameters.

    Example:
        >>> import fxgrad as fx
        >>> fx.models.mlp.Config(64, 10, hidden=(32,))
        Config(inputs=64, outputs=10, hidden=(32,), dtype='float32')
    """

    inputs: int
    outputs: int
    hidden: tuple[int, ...] = (128,)
    dtype: str = "float32"

    def __post_init__(self) -> None:
        require(self, isinstance(self.hidden, tuple), "hidden", "It has a width for each hidden layer.", "Pass a tuple: (128,).")
        require_sizes(self, "inputs", "outputs", "hidden")
        require_floating(self)


def init(key: Any, config: Config) -> Params:
    """Parameters {"layers": [{"w": (n, m), "b": (m,)}, ...]}: weights by he_normal, biases zero.

    Example:
        >>> import fxgrad as fx
        >>> mlp = fx.models.mlp
        >>> params = mlp.init(fx.random.key(0), mlp.Config(64, 10, hidden=(32, 16)))
        >>> [p["w"].shape for p in params["layers"]]
        [(64, 32), (32, 16), (16, 10)]
    """
    sizes = (config.inputs, *config.hidden, config.outputs)
    keys = random.split(key, len(sizes) - 1)
    return {"layers": [init_dense(k, n, m, config.dtype) for k, n, m in zip(keys, sizes, sizes[1:], strict=False)]}


def apply(params: Params, x: Any, activation: Callable[[Any], Any] = relu) -> Any:
    """The outputs for x.

    Arguments:
        params: of `init`.
        x: (..., inputs).
        activation: between the layers; fx.nn has many.

    Returns:
        (..., outputs).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> mlp = fx.models.mlp
        >>> params = mlp.init(fx.random.key(0), mlp.Config(2, 3))
        >>> mlp.apply(params, np.ones((5, 2), np.float32), fx.nn.gelu).shape
        (5, 3)
    """
    *hidden, last = params["layers"]
    for layer in hidden:
        x = activation(apply_dense(layer, x))
    return apply_dense(last, x)


def loss(params: Params, x: Any, labels: Any, activation: Callable[[Any], Any] = relu) -> Any:
    """The mean cross entropy of softmax(apply(params, x, activation)) with integer labels.

    Arguments:
        params, x, activation: as for apply.
        labels: (...,) integers, 0 to outputs - 1.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> mlp = fx.models.mlp
        >>> params = mlp.init(fx.random.key(0), mlp.Config(2, 3))
        >>> g = fx.grad(mlp.loss)(params, np.ones((4, 2), np.float32), np.array([0, 1, 2, 2]))
        >>> g["layers"][1]["b"].shape
        (3,)
    """
    return classification_loss(apply(params, x, activation), labels)
