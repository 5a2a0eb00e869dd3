"""scan: a body applied along the leading axis of arrays, a carry handed on. And tape_scan, the same along tapes.

    scan        (*consts, *init, *xs) -> (*carry, *ys)            body: (*consts, *carry, *x slices) -> (*carry, *y slices)
    tape_scan   (turns, *consts, *init, *xs) -> (*carry, *ys)     xs and ys are tapes of so many turns (see tape.py)

Derivatives have the bits of the unrolled loop's: a constant's cotangent is summed turn by turn and use by use, backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fxgrad.ir.program import Eqn, Program, dce
from fxgrad.ir.types import TAPE, Atom, Aval, Var, aval_of
from fxgrad.primitives.base import Doc, Linear, Primitive, add_tangents, instantiate, register, type_error, zeros
from fxgrad.primitives.bodies import (
    Flags,
    Run,
    batched_as,
    chosen,
    cut,
    either,
    fixpoint,
    hoisted,
    invariants,
    names,
    negative_zeros,
    op_by_op,
    others,
    read_by,
    regroup,
    select_lanes,
    spread,
    widened,
    with_tangents,
    worth_keeping,
)
from fxgrad.primitives.elementwise import add, convert, lt, sub
from fxgrad.primitives.reduce import max_
from fxgrad.primitives.shape import broadcast, concatenate, reshape, slice_, transpose
from fxgrad.primitives.tape import Recorder, each_turn
from fxgrad.trace.tracing import bind, build, inline
from fxgrad.transforms.jvp import jvp
from fxgrad.transforms.linearize import split
from fxgrad.transforms.transpose import backward_pass
from fxgrad.transforms.transpose import transpose as transpose_program
from fxgrad.transforms.vmap import vmap

Params = dict[str, Any]
REFERENCE = "Griewank, Walther (2008), ch. 3, 4"

# ---- types and evaluation --------------------------------------------------------------------------------------------


def _body_problem(name: str, avals: Sequence[Aval], body: Program, given: Sequence[Aval], carry: Sequence[Aval]) -> None:
    if body.in_avals[: len(given)] != list(given) or body.out_avals[: len(carry)] != list(carry):
        raise type_error(name, avals, f"Its body takes {names(body.in_avals)} and returns {names(body.out_avals)}.")


def _scan_typ(*avals: Aval, body: Program, consts: int, carry: int, length: int, reverse: bool) -> list[Aval]:
    fixed, init, xs = cut(avals, consts, carry)
    if length < 0 or any(x.shape[:1] != (length,) for x in xs):
        raise type_error("scan", avals, f"Its arrays xs have a leading axis of its length, {length}.")
    slices = [x.with_shape(x.shape[1:]) for x in xs]
    _body_problem("scan", avals, body, [*fixed, *init, *slices], init)
    if len(body.inputs) != len(avals):
        raise type_error("scan", avals, f"Its body takes {len(body.inputs)} operands.")
    return body.out_avals[:carry] + [y.with_shape((length, *y.shape)) for y in body.out_avals[carry:]]


def _tape_scan_typ(*avals: Aval, body: Program, consts: int, carry: int, reverse: bool) -> list[Aval]:
    turns, fixed, init, xs = cut(avals, 1, consts, carry)
    if turns != [Aval((), np.dtype(np.int64))] or any(x.dtype != TAPE or x.shape for x in xs):
        raise type_error("tape_scan", avals, "It takes the number of turns, an int64 scalar, and as xs tapes.")
    _body_problem("tape_scan", avals, body, [*fixed, *init], init)
    if len(body.inputs) + 1 != len(avals):
        raise type_error("tape_scan", avals, f"Its body takes {len(body.inputs)} operands.")
    return body.out_avals[:carry] + [Aval((), TAPE)] * (len(body.outputs) - carry)


def _scan_numpy(*args: Any, body: Program, consts: int, carry: int, length: int, reverse: bool, run: Run = op_by_op) -> list[Any]:
    fixed, state, xs = cut(args, consts, carry)
    stacked = [np.empty((length, *y.shape), y.dtype) for y in body.out_avals[carry:]]
    for i in reversed(range(length)) if reverse else range(length):
        outs = run(body, [*fixed, *state, *[x[i] for x in xs]])
        state = outs[:carry]
        for all_ys, y in zip(stacked, outs[carry:], strict=True):
            all_ys[i] = y
    return [*state, *stacked]


def _tape_scan_numpy(
    turns: Any, *args: Any, body: Program, consts: int, carry: int, reverse: bool, run: Run = op_by_op
) -> list[Any]:
    fixed, state, tapes = cut(args, consts, carry)
    recorder = Recorder(body.out_avals[carry:], int(turns), reverse)
    for slices in each_turn(tapes, body.in_avals[consts + carry :], int(turns), reverse):
        outs = run(body, [*fixed, *state, *slices])
        state = outs[:carry]
        recorder.append(outs[carry:])
    return [*state, *recorder.tapes()]


# ---- rules, the same for both ----------------------------------------------------------------------------------------


def _stacked(aval: Aval, how: Params) -> Aval:
    return aval.with_shape((how["length"], *aval.shape)) if "length" in how else Aval((), TAPE)


class Loop:
    """Which of the two primitives a rule is for; `lead` operands stand before its consts: the number of turns of a tape_scan."""

    __slots__ = ("lead", "prim")
    prim: Primitive

    def __init__(self, name: str, typ: Callable, numpy: Callable, doc: Doc, lead: int):
        self.lead = lead
        self.prim = register(
            Primitive(
                name,
                "control",
                typ,
                doc,
                jvp=partial(_jvp, self),
                transpose_onto=partial(_transpose_onto, self),
                batch=partial(_batch, self),
                numpy=numpy,
                split=partial(_split, self),
                prune=lambda eqn, used: tidy(eqn, lead, used),
            )
        )


def _jvp(
    loop: Loop, primals: Sequence[Any], tangents: Sequence[Any], *, body: Program, consts: int, carry: int, **how: Any
) -> Any:
    head, primals = list(primals[: loop.lead]), primals[loop.lead :]
    tc, ts, tx = cut(tangents[loop.lead :], consts, carry)
    c, x = ([t is not None for t in group] for group in (tc, tx))
    s = fixpoint([t is not None for t in ts], lambda s: jvp(body, [*c, *s, *x])[1][:carry])
    y = jvp(body, [*c, *s, *x])[1][carry:]
    forward = with_tangents(body, [*c, *s, *x], [*s, *y])
    pc, ps, px, mc, ms, mx = cut(forward.inputs, consts, carry, len(x), sum(c), sum(s))
    oc, oy, nc, ny = cut(forward.outputs, carry, len(y), sum(s))
    both = regroup(forward, (pc, mc, ps, ms, px, mx), (oc, nc, oy, ny))
    vc, vs, vx = cut(primals, consts, carry)
    moving = [instantiate(t, aval_of(v)) for t, v, nz in zip(ts, vs, s, strict=True) if nz]
    operands = [*head, *vc, *chosen(tc, c), *vs, *moving, *vx, *chosen(tx, x)]
    outs = bind(loop.prim, operands, {"body": both, "consts": consts + sum(c), "carry": carry + sum(s), **how})
    found_c, found_tc, found_y, found_ty = cut(outs, carry, sum(s), len(y))
    return found_c + found_y, spread(found_tc, s) + spread(found_ty, y)


def _split(loop: Loop, eqn: Eqn, unknown: list[bool]) -> tuple[list[Eqn], Eqn, list[Var]]:
    params = dict(eqn.params)
    body, consts, carry = params.pop("body"), params.pop("consts"), params.pop("carry")
    head, atoms = list(eqn.inputs[: loop.lead]), eqn.inputs[loop.lead :]
    if any(unknown[: loop.lead]):
        return [], eqn, list(eqn.outputs)
    plan = split_body(body, consts, carry, unknown[loop.lead :])
    halves = Halves(plan, atoms, eqn.outputs, hoist=params.get("length") != 0)
    stacked = [Var(_stacked(v.aval, params)) for v in halves.to_stack]
    eqns = list(halves.before)
    if halves.known_outputs or stacked:
        how = {"body": halves.known_body(), "consts": halves.known_consts, "carry": halves.n_state, **params}
        made = Eqn(loop.prim, [*head, *halves.known_inputs], how, [*halves.known_outputs, *stacked], eqn.source)
        eqns.append(tidy(made, loop.lead))
    later, operands, n_consts = halves.later_half(stacked)
    how = {"body": later, "consts": n_consts, "carry": sum(plan.carry_unknown), **params}
    return eqns, Eqn(loop.prim, [*head, *operands], how, halves.late_outputs, eqn.source), halves.late_outputs


def _transpose_onto(
    loop: Loop,
    cts: Sequence[Any],
    inputs: Sequence[Any],
    before: Sequence[Any],
    *,
    body: Program,
    consts: int,
    carry: int,
    **how: Any,
) -> list:
    head, inputs = list(inputs[: loop.lead]), inputs[loop.lead :]
    none = [None] * loop.lead
    vc, _, vx = cut(inputs, consts, carry)
    to_consts, to_init, to_xs = cut(before[loop.lead :], consts, carry)
    lc, lx = ([isinstance(v, Linear) for v in group] for group in (vc, vx))
    linear = [*lc, *[True] * carry, *lx]
    gs, gy = cut(cts, carry)
    if how.get("length") == 0:
        return [*none, *to_consts, *map(_sum, to_init, gs), *to_xs]
    y = [g is not None for g in gy]

    def arriving(s: Flags) -> list[list[bool]]:
        return cut(spread(transpose_program(body, linear, [*s, *y])[1], linear, False), consts, carry)

    s = fixpoint([g is not None for g in gs], lambda s: arriving(s)[1])
    ac, found_s, ax = arriving(s)
    early = _handed_on(body, consts, carry, s, y) if "length" in how else [-1] * len(y)
    back = _backward_body(body, consts, carry, (lc, lx), (s, y), ac, early)
    start = [negative_zeros(v.aval) if g is None else g for v, g in chosen(list(zip(vc, to_consts, strict=True)), ac)]
    state = [negative_zeros(a) if g is None else g for g, a in zip(gs, body.out_avals, strict=False)]
    gy, first = _earlier(gy, state, early, **how)
    operands = [*head, *others(vc, lc), *start, *chosen(first, s), *others(vx, lx), *chosen(gy, y)]
    turned = {**how, "reverse": not how["reverse"]}
    counts = {"consts": len(lc) - sum(lc), "carry": len(start) + sum(s)}
    outs = bind(loop.prim, operands, {"body": back, **counts, **turned})
    fc, fs, fx = cut(outs, sum(ac), sum(s))
    reached = found_s if "length" in how else s  # a loop of no turns hands on what its body drops
    from_init = [g if f else None for g, f in zip(spread(fs, s), reached, strict=True)]
    sums = [g if a else old for g, old, a in zip(spread(fc, ac), to_consts, ac, strict=True)]
    return [*none, *sums, *map(_sum, to_init, from_init), *map(_sum, to_xs, spread(fx, ax))]


def _sum(a: Any, b: Any) -> Any:
    return add_tangents([a, b])


def _batch(
    loop: Loop, size: int, args: Sequence[Any], batched: Sequence[bool], *, body: Program, consts: int, carry: int, **how: Any
) -> tuple[list, list[bool]]:
    head, args = list(args[: loop.lead]), args[loop.lead :]
    vc, vs, vx = cut(args, consts, carry)
    c, s, x = cut(batched[loop.lead :], consts, carry)
    if any(batched[: loop.lead]):
        return _batch_uneven(size, head[0], (vc, vs, vx), (c, s, x), body, how)
    s = fixpoint(s, lambda s: vmap(body, [*c, *s, *x], size)[1][:carry])
    have = vmap(body, [*c, *s, *x], size)[1]
    wide = batched_as(body, [*c, *s, *x], size, [*s, *have[carry:]])
    init = [widened(v, size) if w and not b else v for v, w, b in zip(vs, s, batched[loop.lead + consts :], strict=False)]
    swap = _swap_front if "length" in how else (lambda v: v)
    xs = [swap(v) if b else v for v, b in zip(vx, x, strict=True)]
    outs = bind(loop.prim, [*head, *vc, *init, *xs], {"body": wide, "consts": consts, "carry": carry, **how})
    y = list(have[carry:])
    return outs[:carry] + [swap(v) if b else v for v, b in zip(outs[carry:], y, strict=True)], [*s, *y]


def _swap_front(x: Any) -> Any:
    if x.dtype == TAPE:
        return x  # an axis of tapes, whose elements have the batch axis
    ndim = len(x.shape)
    return transpose(x, perm=(1, 0, *range(2, ndim)))


def tidy(eqn: Eqn, lead: int, used: Flags | None = None) -> Eqn:
    """The equation without carries and ys nobody reads, and without the operands only they need."""
    params = eqn.params
    body, consts, carry = params["body"], params["consts"], params["carry"]
    used = [True] * len(eqn.outputs) if used is None else used

    def needed(s: list[bool]) -> list[bool]:
        read = read_by(dce(body, [*s, *used[carry:]]))
        return [v in read for v in body.inputs[consts : consts + carry]]

    s = fixpoint(used[:carry], needed)
    kept = [*s, *used[carry:]]
    small = dce(body, kept)
    read = read_by(small)
    ins = [v in read for v in body.inputs]
    ins[consts : consts + carry] = s
    if all(kept) and all(ins) and small is body:
        return eqn
    inner = Program(chosen(body.inputs, ins), small.eqns, small.outputs, (), body.name)
    counts = {"consts": sum(ins[:consts]), "carry": sum(s)}
    inputs = [*eqn.inputs[:lead], *chosen(eqn.inputs[lead:], ins)]
    return Eqn(eqn.prim, inputs, {**params, "body": inner, **counts}, chosen(eqn.outputs, kept), eqn.source)


# ---- splitting -------------------------------------------------------------------------------------------------------


class BodyPlan:
    """How a body divides: which inputs are unknown, the two halves, and where each residual of the second half comes from."""

    __slots__ = ("carry_unknown", "halves", "same", "unknown", "ys_late")

    def __init__(self, body: Program, consts: int, carry: int, unknown: Flags):
        c, s, x = cut(unknown, consts, carry)
        s = fixpoint(s, lambda s: split(body, [*c, *s, *x]).unknown_out[:carry])
        self.unknown = (c, s, x)
        self.carry_unknown = s
        late = [*s, *[False] * (len(body.outputs) - carry)]
        self.halves = split(body, [*c, *s, *x], lambda eqns, needed: worth_keeping, late)
        self.ys_late = list(self.halves.unknown_out[carry:])
        known = self.halves.known
        fixed, state, _ = cut(known.inputs, len(c) - sum(c), carry - sum(s))
        handed_on: list[Any] = [v for v, o in zip(state, known.outputs, strict=False) if v is o]
        self.same = invariants(known.eqns, [*fixed, *handed_on])


def split_body(body: Program, consts: int, carry: int, unknown: Flags) -> BodyPlan:
    unknown = tuple(unknown)
    return body.memoize(("split_body", consts, carry, unknown), lambda: BodyPlan(body, consts, carry, unknown))


class Halves:
    """The two loops that a loop divides into, on the operands `atoms` and for the results `outputs` of one equation.

    What does not change from turn to turn is computed once before the loops; a residual that is an operand, or a result
    stacked anyway, is taken from there; the others are stacked.
    """

    def __init__(self, plan: BodyPlan, atoms: Sequence[Atom], outputs: Sequence[Var], hoist: bool):
        self.plan = plan
        (c, s, x), halves = plan.unknown, plan.halves
        ac, as_, ax = cut(atoms, len(c), len(s))
        oc, oy = cut(outputs, len(s))
        self.unknown_operands = chosen(ac, c), chosen(as_, s), chosen(ax, x)
        self.known_consts = len(c) - sum(c)
        self.known_inputs = [*others(ac, c), *others(as_, s), *others(ax, x)]
        self.known_outputs: list[Var] = [*others(oc, s), *others(oy, plan.ys_late)]
        self.late_outputs: list[Var] = [*chosen(oc, s), *chosen(oy, plan.ys_late)]
        self.n_state = len(s) - sum(s)
        self.residuals = list(halves.later.inputs[: len(halves.residuals)])
        self._place(halves.known.inputs, hoist)

    def _place(self, inputs: Sequence[Var], hoist: bool) -> None:
        """Decide for every residual whether it is a constant of the second loop, runs along with it, or must be stacked."""
        known, same = self.plan.halves.known, self.plan.same
        fixed, state, slices = cut(range(len(inputs)), self.known_consts, self.n_state)
        env: dict[Var, Atom] = {inputs[i]: self.known_inputs[i] for i in [*fixed, *state] if inputs[i] in same}
        along: dict[Var, Atom] = {inputs[i]: self.known_inputs[i] for i in slices}
        ys = zip(known.outputs[self.n_state : len(self.known_outputs)], self.known_outputs[self.n_state :], strict=True)
        along.update((o, v) for o, v in ys if type(o) is Var)
        self.constant = [v in env or (hoist and v in same) for v in self.residuals]
        self.before = hoisted(known.eqns, chosen(self.residuals, self.constant), env)
        self.env, self.along = env, along
        self.to_stack = list(dict.fromkeys(v for v in others(self.residuals, self.constant) if v not in along))

    def known_body(self) -> Program:
        """The first loop's body."""
        known = self.plan.halves.known
        outputs = [*known.outputs[: len(self.known_outputs)], *self.to_stack]
        return dce(Program(known.inputs, known.eqns, outputs, (), known.name))

    def later_half(self, stacked: Sequence[Var]) -> tuple[Program, list[Atom], int]:
        """The second loop's body, operands, and number of consts."""
        later = self.plan.halves.later
        uc, us, ux = self.unknown_operands
        res, vc, vs, vx = cut(later.inputs, len(self.residuals), len(uc), len(us))
        program = regroup(later, (chosen(res, self.constant), vc, vs, others(res, self.constant), vx), (later.outputs,))
        sources = {**self.along, **dict(zip(self.to_stack, stacked, strict=True))}
        fixed = [self.env[v] for v in chosen(self.residuals, self.constant)]
        running = [sources[v] for v in others(self.residuals, self.constant)]
        operands: list[Atom] = [*fixed, *uc, *us, *running, *ux]
        return program, operands, len(fixed) + len(uc)


