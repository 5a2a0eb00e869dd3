"""Loops that a library has to run itself: a recurrent network over a sequence, and many small steps of an integrator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import fxgrad as fx
from bench.peers import FXGRAD, JAX, TORCH
from bench.run import Run
from bench.timing import Group, Target

DT = 1e-3


def rnn_loss(xp: Any, scan: Callable[..., Any], p: tuple[Any, Any, Any], xs: Any) -> Any:
    """The sum of squares of all states of a plain recurrent network, which begins at zero."""
    w, u, b = p

    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = xp.tanh(w @ h + u @ x + b)
        return h, h

    _, states = scan(step, b * 0, xs)
    return xp.sum(states * states)


def torch_scan(step: Callable[..., Any], state: Any, xs: Any) -> tuple[Any, Any]:
    """A loop in Python, which is how PyTorch runs one."""
    import torch

    out = []
    for x in xs:
        state, y = step(state, x)
        out.append(y)
    return state, torch.stack(out)


def lorenz(xp: Any, s: Any, p: Any) -> Any:
    return xp.stack([p[0] * (s[1] - s[0]), s[0] * (p[1] - s[2]) - s[1], s[0] * s[1] - p[2] * s[2]])


def lorenz_end(xp: Any, scan: Callable[..., Any], steps: int, s: Any, p: Any) -> Any:
    """The sum of the state of the Lorenz system after so many steps of the classical Runge-Kutta method."""

    def step(s: Any, _: Any) -> tuple[Any, None]:
        a = lorenz(xp, s, p)
        b = lorenz(xp, s + DT / 2 * a, p)
        c = lorenz(xp, s + DT / 2 * b, p)
        d = lorenz(xp, s + DT * c, p)
        return s + DT / 6 * (a + 2 * b + 2 * c + d), None

    s, _ = scan(step, s, None, length=steps)
    return xp.sum(s)


def rnn_rows(run: Run, group: Group, dtype: str) -> None:
    turns, units = run.size((1000, 32), (5, 4))
    rng = np.random.default_rng(0)
    p = tuple((rng.standard_normal(shape) / np.sqrt(units)).astype(dtype) for shape in ((units, units), (units, units), (units,)))
    xs = rng.standard_normal((turns, units)).astype(dtype)
    gradient = fx.jit(fx.grad(partial(rnn_loss, fx.numpy, fx.lax.scan)))
    found: dict[str, Callable[[], Any]] = {FXGRAD: lambda: gradient(p, xs)}
    jax, torch = run.peers.jax, run.peers.torch
    if jax is not None:
        compiled = jax.jit(jax.grad(partial(rnn_loss, jax.numpy, jax.lax.scan)))
        jp, jxs = jax.tree.map(jax.numpy.asarray, p), jax.numpy.asarray(xs)
        found[JAX] = lambda: jax.block_until_ready(compiled(jp, jxs))
    if torch is not None:
        tp, txs = tuple(torch.from_numpy(x).requires_grad_() for x in p), torch.from_numpy(xs)
        found[TORCH[0]] = lambda: torch.autograd.grad(rnn_loss(torch, torch_scan, tp, txs), tp)
    label = f"gradient of a recurrent network, {turns} steps of {units} units, {dtype}"
    run.row(group, label, found, 1e-3 if dtype == "float32" else 1e-9, [Target("recurrent network", FXGRAD, 0.5, (JAX,))])


def lorenz_row(run: Run, group: Group) -> None:
    steps = run.size(100_000, 20)
    s, p = np.ones(3), np.array([10.0, 28.0, 8 / 3])
    both = fx.jit(fx.value_and_grad(partial(lorenz_end, fx.numpy, fx.lax.scan, steps), (0, 1)))
    found: dict[str, Callable[[], Any]] = {FXGRAD: lambda: both(s, p)}
    jax = run.peers.jax
    if jax is not None:
        compiled = jax.jit(jax.value_and_grad(partial(lorenz_end, jax.numpy, jax.lax.scan, steps), (0, 1)))
        js, jp = jax.numpy.asarray(s), jax.numpy.asarray(p)
        found[JAX] = lambda: jax.block_until_ready(compiled(js, jp))
    label = f"Lorenz system, {steps} Runge-Kutta steps, value and gradient, float64"
    run.row(group, label, found, float("inf"), [Target("Lorenz system", FXGRAD, 0.3, (JAX,))])


def measure(run: Run) -> list[Group]:
    group = run.group("loops", "Loops: scan, and its gradient", FXGRAD)
    for dtype in ("float32", "float64"):
        rnn_rows(run, group, dtype)
    lorenz_row(run, group)
    group.notes += [
        "PyTorch runs the loop in Python; it is not asked for the Lorenz system, whose loop is too long for that.",
        "The Lorenz system is chaotic: results that differ in a last bit have nothing in common in the end, and are not compared.",
    ]
    return [group]
