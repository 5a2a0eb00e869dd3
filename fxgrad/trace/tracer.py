"""Tracer: what a traced function sees instead of an array.

It has the attributes, operators and methods of `numpy.ndarray`, all of which go through `fxgrad.numpy`, and answers NumPy's two
dispatch protocols, so unmodified `np.` functions work on it too. Where Python insists on a number, the tracer gives one if its
trace knows it, and otherwise raises an error that names the user's line and what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from fxgrad import errors
from fxgrad.ir.types import Aval, Var
from fxgrad.trace.memory import Memory, View
from fxgrad.trace.numpy_protocol import call_function, call_ufunc

if TYPE_CHECKING:
    from fxgrad.trace.tracing import Trace

__all__ = ["Tracer"]

_np: Any = None  # fxgrad.numpy, once it is loaded (it imports this module)
_functions: dict[str, Any] = {}  # what it holds, by name


def _library() -> Any:
    global _np, _functions
    if _np is None:
        import fxgrad.numpy

        _np, _functions = fxgrad.numpy, vars(fxgrad.numpy)
    return _np


def _named(name: str) -> Any:
    try:
        return _functions[name]
    except KeyError:
        return getattr(_library(), name)


class Tracer:
    """A traced array: a handle on a value of its trace, which a write moves on to another value (`trace/mutation.py`).

    `weak` marks one that came from a Python number, which leaves the other operand's dtype alone.
    """

    __slots__ = ("__weakref__", "_place", "_trace", "_var", "weak")
    __array_priority__ = 1000

    def __init__(self, trace: Trace, var: Var, weak: bool = False):
        self._trace, self._var, self.weak = trace, var, weak
        self._place: Memory | View | None = None  # what it shares memory with; None: a value that nothing was done to

    # -- what an array tells of itself

    @property
    def aval(self) -> Aval:
        return self._var.aval

    @property
    def shape(self) -> tuple[int, ...]:
        return self._var.aval.shape

    @property
    def dtype(self) -> np.dtype:
        return self._var.aval.dtype

    @property
    def ndim(self) -> int:
        return len(self._var.aval.shape)

    @property
    def size(self) -> int:
        return self._var.aval.size

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.aval.nbytes

    @property
    def T(self) -> Any:
        return _library().transpose(self)

    @property
    def mT(self) -> Any:
        return _library().matrix_transpose(self)

    @property
    def flat(self) -> Any:
        from fxgrad.numpy.inplace import Flat

        return Flat(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        self.flat[:] = value

    @property
    def real(self) -> Any:
        return _library().real(self)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Any:
        return _library().imag(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("array does not have imaginary part to set")
        self.imag[...] = value

    @property
    def at(self) -> Any:
        from fxgrad.numpy.at import At

        return At(self)

    @property
    def strides(self) -> tuple[int, ...]:
        """Of an array in C order; a traced value has no other."""
        steps, step = [], self.dtype.itemsize
        for n in reversed(self.shape):
            steps.append(step)
            step *= n
        return tuple(reversed(steps))

    @property
    def device(self) -> str:
        return "cpu"

    def to_device(self, device: Any, /, *, stream: Any = None) -> Any:
        """Itself: the CPU is the one device."""
        from fxgrad.numpy.array_api import require_cpu

        require_cpu(device)
        return self

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU

    def __dlpack__(self, **options: Any) -> Any:
        raise errors.ConcretizationError(
            f"cannot hand a traced {self.aval} to another library",
            why="It stands for an array that does not exist yet.",
            fix="Call the other library outside the transformed function, or use the function of fxgrad.numpy.",
        )

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return _library()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, value: Any) -> bool:
        return bool(_library().any(_library().equal(self, value)))

    def __reduce__(self) -> Any:
        raise errors.not_picklable(
            f"a traced {self.aval}, which stands for a value while a function is traced",
            "Send arrays to other processes before the transform or after it, not from inside the function.",
        )

    def __copy__(self) -> Any:
        return _library().copy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _library().copy(self)

    def __hash__(self) -> int:
        raise errors.FxTypeError(
            f"a traced {self.aval} is not hashable: it cannot be in a set, a key of a dict, or an argument of a cached function",
            why="Like an array it is compared element by element, so there is no one value to look it up by.",
            fix="Keep it in a list, or under a name or number of your own, d['x']; np.unique(x) finds the different elements.",
        )

    # -- values, where they are known

    def _known(self, asked: str, fix: str) -> Any:
        from fxgrad.trace.tracing import Unknown, present

        if not self._trace.active:
            present(self)
        try:
            return self._trace.value(self._var)
        except Unknown as unknown:
            transform = unknown.trace.transform
        raise errors.ConcretizationError(
            f"cannot use a traced {self.aval} as {asked}",
            why=f"Under {transform} the value is not known yet, only its shape and dtype.",
            fix=fix,
        )

    def __bool__(self) -> bool:
        return bool(
            self._known(
                "a Python bool",
                "Use np.where(test, a, b) or fx.cond(test, f, g, *operands), or move the test out of the transformed function.",
            )
        )

    def __int__(self) -> int:
        return int(self._known("a Python int", "Pass it as a static argument (jit(f, static_argnums=...)) or keep it an array."))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.shape:
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return int(
            self._known(
                "an index or a size",
                "Index with fx.asarray(table)[i] or np.take(table, i, axis=0); give sizes as Python ints or static arguments.",
            )
        )

    def __float__(self) -> float:
        return float(self._undifferentiated("a Python float"))

    def __complex__(self) -> complex:
        return complex(self._undifferentiated("a Python complex"))

    def _undifferentiated(self, asked: str) -> Any:
        """The value, provided that no derivative would be cut by taking it."""
        from fxgrad.trace.tracing import depends_on_differentiated

        value = self._free_value()
        if value is not None:
            return value
        _refuse_assignment(self)
        if depends_on_differentiated(self):
            raise errors.NonDifferentiableError(
                f"cannot use a traced {self.aval} as {asked}: it depends on what is being differentiated",
                why="A Python number carries no derivative: float(), math.* and round() would cut the gradient silently here.",
                fix="Use the NumPy function of that name (np.exp for math.exp), or fx.stop_gradient(x) first if you mean it.",
            )
        return self._known(
            asked, "Use the NumPy function of that name (np.exp for math.exp), or keep it an array: x for float(x) and x.item()."
        )

    def _free_value(self) -> Any:
        """The value, if it is known and no derivative flows through it; else None."""
        from fxgrad.trace.tracing import Unknown, depends_on_differentiated

        if self._trace.active and not depends_on_differentiated(self):
            with suppress(Unknown):
                return self._trace.value(self._var)
        return None

    def __round__(self, ndigits: int | None = None) -> Any:
        """As NumPy's scalars: an int for round(x), if the value is known (it is constant between jumps), else np.round(x)."""
        from fxgrad.trace.tracing import Unknown, present

        if not self._trace.active:
            present(self)
        if ndigits is None and not self.shape:
            with suppress(Unknown):
                return round(self._trace.value(self._var)[()])
        out = _library().round(self, 0 if ndigits is None else ndigits)
        if type(out) is Tracer and self.weak:
            out.weak = True
        return out

    def item(self, *args: int) -> Any:
        """The value as a Python number, under the rules of float() and int()."""
        x = self if not args else _library().ravel(self)[args[0]] if len(args) == 1 else self[args]
        if x.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        x = _library().reshape(x, ())
        as_number: Any = {"f": float, "b": bool, "c": complex}.get(x.dtype.kind, int)
        return as_number(x)

    def tolist(self) -> Any:
        return self.item() if not self.shape else [row.tolist() for row in self]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        value = self._free_value()
        if value is not None:
            return np.array(value, dtype, copy=copy)
        _refuse_assignment(self)
        raise errors.ConcretizationError(
            f"cannot turn a traced {self.aval} into a plain NumPy array",
            why="NumPy asked for its elements (np.array, np.asarray, a list of traced values, or an assignment into a plain "
            "array), which would cut it off from the trace.",
            fix="Use np.stack([...]) or fxgrad.numpy.array([...]) to build arrays from traced values, fx.asarray(table)[i] to "
            "index a plain table, and np.zeros_like(x, shape=n) or fxgrad.numpy.zeros(n) with .at[i].set(v) to fill one.",
        )

    def _text(self, known: Any) -> str:
        from fxgrad.trace.tracing import Unknown, present

        try:
            x = self if self._trace.active else present(self)
            value = x._trace.value(x._var)
        except (Unknown, errors.LeakedTracerError):
            value = None
        return f"Traced<{self.aval}>" if value is None else known(value)

    def __repr__(self) -> str:
        return self._text(lambda v: f"Traced<{self.aval}>({np.asarray(v)!r})")

    def __str__(self) -> str:
        return self._text(lambda v: str(v))

    def __format__(self, spec: str) -> str:
        return self._text(lambda v: format(v, spec))

    # -- NumPy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        return call_function(func, args, kwargs)

    # -- indexing and in-place code

    def __getitem__(self, index: Any) -> Any:
        return _library().getitem(self, index, True)

    def __setitem__(self, index: Any, value: Any) -> None:
        from fxgrad.numpy.at import setitem

        setitem(self, index, value)

    def sort(self, axis: int = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None) -> None:
        """As numpy.ndarray.sort, in place."""
        from fxgrad.trace.mutation import assign

        assign(self, _library().sort(self, axis), "x.sort()")

    def partition(self, kth: Any, axis: int = -1, kind: str = "introselect", order: Any = None) -> None:
        """As numpy.ndarray.partition, in place."""
        from fxgrad.trace.mutation import assign

        assign(self, _library().partition(self, kth, axis), "x.partition()")

    def fill(self, value: Any) -> None:
        """As numpy.ndarray.fill."""
        from fxgrad.trace.mutation import assign

        assign(self, value, "x.fill(v)")

    def put(self, indices: Any, values: Any, mode: str = "raise") -> None:
        """As numpy.ndarray.put."""
        _library().put(self, indices, values, mode)

    def copy(self, order: str = "C") -> Any:
        """As numpy.ndarray.copy: what is written to the copy does not show here."""
        from fxgrad.trace.mutation import copied, in_memory, is_array

        return in_memory(copied(self)) if is_array(self) else copied(self)

    def flatten(self, order: str = "C") -> Any:
        """As numpy.ndarray.flatten: a copy, as a vector."""
        from fxgrad.trace.mutation import copied

        return copied(_library().ravel(self, order))

    def resize(self, *args: Any, **kwargs: Any) -> None:
        raise errors.MutationError(
            f"cannot resize a traced {self.aval} in place",
            why="Views of it would lie outside the array.",
            fix="Write y = np.resize(x, shape), which repeats elements where it needs more, or np.pad(x, (0, n)) for zeros.",
        )


