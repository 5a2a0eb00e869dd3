"""cond: one of several programs, chosen by an index.

    cond    (index, *operands) -> (*outs)       branches: (*operands) -> (*outs), all of one type

The index is clamped; a bool chooses between (false, true). Only the chosen branch runs, except under vmap with an index for each
batch entry: then every branch that some entry takes runs for all, on operands that the branch was meant for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.ir.program import Eqn, Program, dce
from fxgrad.ir.types import TAPE, Atom, Aval, Var, aval_of
from fxgrad.primitives.base import Doc, Linear, Primitive, instantiate, register, type_error, zeros
from fxgrad.primitives.bodies import (
    Flags,
    Run,
    batched_as,
    chosen,
    cut,
    either,
    fixpoint,
    may_raise,
    names,
    op_by_op,
    others,
    read_by,
    safe_lanes,
    select_lanes,
    spread,
    with_tangents,
)
from fxgrad.primitives.elementwise import clip, convert, eq
from fxgrad.primitives.reduce import any_
from fxgrad.primitives.tape import no_tape
from fxgrad.trace.tracing import bind, build, inline
from fxgrad.transforms.jvp import jvp
from fxgrad.transforms.linearize import Split, split
from fxgrad.transforms.transpose import transpose
from fxgrad.transforms.vmap import vmap

Branches = tuple[Program, ...]


def _union(flags: Sequence[Flags]) -> list[bool]:
    """Where any of them is set."""
    found = list(flags[0])
    for more in flags[1:]:
        found = either(found, more)
    return found


# ---- type and evaluation ---------------------------------------------------------------------------------------------


def _typ(*avals: Aval, branches: Branches) -> list[Aval]:
    if not branches:
        raise type_error("cond", avals, "It has no branches.")
    index, operands = avals[0], list(avals[1:])
    if index.shape or index.dtype not in (np.int32, np.int64, np.bool_) or (index.dtype == np.bool_ and len(branches) != 2):
        raise type_error("cond", avals, "Its index is an int32 or int64 scalar, or a bool that chooses between two branches.")
    for p in branches:
        if p.in_avals != operands or p.out_avals != branches[0].out_avals:
            raise type_error("cond", avals, f"A branch takes {names(p.in_avals)} and returns {names(p.out_avals)}.")
    return branches[0].out_avals


def _numpy(index: Any, *operands: Any, branches: Branches, run: Run = op_by_op) -> list[Any]:
    return run(branches[min(max(int(index), 0), len(branches) - 1)], operands)


# ---- rules -----------------------------------------------------------------------------------------------------------


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, branches: Branches) -> tuple[list, list]:
    nonzero = [t is not None for t in tangents[1:]]
    wanted = _union([jvp(p, nonzero)[1] for p in branches])
    both = tuple(with_tangents(p, nonzero, wanted) for p in branches)
    outs = bind(cond, [*primals, *[t for t in tangents if t is not None]], {"branches": both})
    found, moved = cut(outs, len(branches[0].outputs))
    return found, spread(moved, wanted)


def _split(eqn: Eqn, unknown: list[bool]) -> tuple[list[Eqn], Eqn, list[Var]]:
    branches: Branches = eqn.params["branches"]
    if unknown[0]:
        return [], eqn, list(eqn.outputs)
    marks = unknown[1:]
    late = fixpoint([False] * len(eqn.outputs), lambda late: _union([split(p, marks, None, late).unknown_out for p in branches]))
    halves = [split(p, marks, None, late) for p in branches]
    known_in, late_in = others(eqn.inputs[1:], marks), chosen(eqn.inputs[1:], marks)
    known_out, late_out = others(eqn.outputs, late), chosen(eqn.outputs, late)
    keys, slots = _residual_keys(halves, len(known_out))
    index = eqn.inputs[0]
    made = [Var(a) for a in slots]
    place: dict[tuple[str, int], Atom] = {("in", i): a for i, a in enumerate(known_in)}
    place.update((("out", j), v) for j, v in enumerate(known_out))
    place.update((("slot", m), v) for m, v in enumerate(made))
    passed = list(dict.fromkeys(key for row in keys for key in row))
    later = tuple(_later_branch(h, row, [(k, place[k].aval) for k in passed]) for h, row in zip(halves, keys, strict=True))
    after = Eqn(cond, [index, *[place[k] for k in passed], *late_in], {"branches": later}, late_out, eqn.source)
    if not known_out and not made:
        return [], after, late_out
    known = tuple(_known_branch(h, row, slots, len(known_out)) for h, row in zip(halves, keys, strict=True))
    before = Eqn(cond, [index, *known_in], {"branches": known}, [*known_out, *made], eqn.source)
    return [_tidy(before, [True] * len(before.outputs))], after, late_out


def _residual_keys(halves: Sequence[Split], known_out: int) -> tuple[list[list[tuple[str, int]]], list[Aval]]:
    """For every branch where its residuals come from: an operand, a known result, or a slot. Branches share slots of one type."""
    slots: list[Aval] = []
    keys = []
    for h in halves:
        taken: set[int] = set()
        row: list[tuple[str, int]] = []
        for kind, j in h.residuals:
            if kind == "in" or j < known_out:
                row.append((kind, j))
                continue
            aval = h.known.outputs[j].aval
            free = [m for m, a in enumerate(slots) if a is aval and m not in taken and a.dtype != TAPE]
            m = free[0] if free else len(slots)
            if not free:
                slots.append(aval)
            taken.add(m)
            row.append(("slot", m))
        keys.append(row)
    return keys, slots


def _known_branch(half: Split, row: Sequence[tuple[str, int]], slots: Sequence[Aval], known_out: int) -> Program:
    filled = {m: j for (kind, m), (_, j) in zip(row, half.residuals, strict=True) if kind == "slot"}

    def body(*values: Any) -> list[Any]:
        outs = inline(half.known, values)
        return outs[:known_out] + [outs[filled[m]] if m in filled else zeros(a) for m, a in enumerate(slots)]

    return build(half.known.in_avals, body, half.known.name)


def _later_branch(half: Split, row: Sequence[tuple[str, int]], passed: Sequence[tuple[tuple[str, int], Aval]]) -> Program:
    n = len(half.residuals)
    mine = dict(zip(row, half.later.inputs[:n], strict=True))
    inputs = [mine[key] if key in mine else Var(a) for key, a in passed]
    return Program([*inputs, *half.later.inputs[n:]], half.later.eqns, half.later.outputs, (), half.later.name)


def _transpose_onto(cts: Sequence[Any], inputs: Sequence[Any], before: Sequence[Any], *, branches: Branches) -> list:
    index, operands = inputs[0], inputs[1:]
    linear = [isinstance(x, Linear) for x in operands]
    nonzero = [g is not None for g in cts]
    wanted = _union([transpose(p, linear, nonzero)[1] for p in branches])
    earlier = chosen(before[1:], linear)
    begun = [w and g is not None for w, g in zip(wanted, earlier, strict=True)]
    backwards = [transpose(p, linear, nonzero, begun) for p in branches]
    targets = [x.aval for x in operands if isinstance(x, Linear)]
    full = tuple(_filled(p, have, wanted, targets) for p, have in backwards)
    given = [*others(operands, linear), *chosen(earlier, begun), *[g for g in cts if g is not None]]
    found = bind(cond, [index, *given], {"branches": full}) if any(wanted) else []
    totals = [g if w else old for g, old, w in zip(spread(found, wanted), earlier, wanted, strict=True)]
    return [None, *spread(totals, linear)]


def _filled(program: Program, have: Flags, wanted: Flags, avals: Sequence[Aval]) -> Program:
    """The program with zeros for results that it lacks and another branch has."""
    if list(have) == list(wanted):
        return program

    def body(*values: Any) -> list[Any]:
        found = spread(inline(program, values), have)
        return [instantiate(g, a) for g, a, w in zip(found, avals, wanted, strict=True) if w]

    return build(program.in_avals, body, program.name)


def _batch(size: int, args: Sequence[Any], batched: Sequence[bool], *, branches: Branches) -> tuple[list, list[bool]]:
    marks = batched[1:]
    if batched[0]:
        return _batch_each(size, args[0], args[1:], marks, branches)
    wanted = _union([vmap(p, marks, size)[1] for p in branches])
    wide = tuple(batched_as(p, marks, size, wanted) for p in branches)
    return bind(cond, args, {"branches": wide}), wanted


def _batch_each(size: int, index: Any, operands: Sequence[Any], marks: Flags, branches: Branches) -> tuple[list, list[bool]]:
    """An index for each batch entry: all branches run, and each entry takes its own."""
    n = len(branches)
    if index.dtype == np.bool_:
        index = convert(index, dtype=np.dtype(np.int32))
    zero, last = (index.dtype.type(i) for i in (0, n - 1))
    index = clip(index, zero, last)
    kept = [o.aval.dtype != TAPE for o in branches[0].outputs]
    wanted = _union([kept, *[vmap(p, marks, size)[1] for p in branches]])
    outs: list[Any] = []
    for k, p in enumerate(branches):
        taken = eq(index, index.dtype.type(k))
        wide = batched_as(p, marks, size, wanted)
        found = _guarded(wide, taken, operands, marks) if any(map(may_raise, p.eqns)) else inline(wide, operands)
        outs = (
            found if not outs else [_taken(taken, new, old, p, i) for i, (new, old) in enumerate(zip(found, outs, strict=True))]
        )
    return outs, wanted


def _taken(lanes: Any, new: Any, old: Any, branch: Program, i: int) -> Any:
    if new.dtype != TAPE:
        return select_lanes(lanes, new, old)
    absent = {e.outputs[0] for e in branch.eqns if e.prim is no_tape}
    return old if branch.outputs[i] in absent else new  # a tape comes from one branch only, see _residual_keys


def _guarded(wide: Program, taken: Any, operands: Sequence[Any], marks: Flags) -> list[Any]:
    """A branch that may fail where it is not meant to run: only if some entry takes it, on operands of entries that do."""

    def on_some(lanes: Any, *values: Any) -> list[Any]:
        return inline(wide, safe_lanes(lanes, values, marks))

    avals = [aval_of(taken), *wide.in_avals]
    run_it = build(avals, on_some, wide.name)
    skip = build(avals, lambda *values: [zeros(a) for a in wide.out_avals], wide.name)
    return bind(cond, [any_(taken, axes=(0,)), taken, *operands], {"branches": (skip, run_it)})


def _tidy(eqn: Eqn, used: Flags) -> Eqn:
    """Without results nobody reads, and without operands that no branch reads."""
    small = [dce(p, used) for p in eqn.params["branches"]]
    reads = [read_by(p) for p in small]
    kept = _union([[v in read for v in p.inputs] for p, read in zip(small, reads, strict=True)])
    if all(used) and all(kept):
        return eqn
    branches = tuple(Program(chosen(p.inputs, kept), p.eqns, p.outputs, (), p.name) for p in small)
    inputs = [eqn.inputs[0], *chosen(eqn.inputs[1:], kept)]
    return Eqn(cond, inputs, {"branches": branches}, chosen(eqn.outputs, used), eqn.source)


cond = register(
    Primitive(
        "cond",
        "control",
        _typ,
        Doc(
            "the branch that the index chooses, clamped; only that one runs",
            "the transpose of the chosen branch",
            "Griewank, Walther (2008), ch. 4",
        ),
        jvp=_jvp,
        transpose_onto=_transpose_onto,
        batch=_batch,
        numpy=_numpy,
        split=_split,
        prune=_tidy,
    )
)
