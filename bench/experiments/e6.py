"""E6: where dispatch ends and arithmetic begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad as fx
import fxgrad.numpy as fnp
from bench.experiments.base import Prediction, Result, Table, shown
from bench.experiments.lab import Lab
from bench.experiments.pictures import GREY, beside, colour, figure, loglog
from bench.peers import EAGER, FXGRAD, JAX

THREADS = 1
TITLE = "Where dispatch ends and arithmetic begins"
QUESTION = (
    "A call costs something before the first element. Up to which size is that most of its time: eager, compiled, "
    "NumPy, PyTorch, JAX?"
)
DERIVATION = """
A call on N elements takes t(N) = t0 + s N: t0 is dispatch (arguments, types, allocation, launch), s the time of an element. At
the **crossover** N* = t0 / s half of the time is dispatch; below it, faster kernels are no use, above it faster calls are none.

For relu(a*b + c) in float32, arrays in the second-level cache:

- operation by operation there are three dispatches, and 32 bytes an element at that cache's rate: N* = 3 t_op B / 32;
- compiled there is one dispatch and 16 bytes: N* = t_call B / 16.

t_op and t_call were measured beforehand on another operation (the negative of 16 numbers), B by a stream. So compiling should
move the crossover by (t_call / 3 t_op) * 2: it removes dispatch three times over and halves the bytes.

