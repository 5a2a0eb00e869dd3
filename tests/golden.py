"""Programs whose IR and kernels are kept as text in tests/golden: a refactor that must not change code is seen not to.

`python -m tests.golden` writes the texts again after a change that is meant; `git diff tests/golden` then shows what it did.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fxgrad as fx
import fxgrad.numpy as fnp

FOLDER = Path(__file__).parent / "golden"
SINGLE, DOUBLE = np.float32, np.float64


def relu_chain(a: Any, b: Any, c: Any) -> Any:
    return np.maximum(a * b + c, 0.0)


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def layer_norm(x: Any, gain: Any, bias: Any) -> Any:
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * gain + bias


def cross_entropy(logits: Any, target: Any) -> Any:
    top = np.max(logits, axis=-1, keepdims=True)
    return np.mean(np.log(np.sum(np.exp(logits - top), axis=-1)) + top[:, 0] - np.sum(logits * target, axis=-1))


def attention(q: Any, k: Any, v: Any) -> Any:
    return softmax(q @ np.swapaxes(k, -1, -2) / 4.0) @ v


def mlp(x: Any, w: Any, b: Any, u: Any) -> Any:
    return np.sum((np.tanh(x @ w + b) @ u) ** 2)


def unrolled(x: Any) -> Any:
    for _ in range(4):
        x = np.sin(x) * 0.5 + x
    return np.sum(x)


def checkpointed(x: Any) -> Any:
    return np.sum(fx.checkpoint(lambda t: np.sin(np.exp(t)))(x))


def weighted(f: Callable[..., Any]) -> Callable[..., Any]:
    """A scalar that meets every entry of f's result with another cotangent."""
    return lambda w, *args: np.sum(f(*args) * w)


def arrays(*shapes: tuple[int, ...], dtype: Any = SINGLE) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


PROGRAMS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "relu_chain": (relu_chain, arrays((64, 48), (64, 48), (48,))),
    "relu_chain_gradient": (fx.grad(weighted(relu_chain), (1, 2, 3)), arrays((64, 48), (64, 48), (64, 48), (48,))),
    "polynomial_double": (lambda x: ((x * 0.5 + 1.0) * x - 2.0) * x, arrays((100,), dtype=DOUBLE)),
    "sum_of_squares": (lambda x: np.sum(x * x), arrays((1000,))),
    "column_sums": (lambda x: np.sum(x, axis=0), arrays((64, 48))),
    "mean_and_variance": (lambda x: (np.mean(x), np.var(x)), arrays((40, 30), dtype=DOUBLE)),
    "middle_axis": (lambda x: np.max(x, axis=1), arrays((8, 9, 10))),
    "transposed_sum": (lambda x, y: x.T + y, arrays((32, 48), (48, 32))),
    "softmax": (softmax, arrays((16, 100))),
    "softmax_gradient": (fx.grad(weighted(softmax), 1), arrays((16, 100), (16, 100))),
    "layer_norm": (layer_norm, arrays((16, 100), (100,), (100,))),
    "layer_norm_gradient": (fx.grad(weighted(layer_norm), (1, 2, 3)), arrays((16, 100), (16, 100), (100,), (100,))),
    "log_sum_exp": (lambda x: fx.nn.logsumexp(x, axis=-1), arrays((16, 100))),
    "cross_entropy_gradient": (fx.value_and_grad(cross_entropy), arrays((16, 100), (16, 100))),
    "attention": (attention, arrays((2, 20, 16), (2, 20, 16), (2, 20, 16))),
    "attention_gradient": (fx.grad(weighted(attention), (1, 2, 3)), arrays(*[(2, 20, 16)] * 4)),
    "mlp_gradient": (fx.value_and_grad(mlp, (1, 2, 3)), arrays((20, 8), (8, 16), (16,), (16, 4))),
    "unrolled_gradient": (fx.grad(unrolled), arrays((50,))),
    "checkpointed_gradient": (fx.grad(checkpointed), arrays((50,), dtype=DOUBLE)),
    "batched_gradient": (fx.vmap(fx.grad(lambda x: np.sum(np.tanh(x) * x))), arrays((7, 30))),
    "gather_scatter": (lambda x: fx.grad(lambda t: np.sum(fnp.take(t, np.array([3, 1, 3]), axis=0) ** 2))(x), arrays((6, 5))),
    "concatenate_and_pad": (lambda x, y: np.pad(np.concatenate([x * 2, y], axis=0), 1), arrays((4, 6), (3, 6))),
}


def text_of(name: str) -> str:
    """The program, its kernels and its steps."""
    f, args = PROGRAMS[name]
    lowered = fx.jit(f).lower(*args)
    return f"{lowered.as_text()}\n\n{lowered.compile().as_text()}\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        if path.stem not in PROGRAMS:
            path.unlink()
    for name in PROGRAMS:
        (FOLDER / f"{name}.txt").write_text(text_of(name))


if __name__ == "__main__":
    main()
