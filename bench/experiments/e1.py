"""E1: the error of a gradient check against its step: what a central difference can and cannot tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad as fx
from bench.experiments.base import Prediction, Result, Table, shown
from bench.experiments.lab import Lab
from bench.experiments.pictures import GREY, beside, figure, loglog

THREADS = 1
TITLE = "Gradient-check error against the step h"
QUESTION = "A gradient check compares with a difference quotient. How large must its step be, and how well can it check at best?"
DERIVATION = """
Along a direction v let g(h) = f(x + h v). Taylor's theorem gives

- central difference: (g(h) - g(-h)) / 2h = g'(0) + h^2 g'''(0) / 6 + ...,
- forward difference: (g(h) - g(0)) / h = g'(0) + h g''(0) / 2 + ...,

so on logarithmic axes the truncation error has slope 2, or 1. Values of f are off by some eps |f|, which the division makes eps
|f| / h: slope -1. The error is least where both parts have the same derivative,

- central: h = (3 eps |f| / |g'''|)^(1/3), error about (eps |f|)^(2/3),
- forward: h = 2 (eps |f| / |g''|)^(1/2), error about 2 (eps |f| |g''|)^(1/2).

The complex step Im f(x + i h v) / h has a truncation error of h^2 g''' / 6 and subtracts nothing: below h of about 1e-8 its
error is rounding alone, and stays there down to the smallest h.

The second source document tells to use h of about 1e-4 in float64.
"""
STEPS = (61, 13)  # steps from 1e-12 to 1
SOURCE_STEP = 1e-4
WIDTH = 16
POINTS = (24, 4)  # directions; the curve is their root mean square, which a lucky cancellation does not bend


def parameters() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal(s) / math.sqrt(WIDTH) for s in ((WIDTH, WIDTH), (WIDTH, WIDTH)))


def loss(x: Any, a: Any, b: Any) -> Any:
    """A smooth function of a vector: a small network and a mean. NumPy evaluates it on complex numbers too."""
    return np.mean(np.tanh(b @ np.sin(a @ x)) ** 2)


def along(dtype: str, seed: int) -> tuple[Callable[[Any], Any], tuple[float, float, float]]:
    """(g, its first three derivatives at 0) along a random direction from a random point, derivatives by nested forward mode."""
    rng = np.random.default_rng(100 + seed)
    x, v = rng.standard_normal(WIDTH), rng.standard_normal(WIDTH)
    v /= np.linalg.norm(v)
    weights = parameters()

    def g(h: Any) -> Any:
        return loss(x + h * v, *weights)

    found, d = [], g
    for _ in range(3):
        d = (lambda inner: lambda h: fx.jvp(inner, (h,), (1.0,))[1])(d)
        found.append(float(d(0.0)))
    small = [np.asarray(y, dtype) for y in (x, v, *weights)]
    real = np.dtype(dtype).type
    return (lambda h: loss(small[0] + real(h) * small[1], *small[2:])), (found[0], found[1], found[2])


def expected(dtype: str, count: int) -> dict[str, float]:
    """Best steps and least errors from the derivation, for the mean |f|, |g''|, |g'''| of the directions."""
    eps = float(np.finfo(dtype).eps) / 2
    f, second, third = [], [], []
    for seed in range(count):
        g, (_, d2, d3) = along("float64", seed)
        f.append(abs(float(g(0.0))))
        second.append(abs(d2))
        third.append(abs(d3))
    size, d2, d3 = (math.sqrt(sum(y * y for y in ys) / count) for ys in (f, second, third))
    h = (3 * eps * size / d3) ** (1 / 3)
    h1 = 2 * math.sqrt(eps * size / d2)
    return {
        "step": h,
        "error": h * h * d3 / 6 + eps * size / h,
        "forward step": h1,
        "forward error": h1 * d2 / 2 + eps * size / h1,
        "at source": SOURCE_STEP**2 * d3 / 6 + eps * size / SOURCE_STEP,
    }


def predict(lab: Lab) -> list[Prediction]:
    double, single = (expected(d, POINTS[lab.quick]) for d in ("float64", "float32"))
    why = "From |f|, |g''| and |g'''| at the points of the measurement."
    return [
        Prediction("step64", "best step of the central difference, float64", double["step"], "", why, 4),
        Prediction("step32", "best step of the central difference, float32", single["step"], "", why, 4),
        Prediction("error64", "least error of the central difference, float64", double["error"], "", why, 4),
        Prediction("error32", "least error of the central difference, float32", single["error"], "", why, 4),
        Prediction("forward64", "least error of the forward difference, float64", double["forward error"], "", why, 4),
        Prediction("slope_large", "slope right of the best step, central", 2.0, "", "h^2.", 1.15),
        Prediction("slope_small", "minus the slope left of the best step, central", 1.0, "", "1/h.", 1.3),
        Prediction(
            "complex64",
            "error of the complex step at h = 1e-12, float64",
            1e-15,
            "",
            "Rounding of the function alone.",
            kind="at most",
        ),
        Prediction(
            "source_loss",
            "error at the document's h = 1e-4 over the least error, float64",
            double["at source"] / double["error"],
            "x",
            "There truncation is all of it: (1e-4 / best step)^2.",
            4,
        ),
    ]


def curve(dtype: str, way: str, steps: np.ndarray, count: int) -> list[float]:
    """Root mean square, over the directions, of the error of a difference quotient, for every step."""
    total = np.zeros(len(steps))
    for seed in range(count):
        g, (exact, *_) = along(dtype, seed)
        if way == "complex":
            values = [float(np.imag(complex_value(seed, h))) / h for h in steps]
        else:
            real = np.dtype(dtype).type
            h_used = [float(real(h)) for h in steps]
            values = [
                (float(g(h)) - float(g(-h))) / (2 * h) if way == "central" else (float(g(h)) - float(g(0.0))) / h for h in h_used
            ]
        total += (np.array(values) - exact) ** 2
    return np.sqrt(total / count).tolist()


def complex_value(seed: int, h: float) -> complex:
    rng = np.random.default_rng(100 + seed)
    x, v = rng.standard_normal(WIDTH), rng.standard_normal(WIDTH)
    return complex(loss(x + 1j * h * v / np.linalg.norm(v), *parameters()))


def slope(steps: np.ndarray, errors: list[float], low: float, high: float) -> float:
    inside = (steps >= low) & (steps <= high)
    return float(np.polyfit(np.log(steps[inside]), np.log(np.array(errors)[inside]), 1)[0])


def measure(lab: Lab, result: Result) -> None:
    count, figures = POINTS[lab.quick], result.figures
    steps = np.logspace(-12, 0, STEPS[lab.quick])
    columns: dict[str, list[float]] = {}
    for dtype in ("float64", "float32"):
        for way in ("central", "forward"):
            columns[f"{way} {dtype}"] = curve(dtype, way, steps, count)
    columns["complex float64"] = curve("float64", "complex", steps, count)
    rows = [[float(h), *(c[i] for c in columns.values())] for i, h in enumerate(steps)]
    title = f"Error of the derivative along a direction, root mean square over {count}"
    result.tables["curve"] = Table(title, [("h", ""), *((name, "") for name in columns)], rows)
    for bits, dtype in ((64, "float64"), (32, "float32")):
        errors = columns[f"central {dtype}"]
        figures[f"error{bits}"], figures[f"step{bits}"] = min(errors), float(steps[int(np.argmin(errors))])
    figures["forward64"] = min(columns["forward float64"])
    central = columns["central float64"]
    figures["slope_large"] = slope(steps, central, 10 * figures["step64"], 0.1)
    figures["slope_small"] = -slope(steps, central, 1e-11, figures["step64"] / 10)
    figures["complex64"] = columns["complex float64"][0]
    figures["source_loss"] = central[int(np.argmin(abs(np.log(steps / SOURCE_STEP))))] / min(central)
    figures["source_error"] = central[int(np.argmin(abs(np.log(steps / SOURCE_STEP))))]


def explain(result: Result) -> list[str]:
    f = result.figures
    return [
        (
            f"Both branches are there: slope {f['slope_large']:.2f} to the right of the best step and -{f['slope_small']:.2f} "
            f"to the left. The best step is {shown(f['step64'])} in float64 and {shown(f['step32'])} in float32, the least "
            f"errors {shown(f['error64'])} and {shown(f['error32'])}. The derivation takes an error of half a spacing for f; "
            "what f really loses on its way is a small multiple of that, and of random sign, which moves the left branch by "
            "such a factor and the best step by its third root."
        ),
        (
            f"The document's h = 1e-4 is safe but not best: its error is {shown(f['source_error'])}, "
            f"{shown(f['source_loss'], 'x')} the least one. A check with a tolerance of 1e-6 does not notice; one that wants "
            "to see an error of 1e-9 needs the better step."
        ),
        (
            f"In float32 no step checks better than {shown(f['error32'])}: a wrong last digit of a float32 gradient cannot be "
            "seen by differences in float32. fxgrad's laws check float64 and compare float32 with it."
        ),
        (
            f"The complex step at h = 1e-12 is off by {shown(f['complex64'])}: it subtracts nothing, so nothing cancels. It "
            "needs a function that is analytic and code that takes complex numbers. `fx.testing.gradient_error_curve` draws "
            "the central curve of any function."
        ),
    ]


def draw(result: Result) -> dict[str, Any]:
    made, (axes,) = figure(1, width=7.2, height=4.6)
    table = result.tables["curve"]
    steps = table.column("h")
    looks = {
        "central float64": ("#c1272d", "-"),
        "forward float64": ("#eb9c9f", "-"),
        "central float32": ("#4d77cf", "-"),
        "forward float32": ("#a9bfe8", "-"),
        "complex float64": ("#2a9d5c", "-"),
    }
    for name, (shade, line) in looks.items():
        axes.plot(steps, [max(e, 1e-17) for e in table.column(name)], line, color=shade, label=name, linewidth=1.6)
    for bits, shade in ((64, "#c1272d"), (32, "#4d77cf")):
        h, e = result.predicted_value(f"step{bits}"), result.predicted_value(f"error{bits}")
        axes.plot([h], [e], "x", color=shade, markersize=9, markeredgewidth=2)
        beside(axes, h, e, "predicted", color=shade, xytext=(6, -11))
    axes.axvline(SOURCE_STEP, color=GREY, linestyle=":", linewidth=1)
    beside(axes, SOURCE_STEP, 1e-16, "h = 1e-4", rotation=90, va="bottom")
    loglog(axes, "step h", "error of the derivative", "Difference quotients against the derivative")
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    return {"": made}