For a product of two k x k matrices the work is 2 k^3 operations at the peak P of multiply-adds: k* = (t_op P / 2)^(1/3). The
document reports 1.8 us for NumPy at k = 64, "a substantial fraction" of it overhead.
"""
SIZES = (
    (1, 10, 100, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000),
    (1, 100, 1_000, 10_000, 30_000),
)
FITTED = 100_000  # elements up to which the line is fitted: all arrays are in the second-level cache
SIDES = ((1, 2, 4, 8, 16, 32, 64, 128, 256, 512), (1, 16, 64))
FITTED_SIDE = 256
IN_L2 = 1 << 20
TORCH, JAX_EAGER = "torch eager", "jax eager"


def relu_chain(xp: Any, a: Any, b: Any, c: Any) -> Any:
    return xp.maximum(a * b + c, 0)


def product(xp: Any, a: Any, b: Any) -> Any:
    return xp.matmul(a, b)


def contenders(
    lab: Lab, f: Callable[..., Any], torch_f: Callable[..., Any], args: list[np.ndarray]
) -> dict[str, Callable[[], Any]]:
    compiled = fx.jit(lambda *args: f(np, *args))
    found: dict[str, Callable[[], Any]] = {
        FXGRAD: lambda: compiled(*args),
        EAGER: lambda: f(fnp, *args),
        "numpy": lambda: f(np, *args),
    }
    torch, jax = lab.peer("torch"), lab.peer("jax")
    if torch is not None:
        tensors = [torch.from_numpy(x) for x in args]
        found[TORCH] = lambda: torch_f(torch, *tensors)
    if jax is not None:
        arrays, jitted = [jax.numpy.asarray(x) for x in args], jax.jit(lambda *args: f(jax.numpy, *args))
        found[JAX] = lambda: jitted(*arrays).block_until_ready()
        found[JAX_EAGER] = lambda: f(jax.numpy, *arrays).block_until_ready()
    return found


def overheads(lab: Lab, operations: int) -> dict[str, float]:
    """Seconds of dispatch of each contender, from the constants, for so many operations."""
    c = lab.constants
    found = {FXGRAD: c.call, EAGER: operations * c.eager_call, "numpy": operations * c.numpy_call}
    if c.torch_call is not None:
        found[TORCH] = operations * c.torch_call
    if c.jax_calls is not None:
        eager, jitted = c.jax_calls
        found |= {JAX: jitted, JAX_EAGER: operations * eager}
    return found


def predict(lab: Lab) -> list[Prediction]:
    rate, peak = lab.constants.rate(IN_L2, "triad", 1), lab.constants.limits(1).peak_float32
    out = []
    for name, t0 in overheads(lab, 3).items():
        moved = 16 if name in (FXGRAD, JAX) else 32
        why = f"{shown(t0, 's')} of dispatch, {moved} bytes an element at {shown(rate, 'B/s')}."
        out.append(Prediction(f"N* {name}", f"crossover of relu(a*b + c), {name}", t0 * rate / moved, "", why, 2.0))
    for name, t0 in overheads(lab, 1).items():
        if name in (FXGRAD, "numpy", TORCH):
            side = (t0 * peak / 2) ** (1 / 3)
            why = f"{shown(t0, 's')} of dispatch, {shown(peak, 'flop/s')}."
            out.append(Prediction(f"k* {name}", f"crossover of the k x k product, {name}: k", side, "", why, 1.6))
    t0 = lab.constants.numpy_call
    share = t0 / (t0 + 2 * 64**3 / peak)
    out.append(
        Prediction(
            "share64", "dispatch in NumPy's 64 x 64 product", share, "%", f"{shown(t0, 's')} against 2 k^3 at the peak.", 2.0
        )
    )
    return out


def line(x: list[float], t: list[float]) -> tuple[float, float]:
    """(t0, s) of t = t0 + s x, both positive, with the least sum of squared relative errors."""
    t_, x_ = np.array(t), np.array(x)
    rows = np.stack([1 / t_, x_ / t_], axis=1)
    t0, s = np.linalg.lstsq(rows, np.ones(len(t_)), rcond=None)[0]
    return max(float(t0), 0.1 * min(t)), max(float(s), 1e-18)


def worst(x: list[float], t: list[float], t0: float, s: float) -> float:
    return max(abs(t0 + s * a - b) / b for a, b in zip(x, t, strict=True))


def measure(lab: Lab, result: Result) -> None:
    rng, figures = np.random.default_rng(0), result.figures
    elements, sides = SIZES[lab.quick], SIDES[lab.quick]
    chain, matmul = {}, {}
    for n in elements:
        args = [rng.standard_normal(n, dtype=np.float32) for _ in range(3)]
        chain[n] = lab.times(contenders(lab, relu_chain, lambda torch, a, b, c: torch.relu(a * b + c), args))
    for k in sides:
        args = [rng.standard_normal((k, k), dtype=np.float32) for _ in range(2)]
        matmul[k] = lab.times(contenders(lab, product, product, args))
    for key, found, size in (("chain", chain, "N"), ("matmul", matmul, "k")):
        names = list(found[next(iter(found))])
        rows = [[n, *(times[name] for name in names)] for n, times in found.items()]
        title = "relu(a*b + c), float32" if key == "chain" else "k x k times k x k, float32"
        result.tables[key] = Table(f"{title}, one thread", [(size, ""), *((name, "s") for name in names)], rows)
    crossovers(result, "chain", chain, lambda n: float(n), FITTED, "N*", 1.0)
    crossovers(result, "matmul", matmul, lambda k: 2.0 * k**3, FITTED_SIDE, "k*", 1 / 3)
    smallest, side = elements[0], 64
    figures["eager_over_jit"] = chain[smallest][EAGER] / chain[smallest][FXGRAD]
    figures["call_jit"], figures["call_eager"], figures["call_numpy"] = (chain[smallest][x] for x in (FXGRAD, EAGER, "numpy"))
    for name in (TORCH, JAX, JAX_EAGER):
        if name in chain[smallest]:
            figures[f"call {name}"] = chain[smallest][name]
    figures["numpy64"], figures["jit64"] = matmul[side]["numpy"], matmul[side][FXGRAD]
    figures["share64"] = matmul[1]["numpy"] / matmul[side]["numpy"]
    largest = elements[-1]
    figures["largest"], figures["largest_ratio"] = largest, chain[largest]["numpy"] / chain[largest][FXGRAD]
    figures["best_matmul"] = max(2 * k**3 / t[FXGRAD] for k, t in matmul.items())
    figures["peak"] = lab.constants.limits(1).peak_float32


def crossovers(
    result: Result, key: str, found: dict[int, dict[str, float]], work: Callable[[int], float], most: int, star: str, power: float
) -> None:
    """Fit t0 + s x for every contender; the size at which both parts are equal."""
    sizes = [n for n in found if n <= most]
    rows = []
    for name in found[sizes[0]]:
        x, t = [work(n) for n in sizes], [found[n][name] for n in sizes]
        t0, s = line(x, t)
        at = t0 / s if power == 1.0 else (t0 / s / 2) ** power
        result.figures[f"{star} {name}"], result.figures[f"t0 {key} {name}"] = at, t0
        rows.append([name, t0, 16 / s if power == 1.0 else 1 / s, at, worst(x, t, t0, s)])
    unit, what = ("B/s", "16 bytes an element") if power == 1.0 else ("flop/s", "operations")
    columns = [
        ("", ""),
        ("dispatch t0", "s"),
        (f"then, {what}", unit),
        (f"crossover {star}", ""),
        ("the fit is off by at most", "%"),
    ]
    title = "Fits of relu(a*b + c)" if key == "chain" else "Fits of the product"
    result.tables[f"fit_{key}"] = Table(f"{title}, sizes up to {shown(most)}", columns, rows)


def explain(result: Result) -> list[str]:
    f = result.figures
    ordered = sorted((v, k.removeprefix("N* ")) for k, v in f.items() if k.startswith("N* "))
    said = ", ".join(f"{name} {shown(v)}" for v, name in ordered)
    compiled = f[f"N* {FXGRAD}"]
    peers = [f"{name} {shown(f[f'call {name}'], 's')}" for name in (TORCH, JAX, JAX_EAGER) if f"call {name}" in f]
    return [
        (
            f"**Crossovers of relu(a*b + c)**, in elements: {said}. Below it a library is judged by its calls: on one element "
            f"fxgrad's compiled call takes {shown(f['call_jit'], 's')}, NumPy's three {shown(f['call_numpy'], 's')}, fxgrad's "
            f"eager three {shown(f['call_eager'], 's')}; {', '.join(peers)}."
        ),
        (
            f"**What compiling moves.** It divides dispatch by {f['eager_over_jit']:.1f} and halves the bytes of an element, "
            f"so the crossover goes from {shown(f[f'N* {EAGER}'])} elements to {shown(compiled)}: so few are enough to keep a "
            f"compiled call busy. That is the case for compiling small work. At {shown(f['largest'])} elements, far above "
            f"every crossover, compiling still gains {shown(f['largest_ratio'], 'x')} over NumPy, but by bytes (E8), not by "
            "dispatch."
        ),
        (
            f"**Products.** NumPy's 64 x 64 product takes {shown(f['numpy64'], 's')} here, {f['share64']:.0%} of it what a 1 "
            "x 1 product takes: dispatch. The document's 1.8 us is of the same kind, its 1,679 GFLOP/s at 512 is an "
            f"accelerator's: this core's ceiling is {shown(f['peak'], 'flop/s')}, of which fxgrad's best product here reaches "
            f"{f['best_matmul'] / f['peak']:.0%}. The crossover is at k = {f['k* numpy']:.0f} for NumPy and "
            f"{f[f'k* {FXGRAD}']:.0f} for fxgrad compiled."
        ),
        (
            "**Where the model is too simple.** One line has one price of an element; really small arrays lie in the "
            "first-level cache and are cheaper, some libraries begin to use other code paths or threads at a size of their "
            "choice, and a product below a register block runs at a fraction of the peak. The last column of the fits says "
            "how far off that puts a line; the crossover is good to about that factor."
        ),
    ]


def draw(result: Result) -> dict[str, Any]:
    made, (left, right) = figure(2, width=11.5, height=4.4)
    for axes, key, star, size in ((left, "chain", "N*", "elements N"), (right, "matmul", "k*", "side k")):
        table = result.tables[key]
        n = table.column(table.columns[0][0])
        for name, _ in table.columns[1:]:
            t = table.column(name)
            axes.plot(n, [x * 1e6 for x in t], "o-", color=colour(name), markersize=3, linewidth=1.4, label=name)
            at = result.figures[f"{star} {name}"]
            axes.plot(
                [at], [2e6 * result.figures[f"t0 {key} {name}"]], "D", color=colour(name), markersize=7, markeredgecolor="black"
            )
        title = "relu(a*b + c)" if key == "chain" else "k x k product"
        loglog(axes, size, "microseconds a call", f"{title}, float32, one thread; diamonds: half is dispatch")
    left.legend(frameon=False, fontsize=8)
    beside(left, left.get_xlim()[0], left.get_ylim()[0], "dispatch", color=GREY, xytext=(12, 8))
    beside(left, left.get_xlim()[1], left.get_ylim()[0], "arithmetic and bytes", color=GREY, xytext=(-8, 8), ha="right")
    return {"": made}
