"""Elementwise math functions of 100,000 numbers on one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad as fx
import fxgrad.numpy as fnp
from bench.peers import peer
from bench.timing import Group, Row, Target, interleave

COUNT = 100_000
# name -> (range of arguments, torch's name, where JAX has it). Those beyond NumPy are scipy.special's.
FUNCTIONS = {
    "exp": ((-10.0, 10.0), "exp", "numpy.exp"),
    "log": ((1e-3, 1e3), "log", "numpy.log"),
    "tanh": ((-6.0, 6.0), "tanh", "numpy.tanh"),
    "sin": ((-100.0, 100.0), "sin", "numpy.sin"),
    "cos": ((-100.0, 100.0), "cos", "numpy.cos"),
    "erf": ((-4.0, 4.0), "erf", "scipy.special.erf"),
    "expit": ((-10.0, 10.0), "sigmoid", "nn.sigmoid"),
    "expm1": ((-2.0, 2.0), "expm1", "numpy.expm1"),
    "log1p": ((-0.5, 10.0), "log1p", "numpy.log1p"),
    "sqrt": ((0.0, 1e3), "sqrt", "numpy.sqrt"),
}
TARGETS = ("exp", "log", "tanh")  # of float32: no slower than NumPy's own


def attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def contenders(name: str, x: np.ndarray, torch: Any, jax: Any) -> dict[str, Callable[[], Any]]:
    _, torch_name, jax_path = FUNCTIONS[name]
    if hasattr(np, name):
        plain = getattr(np, name)
    else:
        import scipy.special

        plain = getattr(scipy.special, name)
    jitted = fx.jit(lambda a: plain(a))
    found = {"fxgrad jit": lambda: jitted(x)}
    if hasattr(fnp, name):
        eager = getattr(fnp, name)
        found["fxgrad eager"] = lambda: eager(x)
    found["numpy"] = lambda: plain(x)
    if torch is not None:
        t, run = torch.from_numpy(x), getattr(torch, torch_name)
        found["torch"] = lambda: run(t)
    if jax is not None:
        import jax.numpy
        import jax.scipy.special

        j, compiled = jax.numpy.asarray(x), jax.jit(attribute(jax, jax_path))
        found["jax jit"] = lambda: compiled(j).block_until_ready()
    return found


def measure(repeat: int, threads: int) -> list[Group]:
    group = Group("math", f"Math functions of {COUNT:,} elements", "numpy", threads)
    torch, jax = peer("torch", threads, group.notes), peer("jax", threads, group.notes)
    group.notes.append("erf and expit in the numpy column are scipy.special's. Arguments are uniform in the range shown.")
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float64"):
        for name, ((low, high), *_) in FUNCTIONS.items():
            x = rng.uniform(low, high, COUNT).astype(dtype)
            target = Target("fxgrad jit", 1.0, "numpy") if dtype == "float32" and name in TARGETS else None
            times = interleave(contenders(name, x, torch, jax), repeat)
            group.rows.append(Row(f"{name} {dtype} [{low:g}, {high:g}]", times, 2 * x.nbytes, target))
    return [group]
