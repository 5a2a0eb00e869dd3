"""Tracing: a Python function becomes a Program.

A `Trace` collects equations. Each transform opens one; the active ones form a stack that lives in a context variable, so threads
and asyncio tasks never share it. A tracer of an outer trace met in an inner one, and every array, becomes a captured input.

Under `grad` and its kin the inputs of a trace are known, and asking a tracer for its value evaluates the equations it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.config import config
from fxgrad.ir.program import Eqn, Program, dce
from fxgrad.ir.types import TAPE, Atom, Aval, Lit, Var
from fxgrad.primitives import base
from fxgrad.primitives.base import Primitive
from fxgrad.runtime.collector import paused
from fxgrad.runtime.stale import glance, reachable
from fxgrad.trace.memory import ARGUMENT, STALE, View
from fxgrad.trace.tracer import Tracer

__all__ = [
    "Trace",
    "Walk",
    "bind",
    "build",
    "current_trace",
    "identity",
    "inline",
    "paste",
    "present",
    "recording_in",
    "replay",
    "trace_expansion",
]

_current: ContextVar[Trace | None] = ContextVar("fxgrad_trace", default=None)


current_trace: Callable[[], Trace | None] = _current.get  # the innermost active trace of this thread or task; None outside all


class Trace:
    """The program under construction.

    `transform` names what opened it ("grad", "jit", ...) for messages. `values` maps the variables whose values are known to
    arrays or to tracers of an outer trace; it is None where nothing is known (jit, vmap, rules).
    """

    __slots__ = (
        "_indexed",
        "_producers",
        "_token",
        "active",
        "captured",
        "captures",
        "differentiated",
        "eqns",
        "inputs",
        "marks",
        "name",
        "parent",
        "source",
        "transform",
        "values",
    )

    def __init__(self, transform: str, known: bool, name: str = "main"):
        self.transform, self.name = transform, name
        self.parent = _current.get()
        self.active = False
        self.eqns: list[Eqn] = []
        self.inputs: list[Var] = []
        self.captures: list[Any] = []  # arrays and outer tracers, in order of first use
        self.captured: dict[int, Var] = {}  # `identity` of a capture -> its variable; `captures` keeps it alive
        self.marks: list[tuple[Any, Any]] = []  # captured arrays that may be written, and what they looked like
        self.values: dict[Var, Any] | None = {} if known else None
        self.differentiated: set[Var] = set()
        self.source: Any = None  # where the equation being rewritten came from, while a transform runs
        self._producers: dict[Var, Eqn] = {}  # of the first `_indexed` equations
        self._indexed = 0

    def __enter__(self) -> Trace:
        self._token = _current.set(self)
        self.active = True
        return self

    def __exit__(self, *problem: object) -> None:
        """Tracers of this trace are leaked from now on."""
        self.active = False
        _current.reset(self._token)

    # -- building

    def input(self, aval: Aval, value: Any = None, weak: bool = False) -> Tracer:
        var = Var(aval)
        self.inputs.append(var)
        if self.values is not None and value is not None:
            self.values[var] = value
            if isinstance(value, np.ndarray) and reachable(value):
                self.marks.append((value, glance(value)))
        tracer = Tracer(self, var, weak)
        tracer._place = ARGUMENT
        return tracer

    def argument(self, x: np.ndarray) -> Tracer:
        """An array given to the function beside its inputs, as a captured value that it must not change."""
        var = self.atom(x)
        assert type(var) is Var
        tracer = Tracer(self, var)
        tracer._place = ARGUMENT
        return tracer

    def atom(self, x: Any) -> Atom:
        """What an operand is called in this program: capturing it if need be."""
        if type(x) is Tracer:
            if x._trace is self:
                return x._var
            if not x._trace.active:
                x = present(x)
                if x._trace is self:
                    return x._var
        elif isinstance(x, np.generic):
            return Lit(x)
        found = self.captured.get(identity(x))
        if found is not None:
            return found
        if not isinstance(x, (Tracer, np.ndarray)) and getattr(x, "dtype", None) != TAPE:
            raise errors.FxTypeError(
                f"a primitive got a {type(x).__name__}",
                why="Primitives take arrays, NumPy scalars and traced values.",
                fix="Convert it with np.asarray, or call the function of fxgrad.numpy, which does.",
            )
        var = Var(x.aval if type(x) is Tracer else Aval(x.shape, x.dtype))
        self.captured[identity(x)] = var
        if type(x) is Tracer:
            x = Tracer(x._trace, x._var)  # the handle may move on to another value
        self.captures.append(x)
        if isinstance(x, np.ndarray) and reachable(x):
            self.marks.append((x, glance(x)))
        if self.values is not None:
            self.values[var] = x
        return var

    def emit(
        self, prim: Primitive, inputs: Sequence[Atom], params: dict[str, Any], avals: Sequence[Aval], source: Any
    ) -> list[Tracer]:
        """Record an equation; its results as tracers."""
        if len(avals) == 1:
            v = Var(avals[0])
            self.eqns.append(Eqn(prim, inputs, params, [v], source))
            return [Tracer(self, v)]
        outputs = [Var(a) for a in avals]
        self.eqns.append(Eqn(prim, inputs, params, outputs, source))
        return [Tracer(self, v) for v in outputs]

    def program(self, outputs: Sequence[Any]) -> tuple[Program, list[Any]]:
        """Close the program over its captures. Answers it, without consts, and the captured values (arrays, outer tracers)."""
        atoms = [self.atom(o) for o in outputs]
        for x, mark in self.marks:
            if glance(x) != mark:
                raise self._changed(x)
        leading = [self.captured[identity(x)] for x in self.captures]
        return Program(leading + self.inputs, self.eqns, atoms, (), self.name), list(self.captures)

    def _changed(self, x: Any) -> errors.StaleValueError:
        var = self.captured.get(id(x))
        return errors.StaleValueError(
            f"an array {Aval(x.shape, x.dtype)} was changed in place while {self.transform} traced '{self.name}', "
            "which had used it before",
            where=next((e.source for e in self.eqns if var in e.inputs), None),
            why="Arguments and captured arrays are read when the trace has ended, so earlier uses would see the new value.",
            fix="Read a copy, a.copy(), or make a new array instead of changing this one: a = np.where(mask, v, a).",
        )

    # -- known values

    def value(self, var: Var) -> Any:
        """The array a variable stands for; raises Unknown if it depends on something that only has a shape."""
        if self.values is None:
            raise Unknown(self)
        if var not in self.values:
            self._evaluate(var)
        found = self.values[var]
        if type(found) is Tracer:
            found = found._trace.value(found._var)
        return found

    def producers(self) -> dict[Var, Eqn]:
        """The equation that each variable comes from."""
        found = self._producers
        if self._indexed < len(self.eqns):
            for eqn in self.eqns[self._indexed :]:
                found.update((v, eqn) for v in eqn.outputs)
            self._indexed = len(self.eqns)
        return found

    def _evaluate(self, var: Var) -> None:
        """Run the equations that `var` needs and that have not run yet."""
        from fxgrad.runtime.eager import run_program
        from fxgrad.trace.function import canonical

        values, producers = self.values, self.producers()
        assert values is not None
        needed: set[int] = set()
        stack = [var]
        while stack:
            v = stack.pop()
            if v in values:
                continue
            if v not in producers:
                raise Unknown(self)
            eqn = producers[v]
            if id(eqn) not in needed:
                needed.add(id(eqn))
                stack.extend(a for a in eqn.inputs if type(a) is Var)
        eqns = [e for e in self.eqns if id(e) in needed]
        made = {v for e in eqns for v in e.outputs}
        inputs = list(dict.fromkeys(a for e in eqns for a in e.inputs if type(a) is Var and a not in made))
        outputs = [v for e in eqns for v in e.outputs]
        arrays = [self.value(v) for v in inputs]
        results = run_program(canonical(Program(inputs, eqns, outputs)), arrays)  # the next trace asks the same question
        values.update(zip(outputs, results, strict=True))


class Unknown(Exception):
    """Raised inside when a value is asked for that is not known; tracers turn it into a ConcretizationError."""

    def __init__(self, trace: Trace):
        self.trace = trace


def identity(x: Any) -> int:
    """What tells captures apart: arrays are themselves, handles of one value are one."""
    return id(x._var) if type(x) is Tracer else id(x)


def present(x: Tracer) -> Tracer:
    """x, whose trace is not active: read again where a write has made it stale, else the error that it has leaked."""
    from fxgrad.trace.mutation import renew

    return renew(x)


def leaked(x: Tracer) -> errors.LeakedTracerError:
    """The error for a tracer used after its transform has ended."""
    if x._trace is STALE:
        place = x._place
        assert place is not None
        x._trace = (place.memory if isinstance(place, View) else place).trace
    trace = x._trace
    made = next((e.source for e in trace.eqns if x._var in e.outputs), None)
    where = errors.format_location(made)
    if trace.active:
        return errors.LeakedTracerError(
            f"a traced {x.aval} of {trace.transform} of '{trace.name}' is used in another thread than traces it",
            why="What a thread does is recorded by the transform that runs there, and here runs none.",
            fix="Start threads outside the transformed function, one call each; within it, use fx.vmap or a plain loop.",
        )
    return errors.LeakedTracerError(
        f"a traced {x.aval} escaped from {trace.transform} of '{trace.name}'" + (f"; it was made at {where}" if where else ""),
        why="A traced value stands for an array only while its function is traced; a global, list or attribute outlives that.",
        fix="Return the value from the function instead (has_aux=True returns extra values from grad).",
    )


def bind(prim: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Record `prim` in the active trace, or evaluate it when there is none (or when all operands are literals)."""
    trace = _current.get()
    if trace is None:
        return _evaluate_eagerly(prim, args, params)
    inputs = [a._var if type(a) is Tracer and a._trace is trace else trace.atom(a) for a in args]
    avals = prim.types([a.aval for a in inputs], params)
    if prim.kind == "map" and Var not in map(type, inputs):
        return _evaluate_eagerly(prim, args, params)
    return trace.emit(prim, inputs, params, avals, trace.source or errors.user_location())


