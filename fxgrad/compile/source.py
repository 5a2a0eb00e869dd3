"""The Python around a compiled program's tables: it allocates results, enters the executor, calls libraries, returns.

Names in it: a0, a1, ... arguments; y0, y1, ... results that kernels write; v0, v1, ... what library calls made; w the work space
(the arena); n0, n1, ... the native programs; h0, h1, ... library functions; c0, ... constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from fxgrad import errors
from fxgrad.compile.analysis import Analysis
from fxgrad.compile.control import in_python
from fxgrad.compile.layout import Layout, contiguous
from fxgrad.compile.plan import ALIGNMENT, Memory
from fxgrad.compile.tables import CODES, TableWriter, passing_operand
from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Atom, Aval, Lit, Var, short_name
from fxgrad.primitives.index import beyond
from fxgrad.runtime import buffers, team
from fxgrad.runtime.eager import operation, own
from fxgrad.runtime.table import Operand, Table

if TYPE_CHECKING:
    from fxgrad.compile.lower import Result, Step

__all__ = ["Source"]

_PRIVATE_ARENA = 1 << 16  # bytes; smaller work space is kept by the program, larger comes from the pool
_BYTES = np.dtype(np.uint8)


class Source:
    """Writes functions that run a program; they share its work space."""

    def __init__(self, a: Analysis, steps: Sequence[Step], results: Sequence[Result], memory: Memory):
        self.a, self.steps, self.results, self.memory = a, steps, results, memory
        self.addresses: dict[str, int] = {}  # of the kernels, once there is machine code
        self.inputs = a.program.inputs
        self.arguments = [f"a{i}" for i in range(len(self.inputs))]
        self.host_values = {v: f"v{i}" for i, v in enumerate(v for s in steps if s.kind == "host" for v in s.writes)}
        self.native = {i: r for i, r in enumerate(results) if r.kind == "native"}
        self.checked: list[tuple[Eqn, Sequence[int]]] = []  # what can stop a run: equations, the axes of their indices
        self.status = -1  # where in the work space a run finds the words that tell why
        if any(_can_fail(s) for s in steps):
            self.status = memory.arena
            self.memory = memory = memory._replace(arena=memory.arena + ALIGNMENT)
        self._arenas: list[np.ndarray] = []
        self._tables: dict[tuple[int, ...], Any] = {}

    @property
    def is_native(self) -> bool:
        """Whether a call is a single native call."""
        return all(s.kind != "host" for s in self.steps)

    def function(
        self,
        head: Sequence[str] = (),
        parameters: str | None = None,
        unfit: str | None = None,
        answer: Callable[[list[str]], str] = lambda outs: f"[{', '.join(outs)}]",
        scope: dict[str, Any] | None = None,
        timed: Callable[[int, float], None] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> Callable[..., Any]:
        """A function that runs the program.

        Args:
            parameters: its parameters; by default the program's inputs a0, a1, ...
            head: lines that make the inputs of the parameters.
            unfit: what to do about arguments that are not as expected; by default they are copied to be.
            answer: the expression to return, given those of the results.
            scope: what head, unfit and answer refer to.
            timed: if given, is called with the number and the seconds, by `clock`, of each step, which then run one by one.
        """
        writer = _Writer(self, unfit, timed, clock)
        body = writer.body(answer)
        writer.scope |= scope or {}
        lines = [
            f"def run({', '.join(self.arguments) if parameters is None else parameters}):",
            *(f"    {x}" for x in head),
            *body,
        ]
        exec(_code("\n".join(lines), f"<fxgrad {self.a.program.name}>"), writer.scope)
        return writer.scope["run"]

    # -- work space and results

    def new_arena(self) -> np.ndarray:
        """Work space that this program keeps; `_arenas` has what no call uses now."""
        memory = np.empty(self.memory.arena + buffers.ALIGNMENT, _BYTES)
        skip = -memory.ctypes.data % buffers.ALIGNMENT
        return memory[skip : skip + self.memory.arena]

    # -- tables

    def table(self, numbers: Sequence[int], slots: Sequence[str], check: bool) -> Callable[..., int | None]:
        """The native program of these steps, whose slots are these variables."""
        from fxgrad.runtime.launch import bind

        key = (*numbers, -1, int(check))
        if key not in self._tables:
            avals = [v.aval for v in self.inputs] if check else []
            status = self.status if any(_can_fail(self.steps[i]) for i in numbers) else -1
            table = Table(avals, len(slots), status)
            place = {name: i for i, name in enumerate(slots)}
            writer = TableWriter(table, self.addresses, self.checked)
            writer.add_all([self.steps[i] for i in numbers], lambda v: self._operand(v, place))
            self._tables[key] = bind(table.finish(team.settings.ctypes.data))
        return self._tables[key]

    def variable(self, v: Var) -> str:
        """The Python variable in whose memory a value lies."""
        if v in self.host_values:
            return self.host_values[v]
        place = self.memory.places[v]
        return "w" if place.space == "arena" else f"{place.space[0] if place.space == 'argument' else 'y'}{place.number}"

    def offset(self, v: Var) -> int:
        return 0 if v in self.host_values else self.memory.places[v].offset

    def passes(self, v: Var) -> bool:
        """Whether a value lies in no variable, since it only passes from kernel to kernel."""
        return v not in self.host_values and self.memory.places[v].space == "block"

    def _operand(self, v: Var, slots: dict[str, int]) -> Operand:
        if self.passes(v):
            return passing_operand(self.memory.places[v])
        return Operand(slots[self.variable(v)], self.offset(v))

    def resume(self, run: Callable[..., int | None], status: int | None, arrays: tuple[np.ndarray, ...]) -> None:
        """Go on with a run; an equation that stops it raises its error."""
        from fxgrad.runtime.launch import KernelStatus, resume

        try:
            resume(run, status, arrays)
        except KernelStatus as problem:
            number, k = divmod(problem.status - 1, CODES)
            eqn, axes = self.checked[number]
            index = int(arrays[-1][self.status + 8 : self.status + 16].view(np.int64)[0])
            raise _beyond(eqn, axes[k], index) from None

    def last_uses(self) -> list[list[Var]]:
        """For every step the library calls' results that nobody needs after it."""
        kept = {root for r in self.results if type(root := self.a.root(r.atom)) is Var}
        out: list[list[Var]] = []
        for step in reversed(self.steps):
            names = [v for v in dict.fromkeys([*step.reads, *step.writes]) if v in self.host_values and v not in kept]
            kept.update(names)
            out.append(names)
        return out[::-1]

    # -- text

    def plan_text(self) -> str:
        """See `Executable.plan_text`."""
        names: dict[Var, str] = {v: f"a{i}" for i, v in enumerate(self.inputs)}
        lines = ["program(" + ", ".join(f"a{i}: {v.aval}" for i, v in enumerate(self.inputs)) + ") {"]
        outs = {r.atom: i for i, r in self.native.items()}
        for step in self.steps:
            for v in step.writes:
                names[v] = f"y{outs[v]}" if v in outs else self.host_values.get(v) or f"t{len(names) - len(self.inputs)}"
            lines += [f"  {line}" for line in self._planned(step, names, self.memory)]
        space = f"  work space: {self.memory.arena} bytes" if self.memory.arena else "  no work space"
        return "\n".join([*lines, space, "}"])

    def _planned(self, step: Step, names: dict[Var, str], memory: Memory) -> list[str]:
        """What a step reads and writes, and where that lies; then the steps inside, whose places are their body's own."""
        read = ", ".join(self._where(v, names, memory) for v in dict.fromkeys(step.reads))
        written = ", ".join(self._where(v, names, memory) for v in step.writes)
        lines = [f"{step.kind} {step.title}: {read or 'nothing'} -> {written or 'what it reads'}"]
        for name, body in [] if step.control is None else step.control.bodies:
            inner = {v: f"a{i}" for i, v in enumerate(body.program.inputs)}
            for s in body.steps:
                for v in s.writes:
                    inner[v] = f"y{body.results.index(v)}" if v in body.results else f"t{len(inner) - len(body.program.inputs)}"
            lines.append(f"  {name} ({', '.join(f'a{i}: {v.aval}' for i, v in enumerate(body.program.inputs))})")
            lines += [f"    {line}" for s in body.steps for line in self._planned(s, inner, body.memory)]
        return lines

    def _where(self, v: Var, names: dict[Var, str], memory: Memory) -> str:
        place = memory.places.get(v)
        name = names.get(v, "?")
        if place is None:
            return f"{name} (library's)"
        if place.space == "block":
            return f"{name} [passes]"
        if place.space == "arena":
            return f"{name} [w+{place.offset}]"
        home = f"{'a' if place.space == 'argument' else 'y'}{place.number}"
        return name if home == name else f"{name} [{home}]"


