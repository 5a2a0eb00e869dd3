"""Loops and branches as steps of the native program, with the steps of their bodies inside.

A body is compiled like a program: tasks, launches, places. Its arguments and results are no arrays of their own: constants are
read where they lie outside, slices of stacked arrays in the arrays (an operand that moves with the loop's counter), carries in
the memory of the loop's results; its arena is part of a *scratch* that the step has in the arena around it. So bodies nest, and
nothing is copied from turn to turn but what the program copies.

A carry is *in place* if the body can write its next value over the last one: the kernel that does walks both in the same order,
or the old value is dead by then (`plan.py` decides). Otherwise it has two places in the scratch that take turns.

A body with a library call in it cannot run here: then the loop is in Python (`in_python`), over compiled bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fxgrad.compile.fuse import Analysis
from fxgrad.compile.inline import flatten
from fxgrad.compile.kernelize import copy_launch
from fxgrad.compile.layout import Layout, collapse
from fxgrad.compile.plan import ALIGNMENT, Memory, plan_memory
from fxgrad.compile.tables import Find, TableWriter
from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import Atom, Aval, Lit, Var
from fxgrad.runtime.table import Move, Operand

if TYPE_CHECKING:
    from fxgrad.compile.lower import Step

__all__ = ["Body", "Control", "control_steps", "in_python"]

_BYTES = np.dtype(np.uint8)


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
            if place.space == "arena":
                return arena._replace(offset=arena.offset + place.offset)
            operand = given[place.number] if place.space == "argument" else targets[place.number]
            assert operand is not None
            return operand

        return found

    def total(self, figure: str) -> int:
        return sum(getattr(s, figure) for s in self.steps)


def _body(flat: Program, fusion: bool, carries: Mapping[int, int] | None = None) -> Body | None:
    """A flat program compiled to stand in a table; None if it calls libraries.

    `carries` tells which result is the next value of which argument.
    """
    from fxgrad.compile.lower import lowered

    a, steps, results = lowered(flat, fusion, inside=True)
    if any(s.kind == "host" for s in steps) or any(r.kind != "native" for r in results):
        return None
    outs = [r.atom for r in results]
    memory = plan_memory(steps, a.program.inputs, {v: i for i, v in enumerate(outs)}, carries=carries)  # type: ignore[misc]
    return Body(a.program, steps, outs, memory)  # type: ignore[arg-type]


class _Given(NamedTuple):
    """An operand of a control equation: a stored value, the byte with which it begins there, and how far apart slices are."""

    root: Var
    offset: int
    stride: int

    def operand(self, find: Find, moves: Sequence[Move] = (), offset: int = 0) -> Operand:
        place = find(self.root)
        return place._replace(offset=place.offset + self.offset + offset, moves=(*place.moves, *moves))


class _Operands:
    """Brings the operands of an equation in order, by steps before its own, where they are not."""

    def __init__(self, a: Analysis):
        self.a = a
        self.steps: list[Step] = []
        self.roots: list[Var] = []  # once for each time an operand is taken

    def take(self, x: Atom, sliced: bool = False) -> _Given:
        """A value whose elements, or those of each slice along the first axis, lie side by side in order."""
        from fxgrad.compile.lower import Step, kernel_step

        root, layout = self.a.access(x)
        slices = Layout(layout.shape[sliced:], layout.strides[sliced:])
        if type(root) is Var and _in_order(slices, x.aval.dtype.itemsize):
            self.roots.append(root)
            return _Given(root, layout.offset, layout.strides[0] if sliced else 0)
        out = Var(x.aval)
        self.roots.append(out)
        why = ["a loop reads it in order"]
        if x.aval.size == 0:
            self.steps.append(Step("fill", "no elements", why, [], [out]))
        elif isinstance(root, Lit):
            self.steps.append(Step("fill", "fill", why, [], [out]))
            self.steps[-1].value = root.value
        else:
            self.steps.append(kernel_step(copy_launch(root, layout, out), "copy", why))
        return _Given(out, 0, x.aval.nbytes // x.aval.shape[0] if sliced and x.aval.size else 0)


def _in_order(layout: Layout, itemsize: int) -> bool:
    sizes, (strides,) = collapse(layout.shape, [layout.strides])
    return 0 in sizes or not sizes or (len(sizes) == 1 and strides[0] == itemsize)


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

    first: _Given
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


def _carries(first: Sequence[_Given], last: Sequence[Var], fixed: set[int], body: Body, scratch: _Scratch) -> list[_Carry]:
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
    """

    bodies: list[tuple[str, Body]]
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
        self, body: Body, consts: Sequence[_Given], carries: Sequence[_Carry], xs: Sequence[_Given], ys: Sequence[Var],
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
        targets += [self._slice(_Given(y, 0, y.aval.nbytes // self.turns), counter, find) for y in self.ys]
        arena = scratch._replace(offset=scratch.offset + self.arena)
        with w.table.loop(counter, self.turns):
            w.add_all(self.body.steps, self.body.find(given, targets, arena))

    def _slice(self, x: _Given, counter: int, find: Find) -> Operand:
        if self.reverse:
            return x.operand(find, [Move(counter, -x.stride)], (self.turns - 1) * x.stride)
        return x.operand(find, [Move(counter, x.stride)])


class While(Control):
    """A loop while a condition holds."""

    turns = None

    def __init__(
        self, cond: Body, body: Body, consts: tuple[Sequence[_Given], Sequence[_Given]], carries: Sequence[_Carry],
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
        self, branches: Sequence[Body], index: _Given, width: int, given: Sequence[_Given], outs: Sequence[Var], scratch: _Scratch
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


# ---- from equations to steps -----------------------------------------------------------------------------------------------


def control_steps(a: Analysis, eqn: Eqn, why: Sequence[str]) -> list[Step] | None:
    """The step of a control equation, after those that bring its operands in order; None if a body calls a library."""
    from fxgrad.compile.lower import Step

    operands = _Operands(a)
    control = _LOWERINGS[eqn.prim.name](operands, eqn)
    if control is None:
        return None
    step = Step("control", _title(eqn), why, operands.roots, [*eqn.outputs, control.scratch])
    step.control = control
    step.bytes_read, step.bytes_written, step.flops = (control.figure(x) for x in ("bytes_read", "bytes_written", "flops"))
    return [*operands.steps, step]


def _title(eqn: Eqn) -> str:
    if eqn.prim.name == "scan":
        return f"scan of {eqn.params['length']} turns" + (", last first" if eqn.params["reverse"] else "")
    return eqn.prim.name


def _loop_body(program: Program, consts: int, carry: int, fusion: bool) -> tuple[Body | None, set[int]]:
    """The body of a loop without the carries it never changes, and the numbers of these."""
    flat = flatten(program)
    fixed = {k for k in range(carry) if flat.outputs[k] is flat.inputs[consts + k]}
    moving = [k for k in range(carry) if k not in fixed]
    outputs = [*(flat.outputs[k] for k in moving), *flat.outputs[carry:]]
    body = _body(Program(flat.inputs, flat.eqns, outputs, (), flat.name), fusion, {i: consts + k for i, k in enumerate(moving)})
    return body, fixed


def _scan(operands: _Operands, eqn: Eqn) -> Scan | None:
    p = eqn.params
    n, carry = p["consts"], p["carry"]
    body, fixed = _loop_body(p["body"], n, carry, operands.a.fusion)
    if body is None:
        return None
    consts = [operands.take(x) for x in eqn.inputs[:n]]
    first = [operands.take(x) for x in eqn.inputs[n : n + carry]]
    xs = [operands.take(x, sliced=True) for x in eqn.inputs[n + carry :]]
    scratch = _Scratch()
    scratch.take(8)  # the counter
    carries = _carries(first, eqn.outputs[:carry], fixed, body, scratch)
    arena = scratch.take(body.memory.arena)
    return Scan(body, consts, carries, xs, eqn.outputs[carry:], p["length"], p["reverse"], arena, scratch)


def _while(operands: _Operands, eqn: Eqn) -> While | None:
    p = eqn.params
    n, m = p["cond_consts"], p["body_consts"]
    body, fixed = _loop_body(p["body"], m, len(eqn.inputs) - n - m, operands.a.fusion)
    cond = _body(flatten(p["cond"]), operands.a.fusion)
    if body is None or cond is None:
        return None
    to_cond, to_body = ([operands.take(x) for x in part] for part in (eqn.inputs[:n], eqn.inputs[n : n + m]))
    first = [operands.take(x) for x in eqn.inputs[n + m :]]
    scratch = _Scratch()
    scratch.take(8)  # the counter
    predicate = scratch.take(8)
    carries = _carries(first, eqn.outputs, fixed, body, scratch)
    arena = scratch.take(max(cond.memory.arena, body.memory.arena))
    return While(cond, body, (to_cond, to_body), carries, predicate, arena, scratch)


def _cond(operands: _Operands, eqn: Eqn) -> Branch | None:
    branches = [_body(flatten(p), operands.a.fusion) for p in eqn.params["branches"]]
    if any(b is None for b in branches):
        return None
    index, *given = [operands.take(x) for x in eqn.inputs]
    scratch = _Scratch()
    scratch.take(max(b.memory.arena for b in branches if b is not None))
    width = eqn.inputs[0].aval.dtype.itemsize
    return Branch([b for b in branches if b is not None], index, width, given, eqn.outputs, scratch)


_LOWERINGS: dict[str, Callable[[_Operands, Eqn], Control | None]] = {"scan": _scan, "while_loop": _while, "cond": _cond}


# ---- loops that Python runs --------------------------------------------------------------------------------------------------


def in_python(eqn: Eqn) -> Callable[..., list]:
    """A control equation as a function of arrays that runs compiled bodies: for bodies with library calls."""
    assert eqn.prim.numpy is not None
    return partial(eqn.prim.numpy, **eqn.params, run=_run_compiled)


def _run_compiled(program: Program, args: Sequence[Any]) -> list[np.ndarray]:
    from fxgrad.compile.lower import compile_program

    return compile_program(program)(*[x if type(x) is np.ndarray else np.asarray(x) for x in args])
