"""The libraries whose functions can be checked: how each makes arrays, and how it is asked for derivatives.

Functions are given as *flat* ones: they take the floating-point leaves of the arguments and answer the list of the
floating-point leaves of the result. Names as in JAX: `jvp` pushes tangents forward, `vjp` pulls cotangents back.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from fxgrad import errors, tree
from fxgrad.api.forward import jvp
from fxgrad.api.reverse import vjp
from fxgrad.compile.jit import jit

__all__ = ["LIBRARIES", "Kind", "Library", "library_of"]

Flat = Callable[..., list[Any]]


class Kind(NamedTuple):
    """The type of a floating-point leaf, and the type that is evaluated in its place where more digits are wanted."""

    native: Any
    wide: Any
    complex: bool
    eps: float
    name: str


class Library:
    """fxgrad, which differentiates plain NumPy functions too. The others say what they do differently."""

    name = "fxgrad"
    conjugates = False  # whether a cotangent w stands for Re(sum(conj(w) * tangent)); without, for Re(sum(w * tangent))

    def flatten(self, value: Any) -> tuple[list[tuple[str, Any]], Callable[[Sequence[Any]], Any]]:
        """([(path, leaf), ...], what makes the tree of other leaves)."""
        found, structure = tree.flatten_with_path(value)
        return [(tree.path_string(path), leaf) for path, leaf in found], partial(tree.unflatten, structure)

    def kind(self, leaf: Any) -> Kind | None:
        """The type of a leaf that has a derivative, None for any other."""
        if isinstance(leaf, bool) or not isinstance(leaf, (float, complex, np.ndarray, np.generic)):
            return None
        dtype = np.asarray(leaf).dtype
        if dtype.kind not in "fc":
            return None
        wide = np.dtype(np.complex128 if dtype.kind == "c" else np.float64)
        return Kind(dtype, wide, dtype.kind == "c", max(float(np.finfo(dtype).eps), 2.0**-52), str(dtype))

    def array(self, x: np.ndarray, dtype: Any) -> Any:
        """A new array of the library's own; rank 0 as a scalar."""
        return np.array(x, dtype)[()]

    def dtype(self, kind: Kind, precision: str) -> Any:
        """What `array` makes of a leaf in this precision: "native", "wide", "narrow" (single) or "complex"."""
        if precision in ("native", "wide"):
            return kind.native if precision == "native" else kind.wide
        return np.dtype(np.complex128 if precision == "complex" else np.complex64 if kind.complex else np.float32)

    def numpy(self, leaf: Any) -> np.ndarray:
        """The leaf as float64 or complex128."""
        x = np.asarray(leaf)
        return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)

    def no_tangent(self, leaf: Any) -> Any:
        """What stands for the tangent or cotangent of a leaf that has none."""
        return None

    def jvp(self, f: Flat, primals: Sequence[Any], tangents: Sequence[Any]) -> Sequence[Any]:
        return jvp(f, tuple(primals), tuple(tangents))[1]

    def vjp(self, f: Flat, primals: Sequence[Any], cotangents: Sequence[Any], nested: bool = False) -> Sequence[Any]:
        """`nested`: a forward derivative will be taken through this."""
        return vjp(f, *primals)[1](list(cotangents))

    def wide(self) -> AbstractContextManager:
        """Where arrays of the wide type can be made."""
        return nullcontext()

    def repeated(self, f: Flat) -> Flat:
        """f, whose derivatives will be taken at many points: traced once (the bits are the same) unless values direct it."""
        compiled: Flat | None = jit(f)

        def run(*xs: Any) -> list[Any]:
            nonlocal compiled
            if compiled is not None:
                try:
                    return compiled(*xs)
                except Exception:  # noqa: BLE001 -- it needs values, in which case NumPy may raise anything; else f raises it again
                    compiled = None
            return f(*xs)

        return run


class Foreign(Library):
    """A library whose functions fxgrad does not trace."""

    def repeated(self, f: Flat) -> Flat:
        return f