class _Writer:
    """Writes the lines of one function."""

    def __init__(
        self, source: Source, unfit: str | None, timed: Callable[[int, float], None] | None, clock: Callable[[], float] | None
    ):
        self.s, self.unfit, self.timed = source, unfit, timed
        self.scope: dict[str, Any] = {
            "resume": source.resume, "prepare": _preparer([v.aval for v in source.inputs]), "own": own, "empty": np.empty,
            "arenas": source._arenas, "new_arena": source.new_arena,
            "full": np.full, "asarray": np.asarray, "ndarray": np.ndarray, "errstate": np.errstate, "keep": _keep,
            "clock": clock, "timed": timed,
        }  # fmt: skip
        self.lines: list[str] = []
        self.count = {"native": 0, "host": 0, "constant": 0}
        self.allocated: set[int] = set()

    def body(self, answer: Callable[[list[str]], str]) -> list[str]:
        """All lines, indented."""
        dead = self.s.last_uses()
        self._arena()
        for i, (kind, numbers) in enumerate(self._groups()):
            if kind == "host":
                self._timed(numbers[0], lambda step=self.s.steps[numbers[0]]: self._host(step))  # type: ignore[misc]
            elif self.timed is None or i == 0:
                self._native(numbers, check=i == 0)
            else:
                self._timed(numbers[0], lambda numbers=numbers: self._native(numbers, check=False))  # type: ignore[misc]
            gone = [self.s.host_values[v] for n in numbers for v in dead[n]]
            if gone:
                self.lines.append(f"{' = '.join(gone)} = None")
        outs = self._results()
        if self.s.memory.arena and self.s.memory.arena <= _PRIVATE_ARENA:
            self.lines.append("arenas.append(w)")
        lines = [*self.lines, f"return {answer(outs)}"]
        if self.count["host"]:
            return ['    with errstate(all="ignore"):', *(f"        {x}" for x in lines)]
        return [f"    {x}" for x in lines]

    def _groups(self) -> list[tuple[str, list[int]]]:
        """Runs of steps between library calls; the first, which may be empty, checks the arguments."""
        groups: list[tuple[str, list[int]]] = [("native", [])]
        for i, step in enumerate(self.s.steps):
            if step.kind == "host":
                groups.append(("host", [i]))
            elif self.timed is not None or groups[-1][0] == "host":
                groups.append(("native", [i]))
            else:
                groups[-1][1].append(i)
        return groups if self.s.inputs or groups[0][1] else groups[1:]

    def _timed(self, i: int, write: Callable[[], None]) -> None:
        if self.timed is None:
            write()
            return
        self.lines.append("start = clock()")
        write()
        self.lines.append(f"timed({i}, clock() - start)")

    def _arena(self) -> None:
        size = self.s.memory.arena
        if size > _PRIVATE_ARENA:
            self.lines.append(f"w = {self._constant(buffers.allocator((size,), _BYTES, passing=True))}()")
        elif size:
            self.lines += ["try:", "    w = arenas.pop()", "except IndexError:", "    w = new_arena()"]

    def _native(self, numbers: Sequence[int], check: bool) -> None:
        s = self.s
        values = [v for i in numbers for v in _touched(s.steps[i])]
        touched = [s.variable(v) for v in values if not s.passes(v)]
        slots = list(dict.fromkeys([*(s.arguments if check else ()), *(x for x in touched if x != "w")]))
        slots += ["w"] if "w" in touched or any(_can_fail(s.steps[i]) for i in numbers) else []
        self.lines += [line for x in slots if x[0] == "y" for line in self._allocation(int(x[1:]))]
        run = s.table(numbers, slots, check)
        n = self.count["native"]
        self.count["native"] += 1
        self.scope[f"n{n}"] = run
        call, given = f"n{n}({', '.join(slots)})", f"({', '.join(slots)},)" if slots else "()"
        self.lines += [f"s = {call}", "while s is not None:"]
        if check and s.arguments:
            names = ", ".join(s.arguments)
            self.lines += ["    if s == -1:", *(f"        {x}" for x in self._unfit(names, call)), "        continue"]
        self.lines.append(f"    s = resume(n{n}, s, {given})")

    def _unfit(self, names: str, call: str) -> list[str]:
        if self.unfit is not None:
            return [self.unfit]
        return [f"({names},) = prepare(({names},))", f"s = {call}"]

    def _allocation(self, i: int) -> list[str]:
        """Lines that make the array of a result, before the first table that writes it."""
        if i in self.allocated:
            return []
        self.allocated.add(i)
        aval = self.s.results[i].aval
        dtype = self._dtype(aval.dtype)
        if i in self.s.memory.donated:
            a = f"a{self.s.memory.donated[i]}"
            return [f"y{i} = ndarray({aval.shape}, {dtype}, {a})", f"{a}.flags.writeable = False"]
        if aval.nbytes >= buffers.POOLED:
            return [f"y{i} = {self._constant(buffers.allocator(aval.shape, aval.dtype))}()"]
        return [f"y{i} = empty({aval.shape}, {dtype})"]

    def _constant(self, value: Any) -> str:
        name = f"c{self.count['constant']}"
        self.count["constant"] += 1
        self.scope[name] = value
        return name

    def _dtype(self, dtype: np.dtype) -> str:
        name = short_name(dtype)
        self.scope[name] = dtype
        return name

    # -- library calls

    def _host(self, step: Step) -> None:
        eqn = step.eqn
        assert eqn is not None
        n = self.count["host"]
        self.count["host"] += 1
        self.scope[f"h{n}"] = _placed(_library_call(eqn), eqn.source)
        names = [self.s.host_values[v] for v in eqn.outputs]
        call = f"h{n}({', '.join(self._value(x) for x in eqn.inputs)})  # {eqn.prim.name}"
        self.lines.append(f"{names[0] if len(names) == 1 else '(' + ', '.join(names) + ',)'} = {call}")
        reads = dict.fromkeys(self.s.variable(v) for v in step.reads if v not in self.s.host_values)
        inside = [name for name in reads if name[0] in "wy"]  # memory that later steps may write
        for name, v in zip(names, eqn.outputs, strict=True):
            dtype = self._dtype(v.aval.dtype)
            self.lines.append(
                f"{name} = keep({name}, {dtype}, {', '.join(inside)})" if inside else f"{name} = asarray({name}, {dtype}, 'C')"
            )

    def _value(self, x: Atom) -> str:
        """An expression for an operand of a library call."""
        root, layout = self.s.a.access(x)
        if isinstance(root, Lit):
            value = self._constant(root.value)
            return value if not layout.shape else f"full({layout.shape}, {value})"
        return self._view(root, layout, x.aval.dtype)

    def _view(self, root: Var, layout: Layout, dtype: np.dtype) -> str:
        aval, name, offset = root.aval, self.s.variable(root), self.s.offset(root)
        whole = layout == contiguous(aval.shape, aval.dtype.itemsize) and dtype == aval.dtype
        if name[0] in "av" and whole:
            return name
        if name[0] == "y" and whole and self.s.results[int(name[1:])].aval == aval:
            return name
        what = self._dtype(dtype)
        if 0 in layout.shape:
            return f"empty({layout.shape}, {what})"
        return f"ndarray({layout.shape}, {what}, {name}, {offset + layout.offset}, {layout.strides})"

    def _results(self) -> list[str]:
        """Expressions for the results: fresh arrays that alias nothing, scalars for rank 0."""
        out: list[str] = []
        for i, r in enumerate(self.s.results):
            if r.kind == "literal":
                value = self._value(r.atom)
                out.append(value if not r.aval.shape else f"full({r.aval.shape}, {value})")
            elif r.kind == "native":
                self.lines += self._allocation(i)
                out.append(f"y{i}" if r.aval.shape else f"y{i}[()]")
            else:
                out.append(self._value(r.atom))
        hosts = [i for i, r in enumerate(self.s.results) if r.kind == "host"]
        if hosts:
            names = [*self.s.arguments, *(f"y{i}" for i in self.s.native)]
            self.lines.append(f"taken = {{{', '.join(f'id({x})' for x in names)}}}" if names else "taken = set()")
            for i in hosts:
                self.lines.append(f"r{i} = own({out[i]}, taken, {self._constant(self.s.results[i].aval)})")
                out[i] = f"r{i}"
        return out


