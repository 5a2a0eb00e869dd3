"""Softmax and layer norm over the rows of a matrix, and their pullbacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import fxgrad as fx
from bench.peers import FXGRAD, JAX, TORCH, Peers, Spelling, contenders
from bench.run import BANDWIDTH, Run
from bench.timing import Group, Target

EPS = 1e-5


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def layer_norm(xp: Any, x: Any, gain: Any, bias: Any) -> Any:
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / xp.sqrt(variance + EPS) * gain + bias


def library_softmax(xp: Any, x: Any) -> Any:
    return fx.nn.softmax(x)


def jax_softmax(xp: Any, x: Any) -> Any:
    import jax

    return jax.nn.softmax(x)


def torch_softmax(torch: Any, x: Any) -> Any:
    return torch.nn.functional.softmax(x, dim=-1)


def torch_layer_norm(torch: Any, x: Any, gain: Any, bias: Any) -> Any:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), gain, bias, EPS)


WORK = {
    "softmax": Spelling(softmax, fxgrad=library_softmax, jax=jax_softmax, torch=torch_softmax),
    "layer norm": Spelling(layer_norm, torch=torch_layer_norm),
}


def pullbacks(peers: Peers, spelling: Spelling, args: list[np.ndarray], ct: np.ndarray) -> dict[str, Callable[[], Any]]:
    """The cotangents of all arguments for a cotangent of the result."""
    jitted = fx.jit(lambda ct, *xs: fx.vjp(partial(spelling.fxgrad or spelling.plain, np), *xs)[1](ct))
    found: dict[str, Callable[[], Any]] = {FXGRAD: lambda: jitted(ct, *args)}
    if peers.jax is not None:
        jax, jax_f = peers.jax, partial(spelling.jax or spelling.plain, peers.jax.numpy)
        compiled = jax.jit(lambda ct, *xs: jax.vjp(jax_f, *xs)[1](ct))
        arrays = [jax.numpy.asarray(v) for v in (ct, *args)]
        found[JAX] = lambda: jax.block_until_ready(compiled(*arrays))
    if peers.torch is not None:
        torch, torch_f = peers.torch, partial(spelling.torch or spelling.plain, peers.torch)
        tensors, tct = [torch.from_numpy(v.copy()).requires_grad_() for v in args], torch.from_numpy(ct)
        found[TORCH[0]] = lambda: torch.autograd.grad(torch_f(*tensors), tensors, tct)
        compiler = peers.torch_compile()
        if compiler is not None:
            fused = compiler(torch_f)
            found[TORCH[1]] = lambda: torch.autograd.grad(fused(*tensors), tensors, tct)
    return found


def measure(run: Run) -> list[Group]:
    rows, width = run.size((4096, 1024), (32, 64))
    group = run.group("rows", f"Softmax and layer norm of the rows of {rows}x{width}, float32", FXGRAD)
    limits = run.limits(group)
    rng = np.random.default_rng(0)
    x, ct = (rng.standard_normal((rows, width), dtype=np.float32) for _ in range(2))
    parameters = {"softmax": [], "layer norm": [rng.uniform(0.5, 1.5, width).astype(np.float32) for _ in range(2)]}
    best = {"softmax": 0.9, "layer norm": 1.0}
    for name, spelling in WORK.items():
        args = [x, *parameters[name]]
        for label, found, moved, share in (
            (name, contenders(run.peers, spelling, args), 2 * x.nbytes, best[name]),
            (f"gradient of {name}", pullbacks(run.peers, spelling, args, ct), 3 * x.nbytes, 0.7),
        ):
            targets = [Target(label, FXGRAD, 0.5, (JAX,)), Target(label, FXGRAD, share, TORCH)]
            run.row(group, label, found, 1e-4, targets, limits={BANDWIDTH: moved / limits.triad}, moved=moved)
    group.notes += [
        "A gradient is the pullback of one cotangent: from it and the arguments to the cotangents of all arguments.",
        "softmax is that of each library (fx.nn, jax.nn, torch), torch's layer norm is its own; the rest is NumPy code.",
        "GB/s counts each large array read or written once; the limit is that of a triad.",
    ]
    return [group]
