"""Gradients of a transformer block, here and in PyTorch, side by side: `python examples/transformer_parity.py`.

The model is a pre-norm block (causal multi-head attention, GELU MLP, two layer norms, biases everywhere) written in plain NumPy.
With the same weights and input, the derivative of every parameter is compared with PyTorch's for each way fxgrad can compute it,
and these ways with each other, which must agree to the last bit. The exit code is 1 if anything is off.

    --size B,T,D,H    batch, sequence length, width, heads (default 4,64,128,8)
    --dtype NAME      float32 (limit 1e-5), float64 (limit 1e-11), or both (default)
    --bisect          walk the activations from the loss back and name the first whose gradient differs from PyTorch's
    --plant NAME      scale the gradient of activation NAME by 1.5, to see the table and --bisect find it
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import fxgrad as fx

LIMITS = {"float32": 1e-5, "float64": 1e-11}
TINY = 1e-30  # keeps 0/0 out of the table and is far below any gradient in it
NORM_EPS = 1e-5
GELU_SCALE = math.sqrt(2 / math.pi)  # a Python number: a NumPy float64 would promote float32 arrays

# In the order they are computed. Walking backwards, a gradient depends only on those of activations further down this list.
ACTIVATIONS = (
    "input", "norm1", "query", "key", "value", "scores", "probabilities", "mixed", "attended",
    "middle", "norm2", "hidden", "activated", "output",
)  # fmt: skip

Params = dict[str, dict[str, Any]]
Tap = Callable[[str, Any], Any]


class Size(NamedTuple):
    """Batch, sequence length, width and number of heads."""

    batch: int
    length: int
    width: int
    heads: int


# ---- the model, in plain NumPy -------------------------------------------------------------------------------------------


def untapped(name: str, value: Any) -> Any:
    """The tap that leaves an activation alone."""
    return value


def layer_norm(p: dict[str, Any], x: Any) -> Any:
    centred = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return centred / np.sqrt(variance + NORM_EPS) * p["gain"] + p["bias"]


def gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + np.tanh(GELU_SCALE * (x + 0.044715 * x * x * x)))


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def attention(p: dict[str, Any], x: Any, heads: int, tap: Tap) -> Any:
    batch, length, width = x.shape
    split = np.reshape(x @ p["qkv_weight"] + p["qkv_bias"], (batch, length, 3, heads, width // heads))
    query, key, value = (np.transpose(split[:, :, i], (0, 2, 1, 3)) for i in range(3))
    query, key, value = tap("query", query), tap("key", key), tap("value", value)
    scores = tap("scores", query @ np.swapaxes(key, -1, -2) / math.sqrt(width // heads))
    causal = np.tril(np.ones((length, length), dtype=bool))
    probabilities = tap("probabilities", softmax(np.where(causal, scores, -np.inf)))
    mixed = tap("mixed", np.reshape(np.transpose(probabilities @ value, (0, 2, 1, 3)), x.shape))
    return tap("attended", mixed @ p["out_weight"] + p["out_bias"])


def mlp(p: dict[str, Any], x: Any, tap: Tap) -> Any:
    hidden = tap("hidden", x @ p["up_weight"] + p["up_bias"])
    return tap("activated", gelu(hidden)) @ p["down_weight"] + p["down_bias"]


def block(p: Params, x: Any, heads: int, tap: Tap = untapped, wrap: Callable[[Any], Any] = lambda f: f) -> Any:
    """The block; `wrap` is applied to its two branches (fx.checkpoint), `tap` to each named activation."""
    x = tap("input", x)
    attend = wrap(lambda q, h: attention(q, h, heads, tap))
    x = tap("middle", x + attend(p["attention"], tap("norm1", layer_norm(p["norm1"], x))))
    transform = wrap(lambda q, h: mlp(q, h, tap))
    return tap("output", x + transform(p["mlp"], tap("norm2", layer_norm(p["norm2"], x))))


def loss_of(heads: int, target: Any, tap: Tap = untapped, wrap: Callable[[Any], Any] = lambda f: f) -> Callable[..., Any]:
    """The function of (parameters, input) whose gradients are compared: the mean squared distance from a target."""

    def loss(p: Params, x: Any) -> Any:
        error = block(p, x, heads, tap, wrap) - target
        return np.mean(error * error)

    return loss


def make_problem(size: Size, dtype: str, seed: int) -> tuple[Params, Any, Any]:
    """(parameters, input, target), seeded; none of the biases is zero and none of the gains is one."""
    rng = np.random.default_rng(seed)
    width = size.width

    def normal(*shape: int, scale: float = 1.0, shift: float = 0.0) -> np.ndarray:
        return (shift + scale * rng.standard_normal(shape)).astype(dtype)

    def norm() -> dict[str, Any]:
        return {"gain": normal(width, scale=0.1, shift=1.0), "bias": normal(width, scale=0.1)}

    params = {
        "norm1": norm(),
        # One tensor for query, key and value, as in torch.nn.MultiheadAttention. The key's bias alone could not be compared in
        # relative terms: it shifts a whole row of scores, softmax does not see it, and its derivative is zero but for rounding.
        "attention": {
            "qkv_weight": normal(width, 3 * width, scale=width**-0.5), "qkv_bias": normal(3 * width, scale=0.1),
            "out_weight": normal(width, width, scale=width**-0.5), "out_bias": normal(width, scale=0.1),
        },
        "norm2": norm(),
        "mlp": {
            "up_weight": normal(width, 4 * width, scale=width**-0.5), "up_bias": normal(4 * width, scale=0.1),
            "down_weight": normal(4 * width, width, scale=(4 * width) ** -0.5), "down_bias": normal(width, scale=0.1),
        },
    }  # fmt: skip
    shape = (size.batch, size.length, width)
    return params, normal(*shape), normal(*shape)


# ---- the same in PyTorch, with PyTorch's own layers ------------------------------------------------------------------------


def import_torch() -> Any:
    try:
        import torch
    except ImportError:
        sys.exit("This example compares with PyTorch, which is not installed: pip install torch (the CPU build is enough).")
    return torch


def torch_loss(torch: Any, p: Params, x: Any, target: Any, heads: int, tap: Tap = untapped) -> Any:
    f = torch.nn.functional
    batch, length, width = x.shape

    def norm(q: dict[str, Any], h: Any) -> Any:
        return f.layer_norm(h, (width,), q["gain"], q["bias"], NORM_EPS)

    x = tap("input", x)
    a, m = p["attention"], p["mlp"]
    split = (tap("norm1", norm(p["norm1"], x)) @ a["qkv_weight"] + a["qkv_bias"]).reshape(batch, length, 3, heads, width // heads)
    query, key, value = (tap(name, split[:, :, i].permute(0, 2, 1, 3)) for i, name in enumerate(("query", "key", "value")))
    scores = tap("scores", query @ key.transpose(-1, -2) / math.sqrt(width // heads))
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    probabilities = tap("probabilities", f.softmax(scores.masked_fill(~causal, -math.inf), dim=-1))
    mixed = tap("mixed", (probabilities @ value).permute(0, 2, 1, 3).reshape(x.shape))
    x = tap("middle", x + tap("attended", mixed @ a["out_weight"] + a["out_bias"]))
    hidden = tap("hidden", tap("norm2", norm(p["norm2"], x)) @ m["up_weight"] + m["up_bias"])
    y = tap("output", x + tap("activated", f.gelu(hidden, approximate="tanh")) @ m["down_weight"] + m["down_bias"])
    return f.mse_loss(y, target)


class Reference(NamedTuple):
    """What PyTorch computes: the loss, the gradients by parameter name, the named activations and their gradients."""

    loss: float
    gradients: dict[str, np.ndarray]
    activations: dict[str, np.ndarray]
    activation_gradients: dict[str, np.ndarray]
    seconds: float


def torch_reference(torch: Any, params: Params, x: Any, target: Any, heads: int) -> Reference:
    def leaf(a: np.ndarray) -> Any:
        return torch.from_numpy(a.copy()).requires_grad_()

    def run(tap: Tap) -> tuple[Any, Params, Any]:
        p, tx = {g: {k: leaf(a) for k, a in q.items()} for g, q in params.items()}, leaf(x)
        loss = torch_loss(torch, p, tx, torch.from_numpy(target), heads, tap)
        loss.backward()
        return loss, p, tx

    kept: dict[str, Any] = {}

    def keep(name: str, value: Any) -> Any:
        kept[name] = value
        value.retain_grad()
        return value

    loss, p, tx = run(keep)
    start = time.perf_counter()
    run(untapped)
    seconds = time.perf_counter() - start
    gradients = {name: a.grad.numpy() for name, a in named(p, tx).items()}
    values = {name: a.detach().numpy() for name, a in kept.items()}
    return Reference(loss.item(), gradients, values, {name: a.grad.numpy() for name, a in kept.items()}, seconds)


def named(params: Params, x: Any) -> dict[str, Any]:
    """Every tensor compared, by name: the input and the parameters."""
    return {"input": x} | {f"{group}.{name}": a for group, q in params.items() for name, a in q.items()}


# ---- comparing -------------------------------------------------------------------------------------------------------------


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """max|got - want| / (max|want| + eps), in float64; NaN anywhere gives NaN, which exceeds every limit."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return float(np.max(np.abs(got - want)) / (np.max(np.abs(want)) + TINY))


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal in dtype, shape and every bit (so -0.0 differs from 0.0)."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def mark(error: float | None, limit: float) -> str:
    """A number for the table, with an exclamation mark when it is over the limit."""
    if error is None:
        return f"{'-':>10} "
    return f"{error:10.1e}{' ' if error < limit else '!'}"