class Jax(Foreign):
    """JAX."""

    name = "jax"

    def flatten(self, value: Any) -> tuple[list[tuple[str, Any]], Callable[[Sequence[Any]], Any]]:
        util = importlib.import_module("jax").tree_util
        found, structure = util.tree_flatten_with_path(value)
        return [(util.keystr(path), leaf) for path, leaf in found], partial(util.tree_unflatten, structure)

    def kind(self, leaf: Any) -> Kind | None:
        jnp = importlib.import_module("jax.numpy")
        dtype = getattr(leaf, "dtype", None)
        if dtype is None:
            dtype = {float: jnp.result_type(float), complex: jnp.result_type(complex)}.get(type(leaf))
        if dtype is None or not jnp.issubdtype(dtype, jnp.inexact):
            return None
        native = importlib.import_module("jax").dtypes.canonicalize_dtype(dtype)
        is_complex = jnp.issubdtype(dtype, jnp.complexfloating)
        wide = np.dtype(np.complex128 if is_complex else np.float64)
        return Kind(native, wide, is_complex, float(jnp.finfo(native).eps), str(native))

    def array(self, x: np.ndarray, dtype: Any) -> Any:
        return importlib.import_module("jax.numpy").asarray(x, dtype)

    def numpy(self, leaf: Any) -> np.ndarray:
        return np.asarray(leaf).astype(np.complex128 if np.iscomplexobj(leaf) else np.float64)

    def no_tangent(self, leaf: Any) -> Any:
        return np.zeros(np.shape(leaf), importlib.import_module("jax").dtypes.float0)

    def jvp(self, f: Flat, primals: Sequence[Any], tangents: Sequence[Any]) -> Sequence[Any]:
        return importlib.import_module("jax").jvp(f, tuple(primals), tuple(tangents))[1]

    def vjp(self, f: Flat, primals: Sequence[Any], cotangents: Sequence[Any], nested: bool = False) -> Sequence[Any]:
        return importlib.import_module("jax").vjp(f, *primals)[1](list(cotangents))

    def wide(self) -> AbstractContextManager:
        return importlib.import_module("jax").enable_x64(True)


