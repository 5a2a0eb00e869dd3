"""In-place code inside a trace: `y[i] = v`, `y += v`, `out=`, and writes through views.

A program has no memory; a tracer is a handle on one of its values. A write records the changed value and moves the handle on to
it. Handles that NumPy would have share memory (views, made by slicing, transposing, reshaping) share a `Memory`, which knows the
variable of the present value of the whole array. A view is a place in it, found by the steps that lead there from the whole. A
write through a view is carried back along these steps, as one strided update of the whole array; every other handle of that
memory becomes stale, which costs nothing until somebody asks for it: then the view is read again.

Stale is said by `tracer._trace`, which every operation compares with the active trace anyway, so code that never writes pays only
for noting which results are views.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.trace.memory import ARGUMENT, CAPTURED, STALE, Memory, View
from fxgrad.trace.steps import (
    Replay,
    Step,
    append_step,
    c_strides,
    is_contiguous,
    steps_of,
    strides_along,
    strides_without_copy,
)
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import current_trace, leaked, recording_in

__all__ = [
    "assign",
    "check_out",
    "copied",
    "in_memory",
    "into",
    "is_array",
    "is_contiguous_handle",
    "is_fortran_handle",
    "memory_of",
    "note_ravel",
    "note_reshape",
    "note_view",
    "renew",
    "store",
    "view_of",
]


# ---- which results are views ---------------------------------------------------------------------------------------------


def note_view(out: Any, base: Any) -> Any:
    """Say that `out` is a view of `base`; answers `out`."""
    if type(out) is not Tracer or out is base:
        return out
    if type(base) is not Tracer:
        if isinstance(base, np.ndarray):
            out._place = CAPTURED
        return out
    place = base._place
    if place is None:
        place = base._place = Memory(base)
    parent = place if isinstance(place, View) else None
    memory = place.memory if isinstance(place, View) else place
    if base._trace is not out._trace:  # of an outer trace
        out._place = View(CAPTURED, None, out._var, out._var)
        return out
    out._place = View(memory, parent, base._var, out._var)
    if memory.refusal is None:
        memory.add(out)
    return out


def note_reshape(out: Any, base: Any) -> Any:
    """`out`, which is `base` in another shape: a view where NumPy's reshape of that memory is one, else a copy."""
    if type(base) is Tracer and type(base._place) is View and out is not base:
        shape, strides = base.shape, _strides(base)
        if strides is not None and strides_without_copy(shape, strides, out.shape) is None:
            return out
    return note_view(out, base)


def note_ravel(out: Any, base: Any) -> Any:
    """`out`, which is `base` as a vector: a view of contiguous memory, a copy of other."""
    return note_view(out, base) if is_contiguous_handle(base) else copied(out) if out is base else out


def is_contiguous_handle(x: Any) -> bool:
    """Whether NumPy's array would lie in C order without gaps; fresh results do."""
    if type(x) is not Tracer or type(x._place) is not View:
        return True
    strides = _strides(x)
    return strides is not None and is_contiguous(x.shape, strides)


def is_fortran_handle(x: Tracer) -> bool:
    """Whether NumPy's array would lie in Fortran order without gaps."""
    strides = _strides(x) if type(x._place) is View else c_strides(x.shape)
    return strides is not None and is_contiguous(x.shape[::-1], strides[::-1])


def _strides(x: Tracer) -> tuple[int, ...] | None:
    view = x._place
    assert type(view) is View
    steps = _steps(view, renew(x)._trace)
    root = view
    while root.parent is not None:
        root = root.parent
    return strides_along(root.source.aval.shape, steps)


def _steps(place: Any, trace: Any) -> tuple[Step, ...]:
    """From the whole array to this place."""
    chain: list[View] = []
    while type(place) is View and place.steps is None:
        chain.append(place)
        place = place.parent
    steps: tuple[Step, ...] = (place.steps or ()) if isinstance(place, View) else ()
    for view in reversed(chain):
        for step in steps_of(view.source, view.result, trace.producers()):
            steps = append_step(steps, step)
        view.steps = steps
    return steps


def copied(x: Any) -> Any:
    """A handle of its own on the value of x, in the innermost trace."""
    if type(x) is not Tracer:
        return x
    x, trace = renew(x), current_trace()
    if x._trace is trace or trace is None:
        return Tracer(x._trace, x._var, x.weak)
    var: Any = trace.atom(x)
    return Tracer(trace, var, x.weak)