def _evaluate_eagerly(prim: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    from fxgrad.runtime.eager import evaluate

    for a in args:
        if type(a) is Tracer:
            raise leaked(a)
    results = evaluate(prim, args, params)
    if config.debug_nans:
        from fxgrad.runtime.nans import check_operation

        check_operation(prim, args, params, results)
    return results


@contextmanager
def recording_in(trace: Trace) -> Iterator[None]:
    """Operations are recorded in `trace`, an active one, though another may have been opened since."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


base.bind = bind


def build(avals: Sequence[Aval], body: Callable[..., Sequence[Any]], name: str = "main") -> Program:
    """The program of `body(*tracers) -> outputs`, where body only calls primitives (how transforms write their results).

    Unused equations are dropped. The body may close over arrays only as literals.
    """
    with paused(), Trace("a derivative rule", known=False, name=name) as trace:
        inputs = [trace.input(a) for a in avals]
        program, captures = trace.program(body(*inputs))
    if captures:
        raise AssertionError("a rule captured an array; rules work on their operands")
    return dce(program)


def inline(program: Program, args: Sequence[Any]) -> list[Any]:
    """Record (or evaluate, outside every trace) all equations of `program` on `args`; types are known already."""
    trace = _current.get()
    if trace is None:
        from fxgrad.runtime.eager import run_program

        return run_program(program, args)
    return paste(trace, program, [trace.atom(a) for a in args])


def paste(trace: Trace, program: Program, atoms: Sequence[Atom], source: Any = None) -> list[Any]:
    """Record all equations of `program` on `atoms` of `trace`, as coming from `source` or (None) from where they came before."""
    env: dict[Var, Atom] = dict(zip(program.inputs, atoms, strict=True))
    eqns = trace.eqns
    for eqn in program.eqns:
        inputs = [env[a] if type(a) is Var else a for a in eqn.inputs]
        outputs = []
        for v in eqn.outputs:
            env[v] = fresh = Var(v.aval)
            outputs.append(fresh)
        eqns.append(Eqn(eqn.prim, inputs, eqn.params, outputs, source or eqn.source))
    out = []
    for o in program.outputs:
        a = env[o] if type(o) is Var else o
        out.append(Tracer(trace, a) if type(a) is Var else value_of(a))
    return out


def replay(eqn: Eqn, args: Sequence[Any]) -> list[Any]:
    """Record the equation again on other values of the same types."""
    trace = _current.get()
    if trace is None:
        return _evaluate_eagerly(eqn.prim, args, eqn.params)
    avals = [v.aval for v in eqn.outputs]
    return trace.emit(eqn.prim, [trace.atom(a) for a in args], eqn.params, avals, eqn.source)


def value_of(atom: Atom) -> Any:
    """The NumPy scalar of a literal."""
    assert type(atom) is Lit
    return atom.value


class Walk:
    """The environment every transform walks a program with: variables of the program on one side, values on the other."""

    __slots__ = ("env", "trace")

    def __init__(self, variables: Sequence[Var], values: Sequence[Any]):
        self.env: dict[Var, Any] = dict(zip(variables, values, strict=True))
        self.trace = _current.get()

    def read(self, atom: Atom) -> Any:
        return self.env[atom] if type(atom) is Var else value_of(atom)

    def read_all(self, atoms: Sequence[Atom]) -> list[Any]:
        env = self.env
        return [env[a] if type(a) is Var else value_of(a) for a in atoms]

    def write(self, variables: Sequence[Var], values: Sequence[Any]) -> None:
        self.env.update(zip(variables, values, strict=True))

    def at(self, eqn: Eqn) -> None:
        """What is recorded from here on comes from this equation's line."""
        if self.trace is not None:
            self.trace.source = eqn.source


def trace_expansion(prim: Primitive, avals: Sequence[Aval], params: dict[str, Any]) -> Program:
    """The definition of a primitive that has one as a program on operands of these avals."""
    definition = prim.definition([*avals, *prim.types(avals, params)])
    assert definition is not None
    return build(avals, lambda *xs: definition(*xs, **params), prim.name)


def depends_on_differentiated(x: Tracer) -> bool:
    """Whether a derivative flows through x to an input that some active transform differentiates."""
    x = x if x._trace.active else present(x)
    trace, var = x._trace, x._var
    producers = {v: e for e in trace.eqns for v in e.outputs}
    outer = {v: c for c, v in ((c, trace.captured[identity(c)]) for c in trace.captures) if type(c) is Tracer}
    seen: set[Var] = set()
    stack = [var]
    while stack:
        v = stack.pop()
        if v in seen or v.aval.dtype.kind not in "fc":
            continue
        seen.add(v)
        if v in trace.differentiated or (v in outer and depends_on_differentiated(outer[v])):
            return True
        value = None if trace.values is None else trace.values.get(v)
        if type(value) is Tracer and depends_on_differentiated(value):
            return True
        eqn = producers.get(v)
        if eqn is not None and eqn.prim.name != "stop_gradient":
            stack.extend(a for a in eqn.inputs if type(a) is Var)
    return False
