"""Loops and branches as steps of the native program, with the steps of their bodies inside.

A body is compiled like a program: tasks, launches, places. Its arguments and results are no arrays of their own: constants are
read where they lie outside, slices of stacked arrays in the arrays (an operand that moves with the loop's counter), carries in
the memory of the loop's results; its arena is part of a *scratch* that the step has in the arena around it. So bodies nest, and
nothing is copied from turn to turn but what the program copies.

A carry is *in place* if the body can write its next value over the last one: the kernel that does walks both in the same order,
or the old value is dead by then (`plan.py` decides). Otherwise it has two places in the scratch that take turns.

A body over few numbers is no table at all but one kernel, which keeps what it carries in registers (`unrolled.py`).

A body with a library call in it cannot run here: then the loop is in Python (`in_python`), over compiled bodies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fxgrad.compile.analysis import Analysis
from fxgrad.compile.chunks import in_chunks
from fxgrad.compile.inline import flatten
from fxgrad.compile.operands import Given, Operands
from fxgrad.compile.plan import ALIGNMENT, Memory, plan_memory
from fxgrad.compile.tables import Find, TableWriter, passing_operand
from fxgrad.compile.unrolled import unroll
from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import TAPE, Aval, Var
from fxgrad.kernels.turns import Group, TurnsKernel
from fxgrad.runtime.table import Move, Operand

if TYPE_CHECKING:
    from fxgrad.compile.lower import Step

__all__ = ["Body", "Control", "control_steps", "in_python"]

_BYTES = np.dtype(np.uint8)
_AT_ONCE = 100  # cheap operations: a body in single numbers that has no more is not compared with a table
_LAUNCH = 100  # operations that are done in the time the executor takes for a kernel
_PORTION = 1 << 22  # operations between two looks at the clock


# ---- bodies ----------------------------------------------------------------------------------------------------------------


class Body(NamedTuple):
    """A program inside a control equation: its steps, its results in order, and where its values lie."""

    program: Program
    steps: list[Step]
    results: list[Var]
    memory: Memory

    def find(self, given: Sequence[Operand | None], targets: Sequence[Operand], arena: Operand) -> Find:
        """Where the body's values lie, if its arguments are `given`, its results go to `targets`, and its arena begins there."""

        def found(v: Var) -> Operand:
            place = self.memory.places[v]
            if place.space == "block":
                return passing_operand(place)
            if place.space == "arena":
                return arena._replace(offset=arena.offset + place.offset)
            operand = given[place.number] if place.space == "argument" else targets[place.number]
            assert operand is not None
            return operand

        return found

    def total(self, figure: str) -> int:
        return sum(getattr(s, figure) for s in self.steps)

    @property
    def launches(self) -> list[Any]:
        return [x for s in self.steps for x in s.all_kernels]


def _body(flat: Program, fusion: bool, carries: Mapping[int, int] | None = None) -> Body | None:
    """A flat program compiled to stand in a table; None if it calls libraries.

    `carries` tells which result is the next value of which argument.
    """
    from fxgrad.compile.lower import lowered

    carries = carries or {}
    own = dict(carries)
    while True:
        a, steps, results = lowered(flat, fusion, [*own.values()], inside=True)
        if any(s.kind == "host" for s in steps) or any(r.kind != "native" for r in results):
            return None
        outs = [r.atom for r in results]
        memory = plan_memory(steps, a.program.inputs, {v: i for i, v in enumerate(outs)}, carries=own)  # type: ignore[misc]
        astray = {argument for result, argument in memory.donated.items() if own.get(result) != argument}
        if not astray:
            return Body(a.program, steps, outs, memory)  # type: ignore[arg-type]
        own = {result: argument for result, argument in own.items() if argument not in astray}  # updated for another carry


