"""What a call costs when the arrays are tiny: a jitted function, and an eager gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad as fx
from bench.peers import peer
from bench.timing import Group, Row, Target, interleave


def three_operations(xp: Any, a: Any, b: Any, c: Any) -> Any:
    return xp.tanh(a * b + c)


def many_operations(xp: Any, a: Any, b: Any, c: Any) -> Any:
    for _ in range(10):
        a = xp.sin(a) * b + c
    return xp.sum(a * a)


def square_sine(xp: Any, x: Any) -> Any:
    return xp.sum(xp.sin(x) ** 2)


def jit_contenders(f: Callable, args: list[np.ndarray], torch: Any, jax: Any) -> dict[str, Callable[[], Any]]:
    a, b, c = args
    jitted = fx.jit(lambda a, b, c: f(np, a, b, c))
    found = {"fxgrad jit": lambda: jitted(a, b, c), "numpy": lambda: f(np, a, b, c)}
    if jax is not None:
        compiled = jax.jit(lambda a, b, c: f(jax.numpy, a, b, c))
        ja, jb, jc = (jax.numpy.asarray(v) for v in args)
        found["jax jit"] = lambda: compiled(ja, jb, jc).block_until_ready()
    if torch is not None:
        ta, tb, tc = (torch.from_numpy(v) for v in args)
        found["torch eager"] = lambda: f(torch, ta, tb, tc)
    return found


def jit_call(repeat: int, threads: int) -> Group:
    group = Group("jit_call", "A compiled function of three arrays of 10 elements", "fxgrad jit", threads)
    torch, jax = peer("torch", threads, group.notes), peer("jax", threads, group.notes)
    group.notes.append("JAX and torch are given their own arrays and return one; fxgrad takes and returns numpy.ndarray.")
    for label, f, dtype, target in (
        ("tanh(a*b + c), float32", three_operations, "float32", Target("fxgrad jit", 10e-6)),
        ("tanh(a*b + c), float64", three_operations, "float64", Target("fxgrad jit", 10e-6)),
        ("30 operations and a sum, float64", many_operations, "float64", None),
    ):
        args = [np.linspace(0.1, k, 10).astype(dtype) for k in (1, 2, 3)]
        group.rows.append(Row(label, interleave(jit_contenders(f, args, torch, jax), repeat), None, target))
    return group


def grad_contenders(x: np.ndarray, torch: Any, jax: Any, autograd: Any) -> dict[str, Callable[[], Any]]:
    gradient = fx.grad(lambda x: square_sine(np, x))
    found = {"fxgrad": lambda: gradient(x)}
    if autograd is not None:
        import autograd.numpy as anp

        peer_gradient = autograd.grad(lambda x: square_sine(anp, x))
        found["autograd"] = lambda: peer_gradient(x)
    if jax is not None:
        j, jax_gradient = jax.numpy.asarray(x), jax.grad(lambda x: square_sine(jax.numpy, x))
        found["jax eager"] = lambda: jax_gradient(j).block_until_ready()
    if torch is not None:
        t = torch.from_numpy(x.copy()).requires_grad_()
        found["torch eager"] = lambda: torch.autograd.grad(square_sine(torch, t), t)
    return found


def eager_grad(repeat: int, threads: int) -> Group:
    group = Group("eager_grad", "Gradient of sum(sin(x)**2) without jit", "autograd", threads)
    torch, jax, autograd = (peer(name, threads, group.notes) for name in ("torch", "jax", "autograd"))
    for n in (3, 1000):
        target = Target("fxgrad", 3.0, "autograd") if n == 3 else None
        times = interleave(grad_contenders(np.linspace(0.1, 1.0, n), torch, jax, autograd), repeat)
        group.rows.append(Row(f"n = {n}, float64", times, None, target))
    return group


def measure(repeat: int, threads: int) -> list[Group]:
    return [jit_call(repeat, threads), eager_grad(repeat, threads)]
