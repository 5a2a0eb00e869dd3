"""Training steps (forward, backward, AdamW) of a transformer block and of a GPT, written for each library as its users would."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad as fx
from bench.block import example, fused_loss
from bench.peers import Compiler

__all__ = ["BlockTraining", "GPTTraining", "Training"]

RATE = 1e-3
Step = Callable[[], Any]


class Training:
    """Parameters and a batch; each method answers a step: it goes on where the last left off, and answers (loss, first moments).

    First moments of the first step are a tenth of the gradients, which is what libraries are compared by: the update itself
    divides gradients by their size, and rounding errors that are all there is of one by theirs.
    """

    params: Any
    batch: tuple[np.ndarray, ...]
    flops: int

    def loss(self, array_module: Any) -> Callable[..., Any]:
        """loss(params, *batch), written in that module's functions."""
        raise NotImplementedError

    def torch_loss(self, torch: Any, params: Any, *batch: Any) -> Any:
        raise NotImplementedError

    def fxgrad(self) -> Step:
        optimizer, loss = fx.optim.adamw(RATE, weight_decay=0.01), self.fxgrad_loss()

        def step(params: Any, state: Any, *batch: Any) -> tuple[Any, Any, Any]:
            value, grads = fx.value_and_grad(loss)(params, *batch)
            updates, state = optimizer.update(grads, state, params)
            return fx.optim.apply_updates(params, updates), state, value

        compiled = fx.jit(step, donate_argnums=(0, 1))
        params = fx.tree.map(np.array, self.params)
        state = optimizer.init(params)
        compiled.lower(params, state, *self.batch).compile()

        def run() -> Any:
            nonlocal params, state
            params, state, value = compiled(params, state, *self.batch)
            return value, state[0].mu

        return run

    def fxgrad_loss(self) -> Callable[..., Any]:
        return self.loss(np)

    def jax(self, jax: Any, optax: Any) -> Step:
        optimizer, loss = optax.adamw(RATE, weight_decay=0.01), self.loss(jax.numpy)

        def step(params: Any, state: Any, *batch: Any) -> tuple[Any, Any, Any]:
            value, grads = jax.value_and_grad(loss)(params, *batch)
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state, value

        params = jax.tree.map(jax.numpy.array, self.params)
        batch = tuple(map(jax.numpy.asarray, self.batch))
        state = optimizer.init(params)
        compiled = jax.jit(step, donate_argnums=(0, 1)).lower(params, state, *batch).compile()

        def run() -> Any:
            nonlocal params, state
            params, state, value = jax.block_until_ready(compiled(params, state, *batch))
            return value, state[0].mu

        return run

    def torch(self, torch: Any, wrap: Compiler = lambda f: f, **options: Any) -> Step:
        """`options` are AdamW's."""
        params = fx.tree.map(lambda a: torch.from_numpy(np.array(a)).requires_grad_(), self.params)
        batch, leaves = tuple(map(torch.from_numpy, self.batch)), fx.tree.leaves(params)
        optimizer = torch.optim.AdamW(leaves, RATE, weight_decay=0.01, **options)
        loss = wrap(lambda params, *batch: self.torch_loss(torch, params, *batch))

        def run() -> Any:
            optimizer.zero_grad()
            value = loss(params, *batch)
            value.backward()
            optimizer.step()
            return value, [optimizer.state[p]["exp_avg"] for p in leaves]

        return run


class BlockTraining(Training):
    """The block of examples/transformer_parity.py; size is batch, length, width, heads."""

    def __init__(self, *size: int):
        self.size = example().Size(*size)
        self.params, *batch = example().make_problem(self.size, "float32", seed=0)
        self.batch = tuple(batch)
        b, t, d, _ = self.size
        self.flops = 3 * (24 * b * t * d * d + 4 * b * t * t * d) - 6 * b * t * d * d  # that of the input is not asked for

    def loss(self, array_module: Any) -> Callable[..., Any]:
        module = example(None if array_module is np else array_module)
        return lambda params, x, target: module.loss_of(self.size.heads, target)(params, x)

    def torch_loss(self, torch: Any, params: Any, *batch: Any) -> Any:
        return fused_loss(torch, params, *batch, self.size.heads)


