"""while_loop: a body applied to a carry as long as a test holds. And while_tape, which also keeps something of every turn.

    while_loop  (*cond_consts, *body_consts, *carry) -> (*carry)                    body: (*body_consts, *carry) -> (*carry)
    while_tape  (*cond_consts, *body_consts, *carry) -> (*carry, turns, *tapes)     body: ... -> (*carry, *ys)

Reverse mode divides a while_loop into a while_tape, which records the residuals, and a tape_scan, which is linear. Under vmap the
loop runs until the last batch entry is done; the others keep their carry, and `turns` tells for each how many it took.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.ir.program import Eqn, Program, dce
from fxgrad.ir.types import TAPE, Aval, Var, aval_of
from fxgrad.primitives.base import Doc, Primitive, instantiate, register, type_error, zeros
from fxgrad.primitives.bodies import (
    Flags,
    Run,
    batched_as,
    bool_scalar,
    chosen,
    cut,
    either,
    fixpoint,
    may_raise,
    names,
    op_by_op,
    others,
    read_by,
    regroup,
    safe_lanes,
    select_lanes,
    spread,
    widened,
    with_tangents,
)
from fxgrad.primitives.elementwise import add, and_, convert
from fxgrad.primitives.reduce import any_
from fxgrad.primitives.scan import REFERENCE, Halves, split_body, tape_scan
from fxgrad.primitives.tape import Recorder
from fxgrad.trace.tracing import bind, build, inline
from fxgrad.transforms.jvp import jvp
from fxgrad.transforms.vmap import vmap

_INT64 = np.dtype(np.int64)


# ---- types and evaluation --------------------------------------------------------------------------------------------


def _check(name: str, avals: Sequence[Aval], cond: Program, body: Program, cond_consts: int, body_consts: int) -> list[Aval]:
    tested, fixed, carry = cut(avals, cond_consts, body_consts)
    if cond.in_avals != [*tested, *carry] or len(cond.outputs) != 1 or not bool_scalar(cond.out_avals[0]):
        raise type_error(name, avals, f"Its test takes {names(cond.in_avals)} and returns {names(cond.out_avals)}.")
    if body.in_avals != [*fixed, *carry] or body.out_avals[: len(carry)] != carry:
        raise type_error(name, avals, f"Its body takes {names(body.in_avals)} and returns {names(body.out_avals)}.")
    return carry


def _while_typ(*avals: Aval, cond: Program, body: Program, cond_consts: int, body_consts: int) -> list[Aval]:
    carry = _check("while_loop", avals, cond, body, cond_consts, body_consts)
    if len(body.outputs) != len(carry):
        raise type_error("while_loop", avals, f"Its body returns {names(body.out_avals)}.")
    return carry


def _while_tape_typ(*avals: Aval, cond: Program, body: Program, cond_consts: int, body_consts: int) -> list[Aval]:
    carry = _check("while_tape", avals, cond, body, cond_consts, body_consts)
    return [*carry, Aval((), _INT64), *[Aval((), TAPE)] * (len(body.outputs) - len(carry))]


def _while_numpy(*args: Any, cond: Program, body: Program, cond_consts: int, body_consts: int, run: Run = op_by_op) -> list[Any]:
    tested, fixed, carry = cut(args, cond_consts, body_consts)
    while run(cond, [*tested, *carry])[0]:
        carry = run(body, [*fixed, *carry])
    return carry


def _while_tape_numpy(
    *args: Any, cond: Program, body: Program, cond_consts: int, body_consts: int, run: Run = op_by_op
) -> list[Any]:
    tested, fixed, carry = cut(args, cond_consts, body_consts)
    n = len(carry)
    recorder = Recorder(body.out_avals[n:])
    while run(cond, [*tested, *carry])[0]:
        carry, ys = cut(run(body, [*fixed, *carry]), n)
        recorder.append(ys)
    return [*carry, np.int64(recorder.written), *recorder.tapes()]


# ---- rules, the same for both ----------------------------------------------------------------------------------------


def _carried(params: dict[str, Any]) -> int:
    return len(params["body"].inputs) - params["body_consts"]


def _with_ignored(cond: Program, avals: Sequence[Aval]) -> Program:
    """The test of a loop whose carry is longer by values that the test does not read."""
    return Program([*cond.inputs, *[Var(a) for a in avals]], cond.eqns, cond.outputs, (), cond.name)


def _loop(name: str, typ: Callable, numpy: Callable, doc: Doc, taped: bool) -> Primitive:
    lead = 1 if taped else 0  # results between the carry and the tapes: the number of turns

    def jvp_rule(
        primals: Sequence[Any], tangents: Sequence[Any], *, cond: Program, body: Program, cond_consts: int, body_consts: int
    ) -> tuple[list, list]:
        vt, vb, vs = cut(primals, cond_consts, body_consts)
        _, tb, ts = cut(tangents, cond_consts, body_consts)
        n = len(vs)
        b = [t is not None for t in tb]
        s = fixpoint([t is not None for t in ts], lambda s: jvp(body, [*b, *s])[1][:n])
        y = list(jvp(body, [*b, *s])[1][n:])
        forward = with_tangents(body, [*b, *s], [*s, *y])
        pb, ps, mb, ms = cut(forward.inputs, body_consts, n, sum(b))
        oc, oy, nc, ny = cut(forward.outputs, n, len(y), sum(s))
        both = regroup(forward, (pb, mb, ps, ms), (oc, nc, oy, ny))
        moving = [instantiate(t, aval_of(v)) for t, v, nz in zip(ts, vs, s, strict=True) if nz]
        test = _with_ignored(cond, [v.aval for v in ms])
        params = {"cond": test, "body": both, "cond_consts": cond_consts, "body_consts": body_consts + sum(b)}
        outs = bind(prim, [*vt, *vb, *chosen(tb, b), *vs, *moving], params)
        fc, fs, turns, fy, fty = cut(outs, n, sum(s), lead, len(y))
        return [*fc, *turns, *fy], [*spread(fs, s), *[None] * lead, *spread(fty, y)]

    def split_rule(eqn: Eqn, unknown: list[bool]) -> tuple[list[Eqn], Eqn, list[Var]]:
        cond, body = eqn.params["cond"], eqn.params["body"]
        cond_consts, body_consts = eqn.params["cond_consts"], eqn.params["body_consts"]
        tested, atoms = cut(eqn.inputs, cond_consts)
        n = _carried(eqn.params)
        plan = split_body(body, body_consts, n, unknown[cond_consts:])
        late = plan.carry_unknown
        read = read_by(cond)
        if any(unknown[:cond_consts]) or any(u and v in read for v, u in zip(cond.inputs[cond_consts:], late, strict=True)):
            return [], eqn, list(eqn.outputs)
        carried, turns, ys = cut(eqn.outputs, n, lead)
        halves = Halves(plan, atoms, [*carried, *ys], hoist=not any(map(may_raise, plan.halves.known.eqns)))
        test = Program([*cond.inputs[:cond_consts], *others(cond.inputs[cond_consts:], late)], cond.eqns, cond.outputs)
        turns = turns or [Var(Aval((), _INT64))]
        stacked = [Var(Aval((), TAPE)) for _ in halves.to_stack]
        params = {
            "cond": test,
            "body": halves.known_body(),
            "cond_consts": cond_consts,
            "body_consts": halves.known_consts,
        }
        state, known_ys = cut(halves.known_outputs, halves.n_state)
        outputs = [*state, *turns, *known_ys, *stacked]
        made = Eqn(while_tape, [*tested, *halves.known_inputs], params, outputs, eqn.source)
        later, operands, n_consts = halves.later_half(stacked)
        how = {"body": later, "consts": n_consts, "carry": sum(late), "reverse": False}
        after = Eqn(tape_scan, [*turns, *operands], how, halves.late_outputs, eqn.source)
        return [*halves.before, tidy(made, [True] * len(outputs))], after, halves.late_outputs

    def batch_rule(
        size: int,
        args: Sequence[Any],
        batched: Sequence[bool],
        *,
        cond: Program,
        body: Program,
        cond_consts: int,
        body_consts: int,
    ) -> tuple[list, list[bool]]:
        vt, vb, vs = cut(args, cond_consts, body_consts)
        t, b, given = cut(batched, cond_consts, body_consts)
        n = len(vs)

        def step(s: list[bool]) -> Sequence[bool]:
            return [True] * n if vmap(cond, [*t, *s], size)[1][0] else vmap(body, [*b, *s], size)[1][:n]

        s = fixpoint(given, step)
        init = [widened(v, size) if w and not g else v for v, w, g in zip(vs, s, given, strict=True)]
        if vmap(cond, [*t, *s], size)[1][0]:
            return _batch_uneven(size, (vt, vb, init), (t, b), cond, body, taped)
        y = list(vmap(body, [*b, *s], size)[1][n:])
        params = {
            "cond": vmap(cond, [*t, *s], size)[0],
            "body": batched_as(body, [*b, *s], size, [*s, *y]),
            "cond_consts": cond_consts,
            "body_consts": body_consts,
        }
        return bind(prim, [*vt, *vb, *init], params), [*s, *[False] * lead, *y]

    prim = Primitive(name, "control", typ, doc, jvp=jvp_rule, batch=batch_rule, numpy=numpy, split=split_rule, prune=tidy)
    return register(prim)


def tidy(eqn: Eqn, used: Flags) -> Eqn:
    """The loop without carries and ys nobody reads; a while_tape that keeps nothing is a while_loop."""
    cond, body = eqn.params["cond"], eqn.params["body"]
    cond_consts, body_consts = eqn.params["cond_consts"], eqn.params["body_consts"]
    n = _carried(eqn.params)
    taped = eqn.prim is while_tape
    used_carry, used_turns, used_ys = cut(used, n, int(taped))
    test = dce(cond)
    test_reads = read_by(test)
    tested = [v in test_reads for v in cond.inputs[cond_consts:]]

    def needed(s: list[bool]) -> list[bool]:
        read = read_by(dce(body, [*s, *used_ys]))
        return [v in read for v in body.inputs[body_consts:]]

    s = fixpoint([u or t for u, t in zip(used_carry, tested, strict=True)], needed)
    small = dce(body, [*s, *used_ys])
    read = read_by(small)
    t = [v in test_reads for v in cond.inputs[:cond_consts]]
    b = [v in read for v in body.inputs[:body_consts]]
    taped = taped and (any(used_turns) or any(used_ys))
    prim = while_tape if taped else while_loop
    if prim is eqn.prim and all([*s, *used_ys, *t, *b]) and small is body and test is cond:
        return eqn
    params = {
        "cond": Program(chosen(cond.inputs, [*t, *s]), test.eqns, test.outputs, (), cond.name),
        "body": Program(chosen(body.inputs, [*b, *s]), small.eqns, small.outputs, (), body.name),
        "cond_consts": sum(t),
        "body_consts": sum(b),
    }
    kept = [*s, *[taped] * len(used_turns), *used_ys]
    return Eqn(prim, chosen(eqn.inputs, [*t, *b, *s]), params, chosen(eqn.outputs, kept), eqn.source)


def _batch_uneven(
    size: int, values: tuple[list, list, list], batched: tuple[Flags, Flags], cond: Program, body: Program, taped: bool
) -> tuple[list, list[bool]]:
    """The batch entries stop at different turns: the carry also has which are active, and for a tape how many turns each took."""
    (vt, vb, init), (t, b) = values, batched
    n = len(init)
    test = batched_as(cond, [*t, *[True] * n], size, [True])
    kept = [o.aval.dtype != TAPE for o in body.outputs]  # a tape that is the same for all entries may stay so
    y = either(vmap(body, [*b, *[True] * n], size)[1], kept)[n:]
    wide = batched_as(body, [*b, *[True] * n], size, [*[True] * n, *y])
    careful = any(map(may_raise, body.eqns))

    def turn(*operands: Any) -> list[Any]:
        tested, fixed, (active, turns), state = cut(operands, len(vt), len(vb), 2)
        safe = safe_lanes(active, [*fixed, *state], [*b, *[True] * n]) if careful else [*fixed, *state]
        outs = inline(wide, safe)
        state = [select_lanes(active, new, old) for new, old in zip(outs, state, strict=False)]
        ys = [o if o.dtype == TAPE else select_lanes(active, o, zeros(aval_of(o))) for o in outs[n:]]
        still = and_(active, inline(test, [*tested, *state])[0])
        return [still, add(turns, convert(active, dtype=_INT64)), *state, *ys]

    active = inline(test, [*vt, *init])[0]
    turns = zeros(Aval((size,), _INT64))
    state_avals = [aval_of(active), Aval((size,), _INT64), *[aval_of(v) for v in init]]
    avals = [aval_of(v) for v in [*vt, *vb]] + state_avals
    params = {
        "cond": build(state_avals, lambda active, *rest: [any_(active, axes=(0,))], cond.name),
        "body": build(avals, turn, body.name),
        "cond_consts": 0,
        "body_consts": len(vt) + len(vb),
    }
    outs = bind(while_tape if taped else while_loop, [*vt, *vb, active, turns, *init], params)
    _, lane_turns, state, _, ys = cut(outs, 1, 1, n, int(taped))
    return [*state, *(lane_turns if taped else []), *ys], [True] * (n + int(taped)) + y


# ---- declarations ----------------------------------------------------------------------------------------------------

while_loop = _loop(
    "while_loop",
    _while_typ,
    _while_numpy,
    Doc("the body applied to the carry while the test holds", "the body's transpose from a tape, backwards", REFERENCE),
    taped=False,
)

while_tape = _loop(
    "while_tape",
    _while_tape_typ,
    _while_tape_numpy,
    Doc("while_loop, the number of turns, and what the body returns in each as tapes", "that of while_loop", REFERENCE),
    taped=True,
)
