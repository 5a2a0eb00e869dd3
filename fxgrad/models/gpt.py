"""A decoder-only transformer, as GPT-2 (Radford et al., 2019): learned positions, pre-norm blocks, a head tied or not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import fxgrad.numpy as fnp
from fxgrad import errors, random
from fxgrad.checkpointing import checkpoint_sequential
from fxgrad.control import scan
from fxgrad.models import transformer_block as block
from fxgrad.models.common import Params, require_floating, require_sizes
from fxgrad.nn import initializers
from fxgrad.nn.layers import dropout as drop
from fxgrad.nn.layers import embed
from fxgrad.nn.losses import softmax_cross_entropy_with_integer_labels

__all__ = ["Config", "apply", "generate", "init", "loss"]


@dataclass(frozen=True)
class Config:
    """Sizes of a GPT.

    Arguments:
        vocab: how many different tokens there are: 256 for bytes.
        context: the longest sequence; there is a learned position for each place.
        layers: blocks.
        heads, width: of each block; the width is a multiple of heads.
        tied: whether the table of embeddings is the matrix of the head as well.
        dtype: of the parameters.

    The default has 10.8 million parameters.

    Example:
        >>> import fxgrad as fx
        >>> fx.models.gpt.Config(vocab=128, layers=2)
        Config(vocab=128, context=256, layers=2, heads=6, width=384, tied=True, dtype='float32')
    """

    vocab: int = 256
    context: int = 256
    layers: int = 6
    heads: int = 6
    width: int = 384
    tied: bool = True
    dtype: str = "float32"

    def __post_init__(self) -> None:
        require_sizes(self, "vocab", "context", "layers")
        require_floating(self)
        self.block()

    def block(self) -> block.Config:
        """The config of each block."""
        return block.Config(self.width, self.heads, residual_scale=1 / math.sqrt(2 * self.layers), dtype=self.dtype)


def init(key: Any, config: Config) -> Params:
    """Parameters {"tokens": (vocab, width), "positions": (context, width), "blocks": [...], "norm": {...}}.

    Blocks are those of fx.models.transformer_block; unless tied, there is a "head" (width, vocab) too. Values are GPT-2's: normal
    with deviation 0.02, those that write to the residual stream 1/sqrt(2 * layers) of it.

    Example:
        >>> import fxgrad as fx
        >>> gpt = fx.models.gpt
        >>> params = gpt.init(fx.random.key(0), gpt.Config())
        >>> sum(x.size for x in fx.tree.leaves(params))
        10844160
    """
    dtype, small = config.dtype, initializers.normal(0.02)
    keys = random.split(key, config.layers + 3)
    params = {
        "tokens": small(keys[-1], (config.vocab, config.width), dtype),
        "positions": small(keys[-2], (config.context, config.width), dtype),
        "blocks": [block.init(k, config.block()) for k in keys[: config.layers]],
        "norm": block.init_norm(config.width, dtype),
    }
    return params if config.tied else {**params, "head": small(keys[-3], (config.width, config.vocab), dtype)}


def apply(params: Params, ids: Any, checkpoint: str | None = None, dropout: float = 0.0, key: Any = None) -> Any:
    """Logits of the next token at every position.

    Arguments:
        params: of `init`.
        ids: (..., T) integers, T up to the context.
        checkpoint: "block" keeps only the input of each block for the backward pass and computes the rest again there, with the
            same bits; "sqrt" and "log" keep fewer inputs (see fx.checkpoint_sequential); None keeps what is needed.
        dropout: the rate at which elements of the embeddings and of the blocks' branches are dropped; then `key` is needed.
        key: of fx.random.

    Returns:
        (..., T, vocab).

    Raises:
        FxValueError: a sequence longer than the context; an unknown `checkpoint`. FxIndexError: an id beyond the vocabulary.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> gpt = fx.models.gpt
        >>> params = gpt.init(fx.random.key(0), gpt.Config(layers=2, heads=2, width=16, context=32))
        >>> gpt.apply(params, np.array([[72, 105]])).shape
        (1, 2, 256)
    """
    blocks = params["blocks"]
    segments: dict[str | None, int | str] = {None: 1, "block": len(blocks), "sqrt": "sqrt", "log": "log"}
    if checkpoint not in segments:
        raise errors.FxValueError(
            f"models.gpt.apply got checkpoint={checkpoint!r}",
            why="It says what is computed again in the backward pass.",
            fix='Pass "block", "sqrt", "log" or None; for a budget in bytes, fx.jit has memory_budget=.',
        )
    ids = fnp.asarray(ids)
    _check_length(params, ids)
    first, *keys = [None] * (len(blocks) + 1) if key is None else random.split(key, len(blocks) + 1)
    x = fnp.add(embed(ids, params["tokens"]), params["positions"][: ids.shape[-1]])
    x = drop(first, x, dropout)
    each = [lambda x, q: block.apply(q[0], x, dropout=dropout, key=q[1])] * len(blocks)
    x = checkpoint_sequential(each, segments[checkpoint])(x, list(zip(blocks, keys, strict=True)))
    return _head(params, x)


def _head(params: Params, x: Any) -> Any:
    x = block.apply_norm(params["norm"], x)
    return fnp.matmul(x, params["head"] if "head" in params else fnp.swapaxes(params["tokens"], 0, 1))


def _check_length(params: Params, ids: Any, more: int = 0) -> None:
    context = params["positions"].shape[0]
    if ids.ndim and ids.shape[-1] + more <= context:
        return
    length = f"shape {ids.shape}" + (f" and {more} steps" if more else "")
    raise errors.FxValueError(
        f"models.gpt got ids of {length}, its context is {context}",
        why="There is a learned position for each place of the context, and ids are (..., T).",
        fix=f"Cut it: ids[..., -{context}:]; or make the model with a longer context.",
    )


def loss(params: Params, ids: Any, checkpoint: str | None = None, dropout: float = 0.0, key: Any = None) -> Any:
    """The mean cross entropy of each token given those before it, in nats.

    Arguments:
        params, checkpoint, dropout, key: as for apply.
        ids: (..., T + 1) integers; the first T are the input, the last T are to be predicted.

    Returns:
        A scalar.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> gpt = fx.models.gpt
        >>> params = gpt.init(fx.random.key(0), gpt.Config(layers=2, heads=2, width=16, context=32))
        >>> ids = np.frombuffer(b"Hello, world", np.uint8)
        >>> bool(abs(gpt.loss(params, ids) - np.log(256)) < 0.1)
        True
    """
    ids = fnp.asarray(ids)
    logits = apply(params, ids[..., :-1], checkpoint, dropout, key)
    return fnp.mean(softmax_cross_entropy_with_integer_labels(logits, ids[..., 1:]))


# ---- generating --------------------------------------------------------------------------------------------------------------


def generate(params: Params, prompt: Any, steps: int, key: Any = None, temperature: float = 1.0, top_k: int | None = None) -> Any:
    """The prompt, continued token by token.

    Keys and values of all positions are kept, so that a step costs one position. It compiles as a whole:
    `fx.jit(fx.models.gpt.generate, static_argnames=("steps", "temperature", "top_k"))`.

    Arguments:
        params: of `init`.
        prompt: (..., P) integers, P at least 1.
        steps: how many tokens to add; P + steps is at most the context.
        key: of fx.random; not needed at temperature 0. The same key gives the same tokens.
        temperature: what logits are divided by: below 1 likely tokens are chosen more often, at 0 the likeliest always.
        top_k: choose among the k likeliest only (Fan, Lewis and Dauphin, 2018).

    Returns:
        (..., P + steps) integers of the prompt's dtype.

    Raises:
        FxValueError: too many steps, an empty prompt, a negative temperature, top_k < 1, no key.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> gpt = fx.models.gpt
        >>> params = gpt.init(fx.random.key(0), gpt.Config(layers=2, heads=2, width=16, context=32))
        >>> gpt.generate(params, np.array([72, 105]), 5, fx.random.key(1), top_k=10).shape
        (7,)
    """
    prompt = fnp.asarray(prompt)
    _check_length(params, prompt, steps)
    _check_sampling(prompt, steps, key, temperature, top_k)
    if not steps:
        return prompt
    *batch, length = prompt.shape
    cache = [block.empty_cache(p, tuple(batch), length + steps) for p in params["blocks"]]
    logits, cache = _continue(params, prompt, cache, 0)
    token = _sample(logits, key, length, temperature, top_k)

    def turn(carry: tuple[Any, Any], position: Any) -> tuple[tuple[Any, Any], Any]:
        token, cache = carry
        logits, cache = _continue(params, token[..., None], cache, position)
        return (_sample(logits, key, fnp.add(position, 1), temperature, top_k), cache), token

    (last, _), tokens = scan(turn, (token, cache), fnp.arange(length, length + steps - 1))
    added = fnp.concatenate([fnp.moveaxis(tokens, 0, -1), last[..., None]], axis=-1)
    return fnp.concatenate([prompt, fnp.astype(added, prompt.dtype)], axis=-1)


def _continue(params: Params, ids: Any, cache: list[Any], start: Any) -> tuple[Any, list[Any]]:
    """(logits after the last of ids, cache) for ids (..., T) at positions start, start + 1, ..."""
    places = fnp.take(params["positions"], fnp.add(fnp.arange(ids.shape[-1]), start), axis=0)
    x = fnp.add(embed(ids, params["tokens"]), places)
    caches = []
    for p, before in zip(params["blocks"], cache, strict=True):
        x, after = block.apply_cached(p, x, before, start)
        caches.append(after)
    return _head(params, x[..., -1:, :])[..., 0, :], caches


def _sample(logits: Any, key: Any, position: Any, temperature: float, top_k: int | None) -> Any:
    """The token at a position, int64, of logits (..., vocab); every position has random numbers of its own."""
    if temperature == 0:
        return fnp.argmax(logits, axis=-1)
    if top_k is not None and top_k < logits.shape[-1]:
        least = fnp.sort(logits, axis=-1)[..., -top_k, None]
        logits = fnp.where(fnp.less(logits, least), logits.dtype.type(-np.inf), logits)
    return random.categorical(random.fold_in(key, position), fnp.divide(logits, temperature))


def _check_sampling(prompt: Any, steps: Any, key: Any, temperature: Any, top_k: Any) -> None:
    ints = (int, np.integer)
    problems = {
        f"a prompt of shape {prompt.shape}": not prompt.shape[-1],
        f"steps={steps!r}": not isinstance(steps, ints) or steps < 0,
        f"temperature={temperature!r}": not isinstance(temperature, (int, float, np.number)) or not temperature >= 0,
        f"top_k={top_k!r}": top_k is not None and (not isinstance(top_k, ints) or top_k < 1),
        "no key": key is None and temperature != 0,
    }
    for what, wrong in problems.items():
        if wrong:
            raise errors.FxValueError(
                f"models.gpt.generate got {what}",
                why="It draws `steps` tokens after a prompt of at least one, with a key; sizes are fixed before it compiles.",
                fix="generate(params, prompt, steps=100, key=fx.random.key(0), temperature=0.8, top_k=40).",
            )
