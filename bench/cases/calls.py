"""What a call costs when the arrays are tiny: a compiled function, one operation, a gradient without jit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import fxgrad as fx
import fxgrad.numpy as fnp
from bench.peers import EAGER, FXGRAD, JAX, TORCH, Spelling, contenders
from bench.run import Run
from bench.timing import Group, Target

PARAMETERS = 16
JAX_EAGER = "jax eager"


def three_operations(xp: Any, a: Any, b: Any, c: Any) -> Any:
    return xp.tanh(a * b + c)


def many_operations(xp: Any, a: Any, b: Any, c: Any) -> Any:
    for _ in range(10):
        a = xp.sin(a) * b + c
    return xp.sum(a * a)


def square_sine(xp: Any, x: Any) -> Any:
    return xp.sum(xp.sin(x) ** 2)


def norm(xp: Any, p: dict[str, Any]) -> Any:
    return sum(xp.sum(v * v) for v in p.values())


def decayed(xp: Any, p: dict[str, Any]) -> Any:
    return {name: v * 0.9 for name, v in p.items()}


def dict_contenders(run: Run, f: Callable[..., Any], p: dict[str, np.ndarray]) -> dict[str, Callable[[], Any]]:
    jitted = fx.jit(lambda p: f(np, p))
    found: dict[str, Callable[[], Any]] = {FXGRAD: lambda: jitted(p), "numpy": lambda: f(np, p)}
    jax, torch = run.peers.jax, run.peers.torch
    if jax is not None:
        compiled, jp = jax.jit(lambda p: f(jax.numpy, p)), jax.tree.map(jax.numpy.asarray, p)
        found[JAX] = lambda: jax.block_until_ready(compiled(jp))
    if torch is not None:
        tp = {name: torch.from_numpy(v) for name, v in p.items()}
        found[TORCH[0]] = lambda: f(torch, tp)
        compiler = run.peers.torch_compile()
        if compiler is not None:
            fused = compiler(lambda p: f(torch, p))
            found[TORCH[1]] = lambda: fused(tp)
    return found


def jit_call(run: Run) -> Group:
    group = run.group("jit_call", "Calls of a compiled function, arrays of 10 elements", FXGRAD)
    three = Target("call, three arrays of 10", FXGRAD, 0.4, (JAX,))
    for label, f, dtype, targets in (
        ("tanh(a*b + c), float32", three_operations, "float32", [three]),
        ("tanh(a*b + c), float64", three_operations, "float64", [three]),
        ("30 operations and a sum, float64", many_operations, "float64", []),
    ):
        args = [np.linspace(0.1, k, 10).astype(dtype) for k in (1, 2, 3)]
        run.row(group, label, contenders(run.peers, Spelling(f), args), 1e-5, targets)
    p = {f"p{i:02}": np.linspace(0.1, 1.0 + i, 10).astype(np.float32) for i in range(PARAMETERS)}
    for label, g in (("a dict of 16 arrays to its sum of squares", norm), ("a dict of 16 arrays to another", decayed)):
        target = Target(label.replace("a dict", "call, a dict"), FXGRAD, 0.6, (JAX,))
        run.row(group, label, dict_contenders(run, g, p), 1e-5, [target])
    group.notes.append("JAX and torch are given their own arrays and return such; fxgrad takes and returns numpy.ndarray.")
    return group


def exp(xp: Any, x: Any, y: Any) -> Any:
    return xp.exp(x)


def product(xp: Any, x: Any, y: Any) -> Any:
    return xp.matmul(x, y)


def eager_contenders(run: Run, f: Callable[..., Any], x: np.ndarray, y: np.ndarray) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {EAGER: partial(f, fnp, x, y), "numpy": partial(f, np, x, y)}
    jax, torch = run.peers.jax, run.peers.torch
    if jax is not None:
        jx, jy = jax.numpy.asarray(x), jax.numpy.asarray(y)
        found[JAX_EAGER] = lambda: f(jax.numpy, jx, jy).block_until_ready()
    if torch is not None:
        found[TORCH[0]] = partial(f, torch, torch.from_numpy(x), torch.from_numpy(y))
    return found


def operations(run: Run) -> Group:
    group = run.group("eager_call", "One operation without jit", EAGER)
    for label, f, shape in (
        ("np.exp(x), 10 elements", exp, (10,)),
        ("x @ y, 10 elements", product, (10,)),
        ("x @ y, 10x10", product, (10, 10)),
    ):
        for dtype in ("float32", "float64"):
            x, y = (np.linspace(0.1, k, int(np.prod(shape))).astype(dtype).reshape(shape) for k in (1, 2))
            target = Target(f"eager {label}", EAGER, 0.4, (JAX_EAGER,))
            run.row(group, f"{label}, {dtype}", eager_contenders(run, f, x, y), 1e-5, [target] if "elements" in label else [])
    return group


def grad_contenders(run: Run, x: np.ndarray) -> dict[str, Callable[[], Any]]:
    gradient = fx.grad(lambda x: square_sine(np, x))
    found: dict[str, Callable[[], Any]] = {EAGER: lambda: gradient(x)}
    jax, torch, autograd = run.peers.jax, run.peers.torch, run.peers.module("autograd")
    if autograd is not None:
        import autograd.numpy as anp

        peer_gradient = autograd.grad(lambda x: square_sine(anp, x))
        found["autograd"] = lambda: peer_gradient(x)
    if jax is not None:
        j, jax_gradient = jax.numpy.asarray(x), jax.grad(lambda x: square_sine(jax.numpy, x))
        found[JAX_EAGER] = lambda: jax_gradient(j).block_until_ready()
    if torch is not None:
        t = torch.from_numpy(x.copy()).requires_grad_()
        found[TORCH[0]] = lambda: torch.autograd.grad(square_sine(torch, t), t)[0]
    return found


def eager_grad(run: Run) -> Group:
    group = run.group("eager_grad", "Gradient of sum(sin(x)**2) without jit", EAGER)
    for n in (3, 1000):
        targets = [Target("eager gradient, n = 3", EAGER, 1.2, ("autograd",))] if n == 3 else []
        run.row(group, f"n = {n}, float64", grad_contenders(run, np.linspace(0.1, 1.0, n)), 1e-12, targets)
    return group


def measure(run: Run) -> list[Group]:
    return [jit_call(run), operations(run), eager_grad(run)]
