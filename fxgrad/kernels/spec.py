"""What a kernel is, before any code: typed operands, a straight line of scalar operations, a loop form. No sizes.

The text of a kernel is canonical: equal text, equal machine code. It is what is hashed, kept in the cache beside the machine
code, and shown to users.

```
kernel map(a: f32 unit, b: f32 splat, s0: f32 literal) -> (f32 unit) {
  t0: f32 = exp a
  t1: f32 = mul t0 b
  t2: f32 = add t1 s0
  return t2
}
```
The mode of an operand tells how it lies along the axis the vectors run along: `unit` is contiguous, `splat` one element for all,
`strided` anything else. A row that is no single walk is `packed`, brought in order block by block (pack.py); columns are `walked`
in so many dimensions. `indirect` is read at computed places, an `index` tells where others begin (gather.py). Forms: `map`;
`row` walks the rows of its space one by one, each in several passes; `cols` does the same with vectors across the rows instead
of along them; `put` and `add` scatter rows (scatter.py).

```
kernel row(a: f32 unit) -> (f32 unit) {
  pass
    r0: f32 = reduce max a
  pass
    t1: f32 = sub a r0
    t2: f32 = exp t1
    r3: f32 = reduce sum t2
    keep t2
  pass
    t4: f32 = div t2 r3
    store 0 t4
}
```
A `keep` puts a value aside for later passes; operations between the passes (`u`) are done once a row. What has one value for each
row is written at the end of the row (`return`), and comes last among the outputs. A line `a at s0 c s1 s2` says that operand a
begins, in each row, where its `index` operand c leads: s0 is the code of an index out of bounds, s1 how many positions there are,
s2 the bytes from one to the next. The result of forms `put` and `add` is moved so, and written or added to (scatter.py).

The value of a literal is no part of the structure: it is read from the end of the launch's plan, so that another learning rate
compiles nothing. Literals are numbered by position, equal ones apart: which of them happen to be equal is no structure either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.ir.types import Lit, short_name
from fxgrad.primitives.base import Primitive

__all__ = [
    "KERNEL_FORMAT", "PACK_DIMS", "Fold", "Kernel", "Moved", "Op", "Operand", "Scalar", "Stage", "cost", "format_op",
    "format_ref", "lanes_of_reduction", "reduction_block", "weight",
]  # fmt: skip

_FOLDED = ("floordiv", "rem")  # of integers: a constant divisor becomes a product, a variable one 10 times the work

KERNEL_FORMAT = 4  # raise when the meaning of a text, the plan layout or the calling convention changes

PACK_DIMS = 4  # of a walk through a packed operand

Params = tuple[tuple[str, Any], ...]


class Scalar(NamedTuple):
    """The literal with this number, its value in the plan."""

    number: int
    dtype: np.dtype


Ref = int | Lit | Scalar  # a value by number, or a literal; a Kernel turns all but a few of its `Lit`s into `Scalar`s


class Operand(NamedTuple):
    """An array the kernel reads or writes."""

    dtype: np.dtype
    mode: str  # unit, splat, strided; packed, walked, index, indirect


class Moved(NamedTuple):
    """An operand of a row that begins where indices lead: (index operand, how many positions, bytes from one to the next).

    One that clamps takes the nearest position for an index out of bounds.
    """

    operand: int
    code: Ref
    indices: tuple[tuple[int, Ref, Ref], ...]
    clamps: bool = False


class Op(NamedTuple):
    """One scalar operation: `prim.body` of the values `args`, giving `dtype`."""

    prim: Primitive
    params: Params
    args: tuple[Ref, ...]
    dtype: np.dtype


class Fold(NamedTuple):
    """A reduction of a pass: `prim` over the values `arg` of dtype `dtype`."""

    prim: Primitive
    arg: Ref
    dtype: np.dtype


class Stage(NamedTuple):
    """A part of a `row` kernel: operations on what a row has one value of, then a pass over the row's elements.

    `stores` are (value, output) pairs, `keeps` the values put aside for later passes. Values are numbered in the order
    `before`, `ops`, `folds`, stage after stage. The last stage may have no pass.
    """

    before: tuple[Op, ...] = ()
    ops: tuple[Op, ...] = ()
    folds: tuple[Fold, ...] = ()
    stores: tuple[tuple[Ref, int], ...] = ()
    keeps: tuple[int, ...] = ()

    @property
    def passes(self) -> bool:
        return bool(self.folds or self.stores or self.keeps)


class Kernel:
    """A kernel in full: values are numbered inputs first, then operations in order.

    A `map` has `ops` and `results`, one for each output. `row` and `cols` kernels have `stages`, which store the leading
    outputs; their `results` are the values of the other ones, one a row.
    `literals` are the values of its literals, which are no part of its text; `bind` writes them into a plan.
    """

    __slots__ = ("_digest", "_text", "form", "inputs", "literals", "moved", "ops", "outputs", "results", "scalars", "stages")

    def __init__(
        self,
        form: str,
        inputs: Sequence[Operand],
        ops: Sequence[Op],
        results: Sequence[Ref],
        outputs: Sequence[Operand],
        stages: Sequence[Stage] = (),
        moved: Sequence[Moved] = (),
    ):
        self.form, self.inputs, self.outputs = form, tuple(inputs), tuple(outputs)
        self.literals: list[np.generic] = []
        self.moved = tuple([self._moved(m) for m in moved])
        self.ops = self._without_literals(ops)
        self.results = tuple(map(self._slot, results))
        self.stages = tuple(map(self._stage, stages))
        self.scalars = tuple(v.dtype for v in self.literals)
        self._text: str | None = None
        self._digest: str | None = None

    def _slot(self, ref: Ref) -> Ref:
        if not isinstance(ref, Lit):
            return ref
        self.literals.append(ref.value)
        return Scalar(len(self.literals) - 1, ref.aval.dtype)

    def _moved(self, m: Moved) -> Moved:
        code = self._slot(m.code)
        return Moved(m.operand, code, tuple([(i, self._slot(n), self._slot(step)) for i, n, step in m.indices]), m.clamps)

    def _without_literals(self, ops: Sequence[Op]) -> tuple[Op, ...]:
        return tuple([self._without(op) if Lit in map(type, op.args) else op for op in ops])

    def _without(self, op: Op) -> Op:
        if op.prim.name in _FOLDED and op.dtype.kind in "iu":
            return op
        return Op(op.prim, op.params, tuple(map(self._slot, op.args)), op.dtype)

    def _stage(self, s: Stage) -> Stage:
        return Stage(
            self._without_literals(s.before),
            self._without_literals(s.ops),
            tuple([Fold(f.prim, self._slot(f.arg), f.dtype) for f in s.folds]),
            tuple([(self._slot(r), out) for r, out in s.stores]),
            s.keeps,
        )

    def bind(self, plan: np.ndarray) -> np.ndarray:
        """The plan with the literals' values at its end, eight bytes each."""
        if not self.literals:
            return plan
        return np.concatenate([plan, np.frombuffer(b"".join(v.tobytes().ljust(8, b"\0") for v in self.literals), np.int64)])

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All arrays in the order of their pointers: inputs, outputs."""
        return self.inputs + self.outputs

    @property
    def checks(self) -> bool:
        """Whether it may stop the program, at an index out of bounds, and has a pointer to the words that tell why."""
        return bool(self.codes)

    @property
    def codes(self) -> list[int]:
        """The numbers of the literals that are codes of indices out of bounds."""
        codes = [m.code for m in self.moved if not m.clamps] + [op.args[1] for op in self.all_ops if op.prim.name == "gather"]
        return [c.number for c in codes if isinstance(c, Scalar)]

    @property
    def packed(self) -> list[int]:
        """The numbers of the operands with words of their own in the plan: those that are packed or walked."""
        return [k for k, o in enumerate(self.operands) if o.mode == "packed" or "walked" in o.mode]

    @property
    def all_ops(self) -> list[Op]:
        """Every operation but the reductions."""
        return [*self.ops] + [op for s in self.stages for op in (*s.before, *s.ops)]

    @property
    def folds(self) -> list[Fold]:
        """The reductions."""
        return [f for s in self.stages for f in s.folds]

    @property
    def splits(self) -> bool:
        """Whether a row can be cut into blocks: it has one pass, with reductions."""
        return bool(self.folds) and sum(s.passes for s in self.stages) == 1 and not any(s.keeps for s in self.stages)

    @property
    def lanes(self) -> int:
        """Elements handled at a time: 16, or 8 when any of them has eight bytes."""
        dtypes = (
            [o.dtype for o in self.operands if o.mode != "index"]
            + [op.dtype for op in self.all_ops]
            + [f.dtype for f in self.folds]
        )
        literals = [a for op in self.all_ops for a in op.args if not isinstance(a, int)]
        dtypes += [a.dtype if isinstance(a, Scalar) else a.aval.dtype for a in literals]
        return 16 if all(d.itemsize <= 4 for d in dtypes) else 8

    @property
    def title(self) -> str:
        """The names of its operations."""
        names = ["gather" for m in self.moved if m.operand < len(self.inputs)] + [op.prim.name for op in self.ops]
        for s in self.stages:
            names += [op.prim.name for op in (*s.before, *s.ops)] + [f.prim.name for f in s.folds]
        names += ["scatter" for m in self.moved if m.operand >= len(self.inputs)]
        return " ".join(names) or "copy"

    @property
    def text(self) -> str:
        if self._text is None:
            self._describe()
        assert self._text is not None
        return self._text

    @property
    def digest(self) -> str:
        if self._digest is None:
            self._describe()
        assert self._digest is not None
        return self._digest

    def _describe(self) -> None:
        """Its text, and the hash of that; those of an equal kernel, if there was one."""
        key = None
        if all([_is_exact(value) for op in self.all_ops for _, value in op.params]):
            key = (self.form, self.inputs, self.moved, self.ops, self.stages, self.results, self.outputs, self.scalars)
        found = None if key is None else _texts.get(key)
        if found is None:
            text = _format(self)
            found = text, hashlib.sha256(text.encode()).hexdigest()
            if key is not None:
                if len(_texts) >= _TEXTS_KEPT:
                    _texts.clear()
                _texts[key] = found
        self._text, self._digest = found

    def __repr__(self) -> str:
        return self.text


_TEXTS_KEPT = 4096
_texts: dict[Any, tuple[str, str]] = {}  # of kernels by their structure, since formatting takes ten times as long as to compare


def _is_exact(param: Any) -> bool:
    """Whether params equal to this one are written like it (0.0 == -0.0 are not)."""
    return isinstance(param, (int, str, np.dtype)) or (isinstance(param, tuple) and all(map(_is_exact, param)))


_SLOW = frozenset(("div", "lin_div", "sqrt", "rsqrt"))


def cost(prim: Primitive) -> int:
    """What an operation on a vector costs, in cheap operations."""
    return 20 if not prim.cheap else 8 if prim.name in _SLOW else 1


def weight(prims: Sequence[Primitive]) -> float:
    """What a kernel of these operations takes, in the time of one that does little more than read and write."""
    return 1 + sum(map(cost, prims)) / 16


def lanes_of_reduction(dtype: np.dtype) -> int:
    """Partial results kept side by side: a constant of the reduced dtype, part of the numerics contract."""
    return 32 if dtype.itemsize <= 4 else 16


def reduction_block(dtype: np.dtype) -> int:
    """Elements whose lanes are combined before they meet the next ones'."""
    return 256 * lanes_of_reduction(dtype)