def in_memory(x: Any) -> Any:
    """x, which is an array although its rank may be 0 (results of rank 0 are scalars, which cannot be written)."""
    if type(x) is Tracer and not x.shape and x._place is None:
        x._place = Memory(x)
    return x


def view_of(y: Tracer, x: Tracer, step: Step) -> bool:
    """Whether y is the view of x to which `step` leads."""
    if y is x:
        return append_step((), step) == ()
    place, base = y._place, x._place
    if type(place) is not View or base is None:
        return False
    memory = base.memory if isinstance(base, View) else base
    trace = y._trace if y._trace is not STALE else memory.trace
    return place.memory is memory and memory.refusal is None and _steps(place, trace) == append_step(_steps(base, trace), step)


def memory_of(x: Any) -> Memory | None:
    """The memory that x shares with its views, if it has any."""
    place = x._place if type(x) is Tracer else None
    memory = place.memory if isinstance(place, View) else place
    return memory if memory is not None and memory.refusal is None else None


def is_array(x: Tracer) -> bool:
    """Whether NumPy's counterpart would be an array, which can be changed in place, and not a scalar."""
    place = x._place
    return bool(x._var.aval.shape) or not (place is None or place is ARGUMENT)


# ---- reading what has been written -----------------------------------------------------------------------------------------


def renew(x: Tracer) -> Tracer:
    """x, read again if its memory was written since."""
    if x._trace is STALE:
        place = x._place
        assert place is not None
        memory = place.memory if isinstance(place, View) else place
        trace = memory.trace
        if not trace.active:
            x._trace = trace
            raise leaked(x)
        with recording_in(trace):
            value = Tracer(trace, memory.var)
            for step in _steps(place, trace):
                value = step.read(value)
        x._var, x._trace = value._var, trace
        memory.add(x)
    elif not x._trace.active:
        raise leaked(x)
    return x


# ---- writing -----------------------------------------------------------------------------------------------------------------


def store(x: Tracer, value: Any, what: str, steps: Sequence[Step] = ()) -> None:
    """Write `value`, of the right shape and dtype, to the place that `steps` lead to from x; `what` names it in errors."""
    memory, place = _writable(x, what)
    path = place
    for step in steps:
        path = append_step(path, step)
    if not value.size:
        return
    trace = memory.trace
    var: Any = trace.atom(value)
    u = Tracer(trace, var)
    whole = _carried_back(Tracer(trace, memory.var), path, u)
    memory.var = whole._var
    for r in memory.handles:
        handle = r()
        if handle is not None and handle is not x:
            handle._trace = STALE
    memory.handles = []
    if type(x._place) is Memory:
        x._var, x._trace = whole._var, trace
    elif path == place:
        x._var, x._trace = u._var, trace
    else:
        x._trace = STALE
        return
    memory.add(x)


def _carried_back(whole: Tracer, path: Sequence[Step], u: Any) -> Any:
    """`whole` with u at the end of the path."""
    values = [whole]  # what the steps lead through, read only where something of it remains

    def value(depth: int) -> Any:
        while len(values) <= depth:
            values.append(path[len(values) - 1].read(values[-1]))
        return values[depth]

    for depth in range(len(path) - 1, -1, -1):
        u = path[depth].write(partial(value, depth), u)
    return u


def _writable(x: Tracer, what: str) -> tuple[Memory, tuple[Step, ...]]:
    """The memory of x and the way to its place, or the error that it cannot be written."""
    place = x._place
    if place is None:
        place = x._place = Memory(x)
    memory = place.memory if isinstance(place, View) else place
    if memory.refusal == "argument":
        if not x._trace.active:
            raise leaked(x)
        raise _refused(
            x,
            what,
            f"it is {'a view of ' if place is not memory else ''}an argument of the transformed function",
            "NumPy would change the caller's array; a transformed function has none of its own until it makes a copy.",
            "Write x = x.copy() first; or y = x.at[i].set(v) (.add, .multiply, .min, .max), x = x + v for x += v.",
        )
    if memory.refusal == "captured":
        raise _refused(
            x,
            what,
            "it shows an array from outside the transformed function",
            "NumPy would change that array, which a trace cannot do.",
            "Write y = np.array(a) or y = x.copy() first, and change the copy; or y = x.at[i].set(v).",
        )
    trace = memory.trace
    if not trace.active:
        x._trace = trace
        raise leaked(x)
    if trace is not current_trace():
        raise _refused(
            x,
            what,
            f"it belongs to {trace.transform} of '{trace.name}', outside the function being transformed",
            "The inner transform may run this function any number of times, or never.",
            "Write y = x.copy() in the inner function and change that, or return the new value.",
        )
    path = _steps(place, trace)
    if any(type(step) is Replay for step in path):
        raise _refused(
            x,
            what,
            "it is a read-only view",
            "assignment destination is read-only: views made by broadcasting and np.diagonal are, as in NumPy.",
            "Write y = x.copy() first, or change the array it was made from.",
        )
    return memory, path


