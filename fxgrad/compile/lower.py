"""From a program to an Executable: steps, the memory they use, tables for the executor, and the Python around them.

Kernels that follow one another are one table, run by one native call (`runtime/executor.py`). Between two tables stand library
calls, in Python. A program without library calls is a single native call between the allocation of its results and their return.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fxgrad import errors
from fxgrad.compile.analysis import Analysis
from fxgrad.compile.cache import Recent, kernel_addresses
from fxgrad.compile.control import Control, control_steps
from fxgrad.compile.convolutions import conv_launches
from fxgrad.compile.cost import library_flops
from fxgrad.compile.fuse import Task, partition
from fxgrad.compile.indexed import index_steps, scatter_steps
from fxgrad.compile.inline import flatten
from fxgrad.compile.kernelize import Launch, copy_launch, launches
from fxgrad.compile.layout import Layout, contiguous
from fxgrad.compile.pipelines import pipelines
from fxgrad.compile.plan import Memory, plan_memory
from fxgrad.compile.products import product_launches
from fxgrad.compile.schedule import finished_early
from fxgrad.compile.source import Source
from fxgrad.compile.store import lock
from fxgrad.config import config
from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import TAPE, Atom, Aval, Lit, Var
from fxgrad.primitives.base import kernel_dtypes
from fxgrad.runtime.caches import on_clear
from fxgrad.runtime.collector import paused

__all__ = ["Executable", "MemoryAnalysis", "Plan", "Result", "Step", "compile_program", "kernel_step", "lowered"]


class Step:
    """One thing an Executable does, and what is known of it.

    kind: "kernel" (a pipeline of launches), "copy", "fill" and "iota" (of whole values), "host" (a library call), "control" (a
    loop or a branch; `control` has its bodies).
    rows, block, lead: of a pipeline of several launches, as `Table.pipeline` takes them; `all_rows` is the number of its rows.
    room: memory for what passes from launch to launch, a block at a time, once it is known.
    why: why what it writes goes to memory, that is, why fusion stopped.
    """

    def __init__(self, kind: str, title: str, why: Sequence[str], reads: Sequence[Var], writes: Sequence[Var]):
        self.kind, self.title = kind, title
        self.why = list(dict.fromkeys(why))
        self.reads, self.writes = list(reads), list(dict.fromkeys(writes))
        self.launches: list[Launch] = []
        self.rows, self.block, self.lead, self.all_rows = (0, 0, 0), 0, 0, 0
        self.room: Var | None = None
        self.control: Control | None = None
        self.scratch: list[Var] = []  # work space for itself alone
        self.in_place: list[tuple[Var, Var]] = []  # (read, written) that had better lie in one place: then nothing is copied
        self.eqn: Eqn | None = None
        self.checked: list[int] = []  # of a kernel with indices: the axis to which each leads
        self.value: Any = None  # of a fill; None: there are no elements
        self.offset = 0  # of a copy: bytes into what it reads
        self.equations: list[int] = []  # what it computes: places in the flat program
        self.bytes_read = sum([v.aval.nbytes for v in dict.fromkeys(reads)])
        self.bytes_written = sum([v.aval.nbytes for v in writes])
        self.flops = 0

    @property
    def launch(self) -> Launch | None:
        """The kernel run, or the first of a pipeline."""
        return self.launches[0] if self.launches else None

    @property
    def all_kernels(self) -> list[Any]:
        """The kernels run, those of the steps inside as well."""
        out = [launch.kernel for launch in self.launches]
        if self.control is not None:
            out += [self.control.kernel] if self.control.kernel is not None else []
            out += [kernel for _, body in self.control.bodies for s in body.steps for kernel in s.all_kernels]
        return out

    def __repr__(self) -> str:
        lines = [f"{self.kind}: {self.title}  ({self.bytes_read} B in, {self.bytes_written} B out; {'; '.join(self.why)})"]
        for name, body in [] if self.control is None else self.control.bodies:
            lines.append(f"  {name}:")
            lines += [f"    {line}" for s in body.steps for line in repr(s).splitlines()]
        return "\n".join(lines)


class Result(NamedTuple):
    """How an output of the program is obtained: from a value a kernel writes, from one a library call made, or as a literal."""

    kind: str  # native, host, literal
    aval: Aval
    atom: Atom


class MemoryAnalysis(NamedTuple):
    """Bytes a call of a compiled function uses.

    argument_bytes, output_bytes: of its arguments and results; temp_bytes: of the arena; host_bytes: of what library calls
    return, at most at one time; alias_bytes: of results that take the memory of donated arguments; peak_bytes: all together.
    """

    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    host_bytes: int
    alias_bytes: int
    peak_bytes: int


class Plan:
    """What a compiled program will do: `steps`, and why it is not one kernel, of the equations of the program `flat`.

    `text` shows the kernels; `plan_text()` where values lie.
    """

    def __init__(self, a: Analysis, steps: list[Step], results: list[Result], memory: Memory):
        self.a, self.flat, self.steps, self.results = a, a.program, steps, results
        self.source = Source(a, steps, results, memory)
        self.memory = self.source.memory

    def __reduce__(self) -> Any:
        fix = "Pickle the jitted function: where it arrives it finds its kernels in the cache on disk."
        raise errors.not_picklable("a compiled program", fix)

    @property
    def text(self) -> str:
        """The kernels in the order of their first launch."""
        kernels = {kernel.text: None for s in self.steps for kernel in s.all_kernels}
        return "\n\n".join(kernels)

    def as_text(self) -> str:
        """The kernels as readable text, and the steps in order, with the reason why each is not fused with the next.

        Example:
            >>> import numpy as np, fxgrad as fx
            >>> compiled = fx.jit(lambda x: 2.0 * x + 1.0).lower(np.ones(3)).compile()
            >>> print(compiled.as_text())
            kernel map(a: f64 unit, s0: f64 literal, s1: f64 literal) -> (f64 unit) {
              t0: f64 = mul s0 a
              t1: f64 = add t0 s1
              return t1
            }
            <BLANKLINE>
            kernel: mul add  (24 B in, 24 B out; output of the program)
        """
        return f"{self.text}\n\n{self!r}"

    def plan_text(self) -> str:
        """The steps with what each reads and writes, and where every value lies.

        Example:
            >>> import numpy as np, fxgrad as fx
            >>> compiled = fx.jit(lambda x: 2.0 * x + 1.0).lower(np.ones(3)).compile()
            >>> print(compiled.plan_text())
            program(a0: f64[3]) {
              kernel mul add: a0 -> y0
              no work space
            }
        """
        return self.source.plan_text()

    def cost_analysis(self) -> dict[str, int]:
        """Estimated floating-point operations ("flops") and bytes moved to and from memory ("bytes accessed") of a call.

        Example:
            >>> import numpy as np, fxgrad as fx
            >>> compiled = fx.jit(lambda x: 2.0 * x + 1.0).lower(np.ones(1000)).compile()
            >>> compiled.cost_analysis()
            {'flops': 2000, 'bytes accessed': 16000}
        """
        return {"flops": self.flops, "bytes accessed": self.bytes_read + self.bytes_written}

    def memory_analysis(self) -> MemoryAnalysis:
        """How much memory a call uses, by kind.

        Example:
            >>> import numpy as np, fxgrad as fx
            >>> compiled = fx.jit(lambda x: 2.0 * x + 1.0).lower(np.ones(1000)).compile()
            >>> compiled.memory_analysis()
            MemoryAnalysis(argument_bytes=8000, output_bytes=8000, temp_bytes=0, host_bytes=0, alias_bytes=0, peak_bytes=16000)
        """
        inputs = self.flat.inputs
        arguments = sum(v.aval.nbytes for v in inputs)
        outputs = sum(r.aval.nbytes for r in self.results)
        alias = sum(inputs[i].aval.nbytes for i in self.memory.donated.values())
        temp, host = self.memory.arena, self._host_bytes()
        return MemoryAnalysis(arguments, outputs, temp, host, alias, arguments + outputs + temp + host - alias)

    def _host_bytes(self) -> int:
        """The most that results of library calls, those that are not results of the program, take at one time."""
        kept = {r.atom for r in self.results}
        alive = most = 0
        dead = self.source.last_uses()
        for step, names in zip(self.steps, dead, strict=True):
            if step.kind == "host":
                alive += sum(v.aval.nbytes for v in step.writes if v not in kept)
            most = max(most, alive)
            alive -= sum(v.aval.nbytes for v in names)
        return most

    @property
    def bytes_read(self) -> int:
        return sum(s.bytes_read for s in self.steps)

    @property
    def bytes_written(self) -> int:
        return sum(s.bytes_written for s in self.steps)

    @property
    def flops(self) -> int:
        return sum(s.flops for s in self.steps)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.steps))


class Executable(Plan):
    """A compiled program: `executable(*arrays) -> list of arrays`, the arrays in the order of the program's inputs."""

    def __init__(self, plan: Plan):
        self.__dict__ |= plan.__dict__
        kernels = [kernel for s in self.steps for kernel in s.all_kernels]
        addresses = kernel_addresses(kernels) if kernels else []
        self.source.addresses = dict(zip([k.digest for k in kernels], addresses, strict=True))
        self.run: Callable[..., list] = self.source.function()

    def __call__(self, *arrays: Any) -> list:
        return self.run(*arrays)

    def measure_steps(self, arrays: Sequence[Any], repeat: int = 5) -> list[float]:
        """Seconds each step takes, parallel to `steps`: the least of `repeat` runs, in each of which steps run one by one.

        Example:
            >>> import numpy as np, fxgrad as fx
            >>> compiled = fx.jit(np.sin).lower(np.ones(3)).compile()
            >>> len(compiled.measure_steps([np.ones(3)]))
            1
        """
        times = [float("inf")] * len(self.steps)
        run = self.source.function(timed=lambda i, seconds: times.__setitem__(i, min(times[i], seconds)), clock=time.perf_counter)
        for _ in range(repeat):
            run(*arrays)
        return times


