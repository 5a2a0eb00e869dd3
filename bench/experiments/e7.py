"""E7: eager against compiled: what each call costs, and after how many calls compiling has paid."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad as fx
import fxgrad.numpy as fnp
from bench.block import Problem
from bench.experiments.base import Prediction, Result, Table, shown
from bench.experiments.e3 import network
from bench.experiments.inside import program_of
from bench.experiments.lab import Lab
from bench.experiments.pictures import figure, loglog
from bench.processes import fresh

TITLE = "Eager against compiled, and when compiling has paid"
QUESTION = (
    "Compiling costs once and saves at every call. After how many calls is it cheaper, with an empty cache and with a warm one?"
)
DERIVATION = """
Let F_e and F_c be the seconds of the first call, eager and compiled, e and c those of every later one. After k calls the
compiled function has cost F_c + (k - 1) c, the eager one F_e + (k - 1) e, so compiling has paid after

    k = 1 + (F_c - F_e) / (e - c) calls.

With an empty cache F_c is what the first compiled function of a process costs (loading the compiler, and once for a machine its
runtime), and for each kernel its machine code. With a warm cache there is nothing to generate. Eager, each operation costs its
dispatch; a gradient that is not compiled is traced anew at every call besides. The costs are taken from other functions: one of
a single kernel, one of several, and a chain of ten sines and its gradient.
"""
PROGRAMS = ("operations", "layers", "block")
LABELS = {
    "operations": "30 operations on 1,000 numbers",
    "layers": "gradient of 4 layers, 64 x 64",
    "block": "gradient of the block, 2,32,64,4",
}
MODES = ("eager", "empty", "warm", "hot")
RUNS = (3, 1)
SCRIPT = """
import json, time
import numpy as np
import fxgrad as fx
from bench.experiments import e7
fx.config.background_compile = {background}
f, args = e7.problem({name!r})
f = fx.jit(f) if {jit} else f
start = time.perf_counter()
f(*args)
first = time.perf_counter() - start
print(json.dumps([first, e7.steady(f, args, {seconds})]))
"""


def sines(x: Any) -> Any:
    for _ in range(10):
        x = fnp.sin(x)
    return fnp.sum(x)


def reductions(x: Any) -> list[Any]:
    """Several kernels that share nothing."""
    return [fnp.sum(x, axis=0), fnp.max(x, axis=1), fnp.prod(fnp.tanh(x)), x.T @ x]


def problem(name: str) -> tuple[Callable[..., Any], list[Any]]:
    """A function in fxgrad's own operations, and its arguments."""
    if name == "operations":

        def operations(a: Any, b: Any, c: Any) -> Any:
            for _ in range(10):
                a = fnp.sin(fnp.add(fnp.multiply(a, b), c))
            return a

        return operations, [np.linspace(0.1, k, 1000) for k in (1, 2, 3)]
    if name == "layers":
        loss, args = network("tanh", 4, 64, 64)
        return fx.grad(loss), args
    if name == "block":
        p = Problem((2, 32, 64, 4), "float32")
        return fx.value_and_grad(p.example.loss_of(p.size.heads, p.target), (0, 1)), [p.params, p.x]
    if name == "one":
        return (lambda x: fnp.negative(x)), [np.ones(16)]
    if name == "several":
        return reductions, [np.ones((16, 16))]
    return (fx.grad(sines) if name == "gradient" else sines), [np.ones(16)]


def steady(f: Callable[..., Any], args: list[Any], seconds: float) -> float:
    """Seconds of a later call: the fastest block within some time."""
    import time

    end, least = time.perf_counter() + seconds, float("inf")
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(5):
            f(*args)
        least = min(least, (time.perf_counter() - start) / 5)
    return least


def costs(lab: Lab, name: str, mode: str, cache: str) -> tuple[float, float]:
    """(first call, a later call) in a process of its own, the least of some."""
    found = []
    for _ in range(RUNS[lab.quick]):
        options = {"background": mode == "hot", "name": name, "jit": mode in ("empty", "warm"), "seconds": lab.size(0.5, 0.05)}
        if mode != "empty":
            found.append(fresh(SCRIPT.format(**options), cache))
            continue
        with tempfile.TemporaryDirectory() as empty:
            found.append(fresh(SCRIPT.format(**options), empty))
    return min(a for a, _ in found), min(b for _, b in found)


def predict(lab: Lab) -> list[Prediction]:
    with tempfile.TemporaryDirectory() as cache:
        one, several = costs(lab, "one", "empty", cache)[0], costs(lab, "several", "empty", cache)[0]
        forward, gradient = (costs(lab, name, "eager", cache)[1] for name in ("sines", "gradient"))
    kernels = len(fx.jit(reductions).lower(np.ones((16, 16))).compile().steps)
    each, operation = (several - one) / max(kernels - 1, 1), forward / 11
    derived = gradient / operations_of("gradient")
    lab.constants.used |= {
        "first compiled function, empty cache, s": one,
        "each further kernel, s": each,
        "eager operation in a chain, s": operation,
        "operation of an eager gradient, s": derived,
    }
    out = []
    for name in chosen(lab):
        f, args = problem(name)
        operations = 30 if name == "operations" else operations_of(name)
        steps = len(fx.jit(f).lower(*args).compile().steps)
        first, eager = one + each * (steps - 1), operations * (operation if name == "operations" else derived)
        says = (
            f"{steps} steps to compile, {operations} operations of {shown(operation if name == 'operations' else derived, 's')}."
        )
        out.append(Prediction(f"first {name}", f"first compiled call, empty cache: {LABELS[name]}", first, "s", says, 2.0))
        out.append(Prediction(f"eager {name}", f"an eager call: {LABELS[name]}", eager, "s", says, 2.0))
        out.append(
            Prediction(
                f"paid {name}",
                f"calls until compiling has paid, empty cache: {LABELS[name]}",
                1 + first / eager,
                "",
                "First over the saving.",
                3.0,
            )
        )
    return out