def timed_second_call(f: Callable[..., Any], *args: Any) -> tuple[Any, float, float]:
    """(result, seconds of the first call, seconds of the second)."""
    start = time.perf_counter()
    f(*args)
    middle = time.perf_counter()
    result = f(*args)
    return result, middle - start, time.perf_counter() - middle


def make_tap(plant: str | None, scale: float = 1.5) -> Tap:
    """The tap that plants a fault: the identity at activation `plant`, with a pullback that scales its gradient."""
    if plant is None:
        return untapped

    @fx.custom_vjp
    def faulty(x: Any) -> Any:
        return x

    faulty.defvjp(lambda x: (x, None), lambda _, g: (scale * g,))
    return lambda name, value: faulty(value) if name == plant else value


def directional(
    loss: Callable[..., Any], params: Params, x: Any, reference: Reference, seed: int
) -> tuple[dict[str, float], bool]:
    """Forward mode along a random direction in each tensor, and in all: the errors, and whether jit(jvp) has the bits of jvp.

    The derivative along v is compared with <g_torch, v>. Over random normal v that number has root mean square |g_torch|, which
    is what the difference is measured against (the number itself may happen to be near zero).
    """
    rng = np.random.default_rng(seed + 1)
    where = named(params, x)
    directions = {name: rng.standard_normal(a.shape).astype(a.dtype) for name, a in where.items()}
    compiled = fx.jit(lambda p, h, dp, dh: fx.jvp(loss, (p, h), (dp, dh)))
    errors, exact = {}, True

    for chosen in (*where, "all at once"):
        v = {name: d if chosen in (name, "all at once") else np.zeros_like(d) for name, d in directions.items()}
        dp = {group: {k: v[f"{group}.{k}"] for k in q} for group, q in params.items()}
        _, forward = fx.jvp(loss, (params, x), (dp, v["input"]))
        exact = exact and same_bits(forward, compiled(params, x, dp, v["input"])[1])
        pairs = [(reference.gradients[name].astype(np.float64), v[name].astype(np.float64)) for name in where]
        expected = sum(float(np.sum(g * d)) for g, d in pairs)
        scale = math.sqrt(sum(float(np.sum(g * g)) for g, d in pairs if d.any()))
        errors[chosen] = abs(float(forward) - expected) / (scale + TINY)
    return errors, exact