def _refuse_assignment(x: Tracer) -> None:
    """Raise if the user's line is an assignment to an item, `a[i] = v`: a plain array asks for the numbers to keep."""
    if errors.at_item_assignment():
        from fxgrad.trace.mutation import refuse_plain

        raise refuse_plain(
            f"a[i] = v, where v or i is a traced {x.aval},",
            "Make the array a traced one: np.zeros_like(x, shape=n), or np.zeros(n) and np.array(a) with "
            "`import fxgrad.numpy as np`; or write y = fx.asarray(a).at[i].set(v).",
        )


def _operator(name: str, function: str, swapped: bool) -> Any:
    def method(self: Tracer, other: Any, *modulus: Any) -> Any:
        if type(other) not in _USUAL and isinstance(other, _FOREIGN):
            return NotImplemented
        if modulus:
            raise _three_arguments(self)
        f = _named(function)
        out = f(other, self) if swapped else f(self, other)
        # Python numbers that meet only each other stay Python numbers
        if (
            self.weak
            and type(out) is Tracer
            and (type(other) in (int, float, bool, complex) or (type(other) is Tracer and other.weak))
        ):
            out.weak = True
        return out

    method.__name__ = name
    return method


def _three_arguments(x: Tracer) -> errors.FxTypeError:
    return errors.FxTypeError(
        f"pow() with three arguments got a traced {x.aval}",
        why="NumPy arrays have no pow(x, y, z) either.",
        fix="Write x**y % z.",
    )


