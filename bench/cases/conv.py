"""Convolutions: a training step of a small convnet, and single layers with both their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import fxgrad as fx
from bench.peers import EAGER, FXGRAD, JAX, TORCH
from bench.run import MATMUL, Run
from bench.timing import Group, Target
from fxgrad import nn, optim

LAST = "torch eager, channels last"
STEP = Target("convnet step", FXGRAD, 1.0, (TORCH[0], TORCH[1], LAST))
NUMBERS = ("NHWC", "HWIO", "NHWC")
# Batch, size of the square image, channels in and out, window, stride, groups.
LAYERS = {
    "64x8x8x16 -> 32, 3x3": (64, 8, 16, 32, 3, 1, 1),
    "32x32x32x64 -> 128, 3x3": (32, 32, 64, 128, 3, 1, 1),
    "8x224x224x3 -> 64, 7x7, stride 2": (8, 224, 3, 64, 7, 2, 1),
    "8x56x56x64 -> 128, 3x3, stride 2": (8, 56, 64, 128, 3, 2, 1),
    "8x56x56x64, 3x3, depthwise": (8, 56, 64, 64, 3, 1, 64),
}
RATE = 1e-3


class Convnet:
    """Two convolutions of 16 and 32 channels, each with relu and pooling, and a dense layer; Adam."""

    def __init__(self, batch: int):
        rng = np.random.default_rng(0)
        shapes = {"c1": (3, 3, 1, 16), "b1": (16,), "c2": (3, 3, 16, 32), "b2": (32,), "d": (128, 10), "b": (10,)}
        self.params = {k: (0.2 * rng.standard_normal(s)).astype(np.float32) for k, s in shapes.items()}
        self.x = rng.uniform(0, 1, (batch, 8, 8, 1)).astype(np.float32)
        self.y = rng.integers(0, 10, batch)

    def fxgrad(self, jit: bool = True) -> Callable[[], Any]:
        """A step of ours."""
        labels = np.eye(10, dtype=np.float32)[self.y]

        def loss(p: Any, x: Any) -> Any:
            x = nn.max_pool(nn.relu(nn.conv(x, p["c1"], p["b1"])), (2, 2), (2, 2))
            x = nn.max_pool(nn.relu(nn.conv(x, p["c2"], p["b2"])), (2, 2), (2, 2))
            logits = nn.dense(x.reshape(len(self.x), -1), p["d"], p["b"])
            return -(labels * nn.log_softmax(logits)).sum() / np.float32(len(self.x))

        optimizer = optim.adam(RATE)

        def step(p: Any, state: Any, x: Any) -> Any:
            value, grads = fx.value_and_grad(loss)(p, x)
            updates, state = optimizer.update(grads, state, p)
            return value, optim.apply_updates(p, updates), state

        return self._running(fx.jit(step) if jit else step, self.params, optimizer.init(self.params), self.x)

    def jax(self, jax: Any, optax: Any) -> Callable[[], Any]:
        """A step of JAX with optax."""
        jnp, lax = jax.numpy, jax.lax
        labels = jnp.asarray(np.eye(10, dtype=np.float32)[self.y])

        def layer(x: Any, w: Any, b: Any) -> Any:
            x = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NUMBERS) + b)
            return lax.reduce_window(x, np.float32(-np.inf), lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

        def loss(p: Any, x: Any) -> Any:
            x = layer(layer(x, p["c1"], p["b1"]), p["c2"], p["b2"])
            logits = x.reshape(len(self.x), -1) @ p["d"] + p["b"]
            return -(labels * jax.nn.log_softmax(logits)).sum() / np.float32(len(self.x))

        optimizer = optax.adam(RATE)

        @jax.jit
        def step(p: Any, state: Any, x: Any) -> Any:
            value, grads = jax.value_and_grad(loss)(p, x)
            updates, state = optimizer.update(grads, state, p)
            return value, optax.apply_updates(p, updates), state

        params = {k: jnp.asarray(v) for k, v in self.params.items()}
        run = self._running(step, params, optimizer.init(params), jnp.asarray(self.x))
        return lambda: jax.block_until_ready(run())

    def _running(self, step: Callable, params: Any, state: Any, x: Any) -> Callable[[], Any]:
        """Calls that go on from where the last one came to; each answers the loss."""
        now = [params, state]

        def run() -> Any:
            value, *now[:] = step(*now, x)
            return value

        return run

    def torch(self, torch: Any, compiler: Callable = lambda f: f, last: bool = False) -> Callable[[], Any]:
        """A step of PyTorch's own layers and optimizer."""
        p, layers = self.params, torch.nn
        first, second, dense = layers.Conv2d(1, 16, 3, padding=1), layers.Conv2d(16, 32, 3, padding=1), layers.Linear(128, 10)
        model = layers.Sequential(first, layers.ReLU(), layers.MaxPool2d(2), second, layers.ReLU(), layers.MaxPool2d(2))
        # Rows of the dense layer are ours: channels last.
        to_last = lambda x: x.permute(0, 2, 3, 1).flatten(1)  # noqa: E731
        with torch.no_grad():
            for conv, w, b in ((first, p["c1"], p["b1"]), (second, p["c2"], p["b2"])):
                conv.weight.copy_(torch.from_numpy(w).permute(3, 2, 0, 1))
                conv.bias.copy_(torch.from_numpy(b))
            dense.weight.copy_(torch.from_numpy(p["d"]).T)
            dense.bias.copy_(torch.from_numpy(p["b"]))
        x, y = torch.from_numpy(self.x).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(self.y)
        if last:
            x, model = x.to(memory_format=torch.channels_last), model.to(memory_format=torch.channels_last)
        adam = torch.optim.Adam([*model.parameters(), *dense.parameters()], RATE)
        loss = compiler(lambda x, y: layers.functional.cross_entropy(dense(to_last(model(x))), y))

        def step() -> Any:
            adam.zero_grad()
            value = loss(x, y)
            value.backward()
            adam.step()
            return value

        return step


