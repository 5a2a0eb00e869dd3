"""The error for a NumPy name that is not here: what is near, and what it could be written with."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from fxgrad import errors

WRITTEN_WITH = {
    "vectorize": "Functions of fxgrad.numpy work on whole arrays; fx.vmap(f) maps one over a leading axis.",
    "apply_along_axis": "Use fx.vmap(f, in_axes=axis)(x).",
    "frompyfunc": "Use fx.vmap(f).",
    "fromfunction": "Call the function on np.meshgrid(..., indexing='ij').",
    "unique": "Its result has no fixed shape; compute it with plain NumPy outside the transformed function.",
    "put": "Write x = x.at[i].set(v).",
    "place": "Write x = np.where(mask, v, x).",
    "putmask": "Write x = np.where(mask, v, x).",
    "copyto": "Write x = np.broadcast_to(v, x.shape), or x = np.where(mask, v, x).",
    "put_along_axis": "Write x = x.at[...].set(v) with index arrays.",
    "fill_diagonal": "Write x = np.where(np.eye(n, dtype=bool), v, x).",
    "matrix": "Use two-dimensional arrays and @.",
    "random": "Use fx.random, whose keys make draws repeatable under every transform.",
    "bincount": "Write np.zeros(n).at[i].add(w).",
    "fft": "There is no fast Fourier transform yet.",
    "svd": "There is no singular value decomposition yet.",
}


class UnsupportedNameError(errors.UnsupportedError, AttributeError):
    """A name that NumPy has and fxgrad has not (hasattr answers False)."""


def hint(name: str, available: Mapping[str, Any]) -> str:
    """What to write instead."""
    near = difflib.get_close_matches(name, [n for n in available if not n.startswith("_")], 3, 0.7)
    similar = f"Similar names: {', '.join(near)}." if near else ""
    return " ".join(part for part in (WRITTEN_WITH.get(name, ""), similar) if part) or "docs/ops.md lists what is there."


def missing(module: str, spelling: str, name: str, original: ModuleType, available: Mapping[str, Any]) -> Exception:
    """The exception for `spelling.name`: UnsupportedNameError if NumPy has it, else a plain AttributeError."""
    if name.startswith("_") or not hasattr(original, name):
        near = difflib.get_close_matches(name, [n for n in available if not n.startswith("_")], 3, 0.7)
        return AttributeError(
            f"module '{module}' has no attribute '{name}'" + (f". Did you mean: {', '.join(near)}?" if near else "")
        )
    return UnsupportedNameError(
        f"{spelling}.{name} is not supported", why="NumPy has it, fxgrad does not (yet).", fix=hint(name, available)
    )
