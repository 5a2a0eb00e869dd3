"""A transformer block, pre-norm: x + attention(norm(x)), then x + mlp(norm(x)) (Vaswani et al., 2017; Radford et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import fxgrad.numpy as fnp
from fxgrad import lax, random
from fxgrad.models.common import Params, apply_dense, init_dense, require, require_floating, require_sizes
from fxgrad.nn import initializers
from fxgrad.nn.activations import gelu
from fxgrad.nn.attention import attention
from fxgrad.nn.layers import dropout as drop
from fxgrad.nn.normalisation import layer_norm

__all__ = ["Config", "apply", "apply_cached", "empty_cache", "init"]


@dataclass(frozen=True)
class Config:
    """Sizes of a transformer block.

    Arguments:
        width: features at each position.
        heads: of attention; they divide the width among them.
        hidden: the width inside the MLP; 4 * width if None.
        residual_scale: the initial weights that write to the residual stream are this much smaller; GPT-2 has
            1/sqrt(2 * layers).
        dtype: of the parameters.

    Example:
        >>> import fxgrad as fx
        >>> fx.models.transformer_block.Config(width=64, heads=4)
        Config(width=64, heads=4, hidden=None, residual_scale=1.0, dtype='float32')
    """

    width: int
    heads: int
    hidden: int | None = None
    residual_scale: float = 1.0
    dtype: str = "float32"

    def __post_init__(self) -> None:
        require_sizes(self, "width", "heads", *(["hidden"] if self.hidden is not None else []))
        require(
            self,
            self.width % self.heads == 0,
            "heads",
            f"Heads share the {self.width} features evenly.",
            f"Pass a divisor of {self.width}.",
        )
        require_floating(self)


def init(key: Any, config: Config) -> Params:
    """Parameters {"norm1", "attention": {"qkv", "out"}, "norm2", "mlp": {"up", "down"}}.

    Norms have "scale" and "bias" (width,). "qkv" has "w" (width, 3, heads, width / heads) and "b" (3, heads, width / heads); the
    other layers have "w" (n, m) and "b" (m,). Weights are normal with deviation 0.02, biases zero, scales one, as GPT-2's.

    Example:
        >>> import fxgrad as fx
        >>> block = fx.models.transformer_block
        >>> block.init(fx.random.key(0), block.Config(width=64, heads=4))["attention"]["qkv"]["w"].shape
        (64, 3, 4, 16)
    """
    width, dtype = config.width, config.dtype
    hidden = 4 * width if config.hidden is None else config.hidden
    head = (3, config.heads, width // config.heads)
    keys = random.split(key, 4)
    small, smaller = initializers.normal(0.02), initializers.normal(0.02 * config.residual_scale)
    return {
        "norm1": init_norm(width, dtype),
        "attention": {
            "qkv": {"w": small(keys[0], (width, *head), dtype), "b": fnp.zeros(head, dtype)},
            "out": init_dense(keys[1], width, width, dtype, smaller),
        },
        "norm2": init_norm(width, dtype),
        "mlp": {
            "up": init_dense(keys[2], width, hidden, dtype, small),
            "down": init_dense(keys[3], hidden, width, dtype, smaller),
        },
    }


def init_norm(width: int, dtype: Any) -> Params:
    return {"scale": fnp.ones(width, dtype), "bias": fnp.zeros(width, dtype)}


def apply_norm(params: Params, x: Any) -> Any:
    return layer_norm(x, params["scale"], params["bias"])


def apply(params: Params, x: Any, causal: bool = True, mask: Any = None, dropout: float = 0.0, key: Any = None) -> Any:
    """The block's output.

    Arguments:
        params: of `init`.
        x: (..., T, width).
        causal: whether position t attends to positions 0 to t only.
        mask: as for fx.nn.attention: bools, or floats to add, that broadcast to (..., heads, T, T).
        dropout: the rate at which elements of the two branches are dropped; then `key` is needed.
        key: of fx.random.

    Returns:
        (..., T, width).

    Raises:
        FxValueError: shapes that do not fit.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> block = fx.models.transformer_block
        >>> params = block.init(fx.random.key(0), block.Config(width=64, heads=4))
        >>> block.apply(params, np.ones((2, 10, 64), np.float32)).shape
        (2, 10, 64)
    """
    q, k, v = _heads(params["norm1"], params["attention"]["qkv"], x)
    mixed = attention(q, k, v, causal=causal, mask=mask)
    return _finish(params, x, mixed, dropout, key)


def _heads(norm: Params, qkv: Params, x: Any) -> tuple[Any, ...]:
    """Queries, keys and values of the normalised x, each (..., heads, T, width of a head): one product for all."""
    w = qkv["w"]
    y = fnp.matmul(apply_norm(norm, x), fnp.reshape(w, (w.shape[0], -1)))
    y = fnp.add(fnp.reshape(y, (*y.shape[:-1], *w.shape[1:])), qkv["b"])
    return tuple(fnp.swapaxes(y[..., i, :, :], -3, -2) for i in range(3))


def _up(norm: Params, up: Params, x: Any) -> Any:
    return apply_dense(up, apply_norm(norm, x))


def _down(down: Params, hidden: Any) -> Any:
    return apply_dense(down, gelu(hidden))


def _finish(params: Params, x: Any, mixed: Any, dropout: float = 0.0, key: Any = None) -> Any:
    """What follows attention, whose result is (..., heads, T, width of a head)."""
    first, second = (None, None) if key is None else random.split(key)
    mixed = fnp.reshape(fnp.swapaxes(mixed, -3, -2), x.shape)
    x = fnp.add(x, drop(first, apply_dense(params["attention"]["out"], mixed), dropout))
    hidden = _up(params["norm2"], params["mlp"]["up"], x)
    return fnp.add(x, drop(second, _down(params["mlp"]["down"], hidden), dropout))


# ---- one position after the other ------------------------------------------------------------------------------------------


def empty_cache(params: Params, batch: tuple[int, ...], length: int) -> tuple[Any, Any]:
    """Room for the keys and values of positions that are still to come.

    Arguments:
        params: of `init`.
        batch: the axes of x in front of the positions.
        length: how many positions there will be.

    Returns:
        (keys, values): zeros (*batch, heads, length, width / heads).

    Example:
        >>> import fxgrad as fx
        >>> block = fx.models.transformer_block
        >>> params = block.init(fx.random.key(0), block.Config(width=64, heads=4))
        >>> block.empty_cache(params, (2,), 10)[0].shape
        (2, 4, 10, 16)
    """
    w = params["attention"]["qkv"]["w"]
    shape = (*batch, w.shape[2], length, w.shape[3])
    return fnp.zeros(shape, w.dtype), fnp.zeros(shape, w.dtype)


def apply_cached(params: Params, x: Any, cache: tuple[Any, Any], start: Any) -> tuple[Any, tuple[Any, Any]]:
    """The causal block for some positions, given the keys and values of those before.

    Arguments:
        params: of `init`.
        x: (..., T, width), at positions start, start + 1, ...
        cache: of `empty_cache` or of the call before.
        start: an integer, traced or not. Positions beyond the cache overwrite its end; nothing can check that under jit.

    Returns:
        (output, cache), the output (..., T, width). Its rows are those of `apply` to a sequence as long as the cache, to the
        bit: what is still to come is masked there too.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> block = fx.models.transformer_block
        >>> params = block.init(fx.random.key(0), block.Config(width=64, heads=4))
        >>> x = fx.random.normal(fx.random.key(1), (3, 64), np.float32)
        >>> y, cache = block.apply_cached(params, x[:2], block.empty_cache(params, (), 3), 0)
        >>> y, cache = block.apply_cached(params, x[2:], cache, 2)
        >>> bool((y == block.apply(params, x)[2:]).all())
        True
    """
    q, k, v = _heads(params["norm1"], params["attention"]["qkv"], x)
    at = (*(0 for _ in k.shape[:-2]), start, 0)
    keys, values = (lax.dynamic_update_slice(old, new, at) for old, new in zip(cache, (k, v), strict=True))
    positions = fnp.add(fnp.arange(x.shape[-2]), start)
    seen = fnp.greater_equal(positions[:, None], fnp.arange(keys.shape[-2]))
    return _finish(params, x, attention(q, keys, values, mask=seen)), (keys, values)
