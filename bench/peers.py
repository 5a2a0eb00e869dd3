"""Peers, imported if installed, and set to the number of threads of the run."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from typing import Any

__all__ = ["environment", "peer", "version_of"]


def environment(threads: int) -> dict[str, str]:
    """Variables that hold every library in a child process to that many threads; they are read when it is imported."""
    count = str(threads)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "FXGRAD_NUM_THREADS", "NPROC")
    # NPROC is the size of XLA's own thread pool; without the flag it would still use Eigen's.
    flags = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"} if threads == 1 else {}
    return {**os.environ, **dict.fromkeys(names, count), **flags, "JAX_PLATFORMS": "cpu"}


def peer(name: str, threads: int, notes: list[str]) -> Any:
    """The module, or None and a note if it is not installed."""
    try:
        module = importlib.import_module(name)
    except ImportError:
        notes.append(f"{name} is not installed and left out.")
        return None
    if name == "torch":
        module.set_num_threads(threads)
    if name == "numexpr":
        module.set_num_threads(threads)
    if name == "jax":
        module.config.update("jax_enable_x64", True)
    return module


def version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