class _Scratch:
    """Bytes a control step needs for itself and its bodies."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, nbytes: int) -> int:
        offset = self.size
        self.size += -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        return offset

    def variable(self) -> Var:
        return Var(Aval((self.size,), _BYTES))


# ---- carries ---------------------------------------------------------------------------------------------------------------


class _Carry(NamedTuple):
    """A value a loop carries: its first value, where the last one goes; `buffers`: offset in the scratch of its two places."""

    first: Given
    last: Var
    fixed: bool  # the body never changes it
    buffers: int = -1

    @property
    def nbytes(self) -> int:
        return self.last.aval.nbytes

    @property
    def apart(self) -> int:
        """Bytes from one place to the other."""
        return -(-self.nbytes // ALIGNMENT) * ALIGNMENT


class _Carries:
    """The carries of a loop, as a table is written."""

    def __init__(self, carries: Sequence[_Carry], scratch: Operand, find: Find):
        self.carries, self.scratch, self.find = carries, scratch, find
        self.counter = scratch.offset

    def _place(self, c: _Carry, following: bool = False) -> Operand:
        """Where a carry's value lies during a turn, or where the next one goes."""
        if c.fixed:
            return c.first.operand(self.find)
        if c.buffers < 0:
            return self.find(c.last)
        move = Move(self.counter, -c.apart if following else c.apart, 1)
        return self.scratch._replace(offset=self.scratch.offset + c.buffers + c.apart * following, moves=(move,))

    def read(self) -> list[Operand]:
        return [self._place(c) for c in self.carries]

    def written(self) -> list[Operand]:
        """Targets for all but those that never change."""
        return [self._place(c, True) for c in self.carries if not c.fixed]

    def begin(self, w: TableWriter) -> None:
        for c in self.carries:
            start = self.find(c.last) if c.fixed or c.buffers < 0 else self._at(c, 0)
            w.copy(c.first.operand(self.find), start, c.nbytes)

    def end(self, w: TableWriter, turns: int | None) -> None:
        """Bring the last values home; `turns`: None if the counter alone knows."""
        for c in self.carries:
            if c.buffers >= 0:
                source = self._place(c) if turns is None else self._at(c, turns % 2)
                w.copy(source, self.find(c.last), c.nbytes)

    def _at(self, c: _Carry, which: int) -> Operand:
        return self.scratch._replace(offset=self.scratch.offset + c.buffers + which * c.apart)


def _carries(first: Sequence[Given], last: Sequence[Var], fixed: set[int], body: Body, scratch: _Scratch) -> list[_Carry]:
    """The carries, those that cannot be written in place with room for two values."""
    out = []
    moving = [k for k in range(len(first)) if k not in fixed]
    for k, (given, v) in enumerate(zip(first, last, strict=True)):
        c = _Carry(given, v, k in fixed)
        if not c.fixed and moving.index(k) not in body.memory.donated and v.aval.size:
            c = c._replace(buffers=scratch.take(2 * c.apart))
        out.append(c)
    return out


# ---- what a control step does ------------------------------------------------------------------------------------------------


class Control:
    """What a step of control does; subclasses write it into a table.

    `bodies`: names and bodies, as texts show them. `in_place`: (value read, value written) that had better lie in one place.
    `kernel`: what takes the place of bodies.
    """

    bodies: list[tuple[str, Body]]
    kernel: TurnsKernel | None = None
    in_place: list[tuple[Var, Var]]
    turns: int | None = 1  # None: unknown

    def __init__(self, scratch: _Scratch):
        self.scratch = scratch.variable()

    def write(self, w: TableWriter, find: Find) -> None:
        raise NotImplementedError

    def figure(self, name: str) -> int:
        """A figure of the bodies (flops, bytes), of all turns where their number is known, else of one."""
        return (1 if self.turns is None else self.turns) * sum(b.total(name) for _, b in self.bodies)