def _in_place(name: str, function: str, sign: str) -> Any:
    def method(self: Tracer, other: Any) -> Any:
        from fxgrad.trace.mutation import into, is_array

        result = getattr(self, f"__{name}__")(other)
        if result is NotImplemented or not is_array(self):
            return result  # NumPy's scalars are immutable: this rebinds, as there
        return into(self, result, f"x {sign}= v")

    return method


_FOREIGN = (str, bytes, dict, set, type(None))
_USUAL = frozenset((Tracer, np.ndarray, float, int))
_BINARY = {
    "add": ("add", "+"),
    "sub": ("subtract", "-"),
    "mul": ("multiply", "*"),
    "truediv": ("divide", "/"),
    "floordiv": ("floor_divide", "//"),
    "mod": ("remainder", "%"),
    "pow": ("power", "**"),
    "matmul": ("matmul", "@"),
    "and": ("bitwise_and", "&"),
    "or": ("bitwise_or", "|"),
    "xor": ("bitwise_xor", "^"),
    "lshift": ("left_shift", "<<"),
    "rshift": ("right_shift", ">>"),
}
for _name, (_function, _sign) in _BINARY.items():
    setattr(Tracer, f"__{_name}__", _operator(f"__{_name}__", _function, False))
    setattr(Tracer, f"__r{_name}__", _operator(f"__r{_name}__", _function, True))
    setattr(Tracer, f"__i{_name}__", _in_place(_name, _function, _sign))
