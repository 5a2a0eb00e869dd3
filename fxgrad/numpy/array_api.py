"""What the array API standard asks of a namespace: inspection, and arrays of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy.creation import asarray

__all__ = ["from_dlpack", "require_cpu"]


def require_cpu(device: Any) -> None:
    """The error for a device that is not "cpu" (None: the one there is)."""
    if device not in (None, "cpu"):
        raise errors.FxValueError(
            f"there is no device {device!r}",
            why="fxgrad computes on the CPU.",
            fix='Leave device away, or pass device="cpu".',
        )


class __array_namespace_info__:
    """What the namespace can do, as the array API standard 2024.12 has it (section Inspection).

    Example:
        >>> import fxgrad.numpy as fnp
        >>> fnp.__array_namespace_info__().default_dtypes()["real floating"]
        dtype('float64')
    """

    def capabilities(self) -> dict[str, Any]:
        """Masks and results whose shapes depend on values work, but under jit and vmap, where values are not known."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The CPU."""
        return "cpu"

    def devices(self) -> list[str]:
        """The CPU alone."""
        return ["cpu"]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """What numbers become when no dtype is given."""
        require_cpu(device)
        integer = np.dtype(np.int64)
        return {
            "real floating": np.dtype(np.float64), "complex floating": np.dtype(np.complex128), "integral": integer,
            "indexing": integer,
        }  # fmt: skip

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, np.dtype]:
        """The dtypes of the standard, by name; of one kind, or of any of several."""
        require_cpu(device)
        kinds = _KINDS if kind is None else (kind,) if isinstance(kind, str) else kind
        names = [name for k in kinds for part in _GROUPS.get(k, (k,)) for name in _of_kind(part)]
        return {name: np.dtype(name) for name in dict.fromkeys(names)}


_KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_GROUPS = {
    "integral": ("signed integer", "unsigned integer"),
    "numeric": ("signed integer", "unsigned integer", "real floating", "complex floating"),
}


def _of_kind(kind: str) -> tuple[str, ...]:
    if kind not in _KINDS:
        raise errors.FxValueError(
            f"there is no kind {kind!r} of dtypes",
            why="The array API standard names them.",
            fix=f"Kinds are {', '.join((*_KINDS, *_GROUPS))}.",
        )
    return _KINDS[kind]


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """An array that another library holds on the CPU, without a copy unless asked for; inside a trace it is traced.

    Raises:
        BufferError: by the other library, if its array is not on the CPU.

    Example:
        >>> import numpy as np, fxgrad.numpy as fnp
        >>> fnp.from_dlpack(np.ones(2))
        array([1., 1.])
    """
    require_cpu(device)
    return asarray(np.from_dlpack(x, copy=copy))
