"""What a kernel is, before any code: typed operands, a straight line of scalar operations, a loop form. No sizes.

The text of a kernel is canonical: equal text, equal machine code. It is what is hashed, kept in the cache beside the machine
code, and shown to users.

```
kernel map(a: f32 unit, b: f32 splat) -> (f32 unit) {
  t0: f32 = exp a
  t1: f32 = mul t0 b
  return t1
}
```
The mode of an operand tells how it lies along the axis the vectors run along: `unit` is contiguous, `splat` one element for all,
`strided` anything else. Forms: `map`; `rows` reduces along the vectors' axis, `cols` along another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.ir.types import Lit, short_name
from fxgrad.primitives.base import Primitive

__all__ = ["KERNEL_FORMAT", "Kernel", "Op", "Operand", "Reduce", "lanes_of_reduction", "reduction_block"]

KERNEL_FORMAT = 2  # raise when the meaning of a text, the plan layout or the calling convention changes

Ref = int | Lit  # a value by number, or a literal
Params = tuple[tuple[str, Any], ...]


class Operand(NamedTuple):
    """An array the kernel reads or writes."""

    dtype: np.dtype
    mode: str  # unit, splat, strided


class Op(NamedTuple):
    """One scalar operation: `prim.body` of the values `args`, giving `dtype`."""

    prim: Primitive
    params: Params
    args: tuple[Ref, ...]
    dtype: np.dtype


class Reduce(NamedTuple):
    """The reduction at the end of a `rows` or `cols` kernel, and what happens to each result before it is stored.

    `after` are operands over the kept axes, `epilogue` the operations on them and the reduced value. Values are numbered
    on: the reduced value, the operands `after`, the epilogue's operations.
    """

    prim: Primitive
    arg: Ref
    dtype: np.dtype
    after: tuple[Operand, ...] = ()
    epilogue: tuple[Op, ...] = ()


class Kernel:
    """A kernel in full: values are numbered inputs first, then operations in order."""

    __slots__ = ("_digest", "_text", "form", "inputs", "ops", "outputs", "reduce", "results")

    def __init__(
        self,
        form: str,
        inputs: Sequence[Operand],
        ops: Sequence[Op],
        results: Sequence[Ref],
        outputs: Sequence[Operand],
        reduce: Reduce | None = None,
    ):
        self.form, self.inputs, self.ops = form, tuple(inputs), tuple(ops)
        self.results, self.outputs, self.reduce = tuple(results), tuple(outputs), reduce
        self._text: str | None = None
        self._digest: str | None = None

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All arrays in the order of their pointers: inputs, operands of the epilogue, outputs."""
        return self.inputs + (self.reduce.after if self.reduce else ()) + self.outputs

    @property
    def lanes(self) -> int:
        """Elements handled at a time: 16, or 8 when any of them has eight bytes."""
        dtypes = [o.dtype for o in self.operands] + [op.dtype for op in self.ops]
        dtypes += [a.aval.dtype for op in self.ops for a in op.args if isinstance(a, Lit)]
        if self.reduce:
            dtypes += [self.reduce.dtype] + [op.dtype for op in self.reduce.epilogue]
        return 16 if all(d.itemsize <= 4 for d in dtypes) else 8

    @property
    def title(self) -> str:
        """The names of its operations."""
        names = [op.prim.name for op in self.ops]
        if self.reduce:
            names += [self.reduce.prim.name, *(op.prim.name for op in self.reduce.epilogue)]
        return " ".join(names) or "copy"

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = _format(self)
        return self._text

    @property
    def digest(self) -> str:
        if self._digest is None:
            self._digest = hashlib.sha256(self.text.encode()).hexdigest()
        return self._digest

    def __repr__(self) -> str:
        return self.text


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


def _format_op(name: str, op: Op, names: Sequence[str]) -> str:
    args = " ".join(format_literal(a.value) if isinstance(a, Lit) else names[a] for a in op.args)
    return f"  {name}: {short_name(op.dtype)} = {op.prim.name}{format_params(op.params)} {args}".rstrip()


def _format(kernel: Kernel) -> str:
    names = [_operand_name(i) for i in range(len(kernel.inputs))]

    def signature(operands: Sequence[Operand], labels: Sequence[str]) -> str:
        return ", ".join(f"{n}: {short_name(o.dtype)} {o.mode}" for n, o in zip(labels, operands, strict=True))

    def ref(r: Ref) -> str:
        return format_literal(r.value) if isinstance(r, Lit) else names[r]

    lines = []
    for i, op in enumerate(kernel.ops):
        lines.append(_format_op(f"t{i}", op, names))
        names.append(f"t{i}")
    r, extra = kernel.reduce, ""
    if r:
        lines.append(f"  r: {short_name(r.dtype)} = reduce {r.prim.name} {ref(r.arg)}")
        after = [f"y{i}" for i in range(len(r.after))]
        names += ["r", *after]
        extra = f"; {signature(r.after, after)}" if r.after else ""
        for i, op in enumerate(r.epilogue):
            lines.append(_format_op(f"u{i}", op, names))
            names.append(f"u{i}")
    results = ", ".join(f"{short_name(o.dtype)} {o.mode}" for o in kernel.outputs)
    head = f"kernel {kernel.form}({signature(kernel.inputs, names[: len(kernel.inputs)])}{extra}) -> ({results}) {{"
    return "\n".join([head, *lines, "  return " + ", ".join(map(ref, kernel.results)), "}"])