_executables = Recent(1024)


def compile_program(program: Program, donated: tuple[int, ...] = (), budget: int | None = None) -> Executable:
    """The program compiled, once for each structure (and lines errors name). `donated`: numbers of inputs it may overwrite.

    `budget`: bytes that all it has in memory may take at one time, arguments and results among them.
    """
    kind = ("executable", config.fusion, config.matmul, donated, budget)
    found = program.memo.get(kind)
    if found is None:
        key = (program.without_consts().key, program.places, kind)
        importlib.import_module(
            "fxgrad.runtime.launch"
        )  # takes the lock too: never import it for the first time while holding it
        with lock:
            found = _executables.get(key)
            if found is None:
                with paused():
                    found = _executables[key] = _compile(program, config.fusion, donated, budget=budget)
        program.memo[kind] = found
    return found


@on_clear
def forget_executables() -> None:
    """Drop compiled programs (those in use stay valid)."""
    _executables.clear()


def _compile(
    program: Program, fusion: bool, donated: Sequence[int] = (), reuse: bool = True, budget: int | None = None
) -> Executable:
    from fxgrad.compile.budget import fitted

    def planner(flat: Program) -> Plan:
        return _planned(flat, fusion, donated, reuse)

    return Executable(fitted(flatten(program), budget, planner, fusion and reuse, tuple(donated)))


