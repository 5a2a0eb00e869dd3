"""What is computed again waits until it is needed.

Equations that a checkpoint (or a memory budget) computes again depend on values that have long been there, so nothing would keep
them from running, or from sharing a kernel, with the first computation, and no memory would be saved. They read their operands
through `late`, an identity that is a place in the program: what depends on it is of a later *epoch*, and kernels are made of one
epoch each. Within an epoch an equation stands as late as its readers allow (`postponed`), if that saves memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxgrad.ir.program import Eqn, Program, subprograms
from fxgrad.ir.types import TAPE, Atom, Var
from fxgrad.primitives.base import Doc, Primitive

__all__ = ["behind", "epochs", "is_late", "late", "postponed"]

SMALL = 1 << 14  # bytes of all that is computed again: less stays in the first-level cache, and had better be fused


def _batch(size: int, args: Sequence[Any], batched: Sequence[bool]) -> tuple[list[Any], list[bool]]:
    return list(args), list(batched)


late = Primitive(
    "late",
    "view",
    lambda *avals: list(avals),
    Doc("its operands, for what must not run before this place", ""),
    batch=_batch,
    numpy=lambda *xs: list(xs),
)


def is_late(eqn: Eqn) -> bool:
    """Whether an equation is a checkpoint's second half, which computes again enough to be worth a place of its own."""
    return eqn.prim.name == "checkpoint" and bool(eqn.params.get("late")) and _bytes(eqn.params["program"]) > SMALL


def _bytes(program: Program) -> int:
    total = 0
    for e in program.eqns:
        total += sum([v.aval.nbytes for v in e.outputs if v.aval.dtype != TAPE]) + sum(map(_bytes, subprograms(e)))
        if total > SMALL:
            break
    return total


def behind(atoms: Sequence[Atom], eqns: list[Eqn], source: Any = None) -> list[Atom]:
    """Append an equation that hands on the arrays among the atoms; what stands for each of them after it."""
    wanted = list(dict.fromkeys(a for a in atoms if type(a) is Var and a.aval.dtype != TAPE))
    if not wanted:
        return list(atoms)
    outs = {a: Var(a.aval) for a in wanted}
    eqns.append(Eqn(late, wanted, {}, [*outs.values()], source))
    return [outs.get(a, a) if type(a) is Var else a for a in atoms]


def epochs(eqns: Sequence[Eqn]) -> list[int]:
    """The epoch of every equation: 0, or the position of the last `late` that it depends on, counted from 1."""
    of: dict[Var, int] = {}  # of values that are not of the first one
    out = [0] * len(eqns)
    for i, e in enumerate(eqns):
        if e.prim is late:
            out[i] = i + 1
        elif of:
            out[i] = max([of[a] for a in e.inputs if type(a) is Var and a in of], default=0)
        if out[i]:
            for v in e.outputs:
                of[v] = out[i]
    return out


def _readers(eqns: Sequence[Eqn], found: Sequence[int]) -> dict[Atom, list[int]]:
    """Where the values of later epochs are read."""
    readers: dict[Atom, list[int]] = {v: [] for e, epoch in zip(eqns, found, strict=True) if epoch for v in e.outputs}
    for i, e in enumerate(eqns):
        if found[i]:
            for a in e.inputs:
                if a in readers:
                    readers[a].append(i)
    return readers


def _roots(eqns: Sequence[Eqn]) -> dict[Var, Var]:
    """What each view is a view of."""
    root: dict[Var, Var] = {}
    for e in eqns:
        if e.prim is late or (e.prim.kind == "view" and len(e.inputs) == 1):
            for x, v in zip(e.inputs, e.outputs, strict=True):
                if type(x) is Var:
                    root[v] = root.get(x, x)
    return root


def postponed(program: Program) -> Program:
    """The program with what depends on a `late` moved to its first reader, if no more bytes live longer for that than it makes.

    So a chain that is computed again is computed link by link, while the backward pass uses it.
    """
    eqns = program.eqns
    found = epochs(eqns)
    if not any(found):
        return program
    readers, root = _readers(eqns, found), _roots(eqns)
    end = len(eqns)
    place = list(range(end))  # the equation that stays before which each one goes
    last = {root.get(o, o): end for o in program.outputs if type(o) is Var}  # of an array: where it is read last
    for v in program.inputs:
        last[v] = end
    for i in range(end - 1, -1, -1):
        e = eqns[i]
        arrays = {root.get(a, a) for a in e.inputs if type(a) is Var}
        if found[i] and e.prim is not late and not any([v in last and last[v] == end for v in e.outputs]):
            first = min([place[c] for v in e.outputs for c in readers[v]], default=i)
            longer = sum([a.aval.nbytes for a in arrays if last.get(a, i) < first])
            if longer <= sum([v.aval.nbytes for v in e.outputs]):
                place[i] = first
        for a in arrays:
            if last.get(a, -1) < place[i]:
                last[a] = place[i]
    order = sorted(range(end), key=lambda i: (place[i], i))
    return Program(program.inputs, [eqns[i] for i in order], program.outputs, program.consts, program.name)