# ---- transposition ---------------------------------------------------------------------------------------------------


def _backward_body(
    body: Program, consts: int, carry: int, linear: tuple[Flags, Flags], ct: tuple[Flags, Flags], ac: Flags, early: Sequence[int]
) -> Program:
    """One turn back: (*fixed consts, *sums so far, *carry cts, *fixed slices, *y cts) -> (*sums, *carry cts, *slice cts)."""
    (lc, lx), (s, y), ac, early = linear, ct, tuple(ac), tuple(early)

    def make() -> Program:
        ic, is_, ix = cut(body.inputs, consts, carry)
        mask = [*lc, *[True] * carry, *lx]
        oc, oy = cut(body.out_avals, carry)
        # the unrolled loop stacks its ys in order, so their cotangents arrive last first
        backwards = regroup(body, (body.inputs,), (body.outputs[:carry], body.outputs[carry:][::-1]))
        groups = [others(ic, lc), chosen(ic, ac), chosen(oc, s), others(ix, lx), chosen(oy, y)]
        avals = [getattr(a, "aval", a) for group in groups for a in group]

        def turn(*values: Any) -> list[Any]:
            fc, sums, gs, fx, gy = cut(values, *map(len, groups[:-1]))
            gs, gy = spread(gs, s), spread(gy, y)
            start: list[Any] = [None] * carry
            for j, i in reversed(list(enumerate(early))):
                if i >= 0:  # this y is the carry: what it received in the turn before comes first
                    start[i], gy[j] = add_tangents([start[i], gy[j]]), None
            begin = [*chosen(spread(sums, ac), lc), *start, *[None] * sum(lx)]
            found = backward_pass(backwards, mask, [*fc, *fx], [*gs, *reversed(gy)], begin)
            tc, ts, tx = cut(spread(found, mask), consts, carry)
            state = [negative_zeros(v.aval) if g is None else g for g, v in zip(ts, is_, strict=True)]
            return [*chosen(tc, ac), *chosen(state, s), *[g for g in tx if g is not None]]

        return build(avals, turn, body.name)

    key = ("backward_body", consts, carry, tuple(lc), tuple(lx), tuple(s), tuple(y), ac, early)
    return body.memoize(key, make)


