"""Peers: imported if installed, held to the threads of the run, and given a computation as their users would write it."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import fxgrad as fx

__all__ = [
    "EAGER",
    "FUSED_ATTENTION",
    "FXGRAD",
    "JAX",
    "TORCH",
    "Compiler",
    "Peers",
    "Spelling",
    "contenders",
    "difference",
    "environment",
    "leaves",
    "version_of",
]

FXGRAD, EAGER, JAX = "fxgrad jit", "fxgrad eager", "jax jit"
TORCH = ("torch eager", "torch compiled")
FUSED_ATTENTION = "torch eager, own attention"
Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "FXGRAD_NUM_THREADS", "NPROC")


def environment(threads: int) -> dict[str, str]:
    """Variables that hold every library in a child process to that many threads; they are read when it is imported."""
    # NPROC is the size of XLA's own thread pool; without the flag it would still use Eigen's.
    flags = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"} if threads == 1 else {}
    return {**os.environ, **dict.fromkeys(COUNTS, str(threads)), **flags, "JAX_PLATFORMS": "cpu"}


def version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


@dataclass
class Peers:
    """The installed ones by name (None if missing) and remarks about those left out."""

    threads: int
    notes: list[str] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=dict)

    def module(self, name: str) -> Any:
        if name not in self.found:
            self.found[name] = self._load(name)
        return self.found[name]

    def _load(self, name: str) -> Any:
        try:
            module = importlib.import_module(name)
        except ImportError:
            self.notes.append(f"{name} is not installed and left out.")
            return None
        if name in ("torch", "numexpr"):
            module.set_num_threads(self.threads)
        if name == "jax":
            module.config.update("jax_enable_x64", True)
        return module

    @property
    def torch(self) -> Any:
        return self.module("torch")

    @property
    def jax(self) -> Any:
        return self.module("jax")

    def torch_compile(self) -> Compiler | None:
        """torch.compile for fixed shapes, or None and a remark where there is no C++ compiler."""
        if self.torch is None:
            return None
        if not any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++")):
            note = "torch.compile needs a C++ compiler; there is none here, and the column is left out."
            self.notes += [] if note in self.notes else [note]
            return None
        self.torch._dynamo.config.recompile_limit = 64  # a shared spelling is compiled anew for each size
        return partial(self.torch.compile, dynamic=False)


@dataclass(frozen=True)
class Spelling:
    """A computation as the users of each library write it: functions of (array module, *arrays).

    `plain` is NumPy code, which fxgrad compiles and JAX compiles with jax.numpy in place of numpy, unless `fxgrad` or `jax` say
    otherwise. `torch` gets torch as its module; `numexpr` is text over a, b, c.
    """

    plain: Callable[..., Any]
    fxgrad: Callable[..., Any] | None = None
    jax: Callable[..., Any] | None = None
    torch: Callable[..., Any] | None = None
    compiled: bool = True
    numexpr: str | None = None


def contenders(peers: Peers, spelling: Spelling, args: list[np.ndarray]) -> dict[str, Callable[[], Any]]:
    """Everybody who can compute it, by column, as functions that return the finished result."""
    jitted = fx.jit(partial(spelling.fxgrad or spelling.plain, np))
    found: dict[str, Callable[[], Any]] = {FXGRAD: lambda: jitted(*args), "numpy": lambda: spelling.plain(np, *args)}
    if peers.jax is not None:
        compiled = peers.jax.jit(partial(spelling.jax or spelling.plain, peers.jax.numpy))
        arrays, ready = [peers.jax.numpy.asarray(v) for v in args], peers.jax.block_until_ready
        found[JAX] = lambda: ready(compiled(*arrays))
    if peers.torch is not None:
        tensors = [peers.torch.from_numpy(v) for v in args]
        eager = partial(spelling.torch or spelling.plain, peers.torch)
        found[TORCH[0]] = lambda: eager(*tensors)
        compiler = peers.torch_compile() if spelling.compiled else None
        if compiler is not None:
            fused = compiler(eager)
            found[TORCH[1]] = lambda: fused(*tensors)
    if spelling.numexpr and peers.module("numexpr") is not None:
        names, evaluate = dict(zip("abc", args, strict=False)), peers.module("numexpr").evaluate
        found["numexpr"] = lambda: evaluate(spelling.numexpr, names)
    return found


def leaves(result: Any) -> list[np.ndarray]:
    """The arrays of a result of any library, dicts in the order of their sorted keys."""
    if isinstance(result, dict):
        result = [result[key] for key in sorted(result)]
    if isinstance(result, (list, tuple)):
        return [leaf for part in result for leaf in leaves(part)]
    return [np.asarray(result.detach() if hasattr(result, "detach") else result)]


def difference(got: Any, want: Any) -> float:
    """The largest of max|got - want|/max|want| over the arrays of two results; inf if their number or shapes differ."""
    pairs = list(zip(leaves(got), leaves(want), strict=False))
    if len(leaves(got)) != len(leaves(want)) or any(g.shape != w.shape for g, w in pairs):
        return np.inf
    worst = 0.0
    for g, w in pairs:
        g, w = g.astype(np.float64), w.astype(np.float64)
        worst = float(np.maximum(worst, np.max(np.abs(g - w), initial=0.0) / (np.max(np.abs(w), initial=0.0) or 1.0)))
    return worst