def _operand_name(i: int) -> str:
    return "abcdefghijklmnopqrsuvwxyz"[i] if i < 25 else f"x{i}"  # without t, which numbers the operations


def format_literal(value: np.generic) -> str:
    """A literal with its dtype and exact value."""
    return f"{short_name(value.dtype)}({value.item()!r})"


def format_params(params: Params) -> str:
    if not params:
        return ""
    return "[" + ",".join(f"{k}={short_name(v) if isinstance(v, np.dtype) else repr(v)}" for k, v in params) + "]"


def format_ref(r: Ref, names: Sequence[str]) -> str:
    if isinstance(r, Scalar):
        return f"s{r.number}"
    return format_literal(r.value) if isinstance(r, Lit) else names[r]


def format_op(name: str, op: Op, names: Sequence[str]) -> str:
    args = " ".join(format_ref(a, names) for a in op.args)
    return f"  {name}: {short_name(op.dtype)} = {op.prim.name}{format_params(op.params)} {args}".rstrip()


def _signature(operands: Sequence[Operand], labels: Sequence[str]) -> str:
    return ", ".join(f"{n}: {short_name(o.dtype)} {o.mode}" for n, o in zip(labels, operands, strict=True))


def _format(kernel: Kernel) -> str:
    names = [_operand_name(i) for i in range(len(kernel.inputs))]
    lines = [_format_moved(m, names) for m in kernel.moved]
    for i, op in enumerate(kernel.ops):
        lines.append(format_op(f"t{i}", op, names))
        names.append(f"t{i}")
    for stage in kernel.stages:
        lines += _format_stage(stage, names, len(kernel.inputs))
    scalars = ", ".join(f"s{i}: {short_name(d)} literal" for i, d in enumerate(kernel.scalars))
    results = ", ".join(f"{short_name(o.dtype)} {o.mode}" for o in kernel.outputs)
    inputs = ", ".join(filter(None, [_signature(kernel.inputs, names[: len(kernel.inputs)]), scalars]))
    head = f"kernel {kernel.form}({inputs}) -> ({results}) {{"
    last = ["  return " + ", ".join(format_ref(x, names) for x in kernel.results)] if kernel.results else []
    return "\n".join([head, *lines, *last, "}"])


def _format_moved(m: Moved, names: Sequence[str]) -> str:
    words = [format_ref(m.code, names), *(format_ref(x, names) for part in m.indices for x in part)]
    name = names[m.operand] if m.operand < len(names) else "result"
    return f"  {name} at {' '.join(words)}{' clamped' if m.clamps else ''}"


def _format_stage(stage: Stage, names: list[str], first: int) -> list[str]:
    """The lines of a stage; the names of its values are appended to `names`."""
    lines = []
    for op in stage.before:
        names.append(f"u{len(names) - first}")
        lines.append(format_op(names[-1], op, names))
    if not stage.passes:
        return lines
    lines.append("  pass")
    for op in stage.ops:
        names.append(f"t{len(names) - first}")
        lines.append("  " + format_op(names[-1], op, names))
    folds: list[str] = []
    for f in stage.folds:
        folds.append(f"r{len(names) + len(folds) - first}")
        lines.append(f"    {folds[-1]}: {short_name(f.dtype)} = reduce {f.prim.name} {format_ref(f.arg, names)}")
    names += folds
    lines += [f"    keep {names[k]}" for k in stage.keeps]
    return lines + [f"    store {out} {format_ref(r, names)}" for r, out in stage.stores]