def _planned(flat: Program, fusion: bool, donated: Sequence[int], reuse: bool) -> Plan:
    a, steps, results = lowered(flat, fusion, donated)
    native = {r.atom: i for i, r in enumerate(results) if r.kind == "native" and type(r.atom) is Var}
    kept = {v for r in results if r.kind == "host" and isinstance(v := a.root(r.atom), Var)}
    return Plan(a, steps, results, plan_memory(steps, a.program.inputs, native, kept, donated, reuse))


def lowered(
    flat: Program, fusion: bool, donated: Sequence[int] = (), inside: bool = False
) -> tuple[Analysis, list[Step], list[Result]]:
    """The steps of a flat program, and where its results come from.

    `donated` are numbers of inputs whose memory it may use. `inside` a loop or a branch every result is written to memory,
    literals too.
    """
    a, tasks = partition(flat, fusion, donated)
    steps: list[Step] = []
    pieces: set[Var] = set()
    foreign: set[Var] = set()  # what library calls answered, which may be views of what they were given
    for task in tasks:
        for u in task.updates:
            if u.base in foreign:
                u.over = u.aside = False
        made = _steps(a, task)
        equations = sorted([a.producer[e.outputs[0]] for e in task.all_eqns if e.outputs])
        for step in made:
            step.equations = equations
            if step.kind == "host":
                foreign.update(step.writes)
        steps += made
        pieces |= _in_pieces(task, made)
    if fusion:
        steps = pipelines(steps)
    results = _results(a, steps, inside)
    if fusion and not inside:
        native = {r.atom for r in results if r.kind == "native" and type(r.atom) is Var}
        steps = finished_early(steps, native, flat.inputs, {flat.inputs[i] for i in donated}, pieces)
    return a, steps, results


def _in_pieces(task: Task, made: Sequence[Step]) -> set[Var]:
    """The results of a task, if one of its steps completes what another has begun (and is said to read it)."""
    begun: set[Var] = set()
    for step in made:
        if not begun.isdisjoint(step.reads):
            return set(task.stored)
        begun.update(v for v in step.writes if v in task.stored)
    return set()


# ---- steps ---------------------------------------------------------------------------------------------------------------