def _refused(x: Tracer, what: str, reason: str, why: str, fix: str) -> errors.MutationError:
    return errors.MutationError(f"cannot change a traced {x.aval} in place ({what}): {reason}", why=why, fix=fix)


def assign(x: Tracer, value: Any, what: str, casting: str = "unsafe") -> None:
    """x[...] = value: the value is cast and broadcast as NumPy does it."""
    from fxgrad.numpy.at import fitted
    from fxgrad.numpy.core import operand, result_type

    value = operand(value)
    how: Any = casting
    if casting != "unsafe" and not np.can_cast(value.dtype if hasattr(value, "dtype") else result_type(value), x.dtype, how):
        raise errors.FxTypeError(
            f"cannot cast the result of {what} from {result_type(value)} to {x.dtype} with casting rule {casting!r}",
            why="In-place operations keep the dtype of the array they change.",
            fix=f"Write x = x.astype({result_type(value).name!r}) first, or a new array: x = x + v instead of x += v.",
        )
    _writable(x, what)
    store(x, fitted(value, x.dtype, x.shape), what)


def into(out: Any, result: Any, what: str, broadcast: bool = False) -> Any:
    """out=: the result written to `out`, a tracer or (outside traces) an array, or a tuple of them; answers `out`.

    With `broadcast`, as of ufuncs, the result may be smaller.
    """
    if isinstance(out, tuple):
        if not isinstance(result, tuple):
            return into(out[0], result, what, broadcast)
        return tuple(r if o is None else into(o, r, what, broadcast) for o, r in zip(out, result, strict=True))
    if type(out) is not Tracer:
        if not isinstance(out, np.ndarray):
            raise TypeError("return arrays must be of ArrayType")
        if type(result) is Tracer:
            raise _refuse_out(what)
    shape = np.shape(result)
    if out.shape != shape and not (broadcast and _fits(shape, out.shape)):
        raise _wrong_shape(out.shape, shape)
    if type(out) is Tracer:
        assign(out, result, what, "same_kind")
    else:
        np.copyto(out, result, casting="same_kind")
    return out


def check_out(out: Any, what: str) -> None:
    """Refuse a plain out= inside a trace, before anything is computed."""
    if current_trace() is not None:
        for o in out if isinstance(out, tuple) else (out,):
            if o is not None and type(o) is not Tracer:
                raise _refuse_out(what)


def _refuse_out(what: str) -> errors.MutationError:
    return refuse_plain(what, f"Use the value it returns: y = {what.replace('..., out=...', '...')}.")


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether `shape` broadcasts to `wanted`."""
    n = len(wanted) - len(shape)
    return n >= 0 and all(a in (1, b) for a, b in zip(shape, wanted[n:], strict=True))


def _wrong_shape(out: tuple[int, ...], result: tuple[int, ...]) -> errors.FxValueError:
    return errors.FxValueError(
        f"non-broadcastable output operand with shape {out} doesn't match the broadcast shape {result}",
        why="The result is written into the array that is there, which keeps its shape.",
        fix="Write x = x + v instead of x += v, or give an out= of that shape.",
    )


def refuse_plain(what: str, fix: str = "") -> errors.MutationError:
    """The error for a traced value that would be written into a plain array."""
    return errors.MutationError(
        f"{what} would write a traced value into a plain NumPy array",
        why="The array would lose the connection to what is being differentiated or compiled.",
        fix=fix
        or "Start from np.zeros_like(x, shape=n), or np.zeros(n) with `import fxgrad.numpy as np`, which are traced and can "
        "be written; or use the value that is returned.",
    )
