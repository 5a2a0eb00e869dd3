"""A compiled program within a number of bytes: values that are needed long after they were made are computed again there.

The *turning point* is where most bytes wait for later readers: the end of the forward pass, usually. What is made before it and
read after it is kept, or computed again just before its first late reader (`transforms/recompute.py` chooses, `late.py` keeps it
in its place). Sizes and costs are estimates for choosing; whether a choice fits is read off its plan, and the search goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fxgrad import errors
from fxgrad.compile.cost import equation_cost
from fxgrad.compile.late import behind, late, postponed
from fxgrad.ir.program import Eqn, Program, dce
from fxgrad.ir.types import TAPE, Atom, Var
from fxgrad.runtime.caches import on_clear
from fxgrad.transforms.recompute import Choice, Graph

if TYPE_CHECKING:
    from fxgrad.compile.analysis import Analysis
    from fxgrad.compile.lower import Plan

__all__ = ["fitted"]

_TRIES = 7  # plans looked at on the way to a budget
_CLOSE = 0.03  # of the budget: room that may be left unused
_LEAST = 4  # plans looked at to tell how low it can go
_LEVELS = 4  # how often what is computed again may be

# Without a budget:
_LARGE = 1 << 22  # work space that is worth looking at, in bytes
_SHORT = 5000  # equations of a program for which a few plans more do not matter
_SHARE = 0.04  # of the program's work may be done again
_WAYS = 3  # of spending that work: what to try
_PARTS = (0.25, 0.5, 0.7)  # of that work: whether less will do
_GAIN = 0.01  # of the work space: what is worth the work, and what less work may take

Planner = Callable[[Program], "Plan"]


class _Found(NamedTuple):
    """What was found for a program without a budget: where to look, what to compute again.

    And the work space without that, for each tuple of donated inputs.
    """

    middle: int
    choice: Choice | None
    spaces: dict[tuple[int, ...], list[_Span]]


class _Span(NamedTuple):
    """The first and last step of a value in the work space, and a number times the bytes of a variable, its size."""

    birth: int
    death: int
    times: float
    variable: int


_found: dict[tuple, _Found] = {}  # by form
on_clear(_found.clear)


def fitted(
    flat: Program, budget: int | None, planner: Planner, thrift: bool = True, donated: tuple[int, ...] = ()
) -> Plan:  # fmt: skip
    """A plan of the program, or of one that computes the same with some equations run again, whose peak is within the budget.

    `thrift`: what costs almost nothing is computed again in any case, if that saves work space. `donated`: numbers of inputs
    whose memory the planner's plans may use.

    Raises:
        FxValueError: no plan is within the budget; the message says how low it can go.
    """
    thrift = thrift and len(flat.eqns) <= _SHORT
    if thrift and budget is None and _found and (known := _as_before(flat, planner, donated)) is not None:
        return known
    plan = planner(flat)
    sizes, least = plan.memory_analysis(), _peak(plan)
    thrift = thrift and sizes.temp_bytes >= _LARGE
    if not thrift and (budget is None or least <= budget):
        return plan
    frugal = _thrifty(plan, planner, donated) if thrift else plan
    if budget is None or _peak(frugal) <= budget:
        return frugal
    search = _Search(plan, planner)
    for _ in range(_LEVELS):
        if _peak(search.planned(search.graph.least()[0])) <= budget or _peak(search.lowest()) <= budget:
            return search.cheapest(budget) or search.lowest()
        plan = search.lowest()  # from here on, what is computed again may itself be computed again
        if _peak(plan) > (1 - _CLOSE) * least:
            break
        least = _peak(plan)
        search = _Search(plan, planner)
    least = min(least, _peak(plan))
    if least <= budget:
        return plan
    raise errors.FxValueError(
        f"'{plan.flat.name}' does not run within memory_budget={budget}: it needs {least} bytes",
        why=f"Arguments take {sizes.argument_bytes} bytes and results {sizes.output_bytes}; the rest is the least work space "
        f"that was found (without a budget: {frugal.memory_analysis().temp_bytes}).",
        fix=f"Pass memory_budget={least} or more, or give it less at a time: a smaller batch, or fx.scan over parts of it.",
    )


def _as_before(flat: Program, planner: Planner, donated: tuple[int, ...]) -> Plan | None:
    """The plan that computes again what one of another size of this program does, if it is sure to need less work space for that.

    That is read off the values which were alive together in the plan without it, at their sizes now: a plan less to make.
    """
    known = _found.get(_form(flat))
    if known is None or known.choice is None or (least := _alive(known.spaces.get(donated, ()), flat)) < _LARGE:
        return None
    frugal = planner(rewritten(flat, known.middle, known.choice))
    return frugal if frugal.memory_analysis().temp_bytes < least else None


def _thrifty(plan: Plan, planner: Planner, donated: tuple[int, ...]) -> Plan:
    """The plan, or one with less work space that computes again what costs almost nothing: activations, say, from their inputs.

    Moving less memory makes up for it, about: what is computed again was not stored and is not read. A program that differs from
    an earlier one in sizes only takes over what was found for that: looking takes ten times as long as planning.
    """
    form = _form(plan.flat)
    if form not in _found:
        search = _Search(plan, planner)
        _found[form] = _Found(search.middle, _cheap(search), {})
    middle, choice, spaces = _found[form]
    spaces[donated] = _spans(plan)
    if choice is None:
        return plan
    frugal = planner(rewritten(plan.flat, middle, choice))
    return min(plan, frugal, key=lambda p: p.memory_analysis().temp_bytes)


def _variables(program: Program) -> list[Var]:
    return [*program.inputs, *(v for e in program.eqns for v in e.outputs)]


def _spans(plan: Plan) -> list[_Span]:
    """The work space of a plan; what only the compiler made there (a copy, say) grows with what the step that makes it reads."""
    number = {v: i for i, v in enumerate(_variables(plan.flat))}
    places, found = plan.memory.places, {}
    for v, life in plan.memory.lives.items():
        like = next((x for x in (v, *plan.steps[life[0]].reads) if x in number and x.aval.nbytes), None)
        if like is not None:  # values of one life and place are one after the other in the same memory
            found[(*life, places[v].offset)] = _Span(*life, v.aval.nbytes / like.aval.nbytes, number[like])
    return list(found.values())


def _alive(space: Sequence[_Span], flat: Program) -> int:
    """Bytes of this work space that are in use at one time, at most."""
    variables = _variables(flat)
    change = [0] * (max([s.death for s in space], default=0) + 2)
    for birth, death, times, variable in space:
        size = int(times * variables[variable].aval.nbytes)
        change[birth] += size
        change[death + 1] -= size
    return max(accumulate(change))


def _cheap(search: _Search) -> Choice | None:
    """What to compute again for almost nothing, to save most work space, if that saves any; no more than it takes.

    The estimates do not tell which division leaves least alive at one time: a few plans do.
    """
    allowed = _SHARE * sum(equation_cost(e) or 0 for e in search.flat.eqns)

    def size(choice: Choice) -> int:
        return search.planned(choice).memory_analysis().temp_bytes

    best = min(search.graph.within(int(allowed))[:_WAYS], key=size)
    if size(best) >= (1 - _GAIN) * search.plan.memory_analysis().temp_bytes:
        return None
    for part in _PARTS:
        less = search.graph.within(int(part * best.cost))[0]
        if size(less) <= (1 + _GAIN) * size(best):
            return less
    return best


def _form(program: Program) -> tuple:
    """What a program is but for sizes: its operations, how they hang together, dtypes and ranks."""
    number: dict[Var, int] = {v: i for i, v in enumerate(program.inputs)}
    row: list[Any] = [(v.aval.dtype, v.aval.ndim) for v in program.inputs]
    for e in program.eqns:
        row.append((e.prim, *[number[a] if type(a) is Var else None for a in e.inputs]))
        for v in e.outputs:
            number[v] = len(number)
            row.append((v.aval.dtype, v.aval.ndim))
    return (*row, *[number[a] if type(a) is Var else None for a in program.outputs])


def _peak(plan: Plan) -> int:
    return plan.memory_analysis().peak_bytes


class _Search:
    """Plans of one program with different equations run again."""

    def __init__(self, plan: Plan, planner: Planner):
        self.plan, self.planner, self.flat = plan, planner, plan.flat
        self.middle = _turning_point(plan.a)
        self.graph = _graph(plan, self.middle)
        self._plans: dict[frozenset[int], Plan] = {}

    def planned(self, choice: Choice) -> Plan:
        """The plan of a choice."""
        if choice.again not in self._plans:
            self._plans[choice.again] = self.planner(rewritten(self.flat, self.middle, choice))
        return self._plans[choice.again]

    def cheapest(self, budget: int) -> Plan | None:
        """The plan within the budget that does least again, as far as a few tries tell."""
        sizes = self.plan.memory_analysis()
        least = self.graph.least()[0].bytes
        target = budget - sizes.peak_bytes + sizes.temp_bytes  # of the graph's estimates; what they leave out is found by trying
        low, high = least - 1, self.graph.bytes
        best: tuple[int, Plan] | None = None
        for _ in range(_TRIES):
            target = min(max(target, low + 1), high)
            choice = self.graph.choice(target)
            if choice is None:
                return best and best[1]
            plan = self.planned(choice)
            room = budget - _peak(plan)
            if room >= 0:
                low = target
                if best is None or choice.cost < best[0]:
                    best = choice.cost, plan
            else:
                high = target
            if 0 <= room <= _CLOSE * budget or high - low < 2:
                break
            target = choice.bytes + room
            if not low < target < high:
                target = (low + high) // 2
        return best and best[1]

    def lowest(self) -> Plan:
        """The plan with the lowest peak, of those that should have it."""
        return min([self.plan, *map(self.planned, self.graph.least()[:_LEAST])], key=_peak)


def _sizes(a: Analysis) -> tuple[Callable[[Var], int], dict[Var, Var]]:
    """Bytes of a value, and of each view what it is a view of."""
    root = {v: r for v, (r, _) in a.views.items() if type(r) is Var}
    return (lambda v: 0 if v.aval.dtype == TAPE else v.aval.nbytes), root


def _turning_point(a: Analysis) -> int:
    """The position up to which most bytes are made that are read after it."""
    size, root = _sizes(a)
    eqns = a.program.eqns
    change = np.zeros(len(eqns) + 1, np.int64)
    last: dict[Var, int] = {}
    for i, e in enumerate(eqns):
        last.update((root.get(x, x), i) for x in e.inputs if type(x) is Var)
    kept = {root.get(o, o) for o in a.program.outputs if type(o) is Var}
    for i, e in enumerate(eqns):
        for v in e.outputs:
            if v not in root and v not in kept and last.get(v, i) > i:
                change[i] += size(v)
                change[last[v]] -= size(v)
    return int(np.cumsum(change)[:-1].argmax()) if eqns else 0


def _graph(plan: Plan, middle: int) -> Graph:
    a = plan.a
    size, root = _sizes(a)
    early, rest = a.program.eqns[: middle + 1], a.program.eqns[middle + 1 :]
    needed = [x for e in rest for x in e.inputs if type(x) is Var]
    free = {root.get(o, o) for o in a.program.outputs if type(o) is Var}
    stored = {*a.program.inputs, *(v for s in plan.steps for v in s.writes)}
    cost: list[int | None] = []
    for kind, e in zip(a.kinds, early, strict=False):
        if e.prim is late:
            cost.append(None)
        elif kind == "view":
            cost.append(0)
        else:
            atoms = [x for x in (*e.inputs, *e.outputs) if type(x) is Var]
            cost.append(equation_cost(e, [x for x in atoms if root.get(x, x) in stored]))
    return Graph(early, needed, free, cost, size, root)


def rewritten(flat: Program, middle: int, choice: Choice) -> Program:
    """The program with the chosen equations run again after `middle`, segment by segment, before the first reader of each."""
    early, rest = flat.eqns[: middle + 1], flat.eqns[middle + 1 :]
    maker = {v: i for i, e in enumerate(early) for v in e.outputs}
    needed = list(dict.fromkeys(x for e in rest for x in e.inputs if type(x) is Var and x in maker))
    segment = np.repeat(np.arange(len(choice.ends)), np.diff([0, *choice.ends])).tolist()
    groups: dict[int, list[Eqn]] = {}
    for i in sorted(choice.again):
        groups.setdefault(segment[i], []).append(early[i])
    eqns: list[Eqn] = list(early)
    env: dict[Var, Atom] = {}  # what late readers find in place of a value
    done: set[int] = set()
    for e in rest:
        for x in e.inputs:
            if type(x) is not Var or x not in maker or (s := segment[i := maker[x]]) not in choice.working or s in done:
                continue
            if i in choice.again:
                done.add(s)
                _run_again(groups[s], [v for v in needed if segment[maker[v]] == s], eqns, env)
            elif x not in env:  # kept: what is computed again may wait
                env[x] = behind([x], eqns, e.source)[0]
        inputs = [env.get(x, x) if type(x) is Var else x for x in e.inputs]
        eqns.append(Eqn(e.prim, inputs, e.params, e.outputs, e.source))
    return postponed(dce(Program(flat.inputs, eqns, flat.outputs, (), flat.name)))


def _run_again(group: Sequence[Eqn], needed: Sequence[Var], eqns: list[Eqn], env: dict[Var, Atom]) -> None:
    """Append these equations once more, behind a `late` of all they read and of what is kept."""
    made = {v for e in group for v in e.outputs}
    read = [x for e in group for x in e.inputs if type(x) is Var]
    outside = [v for v in dict.fromkeys([*read, *needed]) if v not in made]
    local: dict[Var, Atom] = dict(zip(outside, behind(outside, eqns, group[0].source), strict=True))
    for e in group:
        outs = [Var(v.aval) for v in e.outputs]
        eqns.append(Eqn(e.prim, [local.get(x, x) if type(x) is Var else x for x in e.inputs], e.params, outs, e.source))
        local.update(zip(e.outputs, outs, strict=True))
    env.update((v, local[v]) for v in needed if v not in env)