class GPTTraining(Training):
    """fx.models.gpt; size is batch, length, and the fields of its Config."""

    def __init__(self, batch: int, length: int, **config: int):
        gpt = fx.models.gpt
        self.config = c = gpt.Config(context=length, **config)
        self.params = gpt.init(fx.random.key(0), c)
        self.batch = (np.random.default_rng(0).integers(0, c.vocab, (batch, length + 1)),)
        tokens, d = batch * length, c.width
        self.flops = 6 * tokens * (c.layers * (12 * d * d + 2 * length * d) + c.vocab * d)

    def fxgrad_loss(self) -> Callable[..., Any]:
        return fx.models.gpt.loss

    def loss(self, array_module: Any) -> Callable[..., Any]:
        return lambda params, ids: gpt_loss(array_module, params, ids)

    def torch_loss(self, torch: Any, params: Any, *batch: Any) -> Any:
        return torch_gpt_loss(torch, params, *batch)


def gpt_loss(np: Any, p: Any, ids: Any) -> Any:
    """The loss of fx.models.gpt in functions that all array modules have."""

    def norm(q: Any, x: Any) -> Any:
        centred = x - np.mean(x, axis=-1, keepdims=True)
        return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * q["scale"] + q["bias"]

    def gelu(x: Any) -> Any:
        return 0.5 * x * (1.0 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))

    def log_softmax(x: Any) -> Any:
        x = x - np.max(x, axis=-1, keepdims=True)
        return x - np.log(np.sum(np.exp(x), axis=-1, keepdims=True))

    tokens, targets = ids[:, :-1], ids[:, 1:]
    length = tokens.shape[1]
    causal = np.tril(np.ones((length, length), bool))
    x = p["tokens"][tokens] + p["positions"][:length]
    for q in p["blocks"]:
        a, m = q["attention"], q["mlp"]
        w = a["qkv"]["w"]
        split = (norm(q["norm1"], x) @ w.reshape(w.shape[0], -1)).reshape(*x.shape[:2], *w.shape[1:]) + a["qkv"]["b"]
        query, key, value = (split[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
        scores = query @ key.transpose(0, 1, 3, 2) * (1 / math.sqrt(w.shape[3]))
        weights = np.exp(log_softmax(np.where(causal, scores, -np.inf)))
        x = x + (weights @ value).transpose(0, 2, 1, 3).reshape(x.shape) @ a["out"]["w"] + a["out"]["b"]
        x = x + gelu(norm(q["norm2"], x) @ m["up"]["w"] + m["up"]["b"]) @ m["down"]["w"] + m["down"]["b"]
    scores = log_softmax(norm(p["norm"], x) @ p["tokens"].T)
    return -np.mean(np.take_along_axis(scores, targets[..., None], axis=-1))


def torch_gpt_loss(torch: Any, p: Any, ids: Any) -> Any:
    """The same with torch's own layers."""
    f = torch.nn.functional

    def norm(q: Any, x: Any) -> Any:
        return f.layer_norm(x, x.shape[-1:], q["scale"], q["bias"], 1e-5)

    def dense(q: Any, x: Any) -> Any:
        return f.linear(x, q["w"].t(), q["b"])

    tokens, targets = ids[:, :-1], ids[:, 1:]
    x = f.embedding(tokens, p["tokens"]) + p["positions"][: tokens.shape[1]]
    for q in p["blocks"]:
        a, m = q["attention"], q["mlp"]
        w = a["qkv"]["w"]
        joined = {"w": w.reshape(w.shape[0], -1), "b": a["qkv"]["b"].reshape(-1)}
        split = dense(joined, norm(q["norm1"], x)).reshape(*x.shape[:2], *w.shape[1:])
        query, key, value = (split[:, :, i].transpose(1, 2) for i in range(3))
        mixed = f.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + dense(a["out"], mixed)
        x = x + dense(m["down"], f.gelu(dense(m["up"], norm(q["norm2"], x)), approximate="tanh"))
    logits = f.linear(norm(p["norm"], x), p["tokens"])
    return f.cross_entropy(logits.flatten(0, 1), targets.flatten())