def convnet_step(run: Run) -> Group:
    group = run.group("conv_step", "Training step of a small convnet on images of 8x8, with Adam", FXGRAD)
    net, peers = Convnet(run.size(64, 4)), run.peers
    found = {FXGRAD: net.fxgrad(), EAGER: net.fxgrad(jit=False)}
    if peers.jax is not None and peers.module("optax") is not None:
        found[JAX] = net.jax(peers.jax, peers.module("optax"))
    if peers.torch is not None:
        found[TORCH[0]] = net.torch(peers.torch)
        found[LAST] = net.torch(peers.torch, last=True)
        compiler = None if run.tiny else peers.torch_compile()
        if compiler is not None:
            found[TORCH[1]] = net.torch(peers.torch, compiler)
    run.row(group, f"batch {len(net.x)}, float32", found, 1e-4, [STEP])
    group.notes.append(
        "Each call is the next step of a training run: convolutions of 16 and 32 channels, pooling, dense; its loss."
    )
    return group


class Layer:
    """One convolution, channels last; `parts` are what is computed: its value, or the derivatives by input and kernel."""

    def __init__(self, n: int, size: int, channels: int, features: int, k: int, stride: int, groups: int):
        rng = np.random.default_rng(0)
        self.k, self.stride, self.groups, self.pad = k, stride, groups, k // 2
        out = (size + 2 * self.pad - k) // stride + 1
        shapes = ((n, size, size, channels), (k, k, channels // groups, features), (n, out, out, features))
        self.x, self.w, self.g = (rng.standard_normal(s).astype(np.float32) for s in shapes)
        self.flops = 2 * self.g.size * k * k * channels // groups

    def ours(self, x: Any, w: Any) -> Any:
        return nn.conv(x, w, None, self.stride, self.pad, 1, self.groups)

    def jaxs(self, lax: Any, x: Any, w: Any) -> Any:
        pads, strides = [(self.pad, self.pad)] * 2, (self.stride,) * 2
        return lax.conv_general_dilated(x, w, strides, pads, dimension_numbers=NUMBERS, feature_group_count=self.groups)

    def contenders(self, run: Run, part: str) -> dict[str, Callable[[], Any]]:
        arrays = (self.x, self.w) if part == "forward" else (self.x, self.w, self.g)
        ours = fx.jit(partial(_part(part), self.ours, fx.vjp))
        found: dict[str, Callable[[], Any]] = {FXGRAD: lambda: ours(*arrays)}
        jax, torch = run.peers.jax, run.peers.torch
        if jax is not None:
            theirs = jax.jit(partial(_part(part), partial(self.jaxs, jax.lax), jax.vjp))
            ready = [jax.numpy.asarray(a) for a in arrays]
            found[JAX] = lambda: jax.block_until_ready(theirs(*ready))
        if torch is not None:
            found[TORCH[0]] = self._torch(torch, part, torch.contiguous_format)
            found[LAST] = self._torch(torch, part, torch.channels_last)
        return found

    def _torch(self, torch: Any, part: str, layout: Any) -> Callable[[], Any]:
        order = {"x": (0, 3, 1, 2), "w": (3, 2, 0, 1), "g": (0, 3, 1, 2)}
        x, w, g = (torch.from_numpy(getattr(self, k).transpose(p).copy()).to(memory_format=layout) for k, p in order.items())
        shared = ((self.stride,) * 2, (self.pad,) * 2, (1, 1))
        if part == "forward":
            return lambda: torch.conv2d(x, w, None, *shared, self.groups).permute(0, 2, 3, 1)
        mask = (part == "by input", part == "by kernel", False)

        def backward() -> Any:
            found = torch.ops.aten.convolution_backward(g, x, w, None, *shared, False, (0, 0), self.groups, mask)
            return found[0].permute(0, 2, 3, 1) if mask[0] else found[1].permute(2, 3, 1, 0)

        return backward


def _part(part: str) -> Callable:
    """A function of (convolution, vjp, x, w[, g])."""
    if part == "forward":
        return lambda f, vjp, x, w: f(x, w)
    if part == "by input":
        return lambda f, vjp, x, w, g: vjp(lambda x: f(x, w), x)[1](g)[0]
    return lambda f, vjp, x, w, g: vjp(lambda w: f(x, w), w)[1](g)[0]


def layers(run: Run) -> Group:
    group = run.group("conv_layers", "Convolutions and their derivatives, float32", FXGRAD)
    peak = run.limits(group).matmul["float32"]
    for label, sizes in run.size(LAYERS, {"tiny": (2, 5, 2, 4, 3, 1, 1)}).items():
        layer = Layer(*sizes)
        for part in ("forward", "by input", "by kernel"):
            limits = {MATMUL: layer.flops / peak}
            run.row(group, f"{label}: {part}", layer.contenders(run, part), 1e-3, limits=limits, work=layer.flops, block=0.05)
    group.notes += [
        "Ours and JAX's arrays are channels last; torch's are channels first, its default, but for the column so named.",
        "The limit counts multiplications and additions, at the rate of NumPy's 1024x1024 product.",
    ]
    return group


def measure(run: Run) -> list[Group]:
    return [convnet_step(run), layers(run)]