def operations_of(name: str) -> int:
    """Operations of a gradient's program, forward and backward."""
    return len(program_of(*problem(name)).eqns)


def chosen(lab: Lab) -> tuple[str, ...]:
    return PROGRAMS[: lab.size(3, 1)]


def paid(first: float, eager_first: float, eager: float, compiled: float) -> float:
    """Calls after which the compiled function has cost less in all."""
    return max(1.0, 1 + (first - eager_first) / max(eager - compiled, 1e-12))


def measure(lab: Lab, result: Result) -> None:
    figures, rows = result.figures, []
    with tempfile.TemporaryDirectory() as cache:
        for name in chosen(lab):
            costs(lab, name, "warm", cache)  # which fills the cache
            found = {mode: costs(lab, name, mode, cache) for mode in MODES}
            (eager_first, eager), (empty, compiled), (warm, _), (_, hot) = (found[mode] for mode in MODES)
            figures[f"first {name}"], figures[f"eager {name}"], figures[f"compiled {name}"] = empty, eager, compiled
            figures[f"warm {name}"], figures[f"hot {name}"] = warm, hot
            figures[f"paid {name}"] = paid(empty, eager_first, eager, compiled)
            figures[f"paid warm {name}"] = paid(warm, eager_first, eager, compiled)
            figures[f"eager_first {name}"] = eager_first
            rows.append(
                [
                    LABELS[name],
                    eager_first,
                    eager,
                    hot,
                    empty,
                    warm,
                    compiled,
                    figures[f"paid {name}"],
                    figures[f"paid warm {name}"],
                ]
            )
    columns = [
        ("", ""),
        ("eager: first call", "s"),
        ("a call", "s"),
        ("a call once compiled in the background", "s"),
        ("compiled: first call, empty cache", "s"),
        ("warm cache", "s"),
        ("a call", "s"),
        ("paid after calls, empty cache", ""),
        ("warm cache", ""),
    ]
    result.tables["calls"] = Table("Every figure in fresh processes", columns, rows)


def explain(result: Result) -> list[str]:
    f, out = result.figures, []
    for name in PROGRAMS:
        if f"paid {name}" in f:
            eager, compiled, hot = (f[f"{what} {name}"] for what in ("eager", "compiled", "hot"))
            out.append(
                f"**{LABELS[name]}**: eager {shown(eager, 's')}, compiled {shown(compiled, 's')} a call, "
                f"{shown(eager / compiled, 'x')}. The first compiled call takes {shown(f[f'first {name}'], 's')} with an empty "
                f"cache and {shown(f[f'warm {name}'], 's')} with a warm one, so compiling has paid after "
                f"{f[f'paid {name}']:.0f} and {f[f'paid warm {name}']:.0f} calls. " + _background(hot / eager, hot)
            )
    out.append(
        "With an empty cache most of the first call is the same for every function: the compiler and the runtime are "
        "made ready once for a machine. The bits do not depend on any of it: an eager call, one compiled in the "
        "background and a compiled one give equal results, so the choice is about time alone."
    )
    return out


def _background(share: float, hot: float) -> str:
    if share > 0.9:
        return "Operations outside a transform are kernels of their own and stay so."
    return f"Left to itself, the eager function is compiled in the background, and what is left is tracing: {shown(hot, 's')}."


def draw(result: Result) -> dict[str, Any]:
    names = [n for n in PROGRAMS if f"paid {n}" in result.figures]
    made, axes = figure(len(names), width=4.4 * len(names) + 0.6)
    f = result.figures
    for a, name in zip(axes, names, strict=True):
        most = max(30 * f[f"paid {name}"], 100)
        k = np.unique(np.logspace(0, np.log10(most), 200).astype(int))
        series = (
            ("eager", f[f"eager_first {name}"], f[f"eager {name}"], "#eb9c9f"),
            ("compiled, empty cache", f[f"first {name}"], f[f"compiled {name}"], "#c1272d"),
            ("compiled, warm cache", f[f"warm {name}"], f[f"compiled {name}"], "#4d77cf"),
        )
        for label, first, each, shade in series:
            a.plot(k, first + (k - 1) * each, color=shade, label=label)
        for which, shade in ((f"paid {name}", "#c1272d"), (f"paid warm {name}", "#4d77cf")):
            at = f[which]
            a.plot(
                [at],
                [f[f"eager_first {name}"] + (at - 1) * f[f"eager {name}"]],
                "D",
                color=shade,
                markersize=6,
                markeredgecolor="black",
            )
        loglog(a, "calls", "seconds in all", LABELS[name])
    axes[0].legend(frameon=False, fontsize=8)
    return {"": made}