# ---- the table ---------------------------------------------------------------------------------------------------------------


def compare(torch: Any, size: Size, dtype: str, seed: int, plant: str | None) -> bool:
    """Print the table for one dtype; whether everything in it is as it should be."""
    limit = LIMITS[dtype]
    params, x, target = make_problem(size, dtype, seed)
    reference = torch_reference(torch, params, x, target, size.heads)
    tap = make_tap(plant)
    loss, checkpointed = loss_of(size.heads, target, tap), loss_of(size.heads, target, tap, fx.checkpoint)
    both = (0, 1)
    modes = {
        "eager": fx.value_and_grad(loss, both),
        "grad(jit)": fx.value_and_grad(fx.jit(loss), both),
        "jit(grad)": fx.jit(fx.value_and_grad(loss, both)),
        "checkpoint": fx.value_and_grad(checkpointed, both),
        "jit(ckpt)": fx.jit(fx.value_and_grad(checkpointed, both)),
    }
    values, gradients, times = {}, {}, {}
    for mode, f in modes.items():
        (values[mode], found), first, second = timed_second_call(f, params, x)
        gradients[mode] = named(*found)
        times[mode] = (first, second)
    # custom_vjp has no forward rule (it raises NonDifferentiableError), so a planted fault leaves that column empty.
    forward, forward_exact = directional(loss, params, x, reference, seed) if plant is None else ({}, True)

    print(f"\n{dtype}   B={size.batch} T={size.length} D={size.width} heads={size.heads}   limit {limit:g}")
    print("max|g - g_torch| / (max|g_torch| + eps); forward: |jvp - <g_torch, v>| / |g_torch|, v random normal\n")
    heading = f"{'':24}{'shape':>11}{'max|g|':>10}" + "".join(f"{c:>11}" for c in (*modes, "forward"))
    print(heading + "\n" + "-" * len(heading))
    fine, differing = True, []
    for name, g in reference.gradients.items():
        row = [relative_error(gradients[mode][name], g) for mode in modes]
        ahead = forward.get(name)
        shape = "x".join(map(str, g.shape))
        print(f"{name:24}{shape:>11}{np.max(np.abs(g)):10.1e}" + "".join(mark(e, limit) for e in (*row, ahead)))
        fine = fine and all(e < limit for e in row) and (ahead is None or ahead < limit)
        differing += [f"{name} in {mode}" for mode in modes if not same_bits(gradients[mode][name], gradients["eager"][name])]
    losses = [abs(float(v) - reference.loss) / abs(reference.loss) for v in values.values()]
    together = forward.get("all at once")
    print("-" * len(heading))
    print(f"{'loss':24}{'':>11}{reference.loss:10.1e}" + "".join(mark(e, limit) for e in losses) + mark(None, limit))
    print(f"{'all directions at once':24}{'':21}" + "".join(mark(None, limit) for _ in losses) + mark(together, limit))
    fine = fine and all(e < limit for e in losses) and (together is None or together < limit)
    differing += [f"the loss in {mode}" for mode in modes if not same_bits(values[mode], values["eager"])]

    print_key_bias(reference, gradients["eager"], size.width)
    if differing or not forward_exact:
        print(f"bit for bit: NO. Other bits than eager: {', '.join(differing) or 'the tangent of jit(jvp)'}")
    else:
        print(f"bit for bit: {' == '.join(modes)}{' and jvp == jit(jvp)' if forward else ''}, every element of every tensor")
    print("time of the gradient, second call: " + ", ".join(f"{m} {t[1] * 1e3:.0f} ms" for m, t in times.items()), end="")
    print(f", torch {reference.seconds * 1e3:.0f} ms. First call of jit(grad): {times['jit(grad)'][0]:.2f} s")
    return fine and not differing and forward_exact


