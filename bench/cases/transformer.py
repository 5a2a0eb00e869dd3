"""Loss and gradients of the transformer block of examples/transformer_parity.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.block import Problem
from bench.peers import EAGER, FUSED_ATTENTION, FXGRAD, JAX, TORCH
from bench.run import MATMUL, Run
from bench.timing import Group, Target

LARGE = (8, 128, 256, 8)
SIZES = ((LARGE, "float32"), (LARGE, "float64"), ((4, 64, 128, 8), "float32"), ((1, 16, 32, 4), "float32"))
TARGETS = [
    Target("transformer block", FXGRAD, 0.75, (JAX,)),
    Target("transformer block", FXGRAD, 0.9, (*TORCH, FUSED_ATTENTION)),
    Target("transformer block, share of matmul's limit", FXGRAD, 0.75, (MATMUL,), "share"),
]


def contenders(run: Run, problem: Problem, compiled: bool) -> dict[str, Callable[[], Any]]:
    peers = run.peers
    found = {FXGRAD: problem.fxgrad(), EAGER: problem.fxgrad(jit=False)}
    if peers.jax is not None:
        found[JAX] = problem.jax(peers.jax)
    if peers.torch is not None:
        found[TORCH[0]] = problem.torch(peers.torch)
        found[FUSED_ATTENTION] = problem.torch(peers.torch, fused=True)
        compiler = peers.torch_compile() if compiled else None
        if compiler is not None:
            found[TORCH[1]] = problem.torch(peers.torch, compiler)
    if peers.module("autograd") is not None:
        found["autograd"] = problem.autograd(peers.module("autograd"))
    return found


def measure(run: Run) -> list[Group]:
    group = run.group("transformer", "Transformer block, loss and all gradients", FXGRAD)
    limits = run.limits(group)
    for size, dtype in run.size(SIZES, (((1, 4, 8, 2), "float32"),)):
        problem = Problem(size, dtype)
        targets = TARGETS if (size, dtype) == SIZES[0] else []
        run.row(
            group, f"B,T,D,H = {','.join(map(str, size))}, {dtype}", contenders(run, problem, bool(targets)), 1e-4, targets,
            limits={MATMUL: problem.flops / limits.matmul[dtype]}, work=problem.flops, block=0.1,
        )  # fmt: skip
    group.notes += [
        "torch uses its own layers (layer_norm, softmax, gelu) and, in the column so named, scaled_dot_product_attention.",
        "JAX and autograd run the example's source on their NumPy.",
        "torch.compile takes half a minute for the block and gets only the size that has targets.",
        "The limit counts the matrix products alone, at the rate of NumPy's 1024x1024 product.",
    ]
    return [group]
