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


# label, function, torch's spelling, elements, arguments
CASES = (
    ("relu(a*b + c), 1e5", relu, lambda torch, a, b, c: torch.relu(a * b + c), 100_000, 3),
    ("relu(a*b + c), 1e7", relu, lambda torch, a, b, c: torch.relu(a * b + c), 10_000_000, 3),
    ("sum(a*a), 1e7", square_sum, square_sum, 10_000_000, 1),
)


def contenders(f: Callable, f_torch: Callable, args: list[np.ndarray], torch: Any, jax: Any) -> dict[str, Callable[[], Any]]:
    jitted = fx.jit(lambda *xs: f(np, *xs))
    found = {"fxgrad jit": lambda: jitted(*args), "numpy": lambda: f(np, *args)}
    if jax is not None:
        compiled, arrays = jax.jit(lambda *xs: f(jax.numpy, *xs)), [jax.numpy.asarray(v) for v in args]
        found["jax jit"] = lambda: compiled(*arrays).block_until_ready()
    if torch is not None:
        tensors = [torch.from_numpy(v) for v in args]
        found["torch eager"] = lambda: f_torch(torch, *tensors)
    return found


def measure(repeat: int, threads: int) -> list[Group]:
    group = Group("memory", "Memory-bound chains, float32", "fxgrad jit", threads)
    torch, jax = peer("torch", threads, group.notes), peer("jax", threads, group.notes)
    group.notes.append(
        "GB/s counts each input read once and each output written once, whatever is really moved. For information."
    )
    rng = np.random.default_rng(0)
    for label, f, f_torch, n, arity in CASES:
        args = [rng.standard_normal(n, dtype=np.float32) for _ in range(arity)]
        moved = sum(v.nbytes for v in args) + (args[0].nbytes if f is relu else 4)
        group.rows.append(Row(label, interleave(contenders(f, f_torch, args, torch, jax), repeat, block=0.03), moved))
    return [group]