def print_key_bias(reference: Reference, ours: dict[str, Any], width: int) -> None:
    """The part of qkv_bias that no relative error can be given for; see make_problem."""
    third = slice(width, 2 * width)
    sizes = [np.max(np.abs(g["attention.qkv_bias"][third])) for g in (ours, reference.gradients)]
    print(f"\nThe key's part of qkv_bias has derivative 0; rounding leaves {sizes[0]:.0e} here and {sizes[1]:.0e} in PyTorch.")


# ---- bisection ----------------------------------------------------------------------------------------------------------------


def bisect(torch: Any, size: Size, dtype: str, seed: int, plant: str | None) -> bool:
    """Print value and gradient errors of the activations, from the loss back, and name the first gradient that differs."""
    limit = LIMITS[dtype]
    params, x, target = make_problem(size, dtype, seed)
    reference = torch_reference(torch, params, x, target, size.heads)
    planted = make_tap(plant)

    def probed_loss(probes: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        # Adding zero changes nothing, and the derivative with respect to that zero is the gradient of the activation.
        seen = {}

        def tap(name: str, value: Any) -> Any:
            seen[name] = planted(name, value + probes[name])
            return seen[name]

        return loss_of(size.heads, target, tap)(params, x), seen

    probes = {name: np.zeros_like(a) for name, a in reference.activations.items()}
    gradients, values = fx.grad(probed_loss, has_aux=True)(probes)

    print(f"\n{dtype}   activations from the loss back, largest difference from PyTorch over largest element, limit {limit:g}\n")
    heading = f"{'':16}{'shape':>14}{'value':>12}{'gradient':>12}"
    print(heading + "\n" + "-" * len(heading))
    first, wrong_values = None, []
    for name in reversed(ACTIVATIONS):
        shape = "x".join(map(str, np.shape(values[name])))
        ahead = relative_error(values[name], reference.activations[name])
        back = relative_error(gradients[name], reference.activation_gradients[name])
        print(f"{name:16}{shape:>14} {mark(ahead, limit)} {mark(back, limit)}")
        wrong_values = wrong_values if ahead < limit else [name, *wrong_values]
        if first is None and not back < limit:
            first = name
    print()
    if wrong_values:
        print(f"The first activation whose value differs is '{wrong_values[0]}': what computes it comes before any gradient.")
    if first is None:
        print("No gradient differs.")
    else:
        print(f"The first gradient that differs is that of '{first}'.")
        print("Those of everything computed after it agree, so the fault is in the derivative of a step that reads it.")
    return first is None and not wrong_values


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="4,64,128,8", metavar="B,T,D,H")
    parser.add_argument("--dtype", choices=(*LIMITS, "both"), default="both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bisect", action="store_true")
    parser.add_argument("--plant", choices=ACTIVATIONS, metavar="NAME", help=f"one of {', '.join(ACTIVATIONS)}")
    args = parser.parse_args(argv)
    try:
        args.size = Size(*map(int, args.size.split(",")))
    except (TypeError, ValueError):
        parser.error("--size takes four numbers, B,T,D,H, for example 4,64,128,8")
    if min(args.size) < 1 or args.size.width % args.size.heads:
        parser.error("--size: all four numbers are positive, and the width D is a multiple of the number of heads H")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    start = time.perf_counter()
    torch = import_torch()
    print(f"A transformer block, fxgrad {fx.__version__} (NumPy {np.__version__}) against PyTorch {torch.__version__}")
    if args.plant:
        print(f"Planted fault: the gradient of '{args.plant}' is scaled by 1.5")
    check = bisect if args.bisect else compare
    dtypes = list(LIMITS) if args.dtype == "both" else [args.dtype]
    results = [check(torch, args.size, dtype, args.seed, args.plant) for dtype in dtypes]
    fine = all(results)
    print(f"\n{'PASS' if fine else 'FAIL'} in {time.perf_counter() - start:.1f} s, imports of torch included")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
