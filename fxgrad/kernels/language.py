"""The namespace `k` that kernel bodies are written in: everything of vector.py and of the modules of functions."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from fxgrad.kernels.vector import *  # noqa: F403
from fxgrad.kernels.vector import __all__ as _vector_names

__all__ = list(_vector_names)


def _export(module: ModuleType) -> None:
    """Make the module's public functions ours."""
    names: Any = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    for name in names:
        globals()[name] = getattr(module, name)
        __all__.append(name)


for _name in ("math", "trig", "error_function", "inverse_error", "gamma", "bessel", "incomplete", "sampling"):
    try:
        _export(importlib.import_module(f"fxgrad.kernels.{_name}"))
    except ModuleNotFoundError as error:  # pragma: no cover - only while the package is incomplete
        if error.name != f"fxgrad.kernels.{_name}":
            raise