def _handed_on(body: Program, consts: int, carry: int, s: Flags, y: Flags) -> list[int]:
    """For every y that is also the next carry, which carry that is; -1 for the others, and where the order does not matter.

    In the unrolled loop such a value receives y's cotangent before those of its uses in the next turn.
    """
    outs, ys = cut(body.outputs, carry)
    state = body.inputs[consts : consts + carry]
    reads = [a for e in body.eqns for a in e.inputs] + list(body.outputs)
    places = {o: i for i, o in reversed(list(enumerate(outs))) if s[i] and type(o) is Var and o is not state[i]}
    found = [places.get(o, -1) if has else -1 for o, has in zip(ys, y, strict=True)]
    return [i if i >= 0 and found.count(i) + reads.count(state[i]) > 2 else -1 for i in found]


def _earlier(
    gy: list[Any], state: list[Any], early: Sequence[int], reverse: bool, length: int = 0
) -> tuple[list[Any], list[Any]]:
    """Cotangents of ys moved to the turn before, where `early` says so; the last turn's goes into the state."""
    gy, state = list(gy), list(state)
    for j, i in reversed(list(enumerate(early))):
        if i >= 0:
            gy[j], last = _shifted(gy[j], length, reverse)
            state[i] = add(state[i], last)
    return gy, state


