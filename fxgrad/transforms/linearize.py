"""Linearize: forward mode, then a split into what can be computed now and what is linear in the tangents.

The first half is the primal program, which also answers the residuals; the second maps residuals and tangents to output tangents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fxgrad.ir.program import Eqn, Program, dce
from fxgrad.ir.types import Atom, Var
from fxgrad.transforms.jvp import jvp
from fxgrad.transforms.saving import Keeping, saving

__all__ = ["Split", "linearize", "split"]


@dataclass(frozen=True)
class Split:
    """A program in two halves: known (inputs known now) and later (the rest).

    known: (*known inputs) -> (*known outputs, *residuals); later: (*residuals, *unknown inputs) -> (*unknown outputs).
    `residuals` says where each leading input of `later` comes from: ("in", i), known input i, or ("out", j), output j of `known`.
    """

    known: Program
    later: Program
    residuals: tuple[tuple[str, int], ...]
    unknown_out: tuple[bool, ...]
    replays: bool = False  # whether `later` computes anything again


def linearize(program: Program, nonzero: Sequence[bool]) -> Split:
    """Split the jvp of `program` after its primal half. An output with a zero tangent is not among `later`'s outputs."""
    nonzero = tuple(nonzero)

    def make() -> Split:
        forward, out_nonzero = jvp(program, nonzero)
        n = len(program.inputs)
        halves = split(forward, [False] * n + [True] * sum(nonzero))
        return Split(halves.known, halves.later, halves.residuals, out_nonzero)

    return program.memoize(("linearize", nonzero), make)


def split(program: Program, unknown: Sequence[bool], keeping: Keeping | None = None, late: Sequence[bool] | None = None) -> Split:
    """Partial evaluation: equations that need no unknown input go to the first half.

    Outputs marked `late` come from the second half even if they are known (a loop hands them on there).

    With `keeping`, only results of equations it accepts (and inputs) may pass as residuals; the second half computes the others
    again. That is the whole of checkpointing.
    """
    later_vars: set[Var] = {v for v, u in zip(program.inputs, unknown, strict=True) if u}
    known_eqns: list[Eqn] = []
    later_eqns: list[Eqn] = []
    for eqn in program.eqns:
        marks = [type(a) is Var and a in later_vars for a in eqn.inputs]
        if not any(marks):
            known_eqns.append(eqn)
        elif eqn.prim.split is not None and not all(marks):
            now, rest, late_outputs = eqn.prim.split(eqn, marks)
            known_eqns.extend(now)
            later_eqns.append(rest)
            later_vars.update(late_outputs)
        else:
            later_eqns.append(eqn)
            later_vars.update(eqn.outputs)
    late = late or [False] * len(program.outputs)
    late_out = tuple(asked or (type(o) is Var and o in later_vars) for o, asked in zip(program.outputs, late, strict=True))
    later_inputs = [v for v, u in zip(program.inputs, unknown, strict=True) if u]
    later_outputs = [o for o, u in zip(program.outputs, late_out, strict=True) if u]
    early = {v for e in known_eqns for v in e.outputs}
    if keeping is not None:  # what may not be kept stands again in the second half; dce drops what nothing there reads
        later_eqns = dce(Program(later_inputs, later_eqns, later_outputs)).eqns
        saveable = keeping(known_eqns, [v for v in _free_vars(later_eqns, later_outputs, later_inputs) if v in early])
        known_eqns, again, _ = saving(known_eqns, saveable)
        later_eqns = again + later_eqns
    later_eqns = dce(Program(later_inputs, later_eqns, later_outputs)).eqns
    needed = _free_vars(later_eqns, later_outputs, later_inputs)
    known_inputs = [v for v, u in zip(program.inputs, unknown, strict=True) if not u]
    known_outputs: list[Atom] = [o for o, u in zip(program.outputs, late_out, strict=True) if not u]
    place: dict[Atom, tuple[str, int]] = {o: ("out", i) for i, o in enumerate(known_outputs)}
    place.update((v, ("in", i)) for i, v in enumerate(known_inputs))
    for v in needed:
        if v not in place:
            place[v] = ("out", len(known_outputs))
            known_outputs.append(v)
    known = dce(Program(known_inputs, known_eqns, known_outputs, (), program.name))
    later = Program(list(needed) + later_inputs, later_eqns, later_outputs, (), program.name)
    replays = keeping is not None and any(v in early for e in later_eqns for v in e.outputs)
    return Split(known, later, tuple(place[v] for v in needed), late_out, replays)


def _free_vars(eqns: Sequence[Eqn], outputs: Sequence[Atom], bound: Sequence[Var]) -> list[Var]:
    """Variables used but not defined, in order of first use."""
    defined = set(bound) | {v for e in eqns for v in e.outputs}
    used = [a for e in eqns for a in e.inputs] + list(outputs)
    return list(dict.fromkeys(a for a in used if type(a) is Var and a not in defined))
