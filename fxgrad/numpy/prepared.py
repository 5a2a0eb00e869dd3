"""Functions prepared for the types of their operands: what a call comes down to is traced once for each, then looked up.

A function of `fxgrad.numpy` looks at its arrays' shapes and dtypes and never at their elements, so it is the same small program
for all operands of the same types. Outside every trace that program runs (a single operation at the price of its kernel, several
as one program that is compiled when it is hot); inside a trace its equations are recorded. Whatever is not plain - tracers of an
outer trace, lists, unhashable parameters, wrong shapes - takes the function's own way, which also raises the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import Aval, Lit, Var
from fxgrad.primitives.base import Primitive
from fxgrad.runtime.eager import prepared_tables
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import Trace, current_trace, paste

__all__ = ["prepared", "prepared_ufunc"]


RECORDED_PLAINLY = 8  # calls in traces before a function is prepared for those operands
ENTRIES_KEPT = 4096  # of one function; what is in use is prepared again
_STATIC = frozenset((bool, int, str, type(None), type, type(np._NoValue), *(type(np.dtype(c)) for c in "?bhilqBHILQefdFDgG")))
_NUMBERS = frozenset((int, float, complex))
_ndarray = np.ndarray


class Fragment:
    """What a function comes down to for operands of given types.

    With a `prim` it is one equation, whose inputs `order` names: an operand by number, or a literal (None: the operands as they
    come); without, it is `program`.
    """

    __slots__ = ("_run", "aval", "order", "params", "prim", "program")

    def __init__(self, program: Program, order: list[int | Lit] | None, operands: int):
        self.program = program
        self._run: Callable[..., Any] | None = None
        self.order: list[int | Lit] | None = None
        self.prim: Primitive | None = None
        if order is not None:
            (eqn,) = program.eqns
            self.prim, self.params, self.aval = eqn.prim, eqn.params, eqn.outputs[0].aval
            self.order = None if order == list(range(operands)) else order

    def record(self, trace: Trace, operands: Sequence[Any]) -> Any:
        """Its equations in a trace, on tracers of it, arrays and NumPy scalars."""
        atoms = [x._var if type(x) is Tracer else trace.atom(x) for x in operands]
        source = trace.source or errors.user_location()
        if self.prim is None:
            return paste(trace, self.program, atoms, source)[0]
        if self.order is not None:
            atoms = [atoms[i] if isinstance(i, int) else i for i in self.order]
        v = Var(self.aval)
        trace.eqns.append(Eqn(self.prim, atoms, self.params, [v], source))
        return Tracer(trace, v)

    @property
    def run(self) -> Callable[..., Any]:
        """Evaluation on arrays and NumPy scalars."""
        if self._run is None:
            self._run = self._make_run()
        return self._run

    def _make_run(self) -> Callable[..., Any]:
        from fxgrad.runtime.eager import direct, runner

        if self.prim is None:
            run = runner(self.program)
            return lambda *arrays: run(arrays)[0]
        order = self.order
        run_one = direct(self.prim, [v.aval for v in self.program.eqns[0].inputs], self.params)
        if order is None:
            return run_one
        fixed = [x.value if isinstance(x, Lit) else None for x in order]
        return lambda *arrays: run_one(*[arrays[i] if type(i) is int else c for i, c in zip(order, fixed, strict=True)])


def _trace(body: Callable[..., Any], kinds: Sequence[Any]) -> Fragment | None:
    """The fragment of `body` for operands of these kinds; scalars are given by their dtypes."""
    scalars = {i: k.type(0) for i, k in enumerate(kinds) if _is_scalar(k)}  # told by identity in the program
    with Trace("a prepared function", known=False) as trace:
        operands = [
            scalars[i] if i in scalars else trace.input(k[0], weak=True) if type(k) is tuple else trace.input(k)
            for i, k in enumerate(kinds)
        ]
        out = body(*operands)
        if type(out) is not Tracer:
            return None
        program, captures = trace.program([out])
    if captures or not program.eqns:
        return None
    number: dict[Any, int] = {x._var: i for i, x in enumerate(operands) if type(x) is Tracer}
    number.update((id(x), i) for i, x in scalars.items())
    order = _order_of(program, number)
    if scalars and (order is None or not scalars.keys() <= {i for i in order if isinstance(i, int)}):
        return None  # `body` has converted a scalar: what is in the program is the 0 that stood for it
    return Fragment(program, order, len(kinds))


def _order_of(program: Program, number: dict[Any, int]) -> list[int | Lit] | None:
    if len(program.eqns) != 1 or program.outputs != tuple(program.eqns[0].outputs):
        return None
    return [number.get(id(a.value), a) if isinstance(a, Lit) else number[a] for a in program.eqns[0].inputs]


class _Table(dict):
    """Fragments by the key of a call; False where there is none to be had, an int while recorded calls are only counted."""

    def __init__(self) -> None:
        super().__init__()
        prepared_tables.append(self)

    def put(self, key: Any, value: Any) -> None:
        if len(self) >= ENTRIES_KEPT:
            self.clear()
        self[key] = value

    def add(self, key: Any, seen: int | None, recording: bool, make: Callable[[], Any]) -> Any:
        """The fragment for a key that has none yet; None if it is not to be used.

        Preparing takes longer than recording a few times, which is all that a function that is traced for jit needs. When the
        function raises, its own way raises again, at the user's line.
        """
        if recording and (seen or 0) < RECORDED_PLAINLY:
            self.put(key, (seen or 0) + 1)
            return None
        try:
            found = make() or False
        except Exception:  # noqa: BLE001
            return None
        self.put(key, found)
        return found


def _kind(x: Any, trace: Trace | None) -> Any:
    """What a fragment depends on: an aval, (aval,) of a weak tracer, or the dtype of a scalar, which stays a literal.

    None if the operand is not plain; np.bool_ is not: literals are told by identity, and it has but two objects.
    """
    kind = type(x)
    if kind is _ndarray:
        return Aval(x.shape, x.dtype) if x.dtype.isnative else None
    if kind is Tracer:
        return None if x._trace is not trace else (x._var.aval,) if x.weak else x._var.aval
    return x.dtype if isinstance(x, np.generic) and x.dtype.isnative and x.dtype.kind in "fiuc" else None


def prepared(count: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of a function whose first `count` positional arguments are operands and whose others are static."""

    def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
        table = _Table()
        quick: _Table = _Table()  # what runs outside traces on arrays alone, by their shapes and dtypes

        @wraps(f)
        def function(*args: Any, **kwargs: Any) -> Any:
            trace = current_trace()
            types = None
            if trace is None and len(args) == count and not kwargs:
                types = tuple([p for x in args if type(x) is _ndarray for p in (x.shape, x.dtype)])
                run = quick.get(types)
                if run is not None:
                    return run(*args)
            key = _key(args, kwargs, count, trace)
            found = None
            if key is not None:
                found = table.get(key)
                if found is None or type(found) is int:
                    rest = args[count:]
                    body = lambda *xs: f(*xs, *rest, **kwargs)  # noqa: E731
                    found = table.add(key, found, trace is not None, lambda: _trace(body, key[:count]))
            if not found:
                if kwargs.get("out") is not None:
                    return _with_out(function, f"np.{f.__name__}(..., out=...)", args, kwargs)
                return f(*args, **kwargs)
            if trace is not None:
                return found.record(trace, args[:count])
            if types is not None and len(types) == 2 * count:
                quick.put(types, found.run)
            return found.run(*args[:count])

        return function

    return decorate