def _shifted(g: Any, n: int, reverse: bool) -> tuple[Any, Any]:
    """(each turn's entry moved to the next turn, -0.0 in the first; the last turn's entry)."""
    shape = aval_of(g).shape
    ones = (1,) * len(shape)

    def part(a: int, b: int) -> Any:
        return slice_(g, start=(a, *(0 for _ in shape[1:])), stop=(b, *shape[1:]), step=ones)

    nothing = negative_zeros(Aval((1, *shape[1:]), aval_of(g).dtype))
    last = part(0, 1) if reverse else part(n - 1, n)
    rest = [part(1, n), nothing] if reverse else [nothing, part(0, n - 1)]
    return (concatenate(*rest, axis=0) if n > 1 else nothing), reshape(last, shape=shape[1:])


# ---- batches whose entries take different numbers of turns -----------------------------------------------------------


def _batch_uneven(
    size: int, turns: Any, values: tuple[list, list, list], batched: tuple[list, list, list], body: Program, how: Params
) -> tuple[list, list[bool]]:
    """A tape_scan whose number of turns is batched: as many as the longest entry takes, the others keep their carry."""
    (vc, vs, vx), (c, _, x) = values, batched
    carry = len(vs)
    marks = [*c, *[True] * carry, *x]
    kept = [o.aval.dtype != TAPE for o in body.outputs]  # a tape that is the same for all entries may stay so
    y = either(vmap(body, marks, size)[1], kept)[carry:]
    wide = batched_as(body, marks, size, [*[True] * carry, *y])
    total = max_(turns, axes=(0,))
    one = np.int64(1)
    int64 = np.dtype(np.int64)
    reverse = how["reverse"]

    def masked(*operands: Any) -> list[Any]:
        ends, fixed, (i, *state), slices = cut(operands, 1, len(vc), 1 + carry)
        active = lt(broadcast(i, shape=(size,), dims=()), ends[0])
        outs = inline(wide, [*fixed, *state, *slices])
        state = [select_lanes(active, new, old) for new, old in zip(outs, state, strict=False)]
        ys = [o if o.dtype == TAPE else select_lanes(active, o, zeros(aval_of(o))) for o in outs[carry:]]
        return [sub(i, one) if reverse else add(i, one), *state, *ys]

    fixed_avals, rest = cut(wide.in_avals, len(vc))
    avals = [aval_of(turns), *fixed_avals, Aval((), int64), *rest]
    program = build(avals, masked, body.name)
    init = [v if b else widened(v, size) for v, b in zip(vs, batched[1], strict=True)]
    begin = sub(total, one) if reverse else convert(np.int64(0), dtype=int64)
    outs = bind(
        tape_scan,
        [total, turns, *vc, begin, *init, *vx],
        {"body": program, "consts": len(vc) + 1, "carry": carry + 1, **how},
    )
    return outs[1:], [True] * carry + y


# ---- declarations ----------------------------------------------------------------------------------------------------


def _declared(name: str, typ: Callable, numpy: Callable, doc: Doc, lead: int) -> Primitive:
    return Loop(name, typ, numpy, doc, lead).prim


scan = _declared(
    "scan",
    _scan_typ,
    _scan_numpy,
    Doc(
        "the body applied along the leading axis of xs, a carry handed on",
        "a scan of the body's transpose, the other way",
        REFERENCE,
    ),
    lead=0,
)

tape_scan = _declared(
    "tape_scan",
    _tape_scan_typ,
    _tape_scan_numpy,
    Doc(
        "scan along tapes, of a number of turns that is a value", "a tape_scan of the body's transpose, the other way", REFERENCE
    ),
    lead=1,
)