def _steps(a: Analysis, task: Task) -> list[Step]:
    if task.kind in ("host", "control", "indexed", "iota"):
        (eqn,) = task.eqns
        made = _LOWERINGS[task.kind](a, eqn, task.why) if task.kind in _LOWERINGS else None
        if made is not None:
            return made
        reads = [v for v in (a.root(x) for x in eqn.inputs) if type(v) is Var]
        step = Step("host", eqn.prim.name, task.why, reads, eqn.outputs)
        step.eqn = eqn
        step.flops = library_flops(eqn)
        return [step]
    empty = task.reduce is not None and task.reduce.inputs[0].aval.size == 0
    if empty or all(v.aval.size == 0 for v in task.stored):
        return [_identity(task, v) for v in task.stored]
    if task.kind == "scatter":
        return scatter_steps(a, task)
    steps = []
    made_by = _PRODUCTS[task.eqns[0].prim.name] if task.kind == "dot" else launches
    for launch in made_by(a, task):
        way = _why_before(task, launch)
        why = [way] if way and (task.updates or launch.writes != task.stored) else task.why
        steps.append(kernel_step(launch, launch.kernel.title, why))
    return steps


def _ramp_step(a: Analysis, eqn: Eqn, why: Sequence[str]) -> list[Step]:
    kind = "iota" if eqn.outputs[0].aval.size else "fill"
    return [Step(kind, "0, 1, 2, ...", why, [], eqn.outputs)]


_PRODUCTS = {"dot": product_launches, "conv": conv_launches}
_LOWERINGS = {"control": control_steps, "indexed": index_steps, "iota": _ramp_step}


def _why_before(task: Task, launch: Launch) -> str:
    """Why a task begins with a kernel that only brings an operand in order."""
    if task.kind != "dot":
        return launch.why
    if launch.kernel.title == "pack":
        return "packed once, for all rows and threads"
    return launch.why or "a product cannot walk this operand's axes"


def kernel_step(launch: Launch, title: str, why: Sequence[str]) -> Step:
    """A step that runs one kernel."""
    step = Step("kernel", title, why, [*launch.reads, *(v for _, v in launch.over)], launch.writes)
    step.launches = [launch._replace(plan=launch.kernel.bind(launch.plan))]
    step.bytes_read, step.bytes_written, step.flops = launch.bytes_read, launch.bytes_written, launch.flops
    return step


def _identity(task: Task, v: Var) -> Step:
    """What a reduction of no elements gives; nothing at all when there is none to write either."""
    step = Step("fill", "no elements", task.why, [], [v])
    if task.reduce is not None and v.aval.size:
        assert task.reduce.prim.identity is not None
        step.value = task.reduce.prim.identity(v.aval.dtype)
    return step


def _results(a: Analysis, steps: list[Step], inside: bool) -> list[Result]:
    """Where each output comes from; adds the steps that copy views, arguments, and values that are returned twice."""
    made = {v: s.kind for s in steps for v in s.writes}
    taken: set[Var] = set()
    out = []
    for o in a.program.outputs:
        root, layout = a.access(o)
        if not isinstance(root, Var):
            out.append(_literal(steps, root, o.aval, inside))
            continue
        whole = _is_run(layout, o.aval) and o.aval.nbytes == root.aval.nbytes and root not in taken
        if o.aval.dtype == TAPE:  # a Python object, whose owners are counted: no bytes to copy
            out.append(Result("host", o.aval, o))
        elif whole and made.get(root) == "host" and o.aval.shape == root.aval.shape:
            out.append(Result("host", o.aval, root))
        elif whole and made.get(root, "host") != "host":
            out.append(Result("native", o.aval, root))
        elif o.aval.size == 0 or _is_run(layout, o.aval) or kernel_dtypes([o.aval]):
            out.append(Result("native", o.aval, _copied(steps, root, layout, o.aval)))
        else:
            out.append(Result("host", o.aval, o))
        taken.add(root)
    return out


def _is_run(layout: Layout, aval: Aval) -> bool:
    """Whether a view is one run of bytes."""
    return layout.strides == contiguous(aval.shape, aval.dtype.itemsize).strides


def _copied(steps: list[Step], root: Var, layout: Layout, aval: Aval) -> Var:
    out = Var(aval)
    why = ["output of the program"]
    if aval.size == 0:
        steps.append(Step("fill", "no elements", why, [], [out]))
    elif _is_run(layout, aval):
        step = Step("copy", "copy", why, [root], [out])
        step.offset, step.bytes_read = layout.offset, aval.nbytes
        steps.append(step)
    else:
        steps.append(kernel_step(copy_launch(root, layout, out), "copy", why))
    return out


def _literal(steps: list[Step], value: Lit, aval: Aval, inside: bool) -> Result:
    if (not aval.shape and not inside) or aval.dtype.itemsize > 8:
        return Result("literal", aval, value)
    out = Var(aval)
    step = Step("fill", "fill", ["output of the program"], [], [out])
    step.value = value.value
    steps.append(step)
    return Result("native", aval, out)