def _with_out(f: Callable[..., Any], what: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    """out=: the result written to it."""
    from fxgrad.trace.mutation import check_out, into

    out = kwargs.pop("out")
    check_out(out, what)
    return into(out, f(*args, **kwargs), what)


def _key(args: tuple, kwargs: dict[str, Any], count: int, trace: Trace | None) -> tuple | None:
    key = [_kind(x, trace) for x in args[:count]]
    if len(key) < count or not _usable(key):
        return None
    for v in (*args[count:], *kwargs.values()):
        if type(v) not in _STATIC and not (type(v) is tuple and all([type(i) is int for i in v])):
            return None
    return (*key, *args[count:], *kwargs.items())


def prepared_ufunc(fn: np.ufunc, general: Callable[..., Any], dtypes_of: Callable[..., Sequence[np.dtype]]) -> Callable[..., Any]:
    """The function of a ufunc of one or two operands: `general` is its own way, `dtypes_of(*operands)` names NumPy's loop."""
    table: _Table = _Table()  # by the kinds of the operands: a fragment, and the dtypes Python numbers and NumPy scalars take
    quick: _Table = _Table()  # what runs outside traces, by shapes and dtypes alone

    def call(args: tuple) -> Any:
        trace = current_trace()
        key = tuple([type(x) if type(x) in _NUMBERS else _kind(x, trace) for x in args])
        found = table.get(key)
        if found is None or type(found) is int:
            if not _usable(key):
                return general(*args)
            found = table.add(key, found, trace is not None, lambda: _with_targets(key, args))
        if not found:
            return general(*args)
        fragment, targets = found
        if targets is None:
            operands = args
        else:
            operands = tuple([x if t is None else _scalar(x, t) for x, t in zip(args, targets, strict=True)])
        if trace is not None:
            return fragment.record(trace, operands)
        if targets is None:
            quick.put(tuple([p for x in args for p in (x.shape, x.dtype)]), fragment.run)
        elif type(args[1]) in _NUMBERS:
            quick.put((args[0].shape, args[0].dtype, type(args[1])), _with_number(fragment.run, targets[1].type))
        return fragment.run(*operands)

    def _with_targets(key: tuple, args: tuple) -> tuple[Fragment, tuple | None] | None:
        dtypes = dtypes_of(*args)
        scalar = [_is_scalar(k) for k in key]
        fragment = _trace(general, [d if s else k for k, d, s in zip(key, dtypes, scalar, strict=True)])
        targets = tuple([d if s else None for d, s in zip(dtypes, scalar, strict=True)]) if any(scalar) else None
        return None if fragment is None else (fragment, targets)

    return _unary(general, call, table, quick) if fn.nin == 1 else _binary(general, call, table, quick)


def _usable(kinds: Sequence[Any]) -> bool:
    """All operands are plain, and not all are scalars, with which functions compute at once, also in a trace."""
    alone = True
    for k in kinds:
        if k is None:  # compared by identity: NumPy takes None for float64
            return False
        alone = alone and _is_scalar(k)
    return not alone


def _is_scalar(kind: Any) -> bool:
    return type(kind) is not Aval and type(kind) is not tuple


def _scalar(x: Any, dtype: np.dtype) -> Any:
    return x if isinstance(x, np.generic) and x.dtype == dtype else dtype.type(x)


def _with_number(run: Callable[..., Any], scalar: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda x, y: run(x, scalar(y))


def _unary(general: Callable[..., Any], call: Callable[[tuple], Any], table: dict, quick: dict) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        if len(args) != 1 or kwargs:
            return general(*args, **kwargs)
        (x,) = args
        trace = current_trace()
        if trace is None:
            if type(x) is _ndarray:
                run = quick.get((x.shape, x.dtype))
                if run is not None:
                    return run(x)
        elif type(x) is Tracer and x._trace is trace and not x.weak:
            found = table.get((x._var.aval,))
            if type(found) is tuple:
                return found[0].record(trace, args)
        return call(args)

    return function


def _binary(general: Callable[..., Any], call: Callable[[tuple], Any], table: dict, quick: dict) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        if len(args) != 2 or kwargs:
            return general(*args, **kwargs)
        x, y = args
        trace = current_trace()
        if trace is None:
            if type(x) is _ndarray:
                run = quick.get((x.shape, x.dtype, y.shape, y.dtype) if type(y) is _ndarray else (x.shape, x.dtype, type(y)))
                if run is not None:
                    return run(x, y)
        elif type(x) is Tracer and x._trace is trace and not x.weak:
            if type(y) is Tracer and y._trace is trace and not y.weak:
                found = table.get((x._var.aval, y._var.aval))
                if type(found) is tuple:
                    return found[0].record(trace, args)
            elif type(y) in _NUMBERS:
                found = table.get((x._var.aval, type(y)))
                if type(found) is tuple:
                    return found[0].record(trace, (x, found[1][1].type(y)))
        return call(args)

    return function
