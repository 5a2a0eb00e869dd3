"""Primitives that carry programs: jit call, checkpoint, custom derivatives; and the identities that steer transforms.

A call's transform is the transform of the program inside it, so that a compiled function stays compiled when differentiated.
Programs in equations are closed and have no consts: everything they capture is an explicit operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad import errors
from fxgrad.ir.program import Eqn, Program, dce
from fxgrad.ir.types import Atom, Aval, Var
from fxgrad.primitives.base import Doc, Linear, Primitive, batch_together, instantiate, is_float, register, type_error
from fxgrad.trace.mutation import copied
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import bind, inline
from fxgrad.transforms.jvp import jvp
from fxgrad.transforms.linearize import Split, split
from fxgrad.transforms.saving import Keeping, Saveable, opened, within_bytes
from fxgrad.transforms.transpose import transpose
from fxgrad.transforms.vmap import vmap


def _check_operands(name: str, program: Program, avals: Sequence[Aval]) -> None:
    if list(avals) != program.in_avals:
        raise type_error(name, avals, f"Its program takes {', '.join(map(str, program.in_avals))}.")


# ---- calls whose transform is the transform of their program -----------------------------------------------------------


def _call_typ(*avals: Aval, program: Program, **params: Any) -> list[Aval]:
    _check_operands("call", program, avals)
    return program.out_avals


def _prune_call(eqn: Eqn, used: list[bool]) -> Eqn:
    program = dce(eqn.params["program"], used)
    read = {a for e in program.eqns for a in e.inputs} | set(program.outputs)
    kept = [v in read for v in program.inputs]
    inputs = [v for v, k in zip(program.inputs, kept, strict=True) if k]
    pruned = Program(inputs, program.eqns, program.outputs, (), program.name)
    return Eqn(
        eqn.prim,
        [a for a, k in zip(eqn.inputs, kept, strict=True) if k],
        {**eqn.params, "program": pruned},
        [v for v, u in zip(eqn.outputs, used, strict=True) if u],
        eqn.source,
    )


def applied(prim: Primitive, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """A call on operands; a traced one that is a result is handed on, so that its cotangents arrive in the order of its uses.

    The result is a handle of its own: writes to it do not show in the operand.
    """
    program: Program = params["program"]
    outs = bind(prim, operands, params)
    handed = {v: x for v, x in zip(program.inputs, operands, strict=True) if type(x) is Tracer}
    return [copied(handed[o]) if type(o) is Var and o in handed else x for o, x in zip(program.outputs, outs, strict=True)]


def _call(name: str, doc: Doc, keeping_of: Callable[[dict[str, Any]], Keeping | None]) -> Primitive:
    def jvp_rule(primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, **params: Any) -> tuple[list, list]:
        forward, out_nonzero = jvp(program, [t is not None for t in tangents])
        outs = applied(prim, [*primals, *(t for t in tangents if t is not None)], {**params, "program": forward})
        n = len(program.outputs)
        moved = iter(outs[n:])
        return outs[:n], [next(moved) if nz else None for nz in out_nonzero]

    def split_rule(eqn: Eqn, unknown: list[bool]) -> tuple[list[Eqn], Eqn, list[Var]]:
        params = eqn.params
        policy = params.get("policy")
        program = opened(params["program"]) if policy and policy[0] == "budget" else params["program"]
        halves: Split = program.memoize(("split", tuple(unknown), policy), lambda: split(program, unknown, keeping_of(params)))
        known_inputs = [a for a, u in zip(eqn.inputs, unknown, strict=True) if not u]
        late_inputs = [a for a, u in zip(eqn.inputs, unknown, strict=True) if u]
        outputs = [v for v, late in zip(eqn.outputs, halves.unknown_out, strict=True) if not late]
        late_outputs = [v for v, late in zip(eqn.outputs, halves.unknown_out, strict=True) if late]
        outputs += [Var(o.aval) for o in halves.known.outputs[len(outputs) :]]
        residuals: list[Atom] = [known_inputs[i] if kind == "in" else outputs[i] for kind, i in halves.residuals]
        known = Eqn(prim, known_inputs, {**params, "program": halves.known}, outputs, eqn.source)
        late = {"late": True} if halves.replays else {}
        later = Eqn(prim, residuals + late_inputs, {**params, **late, "program": halves.later}, late_outputs, eqn.source)
        return [known] if outputs else [], later, late_outputs

    def transpose_onto(
        cts: Sequence[Any], inputs: Sequence[Any], before: Sequence[Any], *, program: Program, **params: Any
    ) -> list:
        """Contributions are added to what the inputs have received before, one by one: in the order of the function inlined."""
        linear = [isinstance(x, Linear) for x in inputs]
        nonzero = [g is not None for g in cts]
        reached = transpose(program, linear, nonzero)[1]
        earlier = [g for g, is_linear in zip(before, linear, strict=True) if is_linear]
        begun = [r and g is not None for r, g in zip(reached, earlier, strict=True)]
        backward, _ = transpose(program, linear, nonzero, begun)
        fixed = [x for x in inputs if not isinstance(x, Linear)]
        started = [g for g, b in zip(earlier, begun, strict=True) if b]
        found = iter(_list(prim(*fixed, *started, *(g for g in cts if g is not None), program=backward, **params)))
        totals = iter([next(found) if r else g for r, g in zip(reached, earlier, strict=True)])
        return [next(totals) if is_linear else None for is_linear in linear]

    def batch_rule(
        size: int, args: Sequence[Any], batched: Sequence[bool], *, program: Program, **params: Any
    ) -> tuple[list, list[bool]]:
        wide, out_batched = vmap(program, batched, size)
        return _list(prim(*args, program=wide, **params)), list(out_batched)

    prim = Primitive(
        name,
        "call",
        _call_typ,
        doc,
        jvp=jvp_rule,
        transpose_onto=transpose_onto,
        batch=batch_rule,
        split=split_rule,
        prune=_prune_call,
    )
    return register(prim)


def _list(outs: Any) -> list:
    return list(outs) if isinstance(outs, (list, tuple)) else [outs]


jit_call = _call(
    "jit_call",
    Doc("a compiled function applied to its operands", "the compiled transpose", "linear"),
    keeping_of=lambda params: None,
)


def _keeping_of(params: dict[str, Any]) -> Keeping:
    """policy: ("nothing",), ("everything",), ("dots",), ("names", *names) or ("budget", bytes)."""
    kind, *rest = params["policy"]
    if kind == "budget":
        return within_bytes(rest[0])
    tests: dict[str, Saveable] = {
        "nothing": lambda eqn: False,
        "everything": lambda eqn: True,
        "dots": lambda eqn: eqn.prim.name in ("dot", "conv"),
        "names": lambda eqn: eqn.prim.name == "name" and eqn.params["name"] in rest,
    }
    return lambda eqns, needed: tests[kind]


checkpoint = _call(
    "checkpoint",
    Doc(
        "a function whose intermediate values are computed again on the way back",
        "replay, then the transpose",
        "Griewank, Walther (2000)",
    ),
    keeping_of=_keeping_of,
)

# ---- custom derivatives --------------------------------------------------------------------------------------------------


def _custom_typ(*avals: Aval, program: Program, **params: Any) -> list[Aval]:
    _check_operands("custom derivative call", program, avals)
    return program.out_avals


def _refuse_captured(tangents: Sequence[Any], captured: int, kind: str) -> None:
    if any(t is not None for t in tangents[:captured]):
        raise errors.NonDifferentiableError(
            f"{kind} closes over a differentiated value; pass it as an argument",
            why="Its rule has derivatives for the arguments only, so the gradient to the captured value would be lost.",
            fix="Add a parameter to the function and to its rule, and pass the value there.",
        )


def _too_deep(kind: str) -> errors.NonDifferentiableError:
    return errors.NonDifferentiableError(
        f"the rule of a {kind} function calls the function itself, and is differentiated too often",
        why="Such a rule is followed only a few levels deep when it is traced.",
        fix="Let the rule call the undecorated function, or a formula of its own.",
    )


def _custom_jvp_rule(
    primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, rule: Program | None, captured: int
) -> tuple[list, list]:
    _refuse_captured(tangents, captured, "custom_jvp")
    if rule is None:
        raise _too_deep("custom_jvp")
    outs = inline(rule, [*primals, *_float_tangents(tangents, program, captured)])
    n = len(program.outputs)
    moved = iter(outs[n:])
    return outs[:n], [next(moved) if is_float(o.aval.dtype) else None for o in program.outputs]


def _float_tangents(tangents: Sequence[Any], program: Program, captured: int) -> list[Any]:
    """The tangents of the differentiable arguments, zeros filled in: what custom rules work on."""
    pairs = zip(tangents[captured:], program.in_avals[captured:], strict=True)
    return [instantiate(t, a) for t, a in pairs if is_float(a.dtype)]


def _custom_jvp_batch(
    size: int, args: Sequence[Any], batched: Sequence[bool], *, program: Program, rule: Program | None, captured: int
) -> tuple[list, list[bool]]:
    full = batch_together(size, args, batched)
    wide = _batched_everywhere(program, size)
    wide_rule = rule and _batched_everywhere(rule, size)
    return _list(custom_jvp_call(*full, program=wide, rule=wide_rule, captured=captured)), [True] * len(program.outputs)


def _batched_everywhere(program: Program, size: int) -> Program:
    """vmap with every input and output batched."""
    from fxgrad.primitives.shape import add_batch_axis
    from fxgrad.trace.tracing import build

    wide, out_batched = vmap(program, [True] * len(program.inputs), size)
    if all(out_batched):
        return wide

    def body(*values: Any) -> list[Any]:
        return [o if b else add_batch_axis(o, size) for o, b in zip(inline(wide, values), out_batched, strict=True)]

    return build(wide.in_avals, body, program.name)


custom_jvp_call = register(
    Primitive(
        "custom_jvp_call",
        "call",
        _custom_typ,
        Doc("a function with a derivative given by its user", "transpose of the given rule"),
        jvp=_custom_jvp_rule,
        batch=_custom_jvp_batch,
    )
)


def _custom_vjp_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, fwd: Program | None, bwd: Program | None, captured: int
) -> tuple[list, list]:
    """fwd: (*operands) -> (*outputs, *residuals); bwd: (*residuals, *cotangents) -> (*cotangents of the arguments)."""
    _refuse_captured(tangents, captured, "custom_vjp")
    if fwd is None or bwd is None:
        raise _too_deep("custom_vjp")
    outs = inline(fwd, primals)
    n = len(program.outputs)
    moved = iter(
        _list(custom_vjp_linear(*outs[n:], *_float_tangents(tangents, program, captured), bwd=bwd, residuals=len(outs) - n))
    )
    return outs[:n], [next(moved) if is_float(o.aval.dtype) else None for o in program.outputs]


def _custom_vjp_batch(
    size: int,
    args: Sequence[Any],
    batched: Sequence[bool],
    *,
    program: Program,
    fwd: Program | None,
    bwd: Program | None,
    captured: int,
) -> tuple[list, list[bool]]:
    full = batch_together(size, args, batched)
    wide, wide_fwd, wide_bwd = (p and _batched_everywhere(p, size) for p in (program, fwd, bwd))
    return _list(custom_vjp_call(*full, program=wide, fwd=wide_fwd, bwd=wide_bwd, captured=captured)), [True] * len(
        program.outputs
    )


custom_vjp_call = register(
    Primitive(
        "custom_vjp_call",
        "call",
        _custom_typ,
        Doc("a function with a pullback given by its user", "the given pullback"),
        jvp=_custom_vjp_jvp,
        batch=_custom_vjp_batch,
    )
)


def _linear_typ(*avals: Aval, bwd: Program, residuals: int) -> list[Aval]:
    return bwd.in_avals[residuals:]


def _linear_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, bwd: Program, residuals: int) -> tuple[list, list]:
    raise errors.NonDifferentiableError(
        "cannot differentiate a custom_vjp function forwards",
        why="Its user gave a pullback (reverse mode) and no pushforward.",
        fix="Use grad or vjp, or define the function with fx.custom_jvp, which serves both modes.",
    )


def _linear_transpose(cts: Sequence[Any], inputs: Sequence[Any], *, bwd: Program, residuals: int) -> list:
    avals = bwd.in_avals[residuals:]
    full = [instantiate(g, a) for g, a in zip(cts, avals, strict=True)]
    return [None] * residuals + inline(bwd, [*inputs[:residuals], *full])


def _linear_batch(
    size: int, args: Sequence[Any], batched: Sequence[bool], *, bwd: Program, residuals: int
) -> tuple[list, list[bool]]:
    wide = _batched_everywhere(bwd, size)
    outs = _list(custom_vjp_linear(*batch_together(size, args, batched), bwd=wide, residuals=residuals))
    return outs, [True] * len(outs)


def _linear_refuse(*args: Any, **params: Any) -> Any:
    return _linear_jvp((), (), **params)


custom_vjp_linear = register(
    Primitive(
        "custom_vjp_linear",
        "host",
        _linear_typ,
        Doc("the linear map known only by its transpose", "the pullback given to custom_vjp"),
        jvp=_linear_jvp,
        transpose=_linear_transpose,
        batch=_linear_batch,
        numpy=_linear_refuse,
    )
)

# ---- identities that steer transforms ------------------------------------------------------------------------------------


def _identity(name: str, doc: Doc, tangent: bool) -> Primitive:
    def jvp_rule(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list, list]:
        return [prim(primals[0], **params)], [tangents[0] if tangent else None]

    prim = Primitive(
        name,
        "view",
        lambda x, **params: [x],
        doc,
        jvp=jvp_rule,
        batch=lambda size, args, batched, **params: ([prim(args[0], **params)], [True]),
        transpose=lambda cts, inputs, **params: [cts[0]],
        numpy=lambda x, **params: x,
    )
    return register(prim)


stop_gradient = _identity("stop_gradient", Doc("x", "0"), tangent=False)
name = _identity("name", Doc("x, named for checkpoint policies", "g"), tangent=True)