@lru_cache(maxsize=256)
def _code(text: str, name: str) -> CodeType:
    """Compiled; a program of other sizes is often the same text."""
    return compile(text, name, "exec")


def _touched(step: Step) -> list[Var]:
    """The values whose memory a step needs."""
    return [*step.reads, *step.writes, *step.scratch, *([] if step.room is None else [step.room])]


def _can_fail(step: Step) -> bool:
    """Whether a step, or one inside it, can stop a run."""
    return any(getattr(kernel, "checks", False) for kernel in step.all_kernels)


def _beyond(eqn: Eqn, axis: int, index: int) -> errors.FxError:
    """What is wrong with an index along this axis."""
    shape = eqn.inputs[0].aval.shape
    problem = beyond(index, shape[axis], axis, shape)
    return problem if eqn.source is None else problem.at(eqn.source)


def _library_call(eqn: Eqn) -> Callable[..., Any]:
    if eqn.prim.kind != "control":
        return operation(eqn.prim, [x.aval for x in eqn.inputs], eqn.params)
    run = in_python(eqn)
    return run if len(eqn.outputs) != 1 else lambda *arrays: run(*arrays)[0]


def _keep(x: Any, dtype: np.dtype, *memory: np.ndarray) -> np.ndarray:
    """What a library call answered, outside memory that will be used again."""
    x = np.asarray(x, dtype, "C")
    return x.copy() if any(np.may_share_memory(x, m) for m in memory) else x


def _preparer(avals: Sequence[Aval]) -> Callable[[Sequence[Any]], list[np.ndarray]]:
    """What makes arguments contiguous, aligned and native, by copies where need be."""

    def prepare(arrays: Sequence[Any]) -> list[np.ndarray]:
        out = []
        for x, aval in zip(arrays, avals, strict=True):
            x = np.asarray(x)
            if x.shape != aval.shape or x.dtype.newbyteorder("=") != aval.dtype:
                raise errors.FxTypeError(f"a program compiled for {aval} was given {x.dtype.name}{list(x.shape)}")
            x = np.asarray(x, aval.dtype, order="C")
            x = x if x.flags.aligned else x.copy()
            out.append(x if x.dtype is aval.dtype else x.view(aval.dtype))  # an equal dtype may be another object
        return out

    return prepare


def _placed(run: Callable[..., Any], source: Any) -> Callable[..., Any]:
    """`run`, whose errors name the line of the traced function instead of that of the call."""
    if source is None:
        return run

    def placed(*arrays: Any) -> Any:
        try:
            return run(*arrays)
        except errors.FxError as problem:
            raise problem.at(source) from None

    return placed
