"""Elementwise math functions of 100,000 numbers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.peers import EAGER, FXGRAD, JAX, Peers, Spelling, contenders
from bench.run import Run
from bench.timing import Group, Target

COUNT = 100_000


@dataclass(frozen=True)
class Function:
    """Range of arguments; SciPy's name if NumPy has none; torch's and JAX's where they differ; text for numexpr."""

    low: float
    high: float
    scipy: str | None = None
    torch: str | None = None
    jax: str | None = None
    numexpr: str | None = None


FUNCTIONS = {
    "exp": Function(-10.0, 10.0, numexpr="exp(a)"),
    "log": Function(1e-3, 1e3, numexpr="log(a)"),
    "tanh": Function(-6.0, 6.0, numexpr="tanh(a)"),
    "erf": Function(-4.0, 4.0, scipy="erf", jax="scipy.special.erf"),
    "sin": Function(-100.0, 100.0, numexpr="sin(a)"),
    "x**1.7": Function(1e-3, 1e3),
    "cos": Function(-100.0, 100.0, numexpr="cos(a)"),
    "expit": Function(-10.0, 10.0, scipy="expit", torch="sigmoid", jax="nn.sigmoid"),
    "expm1": Function(-2.0, 2.0, numexpr="expm1(a)"),
    "log1p": Function(-0.5, 10.0, numexpr="log1p(a)"),
    "sqrt": Function(0.0, 1e3, numexpr="sqrt(a)"),
}
TARGETS = ("exp", "log", "tanh", "erf", "sin", "x**1.7")


def attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def spelling(name: str, peers: Peers) -> Spelling:
    if name == "x**1.7":
        return Spelling(lambda xp, a: a**1.7, compiled=False)
    function = FUNCTIONS[name]
    if function.scipy:
        import scipy.special

        plain = getattr(scipy.special, function.scipy)
    else:
        plain = getattr(np, name)
    if peers.jax is not None:
        importlib.import_module("jax.scipy.special")  # jax alone does not have it
    return Spelling(
        lambda xp, a: plain(a),
        jax=lambda xp, a: attribute(peers.jax, function.jax or f"numpy.{name}")(a),
        torch=lambda torch, a: getattr(torch, function.torch or name)(a),
        numexpr=function.numexpr,
        compiled=False,
    )


def eager(name: str, x: np.ndarray) -> dict[str, Callable[[], Any]]:
    import fxgrad.numpy as fnp

    function = getattr(fnp, name, None)
    return {EAGER: lambda: function(x)} if function else {}


def measure(run: Run) -> list[Group]:
    group = run.group("math", f"Math functions of {COUNT:,} elements", FXGRAD)
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float64"):
        for name, function in FUNCTIONS.items():
            x = rng.uniform(function.low, function.high, run.size(COUNT, 1000)).astype(dtype)
            found = contenders(run.peers, spelling(name, run.peers), [x]) | eager(name, x)
            targets = [Target(f"{name}, {dtype}", FXGRAD, 0.6, (JAX,))] if name in TARGETS else []
            label = f"{name} {dtype} [{function.low:g}, {function.high:g}]"
            run.row(group, label, found, 1e-5 if dtype == "float32" else 1e-12, targets, moved=2 * x.nbytes)
    group.notes.append("torch.compile is left out: a single function has nothing to fuse.")
    group.notes.append("erf and expit in the numpy column are scipy.special's. Arguments are uniform in the range shown.")
    return [group]
