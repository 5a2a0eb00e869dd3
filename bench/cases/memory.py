"""Memory-bound chains: relu(a*b + c), of which the unfused form moves 32 bytes an element and the fused one 16, and sum(a*a)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad as fx
from bench.peers import peer
from bench.timing import Group, Row, interleave


def relu(xp: Any, a: Any, b: Any, c: Any) -> Any:
    return xp.maximum(a * b + c, 0)


def square_sum(xp: Any, a: Any) -> Any:
    return xp.sum(a * a)


CASES = (
    ("relu(a*b + c), 1e5", relu, 100_000),
    ("relu(a*b + c), 1e7", relu, 10_000_000),
    ("sum(a*a), 1e7", square_sum, 10_000_000),
)


def torch_relu(torch: Any, a: Any, b: Any, c: Any) -> Any:
    return torch.relu(a * b + c)


def contenders(f: Callable, args: list[np.ndarray], torch: Any, jax: Any, numexpr: Any) -> dict[str, Callable[[], Any]]:
    jitted = fx.jit(lambda *xs: f(np, *xs))
    found = {"fxgrad jit": lambda: jitted(*args), "numpy": lambda: f(np, *args)}
    if jax is not None:
        compiled, arrays = jax.jit(lambda *xs: f(jax.numpy, *xs)), [jax.numpy.asarray(v) for v in args]
        found["jax jit"] = lambda: compiled(*arrays).block_until_ready()
    if torch is not None:
        tensors, spelled = [torch.from_numpy(v) for v in args], torch_relu if f is relu else f
        found["torch eager"] = lambda: spelled(torch, *tensors)
    if numexpr is not None:
        text, names = "where(a*b + c > 0, a*b + c, 0)" if f is relu else "sum(a*a)", dict(zip("abc", args, strict=False))
        found["numexpr"] = lambda: numexpr.evaluate(text, names)
    return found


def measure(repeat: int, threads: int) -> list[Group]:
    group = Group("memory", "Memory-bound chains, float32", "fxgrad jit", threads)
    torch, jax, numexpr = (peer(name, threads, group.notes) for name in ("torch", "jax", "numexpr"))
    group.notes.append(
        "GB/s counts each input read once and each output written once, whatever is really moved. For information."
    )
    rng = np.random.default_rng(0)
    for label, f, n in CASES:
        args = [rng.standard_normal(n, dtype=np.float32) for _ in range(3 if f is relu else 1)]
        moved = sum(v.nbytes for v in args) + (args[0].nbytes if f is relu else 4)
        group.rows.append(Row(label, interleave(contenders(f, args, torch, jax, numexpr), repeat, block=0.03), moved))
    return [group]