class Torch(Foreign):
    """PyTorch: reverse mode by torch.autograd, so that any autograd.Function can be checked; forward mode by torch.func."""

    name = "torch"
    conjugates = True

    def kind(self, leaf: Any) -> Kind | None:
        torch = importlib.import_module("torch")
        if not isinstance(leaf, torch.Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
            return None  # Python numbers are not differentiated
        is_complex = leaf.is_complex()
        wide = torch.complex128 if is_complex else torch.float64
        eps = max(torch.finfo(leaf.dtype).eps, 2.0**-52)
        return Kind((leaf.dtype, leaf.device), (wide, leaf.device), is_complex, eps, str(leaf.dtype).removeprefix("torch."))

    def array(self, x: np.ndarray, dtype: Any) -> Any:
        torch = importlib.import_module("torch")
        return torch.from_numpy(np.array(x)).to(dtype=dtype[0], device=dtype[1])

    def dtype(self, kind: Kind, precision: str) -> Any:
        if precision in ("native", "wide"):
            return super().dtype(kind, precision)
        torch = importlib.import_module("torch")
        narrow = torch.complex64 if kind.complex else torch.float32
        return torch.complex128 if precision == "complex" else narrow, kind.native[1]

    def numpy(self, leaf: Any) -> np.ndarray:
        torch = importlib.import_module("torch")
        x = leaf.detach().resolve_conj().resolve_neg()
        return x.to("cpu", torch.complex128 if x.is_complex() else torch.float64).numpy()

    def jvp(self, f: Flat, primals: Sequence[Any], tangents: Sequence[Any]) -> Sequence[Any]:
        try:
            with warnings.catch_warnings():  # PyTorch loads its forward rules with what it has deprecated itself
                warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
                return importlib.import_module("torch").func.jvp(lambda *xs: tuple(f(*xs)), tuple(primals), tuple(tangents))[1]
        except (RuntimeError, NotImplementedError) as error:
            raise errors.UnsupportedError(
                f"PyTorch has no forward mode for this function: {str(error).splitlines()[0]}",
                why="Not every autograd.Function and operation of PyTorch has a forward derivative.",
                fix='Check reverse mode alone: modes="rev".',
            ) from error

    def vjp(self, f: Flat, primals: Sequence[Any], cotangents: Sequence[Any], nested: bool = False) -> Sequence[Any]:
        torch = importlib.import_module("torch")
        if nested:
            return torch.func.vjp(lambda *xs: tuple(f(*xs)), *primals)[1](tuple(cotangents))
        with torch.enable_grad():
            xs = [x if x.requires_grad else x.detach().requires_grad_() for x in primals]
            pairs = [(y, w) for y, w in zip(f(*xs), cotangents, strict=True) if y.requires_grad]
            if not pairs:
                return [torch.zeros_like(x) for x in xs]
            outs, weights = zip(*pairs, strict=True)
            return torch.autograd.grad(outs, xs, weights, create_graph=True, allow_unused=True, materialize_grads=True)


class Autograd(Foreign):
    """HIPS autograd."""

    name = "autograd"

    def _boxed(self, f: Flat) -> Callable[[Any], Any]:
        boxed = importlib.import_module("autograd.builtins").tuple
        return lambda xs: boxed(f(*[xs[i] for i in range(len(xs))]))

    def kind(self, leaf: Any) -> Kind | None:
        return super().kind(getattr(leaf, "_value", leaf))

    def jvp(self, f: Flat, primals: Sequence[Any], tangents: Sequence[Any]) -> Sequence[Any]:
        return importlib.import_module("autograd").make_jvp(self._boxed(f))(tuple(primals))(tuple(tangents))[1]

    def vjp(self, f: Flat, primals: Sequence[Any], cotangents: Sequence[Any], nested: bool = False) -> Sequence[Any]:
        boxed = importlib.import_module("autograd.builtins").tuple
        pulled = importlib.import_module("autograd").make_vjp(self._boxed(f))(boxed(tuple(primals)))[0](tuple(cotangents))
        return [pulled[i] for i in range(len(primals))]


LIBRARIES: dict[str, Callable[[], Library]] = {
    "fxgrad": Library,
    "numpy": Library,
    "jax": Jax,
    "torch": Torch,
    "autograd": Autograd,
}


def _uses(f: Any, package: str) -> bool:
    """Whether a global that the function names is a module of the package, or something that one of its modules defines."""
    f = getattr(f, "__wrapped__", f)
    f = getattr(f, "func", f)
    code, names = getattr(f, "__code__", None), getattr(f, "__globals__", {})
    if code is None:
        return False
    cells = [cell.cell_contents for cell in getattr(f, "__closure__", None) or () if cell != type(cell)()]
    for value in [names.get(name) for name in code.co_names] + cells:
        module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(module, str) and module.split(".")[0] == package:
            return True
    return False


def library_of(f: Callable[..., Any], args: Sequence[Any], name: str | None = None) -> Library:
    """The library of a function.

    Args:
        f: the function.
        args: its arguments; a tensor of PyTorch or an array of JAX among them decides.
        name: "fxgrad" (also for plain NumPy), "torch", "jax" or "autograd"; None looks at the arguments, and then at whether
            f is a function of JAX, or names a module of JAX or autograd.
    Returns:
        The library; fxgrad where nothing points elsewhere.
    Raises:
        FxValueError: there is no library of that name.

    >>> library_of(np.sum, (np.ones(3),)).name
    'fxgrad'
    """
    if name is not None:
        if name not in LIBRARIES:
            raise errors.FxValueError(
                f"library={name!r} is none that gradients can be checked of",
                why="A library is asked for derivatives in its own way.",
                fix=f"Name one of {', '.join(map(repr, LIBRARIES))}, or pass the gradient as grad=.",
            )
        return LIBRARIES[name]()
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    leaves = tree.leaves(tuple(args))
    if torch is not None and any([isinstance(x, torch.Tensor) for x in leaves]):
        return Torch()
    if jax is not None and any([isinstance(x, jax.Array) for x in jax.tree_util.tree_leaves(tuple(args))]):
        return Jax()
    defined = (getattr(f, "__module__", None) or type(f).__module__).split(".")[0]
    if jax is not None and (defined in ("jax", "jaxlib") or _uses(f, "jax")):
        return Jax()
    if "autograd" in sys.modules and (defined == "autograd" or _uses(f, "autograd")):
        return Autograd()
    return Library()
