"""What a checkpoint keeps, also of what happens inside calls and loops; by the price of recomputation, within a budget.

An equation that carries a program is run again as a whole, but for the equations in it whose results are kept: its first run
answers those as well (a loop stacks them), and its second one takes them (a loop runs along them) instead of computing them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.ir.program import Eqn, Program, dce
from fxgrad.ir.types import TAPE, Atom, Var
from fxgrad.transforms.recompute import Graph

__all__ = ["Keeping", "Saveable", "opened", "saving", "within_bytes"]

Saveable = Callable[[Eqn], bool]
_TAPE_BYTES = 1 << 50  # nobody knows how long a tape will be: it fits in no budget
Keeping = Callable[[Sequence[Eqn], Sequence[Var]], Saveable]  # of equations and of their results that are needed later


def saving(eqns: Sequence[Eqn], saveable: Saveable) -> tuple[list[Eqn], list[Eqn], list[Var]]:
    """(the equations as they run first, those to run again, what the first run answers beyond its results)."""
    first: list[Eqn] = []
    again: list[Eqn] = []
    saved: list[Var] = []
    for e in eqns:
        if saveable(e):
            first.append(e)
            saved += e.outputs
            continue
        parts = _INSIDE.get(e.prim.name, lambda e, saveable: (e, e, []))(e, saveable)
        first.append(parts[0])
        again.append(parts[1])
        saved += parts[2]
    return first, again, saved


def _in_program(program: Program, saveable: Saveable) -> tuple[Program, Program, list[Var]]:
    """(*inputs) -> (*outputs, *saved), and (*inputs, *saved) -> (*outputs); and which those are."""
    first, again, saved = saving(program.eqns, saveable)
    second = dce(Program([*program.inputs, *saved], again, program.outputs, (), program.name))
    read = {a for e in second.eqns for a in e.inputs} | set(second.outputs)
    saved = [v for v in saved if v in read and v.aval.dtype != TAPE]
    whole = Program(program.inputs, first, [*program.outputs, *saved], (), program.name)
    return whole, Program([*program.inputs, *saved], second.eqns, program.outputs, (), program.name), saved


def _of_call(e: Eqn, saveable: Saveable) -> tuple[Eqn, Eqn, list[Var]]:
    return _in_two(e, "program", saveable, lambda v: Var(v.aval))


def _of_scan(e: Eqn, saveable: Saveable) -> tuple[Eqn, Eqn, list[Var]]:
    length = e.params["length"]
    return _in_two(e, "body", saveable, lambda v: Var(v.aval.with_shape((length, *v.aval.shape))))


def _in_two(e: Eqn, key: str, saveable: Saveable, outside: Callable[[Var], Var]) -> tuple[Eqn, Eqn, list[Var]]:
    first, again, saved = _in_program(e.params[key], saveable)
    if not saved:
        return e, e, []
    more = [outside(v) for v in saved]
    return (
        Eqn(e.prim, e.inputs, {**e.params, key: first}, [*e.outputs, *more], e.source),
        Eqn(e.prim, [*e.inputs, *more], {**e.params, key: again}, e.outputs, e.source),
        more,
    )


_INSIDE: dict[str, Callable[[Eqn, Saveable], tuple[Eqn, Eqn, list[Var]]]] = {"jit_call": _of_call, "scan": _of_scan}


def opened(program: Program) -> Program:
    """The program with the equations of compiled functions in place of their calls."""

    def make() -> Program:
        eqns: list[Eqn] = []
        env: dict[Var, Atom] = {}
        for e in program.eqns:
            inputs = [env.get(a, a) if type(a) is Var else a for a in e.inputs]
            if e.prim.name != "jit_call":
                eqns.append(Eqn(e.prim, inputs, e.params, e.outputs, e.source))
                continue
            inner = opened(e.params["program"])
            local: dict[Var, Atom] = dict(zip(inner.inputs, inputs, strict=True))
            for x in inner.eqns:
                outs = [Var(v.aval) for v in x.outputs]
                eqns.append(Eqn(x.prim, [local[a] if type(a) is Var else a for a in x.inputs], x.params, outs, x.source))
                local.update(zip(x.outputs, outs, strict=True))
            env.update((v, local[o] if type(o) is Var else o) for v, o in zip(e.outputs, inner.outputs, strict=True))
        outputs = [env.get(o, o) if type(o) is Var else o for o in program.outputs]
        return Program(program.inputs, eqns, outputs, (), program.name)

    return program.memoize("opened", make) if any(e.prim.name == "jit_call" for e in program.eqns) else program


def within_bytes(most: int) -> Keeping:
    """Keeps results of so many bytes in all, those that cost most to compute again."""

    def choose(eqns: Sequence[Eqn], needed: Sequence[Var]) -> Saveable:
        from fxgrad.compile.cost import work

        root: dict[Any, Any] = {}
        for e in eqns:
            if e.prim.kind == "view" and len(e.inputs) == 1:
                root.update((v, root.get(e.inputs[0], e.inputs[0])) for v in e.outputs)
        size = lambda v: _TAPE_BYTES if v.aval.dtype == TAPE else v.aval.nbytes  # noqa: E731
        graph = Graph(eqns, needed, set(), [work(e) for e in eqns], size, root)
        choice = graph.choice(most, transient=False)
        assert choice is not None  # everything can be computed again
        kept = {id(e) for i, e in enumerate(eqns) if i not in choice.again}
        return lambda e: id(e) in kept

    return choose