for _name, _function in {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
    "divmod": "divmod",
}.items():
    setattr(Tracer, f"__{_name}__", _operator(f"__{_name}__", _function, False))
setattr(Tracer, "__rdivmod__", _operator("__rdivmod__", "divmod", True))


def _unary(name: str, function: str) -> Any:
    def method(self: Tracer) -> Any:
        out = _named(function)(self)
        if self.weak and type(out) is Tracer:
            out.weak = True
        return out

    method.__name__ = name
    return method


for _name, _function in {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}.items():
    setattr(Tracer, f"__{_name}__", _unary(f"__{_name}__", _function))


def _method(name: str) -> Any:
    def method(self: Tracer, *args: Any, **kwargs: Any) -> Any:
        return _named(name)(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"As numpy.ndarray.{name}."
    return method


for _name in (
    "all",
    "any",
    "argmax",
    "argmin",
    "argpartition",
    "argsort",
    "astype",
    "clip",
    "cumprod",
    "cumsum",
    "diagonal",
    "dot",
    "max",
    "mean",
    "min",
    "prod",
    "ptp",
    "ravel",
    "repeat",
    "searchsorted",
    "squeeze",
    "std",
    "sum",
    "swapaxes",
    "take",
    "trace",
    "var",
    "nonzero",
    "choose",
    "conj",
    "conjugate",
):
    setattr(Tracer, _name, _method(_name))


def _needs_memory(name: str, fix: str) -> property:
    """An attribute of arrays that reads or describes their memory, of which a traced value has none."""

    def refuse(self: Tracer) -> Any:
        from fxgrad.numpy.missing import UnsupportedNameError  # hasattr answers False

        raise UnsupportedNameError(
            f"{name} of a traced {self.aval} is not supported",
            why="A traced value stands for an array that is yet to be computed: it has no memory to look at.",
            fix=fix,
        )

    return property(refuse)


_OUTSIDE = "Return the value, and use its .{} outside the transformed function."
_BITS = "Convert values with .astype(dtype)."
for _name in ("base", "ctypes", "data", "dump", "dumps", "flags", "tobytes", "tofile"):
    setattr(Tracer, _name, _needs_memory(_name, _OUTSIDE.format(_name)))
for _name in ("byteswap", "getfield", "setfield", "setflags", "view"):
    setattr(Tracer, _name, _needs_memory(_name, _BITS))


def _compress(self: Tracer, condition: Any, axis: int | None = None, out: Any = None) -> Any:
    """As numpy.ndarray.compress, whose operands come the other way round than those of numpy.compress."""
    return _library().compress(condition, self, axis, out)


setattr(Tracer, "compress", _compress)
setattr(Tracer, "round", _method("round"))


def _variadic(name: str, default: Any) -> Any:
    """x.reshape(2, 3) and x.reshape((2, 3)); x.transpose() and x.transpose(1, 0)."""

    def method(self: Tracer, *args: Any, **kwargs: Any) -> Any:
        value = default if not args else args[0] if len(args) == 1 and not isinstance(args[0], int) else args
        return getattr(_library(), name)(self, value, **kwargs)

    method.__name__ = name
    return method


setattr(Tracer, "reshape", _variadic("reshape", ()))
setattr(Tracer, "transpose", _variadic("transpose", None))
