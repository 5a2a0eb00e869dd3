"""Activations, normalisation, layers, initializers and losses as plain functions of arrays."""

from fxgrad.nn.activations import (
    elu,
    gelu,
    glu,
    hard_tanh,
    leaky_relu,
    log_sigmoid,
    log_softmax,
    logsumexp,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softmax,
    softplus,
    swish,
    tanh,
)
from fxgrad.nn.convolution import avg_pool, conv, conv_transpose, max_pool, min_pool
from fxgrad.nn.layers import dense, one_hot
from fxgrad.nn.normalisation import layer_norm, rms_norm, standardize

__all__ = [
    "avg_pool", "conv", "conv_transpose", "dense", "elu", "gelu", "glu", "hard_tanh", "layer_norm", "leaky_relu", "log_sigmoid",
    "log_softmax", "logsumexp", "max_pool", "min_pool", "one_hot", "relu", "relu6", "rms_norm", "selu", "sigmoid", "silu",
    "soft_sign", "softmax", "softplus", "standardize", "swish", "tanh",
]  # fmt: skip