class Scan(Control):
    """A counted loop over slices of stacked arrays."""

    def __init__(
        self, body: Body, consts: Sequence[Given], carries: Sequence[_Carry], xs: Sequence[Given], ys: Sequence[Var],
        length: int, reverse: bool, arena: int, scratch: _Scratch,
    ):  # fmt: skip
        super().__init__(scratch)
        self.body, self.consts, self.carries, self.xs, self.ys = body, consts, carries, xs, ys
        self.turns: int = length
        self.reverse, self.arena = reverse, arena
        self.bodies = [("body", body)]
        self.in_place = [(c.first.root, c.last) for c in carries if c.buffers < 0 and not c.fixed and not c.first.offset]

    def write(self, w: TableWriter, find: Find) -> None:
        scratch = find(self.scratch)
        carries = _Carries(self.carries, scratch, find)
        carries.begin(w)
        if self.turns:
            self._write_turns(w, find, carries)
        carries.end(w, self.turns)

    def _write_turns(self, w: TableWriter, find: Find, carries: _Carries) -> None:
        scratch = carries.scratch
        counter = scratch.offset
        given = [*(c.operand(find) for c in self.consts), *carries.read()]
        given += [self._slice(x, counter, find) for x in self.xs]
        targets = carries.written()
        targets += [self._slice(Given(y, 0, y.aval.nbytes // self.turns), counter, find) for y in self.ys]
        arena = scratch._replace(offset=scratch.offset + self.arena)
        with w.table.loop(counter, self.turns):
            w.add_all(self.body.steps, self.body.find(given, targets, arena))

    def _slice(self, x: Given, counter: int, find: Find) -> Operand:
        if self.reverse:
            return x.operand(find, [Move(counter, -x.stride)], (self.turns - 1) * x.stride)
        return x.operand(find, [Move(counter, x.stride)])


class While(Control):
    """A loop while a condition holds."""

    turns = None

    def __init__(
        self, cond: Body, body: Body, consts: tuple[Sequence[Given], Sequence[Given]], carries: Sequence[_Carry],
        predicate: int, arena: int, scratch: _Scratch,
    ):  # fmt: skip
        super().__init__(scratch)
        self.cond, self.body, self.consts, self.carries = cond, body, consts, carries
        self.predicate, self.arena = predicate, arena
        self.bodies = [("while", cond), ("body", body)]
        self.in_place = [(c.first.root, c.last) for c in carries if c.buffers < 0 and not c.fixed and not c.first.offset]

    def write(self, w: TableWriter, find: Find) -> None:
        scratch = find(self.scratch)
        carries = _Carries(self.carries, scratch, find)
        carries.begin(w)
        arena = scratch._replace(offset=scratch.offset + self.arena)
        predicate = scratch._replace(offset=scratch.offset + self.predicate)
        to_cond, to_body = ([c.operand(find) for c in consts] for consts in self.consts)
        asked = self.cond.find([*to_cond, *carries.read()], [predicate], arena)
        done = self.body.find([*to_body, *carries.read()], carries.written(), arena)
        with w.table.loop_while(predicate, scratch.offset, lambda: w.add_all(self.cond.steps, asked)):
            w.add_all(self.body.steps, done)
        carries.end(w, None)


class Branch(Control):
    """One of several bodies."""

    def __init__(
        self, branches: Sequence[Body], index: Given, width: int, given: Sequence[Given], outs: Sequence[Var], scratch: _Scratch
    ):
        super().__init__(scratch)
        self.branches, self.index, self.width, self.given, self.outs = branches, index, width, given, outs
        self.bodies = [(f"branch {i}", b) for i, b in enumerate(branches)]
        self.in_place = []

    def write(self, w: TableWriter, find: Find) -> None:
        given, targets = [x.operand(find) for x in self.given], [find(v) for v in self.outs]
        arena = find(self.scratch)
        with w.table.branch(self.index.operand(find), len(self.branches), self.width) as arms:
            for arm in arms:
                w.add_all(self.branches[arm].steps, self.branches[arm].find(given, targets, arena))

    def figure(self, name: str) -> int:
        return max(b.total(name) for b in self.branches)


class Turns(Control):
    """A loop that is one kernel."""

    def __init__(
        self, kernel: TurnsKernel, consts: Sequence[Given], carries: Sequence[_Carry], xs: Sequence[Given], ys: Sequence[Var],
        length: int | None, reverse: bool, cost: int,
    ):  # fmt: skip
        scratch = _Scratch()
        self.predicate = scratch.take(24)  # the kernel's two words, and one for the loop around it
        super().__init__(scratch)
        self.kernel: TurnsKernel = kernel
        self.consts, self.carries, self.xs, self.ys = consts, carries, xs, ys
        self.turns, self.reverse, self.cost = length, reverse, cost
        self.bodies = []
        self.in_place = [(c.first.root, c.last) for c in carries if not c.fixed and not c.first.offset]

    def write(self, w: TableWriter, find: Find) -> None:
        for c in self.carries:
            w.copy(c.first.operand(find), find(c.last), c.nbytes)
        operands = [*(c.operand(find) for c in self.consts), *(c.first.operand(find) for c in self.carries if c.fixed)]
        operands += [find(c.last) for c in self.carries if not c.fixed]
        operands += [x.operand(find) for x in self.xs] + [find(y) for y in self.ys]
        portion = max(64, _PORTION // max(self.cost, 1))
        if self.turns is None:
            scratch = find(self.scratch)
            predicate = scratch._replace(offset=scratch.offset + self.predicate)
            plan = self.kernel.bind(np.array([portion, 0], np.int64))
            w.fill(predicate, True, Aval((), np.dtype(np.bool_)))
            with w.table.loop_while(predicate, scratch.offset + self.predicate + 16):
                w.run(self.kernel, plan, [*operands, predicate])
        elif self.turns:
            strides = [x.stride for x in self.xs] + [y.aval.nbytes // self.turns for y in self.ys]
            moves = [m for s in strides for m in (((self.turns - 1) * s, -s) if self.reverse else (0, s))]
            w.run(self.kernel, self.kernel.bind(np.array([self.turns, -portion, *moves], np.int64)), operands)

    def figure(self, name: str) -> int:
        turns = 1 if self.turns is None else self.turns
        if name == "flops":
            return turns * self.cost
        return sum(x.stride * turns for x in self.xs) if name == "bytes_read" else sum(y.aval.nbytes for y in self.ys)


# ---- from equations to steps -----------------------------------------------------------------------------------------------


def control_steps(a: Analysis, eqn: Eqn, why: Sequence[str]) -> list[Step] | None:
    """The step of a control equation, after those that bring its operands in order.

    None if a body calls a library, or if there are tapes, which are Python objects.
    """
    from fxgrad.compile.lower import Step

    lower = _LOWERINGS.get(eqn.prim.name)
    if lower is None or any(x.aval.dtype == TAPE for x in (*eqn.inputs, *eqn.outputs)):
        return None
    operands = Operands(a, "a loop reads it in order")
    control = lower(operands, eqn)
    if control is None:
        return None
    step = Step("control", _title(eqn), why, operands.roots, eqn.outputs)
    step.scratch = [control.scratch]
    step.control, step.in_place = control, control.in_place
    step.bytes_read, step.bytes_written, step.flops = (control.figure(x) for x in ("bytes_read", "bytes_written", "flops"))
    return [*operands.steps, step]


def _title(eqn: Eqn) -> str:
    if eqn.prim.name == "scan":
        return f"scan of {eqn.params['length']} turns" + (", last first" if eqn.params["reverse"] else "")
    return eqn.prim.name


class _Loop:
    """The body of a loop, without results for the carries it never changes (`fixed`)."""

    def __init__(self, program: Program, consts: int, carry: int):
        flat = flatten(program)
        self.consts, self.carry = consts, carry
        self.fixed = {k for k in range(carry) if flat.outputs[k] is flat.inputs[consts + k]}
        self.moving = [k for k in range(carry) if k not in self.fixed]
        outputs = [*(flat.outputs[k] for k in self.moving), *flat.outputs[carry:]]
        self.flat = Program(flat.inputs, flat.eqns, outputs, (), flat.name)

    def body(self, fusion: bool) -> Body | None:
        return _body(self.flat, fusion, {i: self.consts + k for i, k in enumerate(self.moving)})


def _small(operands: Operands, eqn: Eqn, loop: _Loop, cond: tuple[Program, int] | None = None) -> Turns | None:
    """The loop as one kernel, if its body is small; `cond`: the test, and how many constants it has before the body's."""
    if not operands.a.fusion:
        return None
    m, n, k = (0 if cond is None else cond[1]), loop.consts, loop.carry
    given = [m + n + i for i in loop.fixed]
    moving = [m + n + i for i in loop.moving]
    xs = [*range(m + n + k, len(eqn.inputs))]
    order = [*range(m + n), *given, *moving, *xs]  # of the operands: constants, carries, slices
    avals = [x.aval if i < m + n + k else x.aval.with_shape(x.aval.shape[1:]) for i, x in enumerate(eqn.inputs)]
    place = {i: at for at, i in enumerate(order)}
    takes = [place[i] for i in range(m, len(order))]
    programs: list[tuple[Program, list[int]]] = [(loop.flat, takes)]
    if cond is not None:
        programs.insert(0, (cond[0], [*range(m), *(place[i] for i in range(m + n, len(order)))]))
    roles = ["const"] * (m + n + len(given)) + ["carry"] * len(moving) + ["x"] * len(xs)
    found = unroll([avals[i] for i in order], programs, [role == "carry" for role in roles])
    if found is None:
        return None
    made, results = found
    if not made.ops:
        return None
    groups, start, used = [], 0, set(made.used)
    for role, i in zip(roles, order, strict=True):
        places = tuple(k for k in range(avals[i].size) if start + k in used)
        groups.append(Group(role, avals[i].dtype, places))
        start += avals[i].size
    ys = eqn.outputs[k:] if cond is None else []
    groups += [Group("y", v.aval.dtype, tuple(range(math.prod(v.aval.shape[1:])))) for v in ys]
    refs = [made.ref(r) for rs in reversed(results) for r in rs]
    kernel = TurnsKernel(groups, made.ops, refs, -1 if cond is None else made.ends[0])
    consts = [operands.take(x) for x in eqn.inputs[: m + n]]
    first = [operands.take(x) for x in eqn.inputs[m + n : m + n + k]]
    carries = [_Carry(c, v, i in loop.fixed) for i, (c, v) in enumerate(zip(first, eqn.outputs, strict=False))]
    slices = [operands.take(eqn.inputs[i], sliced=True) for i in xs]
    length = eqn.params["length"] if cond is None else None
    return Turns(kernel, consts, carries, slices, ys, length, cond is None and eqn.params["reverse"], made.cost)


def _scan(operands: Operands, eqn: Eqn) -> Control | None:
    p = eqn.params
    n, carry = p["consts"], p["carry"]
    loop = _Loop(p["body"], n, carry)
    small = _small(operands, eqn, loop)
    if small is not None and small.cost <= _AT_ONCE:
        return small
    body = loop.body(operands.a.fusion)
    if small is not None and (body is None or small.cost <= _LAUNCH * len(body.launches)):
        return small
    if body is None:
        return None
    fixed = loop.fixed
    consts = [operands.take(x) for x in eqn.inputs[:n]]
    first = [operands.take(x) for x in eqn.inputs[n : n + carry]]
    xs = [operands.take(x, sliced=True) for x in eqn.inputs[n + carry :]]
    scratch = _Scratch()
    scratch.take(8)  # the counter
    carries = _carries(first, eqn.outputs[:carry], fixed, body, scratch)
    arena = scratch.take(body.memory.arena)
    return Scan(body, consts, carries, xs, eqn.outputs[carry:], p["length"], p["reverse"], arena, scratch)


def _while(operands: Operands, eqn: Eqn) -> Control | None:
    p = eqn.params
    n, m = p["cond_consts"], p["body_consts"]
    loop, test = _Loop(p["body"], m, len(eqn.inputs) - n - m), flatten(p["cond"])
    small = _small(operands, eqn, loop, (test, n))
    if small is not None and small.cost <= _AT_ONCE:
        return small
    body, cond = loop.body(operands.a.fusion), _body(test, operands.a.fusion)
    if small is not None and (body is None or cond is None or small.cost <= _LAUNCH * len(body.launches + cond.launches)):
        return small
    if body is None or cond is None:
        return None
    fixed = loop.fixed
    to_cond, to_body = ([operands.take(x) for x in part] for part in (eqn.inputs[:n], eqn.inputs[n : n + m]))
    first = [operands.take(x) for x in eqn.inputs[n + m :]]
    scratch = _Scratch()
    scratch.take(8)  # the counter
    predicate = scratch.take(8)
    carries = _carries(first, eqn.outputs, fixed, body, scratch)
    arena = scratch.take(max(cond.memory.arena, body.memory.arena))
    return While(cond, body, (to_cond, to_body), carries, predicate, arena, scratch)


def _cond(operands: Operands, eqn: Eqn) -> Branch | None:
    branches = [_body(flatten(p), operands.a.fusion) for p in eqn.params["branches"]]
    if any(b is None for b in branches):
        return None
    index, *given = [operands.take(x) for x in eqn.inputs]
    scratch = _Scratch()
    scratch.take(max(b.memory.arena for b in branches if b is not None))
    width = eqn.inputs[0].aval.dtype.itemsize
    return Branch([b for b in branches if b is not None], index, width, given, eqn.outputs, scratch)


_LOWERINGS: dict[str, Callable[[Operands, Eqn], Control | None]] = {"scan": _scan, "while_loop": _while, "cond": _cond}


# ---- loops that Python runs --------------------------------------------------------------------------------------------------


def in_python(eqn: Eqn) -> Callable[..., list]:
    """A control equation as a function of arrays that runs compiled bodies: for bodies with library calls, and for tapes."""
    chunked = in_chunks(eqn, _run_compiled)
    if chunked is not None:
        return chunked
    assert eqn.prim.numpy is not None
    return partial(eqn.prim.numpy, **eqn.params, run=_run_compiled)


def _run_compiled(program: Program, args: Sequence[Any]) -> list[np.ndarray]:
    from fxgrad.compile.lower import compile_program

    return compile_program(program)(*[x if type(x) is np.ndarray else np.asarray(x) for x in args])
