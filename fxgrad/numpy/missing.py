"""What of NumPy is not here: why, and what to write instead; the error for a name, and the page docs/numpy.md, read this."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from fxgrad import errors

FILES = "It reads or writes files.", "Use NumPy's own, or fx.io.save and fx.io.load, outside the transformed function."
TIME = "Dates and times are not numbers that can be differentiated or compiled.", "Convert to floats or integers first."
TEXT = "Text is not numbers.", "Use NumPy's own outside the transformed function."
RECORDS = "fxgrad's arrays have one numeric dtype.", "Use one array for each field, in a dict or dataclass (a pytree)."
MATRIX = "NumPy's matrix class is deprecated.", "Use two-dimensional arrays and @."
WIDE = "Kernels compute in up to 64 bits.", "Use float64 or complex128."
STATE = "It concerns the NumPy library itself.", "Call NumPy's own."
MODULE = "It is a package of its own.", "Use NumPy's own outside the transformed function."
MEMORY = "Traced values have no memory that could be walked through or shared.", "Index, or use whole-array functions."

_GROUPS: dict[tuple[str, str], str] = {
    FILES: "fromfile fromregex genfromtxt load loadtxt memmap save savetxt savez savez_compressed",
    TIME: "busday_count busday_offset busdaycalendar datetime64 datetime_as_string datetime_data is_busday isnat timedelta64",
    TEXT: "bytes_ char character fromstring str_ strings",
    RECORDS: "flexible object_ rec recarray record void",
    MATRIX: "asmatrix bmat matrix",
    WIDE: "clongdouble complex256 float128 longdouble",
    STATE: (
        "f2py get_include getbufsize geterrcall info lib setbufsize seterrcall show_config show_runtime test testing typing "
        "ctypeslib dtypes ufunc"
    ),
    MEMORY: "broadcast flatiter nditer nested_iters",
}
ABSENT: dict[str, tuple[str, str]] = {name: reason for reason, names in _GROUPS.items() for name in names.split()}
ABSENT |= {
    "emath": ("It changes real results to complex ones by their values.", "Convert first: np.sqrt(x.astype(complex))."),
    "ma": (MODULE[0], "Carry the mask as an array of its own: np.where(mask, x, 0), np.sum(x, where=mask)."),
    "polynomial": (MODULE[0], "Use np.polyval, np.polyfit, np.polymul and the like, or Horner's rule."),
    "poly1d": ("It is a class around a vector of coefficients.", "Use np.polyval(p, x), np.polymul(p, q), np.roots(p)."),
    "frompyfunc": ("Its results are Python objects.", "Use np.vectorize(f), or fx.vmap(f)."),
    "random": ("Its generators have a hidden state.", "Use fx.random, whose keys make draws repeatable under every transform."),
}


class UnsupportedNameError(errors.UnsupportedError, AttributeError):
    """A name that NumPy has and fxgrad has not (hasattr answers False)."""


def reason(name: str) -> tuple[str, str]:
    """Why a name of NumPy is not here, and what to write instead."""
    return ABSENT.get(name, ("fxgrad has no rule for it (yet).", ""))


def hint(name: str, available: Mapping[str, Any]) -> str:
    """What to write instead."""
    near = difflib.get_close_matches(name, [n for n in available if not n.startswith("_")], 3, 0.7)
    similar = f"Similar names: {', '.join(near)}." if near else ""
    return " ".join(part for part in (reason(name)[1], similar) if part) or "docs/numpy.md lists what is there."


def missing(module: str, spelling: str, name: str, original: ModuleType, available: Mapping[str, Any]) -> Exception:
    """The exception for `spelling.name`: UnsupportedNameError if NumPy has it, else a plain AttributeError."""
    if (name.startswith("_") and name not in ABSENT) or not hasattr(original, name):
        near = difflib.get_close_matches(name, [n for n in available if not n.startswith("_")], 3, 0.7)
        return AttributeError(
            f"module '{module}' has no attribute '{name}'" + (f". Did you mean: {', '.join(near)}?" if near else "")
        )
    return UnsupportedNameError(f"{spelling}.{name} is not supported", why=reason(name)[0], fix=hint(name, available))
