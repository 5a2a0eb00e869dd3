"""The transformer block of examples/transformer_parity.py, for every contender that measures it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fxgrad as fx
from bench.peers import Compiler

__all__ = ["Problem", "example"]

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "transformer_parity.py"


def example(array_module: Any = None) -> Any:
    """The example as a module, with its `np` bound to another array module: the same model source for JAX and autograd."""
    name = "transformer_parity" + (f"_on_{array_module.__name__.replace('.', '_')}" if array_module else "")
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, EXAMPLE)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)  # torch.compile imports it by its name
        spec.loader.exec_module(module)
        if array_module is not None:
            module.np = array_module  # type: ignore[attr-defined]
    return sys.modules[name]


def fused_loss(torch: Any, p: dict[str, Any], x: Any, target: Any, heads: int) -> Any:
    """The example's `torch_loss` with scaled_dot_product_attention, as users of torch write it for speed."""
    f, a, m = torch.nn.functional, p["attention"], p["mlp"]
    batch, length, width = x.shape

    def norm(q: dict[str, Any], h: Any) -> Any:
        return f.layer_norm(h, (width,), q["gain"], q["bias"], example().NORM_EPS)

    split = (norm(p["norm1"], x) @ a["qkv_weight"] + a["qkv_bias"]).reshape(batch, length, 3, heads, width // heads)
    query, key, value = (split[:, :, i].permute(0, 2, 1, 3) for i in range(3))
    mixed = f.scaled_dot_product_attention(query, key, value, is_causal=True).permute(0, 2, 1, 3).reshape(x.shape)
    x = x + mixed @ a["out_weight"] + a["out_bias"]
    hidden = norm(p["norm2"], x) @ m["up_weight"] + m["up_bias"]
    y = x + f.gelu(hidden, approximate="tanh") @ m["down_weight"] + m["down_bias"]
    return f.mse_loss(y, target)


class Problem:
    """Parameters, input and target of one size; each method answers a step: a function without arguments to (loss, gradients)."""

    def __init__(self, size: tuple[int, int, int, int], dtype: str):
        self.example = example()
        self.size = self.example.Size(*size)
        self.params, self.x, self.target = self.example.make_problem(self.size, dtype, seed=0)

    @property
    def flops(self) -> int:
        """Those of the matrix products, forward and backward (twice as many)."""
        b, t, d, _ = self.size
        return 3 * (24 * b * t * d * d + 4 * b * t * t * d)

    def fxgrad(self, jit: bool = True) -> Callable[[], Any]:
        step = fx.value_and_grad(self.example.loss_of(self.size.heads, self.target), (0, 1))
        if jit:
            step = fx.jit(step)
            step.lower(self.params, self.x).compile()
        return lambda: step(self.params, self.x)

    def jax(self, jax: Any) -> Callable[[], Any]:
        params, x, target = jax.tree.map(jax.numpy.asarray, (self.params, self.x, self.target))
        step = jax.value_and_grad(example(jax.numpy).loss_of(self.size.heads, target), (0, 1))
        compiled = jax.jit(step).lower(params, x).compile()
        return lambda: jax.block_until_ready(compiled(params, x))

    def autograd(self, autograd: Any) -> Callable[[], Any]:
        import autograd.numpy as anp

        loss = example(anp).loss_of(self.size.heads, self.target)
        step = autograd.value_and_grad(lambda both: loss(*both))
        return lambda: step((self.params, self.x))

    def torch(self, torch: Any, wrap: Compiler = lambda f: f, fused: bool = False) -> Callable[[], Any]:
        """Gradients in the order of `leaves`: of the parameters, sorted, and the input; `fused` takes torch's own attention."""
        ordered = {g: {k: self.params[g][k] for k in sorted(self.params[g])} for g in sorted(self.params)}
        params = {g: {k: torch.from_numpy(a.copy()).requires_grad_() for k, a in q.items()} for g, q in ordered.items()}
        x, target = torch.from_numpy(self.x.copy()).requires_grad_(), torch.from_numpy(self.target)
        inputs = [a for q in params.values() for a in q.values()] + [x]
        spelled = fused_loss if fused else self.example.torch_loss
        loss = wrap(lambda params, x, target: spelled(torch, params, x, target, self.size.heads))

        def step() -> Any:
            value = loss(params, x, target)
            return value, torch.autograd.grad(value, inputs)

        return step
