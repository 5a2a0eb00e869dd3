"""A convolutional network: convolution, activation and pooling, some times over, and a dense layer (LeCun et al., 1998)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fxgrad.numpy as fnp
from fxgrad import errors, random
from fxgrad.models.common import (
    Params,
    apply_dense,
    classification_loss,
    init_dense,
    require,
    require_floating,
    require_sizes,
)
from fxgrad.nn import initializers
from fxgrad.nn.activations import relu
from fxgrad.nn.convolution import conv, max_pool

__all__ = ["Config", "apply", "init", "loss"]

_POOL = 2  # each stage halves both sides


@dataclass(frozen=True)
class Config:
    """Sizes of a convolutional network.

    Arguments:
        shape: of an image: (height, width, channels), channels last.
        outputs: numbers that come out: classes.
        channels: a tuple with the number of filters of each stage; a stage halves height and width.
        window: the side of the filters.
        dtype: of the parameters.

    Example:
        >>> import fxgrad as fx
        >>> fx.models.convnet.Config((8, 8, 1), 10)
        Config(shape=(8, 8, 1), outputs=10, channels=(32, 64), window=3, dtype='float32')
    """

    shape: tuple[int, int, int]
    outputs: int
    channels: tuple[int, ...] = (32, 64)
    window: int = 3
    dtype: str = "float32"

    def __post_init__(self) -> None:
        is_image = isinstance(self.shape, tuple) and len(self.shape) == 3
        require(self, is_image, "shape", "An image is (height, width, channels).", "Pass a tuple: (28, 28, 1).")
        many = isinstance(self.channels, tuple) and len(self.channels) > 0
        require(self, many, "channels", "It has a number of filters for each stage.", "Pass a tuple: (32, 64).")
        require_sizes(self, "shape", "outputs", "channels", "window")
        require(
            self,
            min(self._side(n) for n in self.shape[:2]) > 0,
            "channels",
            f"Each stage halves an image of {self.shape[0]} x {self.shape[1]}, and nothing would be left.",
            "Pass fewer stages.",
        )
        require_floating(self)

    def _side(self, n: int) -> int:
        """What is left of a side after all stages."""
        return n // _POOL ** len(self.channels)


def init(key: Any, config: Config) -> Params:
    """Parameters {"convs": [{"w": (window, window, n, m), "b": (m,)}, ...], "head": {"w", "b"}}.

    Weights are by he_normal, those of the head by lecun_normal; biases are zero.

    Example:
        >>> import fxgrad as fx
        >>> convnet = fx.models.convnet
        >>> params = convnet.init(fx.random.key(0), convnet.Config((8, 8, 1), 10, channels=(16, 32)))
        >>> [p["w"].shape for p in params["convs"]], params["head"]["w"].shape
        ([(3, 3, 1, 16), (3, 3, 16, 32)], (128, 10))
    """
    *keys, last = random.split(key, len(config.channels) + 1)
    sizes = (config.shape[-1], *config.channels)
    window, dtype = (config.window, config.window), config.dtype
    features = math.prod(config._side(n) for n in config.shape[:2]) * sizes[-1]
    return {
        "convs": [
            {"w": initializers.he_normal()(k, (*window, n, m), dtype), "b": fnp.zeros(m, dtype)}
            for k, n, m in zip(keys, sizes, sizes[1:], strict=False)
        ],
        "head": init_dense(last, features, config.outputs, dtype, initializers.lecun_normal()),
    }


def apply(params: Params, x: Any, activation: Callable[[Any], Any] = relu) -> Any:
    """The outputs for images.

    Arguments:
        params: of `init`.
        x: (..., height, width, channels).
        activation: after each convolution.

    Returns:
        (..., outputs).

    Raises:
        FxValueError: images of another size or number of channels than the parameters are for.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> convnet = fx.models.convnet
        >>> params = convnet.init(fx.random.key(0), convnet.Config((8, 8, 1), 10))
        >>> convnet.apply(params, np.ones((5, 8, 8, 1), np.float32)).shape
        (5, 10)
    """
    x = fnp.asarray(x)
    features, channels, given = params["head"]["w"].shape[0], params["convs"][0]["w"].shape[2], x.shape
    if x.ndim < 3 or x.shape[-1] != channels or min(x.shape[-3:-1]) < _POOL ** len(params["convs"]):
        raise _wrong_image(given, channels)
    for layer in params["convs"]:
        x = max_pool(activation(conv(x, layer["w"], layer["b"])), (_POOL, _POOL), (_POOL, _POOL))
    if math.prod(x.shape[-3:]) != features:
        raise _wrong_image(given, channels)
    return apply_dense(params["head"], fnp.reshape(x, (*x.shape[:-3], features)))


def _wrong_image(shape: tuple[int, ...], channels: int) -> errors.FxValueError:
    return errors.FxValueError(
        f"models.convnet.apply got images of shape {shape}, which are not those of its parameters",
        why=f"It takes (..., height, width, {channels}), channels last, of the size in the Config it was made with.",
        fix="Reshape them, x[..., None] for one channel; or make parameters for this size.",
    )


def loss(params: Params, x: Any, labels: Any, activation: Callable[[Any], Any] = relu) -> Any:
    """The mean cross entropy of softmax(apply(params, x, activation)) with integer labels.

    Arguments:
        params, x, activation: as for apply.
        labels: (...,) integers, 0 to outputs - 1.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> convnet = fx.models.convnet
        >>> params = convnet.init(fx.random.key(0), convnet.Config((8, 8, 1), 10))
        >>> g = fx.grad(convnet.loss)(params, np.ones((5, 8, 8, 1), np.float32), np.arange(5))
        >>> g["convs"][0]["w"].shape
        (3, 3, 1, 32)
    """
    return classification_loss(apply(params, x, activation), labels)
