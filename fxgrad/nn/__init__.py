"""Activations, normalisation, layers, convolutions, attention, initializers and losses as plain functions of arrays.

There is no module class: parameters are arguments, so they are whatever tree of arrays the caller keeps (fx.models has whole
networks). Shapes are those of flax.linen and PyTorch, channels last; where the two differ, the function says whose it has.
"""

from fxgrad.nn import initializers
from fxgrad.nn.activations import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    identity,
    leaky_relu,
    log1mexp,
    log_sigmoid,
    log_softmax,
    logmeanexp,
    logsumexp,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softmax,
    softplus,
    sparse_plus,
    sparse_sigmoid,
    squareplus,
    swish,
    tanh,
)
from fxgrad.nn.attention import attention, rotary
from fxgrad.nn.convolution import avg_pool, conv, conv_transpose, max_pool, min_pool
from fxgrad.nn.layers import dense, dropout, embed, one_hot
from fxgrad.nn.losses import (
    absolute_error,
    cosine_distance,
    cosine_similarity,
    hinge_loss,
    huber_loss,
    kl_divergence,
    l2_loss,
    log_cosh,
    mae,
    mse,
    nll_loss,
    sigmoid_binary_cross_entropy,
    sigmoid_focal_loss,
    smooth_l1_loss,
    smooth_labels,
    softmax_cross_entropy,
    softmax_cross_entropy_with_integer_labels,
    squared_error,
)
from fxgrad.nn.normalisation import batch_norm, group_norm, instance_norm, layer_norm, rms_norm, standardize

__all__ = [
    "absolute_error", "attention", "avg_pool", "batch_norm", "celu", "conv", "conv_transpose", "cosine_distance",
    "cosine_similarity", "dense", "dropout", "elu", "embed", "gelu", "glu", "group_norm", "hard_sigmoid", "hard_silu",
    "hard_swish", "hard_tanh", "hinge_loss", "huber_loss", "identity", "initializers", "instance_norm", "kl_divergence",
    "l2_loss", "layer_norm", "leaky_relu", "log1mexp", "log_cosh", "log_sigmoid", "log_softmax", "logmeanexp", "logsumexp",
    "mae", "max_pool", "min_pool", "mish", "mse", "nll_loss", "one_hot", "relu", "relu6", "rms_norm", "rotary", "selu",
    "sigmoid", "sigmoid_binary_cross_entropy", "sigmoid_focal_loss", "silu", "smooth_l1_loss", "smooth_labels", "soft_sign",
    "softmax", "softmax_cross_entropy", "softmax_cross_entropy_with_integer_labels", "softplus", "sparse_plus",
    "sparse_sigmoid", "squared_error", "squareplus", "standardize", "swish", "tanh",
]  # fmt: skip
