"""From a program to an Executable: straight-line Python that launches kernels and calls libraries.

The steps are independent of how they are run: the generated source is one way, a native executor can be another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.compile.cache import kernel_addresses
from fxgrad.compile.fuse import Analysis, Task, partition
from fxgrad.compile.inline import flatten
from fxgrad.compile.kernelize import Launch, launches
from fxgrad.compile.layout import Layout, contiguous
from fxgrad.compile.products import product_launches
from fxgrad.config import config
from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import Atom, Aval, Lit, Var, short_name
from fxgrad.runtime.eager import operation, own

__all__ = ["Executable", "Step", "compile_program"]


class Step:
    """One thing an Executable does, and what is known of it."""

    def __init__(self, kind: str, title: str, why: Sequence[str], reads: Sequence[Var], writes: Sequence[Var]):
        self.kind, self.title = kind, title  # kind: kernel, host, fill
        self.why = list(dict.fromkeys(why))  # why what it writes goes to memory: why fusion stopped
        self.reads, self.writes = list(reads), list(writes)
        self.launch: Launch | None = None
        self.eqn: Eqn | None = None
        self.bytes_read = sum(v.aval.nbytes for v in dict.fromkeys(reads))
        self.bytes_written = sum(v.aval.nbytes for v in writes)
        self.flops = 0

    def __repr__(self) -> str:
        return f"{self.kind}: {self.title}  ({self.bytes_read} B in, {self.bytes_written} B out; {'; '.join(self.why)})"


class Executable:
    """A compiled program: `executable(*arrays) -> list of arrays`, the arrays in the order of the program's inputs.

    `steps` tells what is done and why it is not one kernel; `text` shows the kernels; `source` the Python that runs them.
    """

    def __init__(self, program: Program, steps: list[Step], source: str, run: Callable[..., list]):
        self.program, self.steps, self.source, self.run = program, steps, source, run

    def __call__(self, *arrays: Any) -> list:
        return self.run(*arrays)

    @property
    def text(self) -> str:
        """The kernels in the order of their first launch."""
        kernels = {s.launch.kernel.text: None for s in self.steps if s.launch is not None}
        return "\n\n".join(kernels)

    def as_text(self) -> str:
        """The kernels as readable text, and the steps in order, with the reason why each is not fused with the next."""
        return f"{self.text}\n\n{self!r}"

    def cost_analysis(self) -> dict[str, int]:
        """Estimated floating-point operations ("flops") and bytes moved to and from memory ("bytes accessed") of a call."""
        return {"flops": self.flops, "bytes accessed": self.bytes_read + self.bytes_written}

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


_executables: dict[Any, Executable] = {}
_lock = threading.RLock()


def compile_program(program: Program) -> Executable:
    """The program compiled; done once for each structure."""
    fusion, matmul = config.fusion, config.matmul
    found = program.memo.get(("executable", fusion, matmul))
    if found is None:
        key = (program.without_consts().key, fusion, matmul)
        with _lock:
            found = _executables.get(key)
            if found is None:
                found = _executables[key] = _compile(program, fusion)
        program.memo["executable", fusion, matmul] = found
    return found


def forget_executables() -> None:
    """Drop compiled programs (those in use stay valid)."""
    _executables.clear()


def _compile(program: Program, fusion: bool) -> Executable:
    a, tasks = partition(flatten(program), fusion)
    steps = [s for t in tasks for s in _steps(a, t)]
    kernels = [s.launch.kernel for s in steps if s.launch is not None]
    addresses = kernel_addresses(kernels) if kernels else []
    source, scope = _Source(a, steps, addresses).finish()
    exec(compile(source, f"<fxgrad {program.name}>", "exec"), scope)
    return Executable(program, steps, source, scope["run"])


# ---- steps ---------------------------------------------------------------------------------------------------------------


def _steps(a: Analysis, task: Task) -> list[Step]:
    if task.kind == "host":
        (eqn,) = task.eqns
        step = Step(
            "host", eqn.prim.name, task.why, [v for v in (a.access(x)[0] for x in eqn.inputs) if type(v) is Var], eqn.outputs
        )
        step.eqn = eqn
        return [step]
    empty = task.reduce is not None and task.reduce.inputs[0].aval.size == 0
    if empty or all(v.aval.size == 0 for v in task.stored):
        step = Step("fill", "no elements", task.why, [], task.stored)
        step.eqn = task.reduce
        return [step]
    steps = []
    for launch in (product_launches if task.kind == "dot" else launches)(a, task):
        way = "a product cannot walk this operand's axes" if task.kind == "dot" else launch.why
        why = [way] if way and launch.writes != task.stored else task.why
        step = Step("kernel", launch.kernel.title, why, launch.reads, launch.writes)
        step.launch = launch._replace(plan=launch.kernel.bind(launch.plan))
        step.bytes_read, step.bytes_written, step.flops = launch.bytes_read, launch.bytes_written, launch.flops
        steps.append(step)
    return steps


# ---- source --------------------------------------------------------------------------------------------------------------


class _Source:
    """Writes the function `run`: one or two lines for each step."""

    def __init__(self, a: Analysis, steps: list[Step], addresses: Sequence[int]):
        from fxgrad.runtime import launch as native

        self.a, self.steps, self.addresses = a, steps, iter(addresses)
        self.native = native
        self.inputs = a.program.inputs
        self.names: dict[Var, str] = {v: f"a{i}" for i, v in enumerate(self.inputs)}
        self.scope: dict[str, Any] = {
            "launch": native.launch, "check": native.check, "prepare": _preparer([v.aval for v in self.inputs]), "own": own,
            "empty": np.empty, "full": np.full, "asarray": np.asarray, "ndarray": np.ndarray, "errstate": np.errstate,
        }  # fmt: skip
        self.lines: list[str] = []
        self.host_results: set[Var] = set()
        self.count = {"kernel": 0, "host": 0, "constant": 0}

    def finish(self) -> tuple[str, dict[str, Any]]:
        last = self._last_uses()
        for i, step in enumerate(self.steps):
            {"kernel": self._kernel, "host": self._host, "fill": self._fill}[step.kind](step)
            dead = [self.names[v] for v in last[i]]
            if dead:
                self.lines.append(f"{' = '.join(dead)} = None")
        self._return()
        names = ", ".join(f"a{i}" for i in range(len(self.inputs)))
        head = [f"def run({names}):"]
        if self.inputs:
            expected = self.native.expected_table([v.aval for v in self.inputs])
            head += [f"    t = ({names},)", f"    if check(id(t), {expected}):", f"        ({names},) = prepare(t)"]
        pad = "    "
        if self.count["host"]:
            head.append('    with errstate(all="ignore"):')
            pad = "        "
        return "\n".join([*head, *(pad + line for line in self.lines)]), self.scope

    def _last_uses(self) -> list[list[Var]]:
        """For every step the large values nobody needs after it."""
        kept = {root for o in self.a.program.outputs if type(root := self.a.access(o)[0]) is Var} | set(self.inputs)
        out: list[list[Var]] = []
        for step in reversed(self.steps):
            names = [v for v in dict.fromkeys([*step.reads, *step.writes]) if v not in kept]
            kept.update(names)
            out.append([v for v in names if v.aval.nbytes >= 4096 or step.kind == "host"])
        return out[::-1]

    def _name(self, v: Var) -> str:
        if v not in self.names:
            self.names[v] = f"v{len(self.names) - len(self.inputs)}"
        return self.names[v]

    def _constant(self, value: Any) -> str:
        name = f"c{self.count['constant']}"
        self.count["constant"] += 1
        self.scope[name] = value
        return name

    def _dtype(self, dtype: np.dtype) -> str:
        name = short_name(dtype)
        self.scope[name] = dtype
        return name

    def _empty(self, v: Var) -> str:
        return f"{self._name(v)} = empty({v.aval.shape}, {self._dtype(v.aval.dtype)})"

    def _kernel(self, step: Step) -> None:
        launch = step.launch
        assert launch is not None
        n = self.count["kernel"]
        self.count["kernel"] += 1
        self.scope[f"k{n}"], self.scope[f"p{n}"] = next(self.addresses), launch.plan.ctypes.data
        self.scope[f"plan{n}"] = launch.plan  # keeps the numbers at that address
        self.lines += [self._empty(v) for v in launch.writes]
        names = ", ".join(self._name(v) for v in (*launch.reads, *launch.writes))
        self.lines += [f"t = ({names},)  # {step.title}", f"launch(k{n}, p{n}, id(t))"]

    def _fill(self, step: Step) -> None:
        for v in step.writes:
            if step.eqn is None or v.aval.size == 0:
                self.lines.append(self._empty(v))
                continue
            identity = step.eqn.prim.identity
            assert identity is not None
            value = self._constant(identity(v.aval.dtype))
            self.lines.append(f"{self._name(v)} = full({v.aval.shape}, {value}, {self._dtype(v.aval.dtype)})")

    def _host(self, step: Step) -> None:
        eqn = step.eqn
        assert eqn is not None
        n = self.count["host"]
        self.count["host"] += 1
        self.scope[f"h{n}"] = operation(eqn.prim, [x.aval for x in eqn.inputs], eqn.params)
        call = f"h{n}({', '.join(self._value(x) for x in eqn.inputs)})  # {eqn.prim.name}"
        self.host_results.update(eqn.outputs)
        if len(eqn.outputs) == 1:
            self.lines.append(f"x = {call}")
        else:
            self.lines.append("".join(f"x{i}, " for i in range(len(eqn.outputs))) + f"= {call}")
        for i, v in enumerate(eqn.outputs):
            result = "x" if len(eqn.outputs) == 1 else f"x{i}"
            self.lines.append(f"{self._name(v)} = asarray({result}, {self._dtype(v.aval.dtype)}, 'C')")
        self.lines.append(
            "x = None" if len(eqn.outputs) == 1 else " = ".join(f"x{i}" for i in range(len(eqn.outputs))) + " = None"
        )

    def _value(self, x: Atom) -> str:
        """An expression for an operand of a library call."""
        root, layout = self.a.access(x)
        if isinstance(root, Lit):
            value = self._constant(root.value)
            return value if not layout.shape else f"full({layout.shape}, {value})"
        return self._view(root, layout)

    def _view(self, root: Var, layout: Layout) -> str:
        aval = root.aval
        if layout == contiguous(aval.shape, aval.dtype.itemsize):
            return self._name(root)
        dtype = self._dtype(aval.dtype)
        if 0 in layout.shape:
            return f"empty({layout.shape}, {dtype})"
        return f"ndarray({layout.shape}, {dtype}, {self._name(root)}, {layout.offset}, {layout.strides})"

    def _return(self) -> None:
        """The results: fresh arrays that alias nothing, scalars for rank 0."""
        seen: set[Var] = set(self.inputs)
        out: list[str] = []
        hosts: list[tuple[int, str, Aval]] = []
        for o in self.a.program.outputs:
            root, layout = self.a.access(o)
            if isinstance(root, Lit):
                out.append(self._value(o))
                continue
            whole = layout == contiguous(root.aval.shape, root.aval.dtype.itemsize)
            text = self._view(root, layout)
            if not layout.shape:
                text += "[()]"
            elif not whole:
                text = f"asarray({text}, order='C')" if text.startswith("empty") else f"{text}.copy('C')"
            elif root in seen:
                text += ".copy()"
            elif root in self.host_results:
                hosts.append((len(out), text, root.aval))
            if whole:
                seen.add(root)
            out.append(text)
        if hosts:
            spots = {i for i, _, _ in hosts}
            others = [f"a{i}" for i in range(len(self.inputs))] + [
                t for i, t in enumerate(out) if i not in spots and t.isidentifier()
            ]
            self.lines.append(f"taken = {{{', '.join(f'id({t})' for t in others)}}}" if others else "taken = set()")
            for i, text, aval in hosts:
                out[i] = f"own({text}, taken, {self._constant(aval)})"
        self.lines.append(f"return [{', '.join(out)}]")


def _preparer(avals: Sequence[Aval]) -> Callable[[Sequence[Any]], list[np.ndarray]]:
    """What makes arguments contiguous, aligned and native, by copies where need be."""

    def prepare(arrays: Sequence[Any]) -> list[np.ndarray]:
        out = []
        for x, aval in zip(arrays, avals, strict=True):
            x = np.asarray(x)
            if x.shape != aval.shape or x.dtype.newbyteorder("=") != aval.dtype:
                raise errors.FxTypeError(f"a program compiled for {aval} was given {x.dtype.name}{list(x.shape)}")
            x = np.asarray(x, aval.dtype, order="C")
            out.append(x if x.flags.aligned else x.copy())
        return out

    return prepare
