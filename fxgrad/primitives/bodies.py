"""What the control-flow primitives share: programs with inputs and outputs in another order, and with results filled up.

A body and what it is transformed to list their inputs in groups (consts, carry, slices, and the tangents of each); `regroup`
puts groups where the primitive wants them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fxgrad.ir.program import Eqn, Program, subprograms
from fxgrad.ir.types import TAPE, Atom, Aval, Var, aval_of
from fxgrad.primitives.base import instantiate
from fxgrad.primitives.shape import add_batch_axis, broadcast, dynamic_slice, reshape
from fxgrad.trace.tracing import build, inline
from fxgrad.transforms.jvp import jvp
from fxgrad.transforms.vmap import vmap

Flags = Sequence[bool]


def names(avals: Sequence[Aval]) -> str:
    return ", ".join(map(str, avals)) or "nothing"


Run = Callable[[Program, Sequence[Any]], list[Any]]


def op_by_op(program: Program, args: Sequence[Any]) -> list[Any]:
    """The program on arrays; the compiler hands the evaluation of a loop another way to run its body."""
    from fxgrad.runtime.eager import EagerPlan

    return EagerPlan.of(program).run(args)


def as_list(outs: Any) -> list[Any]:
    return list(outs) if isinstance(outs, (list, tuple)) else [outs]


# ---- lists in groups -------------------------------------------------------------------------------------------------


def cut(items: Sequence[Any], *sizes: int) -> list[list[Any]]:
    """Consecutive groups of these sizes, and what is left as the last."""
    groups, start = [], 0
    for n in sizes:
        groups.append(list(items[start : start + n]))
        start += n
    return [*groups, list(items[start:])]


def chosen(items: Sequence[Any], flags: Flags) -> list[Any]:
    return [x for x, f in zip(items, flags, strict=True) if f]


def others(items: Sequence[Any], flags: Flags) -> list[Any]:
    return [x for x, f in zip(items, flags, strict=True) if not f]


def spread(items: Sequence[Any], flags: Flags, otherwise: Any = None) -> list[Any]:
    """The items one after the other where the flags are set, `otherwise` elsewhere."""
    given: Iterator[Any] = iter(items)
    return [next(given) if f else otherwise for f in flags]


def either(a: Flags, b: Flags) -> list[bool]:
    return [x or y for x, y in zip(a, b, strict=True)]


def fixpoint(start: Flags, step: Callable[[list[bool]], Flags]) -> list[bool]:
    """The smallest set of flags that has `start` and all that `step` answers for it."""
    flags = list(start)
    while True:
        more = either(flags, step(flags))
        if more == flags:
            return flags
        flags = more


# ---- programs --------------------------------------------------------------------------------------------------------


def regroup(program: Program, inputs: Sequence[Sequence[Var]], outputs: Sequence[Sequence[Atom]]) -> Program:
    """The program with its inputs and outputs as the concatenation of these groups."""
    return Program(
        [v for group in inputs for v in group], program.eqns, [o for group in outputs for o in group], (), program.name
    )


def read_by(program: Program) -> set[Var]:
    """The variables that some equation or the result reads."""
    return {a for e in program.eqns for a in e.inputs if type(a) is Var} | {o for o in program.outputs if type(o) is Var}


def with_tangents(program: Program, nonzero: Flags, wanted: Flags) -> Program:
    """The jvp (*inputs, *tangents) -> (*outputs, *tangents of the outputs wanted), zero or not."""
    nonzero, wanted = tuple(nonzero), tuple(wanted)

    def make() -> Program:
        forward, have = jvp(program, nonzero)
        if have == wanted:
            return forward

        def body(*values: Any) -> list[Any]:
            outs, moved = cut(inline(forward, values), len(program.outputs))
            tangents = spread(moved, have)
            return outs + [instantiate(t, o.aval) for t, o, w in zip(tangents, program.outputs, wanted, strict=True) if w]

        return build(forward.in_avals, body, program.name)

    return program.memoize(("with_tangents", nonzero, wanted), make)


def batched_as(program: Program, batched: Flags, size: int, wanted: Flags) -> Program:
    """vmap with a batch axis on every output wanted (and on others only if they depend on a batched input)."""
    batched, wanted = tuple(batched), tuple(wanted)

    def make() -> Program:
        wide, have = vmap(program, batched, size)
        if have == tuple(either(have, wanted)):
            return wide

        def body(*values: Any) -> list[Any]:
            outs = zip(inline(wide, values), have, wanted, strict=True)
            return [widened(o, size) if w and not b else o for o, b, w in outs]

        return build(wide.in_avals, body, program.name)

    return program.memoize(("batched_as", batched, size, wanted), make)


def widened(x: Any, size: int) -> Any:
    """x repeated along a new batch axis."""
    return x if x.dtype == TAPE else add_batch_axis(x, size)  # no_tape, which stands for zeros of any shape


def select_lanes(lanes: Any, new: Any, old: Any) -> Any:
    """`new` in the batch entries marked, `old` in the others."""
    from fxgrad.primitives.elementwise import select

    shape = aval_of(new).shape
    return select(lanes if len(shape) == 1 else broadcast(lanes, shape=shape, dims=(0,)), new, old)


def may_raise(eqn: Eqn) -> bool:
    """Whether an equation may fail or never end on values it was not meant for: indexing, and loops with a test."""
    inner = [e for p in subprograms(eqn) for e in p.eqns]
    return eqn.prim.name in ("gather", "scatter", "while_loop", "while_tape") or any(map(may_raise, inner))


def safe_lanes(lanes: Any, values: Sequence[Any], batched: Flags) -> list[Any]:
    """The values with what the entries not in `lanes` have replaced by what the first one in them has."""
    from fxgrad.primitives.elementwise import convert
    from fxgrad.primitives.reduce import argmax

    first = argmax(convert(lanes, dtype=np.dtype(np.int32)), axes=(0,))

    def safe(x: Any) -> Any:
        shape = aval_of(x).shape
        row = dynamic_slice(x, first, *[np.int64(0)] * (len(shape) - 1), sizes=(1, *shape[1:]))
        return select_lanes(lanes, x, broadcast(reshape(row, shape=shape[1:]), shape=shape, dims=tuple(range(1, len(shape)))))

    return [safe(v) if b and v.dtype != TAPE else v for v, b in zip(values, batched, strict=True)]


def negative_zeros(aval: Aval) -> Any:
    """What leaves every number as it is when it is added to it; 0.0 would turn -0.0 into 0.0."""
    zero = -aval.dtype.type(0) if aval.dtype.kind == "f" else aval.dtype.type(0)
    return broadcast(zero, shape=aval.shape, dims=()) if aval.shape else zero


# ---- loops in two halves ---------------------------------------------------------------------------------------------


def worth_keeping(eqn: Eqn) -> bool:
    """Whether a loop should keep a result turn by turn: not if it is a rearrangement of something no larger."""
    size = eqn.outputs[0].aval.size
    return eqn.prim.kind != "view" or any(a.aval.size > size for a in eqn.inputs)


def invariants(eqns: Sequence[Eqn], fixed: Sequence[Var]) -> set[Var]:
    """The variables that have the same value in every turn, given those that come from outside."""
    same: set[Var] = set(fixed)
    for e in eqns:
        if all(type(a) is not Var or a in same for a in e.inputs):
            same.update(e.outputs)
    return same


def hoisted(eqns: Sequence[Eqn], wanted: Sequence[Var], env: dict[Var, Atom]) -> list[Eqn]:
    """The equations that compute `wanted`, to stand before the loop; `env` has the operands for inputs, and gets the results."""
    needed: set[Any] = {v for v in wanted if v not in env}
    chosen_eqns: list[Eqn] = []
    for e in reversed(eqns):
        if needed.intersection(e.outputs):
            chosen_eqns.append(e)
            needed.update(a for a in e.inputs if type(a) is Var and a not in env)
    moved = []
    for e in reversed(chosen_eqns):
        outputs = [Var(v.aval) for v in e.outputs]
        moved.append(Eqn(e.prim, [env[a] if type(a) is Var else a for a in e.inputs], e.params, outputs, e.source))
        env.update(zip(e.outputs, outputs, strict=True))
    return moved


def bool_scalar(aval: Aval) -> bool:
    return aval.shape == () and aval.dtype == np.bool_
