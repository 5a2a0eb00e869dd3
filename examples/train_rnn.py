"""A recurrent network that writes Python: `python examples/train_rnn.py`.

A GRU reads the source text of Python's standard library byte by byte and predicts the next one (fx.models.rnn, a compiled scan);
trained by AdamW, gradients clipped. A few minutes on two cores. At the end it writes some text of its own.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import zoo

import fxgrad as fx
import fxgrad.numpy as fnp

BYTES = 256


def read(params: Any, ids: Any) -> Any:
    """Logits of the next byte after each of ids (..., T)."""
    return fx.models.rnn.apply(params, fx.nn.one_hot(ids, BYTES, dtype=np.float32))


def loss(params: Any, ids: Any) -> Any:
    """The mean cross entropy of each byte given those before it; ids (B, T + 1)."""
    logits = read(params, ids[:, :-1])
    return fnp.mean(fx.nn.softmax_cross_entropy_with_integer_labels(logits, ids[:, 1:]))


@functools.partial(fx.jit, static_argnames=("steps", "temperature"))
def write(params: Any, prompt: Any, key: Any, steps: int, temperature: float) -> Any:
    """`steps` bytes that follow a prompt (P,), drawn one after the other."""

    def advance(state: Any, token: Any) -> tuple[Any, Any]:
        return fx.models.rnn.step(params, state, fx.nn.one_hot(token, BYTES, dtype=np.float32))

    def turn(carry: tuple[Any, Any], i: Any) -> tuple[tuple[Any, Any], Any]:
        state, logits = carry
        token = fx.random.categorical(fx.random.fold_in(key, i), logits / temperature)
        return advance(state, token), token

    state, logits = fx.scan(advance, fx.models.rnn.initial_state(params), prompt)
    return fx.scan(turn, (state, logits[-1]), fnp.arange(steps))[1]


def task(args: zoo.argparse.Namespace) -> zoo.Task:
    small = args.size == "small"
    size, length, hidden = (4, 16, 24) if small else (16, 128, 256)
    text, held_out = zoo.python_sources(200_000 if small else None)
    config = fx.models.rnn.Config(BYTES, BYTES, hidden=hidden, cell="gru")
    rate = fx.optim.warmup_cosine_decay_schedule(0.0, 4e-3, args.steps // 20, args.steps)
    return zoo.Task(
        name=args.name,
        describe=f"GRU of {hidden}, bytes",
        init=lambda key: fx.models.rnn.init(key, config),
        loss=loss,
        batch=zoo.windows(fx.random.fold_in(fx.random.key(args.seed), 1), text, size, length),
        optimizer=fx.optim.chain(fx.optim.clip_by_global_norm(1.0), fx.optim.adamw(rate)),
        evaluate=zoo.bits_per_byte(loss, held_out, size, length, 2 if small else 16),
        measure="bits/byte",
        unit="bytes",
        per_step=size * length,
    )


if __name__ == "__main__":
    options = zoo.parse(__doc__, "rnn", {"small": 20, "full": 1500})
    params, figures = zoo.train(task(options), options)
    prompt = np.frombuffer(b"def ", np.uint8).astype(np.int32)
    key = fx.random.fold_in(fx.random.key(options.seed), 2)
    sample = write(params, prompt, key, steps=40 if options.size == "small" else 400, temperature=0.7)
    zoo.keep_sample(figures, np.concatenate([prompt, sample]), Path(options.out))
    zoo.keep_figures(figures, options)
