"""Loss and gradients of the transformer block of examples/transformer_parity.py."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fxgrad as fx
from bench.peers import peer
from bench.timing import Group, Row, interleave

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "transformer_parity.py"
SIZES = ("4,64,128,8", "1,16,32,4")


def load_example(array_module: Any = None) -> Any:
    """The example as a module, with its `np` bound to another array module: the same model source for JAX."""
    spec = importlib.util.spec_from_file_location("transformer_parity", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if array_module is not None:
        module.np = array_module
    return module


def contenders(example: Any, size: Any, dtype: str, torch: Any, jax: Any) -> dict[str, Callable[[], Any]]:
    params, x, target = example.make_problem(size, dtype, seed=0)
    eager = fx.value_and_grad(example.loss_of(size.heads, target), (0, 1))
    jitted = fx.jit(eager)
    found = {"fxgrad jit": lambda: jitted(params, x), "fxgrad eager": lambda: eager(params, x)}
    if jax is not None:
        jparams, jx, jtarget = jax.tree.map(jax.numpy.asarray, (params, x, target))
        compiled = jax.jit(jax.value_and_grad(load_example(jax.numpy).loss_of(size.heads, jtarget), (0, 1)))
        found["jax jit"] = lambda: jax.block_until_ready(compiled(jparams, jx))
    if torch is not None:
        leaves = {g: {k: torch.from_numpy(a.copy()).requires_grad_() for k, a in q.items()} for g, q in params.items()}
        tx, ttarget = torch.from_numpy(x.copy()).requires_grad_(), torch.from_numpy(target)
        flat = list(example.named(leaves, tx).values())

        def torch_gradients() -> Any:
            return torch.autograd.grad(example.torch_loss(torch, leaves, tx, ttarget, size.heads), flat)

        found["torch eager"] = torch_gradients
    return found


def measure(repeat: int, threads: int) -> list[Group]:
    group = Group("transformer", "Transformer block, loss and all gradients", "fxgrad jit", threads)
    torch, jax = peer("torch", threads, group.notes), peer("jax", threads, group.notes)
    group.notes.append("torch eager uses its own layers (layer_norm, softmax, gelu); JAX runs the example's source on jax.numpy.")
    group.notes.append("For information.")
    example = load_example()
    for text in SIZES:
        size = example.Size(*map(int, text.split(",")))
        for dtype in ("float32", "float64"):
            found = contenders(example, size, dtype, torch, jax)
            group.rows.append(Row(f"B,T,D,H = {text}, {dtype}", interleave(found, repeat, block=0.05)))
    return [group]
