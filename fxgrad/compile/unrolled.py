"""Small bodies of loops, number by number: a loop over few numbers is one kernel that keeps them in registers.

A body's equations are carried out on arrays of *references* (numbers of values; below 0, of literals): what only rearranges is
done by NumPy, what computes becomes an operation for each element, reductions and products in their fixed order. So the bits are
those of the kernels for arrays.

Sizes of arrays become structure here: a state of another length is another kernel. They are small; the number of turns and all
literals are data as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import Atom, Aval, Lit, Var
from fxgrad.kernels.matmul import block_length
from fxgrad.kernels.matmul_plan import SUPPORTED
from fxgrad.kernels.spec import Op, Ref, cost
from fxgrad.primitives.base import Doc, Primitive, kernel_dtypes
from fxgrad.runtime.eager import has_kernel
from fxgrad.runtime.tree import reduce_tree

__all__ = ["Unrolled", "unroll"]

MAX_OPS = 1500  # beyond, machine code takes long to make and no longer fits the first-level cache
MAX_NUMBERS = 256  # of all operands together, those that are used
_MOST_INPUTS = 1 << 14  # numbers of all operands that are looked at
_REARRANGE = ("broadcast", "reshape", "transpose", "reverse", "slice", "pad", "concatenate", "update_slice")


class _TooLarge(Exception):
    """The body has no short form in single numbers."""


class Unrolled:
    """A body in single numbers: operations, and references to its results. Inputs are numbered first, in order."""

    def __init__(self, inputs: Sequence[Aval]):
        self.count = sum(a.size for a in inputs)
        self.ops: list[Op] = []
        self.literals: list[Lit] = []
        self.ends: list[int] = []  # for every program, how many operations there are after it
        self.keep: set[int] = set()
        self.used: list[int] = []  # inputs, by the numbers they had before unused ones were dropped
        self._known: dict[Any, int] = {}
        if self.count > _MOST_INPUTS or not kernel_dtypes(inputs):
            raise _TooLarge

    @property
    def cost(self) -> int:
        """In cheap operations."""
        return sum(cost(op.prim) for op in self.ops)

    def literal(self, value: Lit) -> int:
        self.literals.append(value)
        return -len(self.literals)

    def ref(self, number: int) -> Ref:
        return self.literals[-number - 1] if number < 0 else number

    def emit(self, prim: Primitive, params: dict[str, Any], args: Sequence[int], dtype: np.dtype) -> int:
        key = (prim, *params.items(), *args)
        found = self._known.get(key)
        if found is None:
            if len(self.ops) == MAX_OPS:
                raise _TooLarge
            self.ops.append(Op(prim, tuple(sorted(params.items())), tuple(map(self.ref, args)), dtype))
            found = self._known[key] = self.count + len(self.ops) - 1
        return found

    def without_dead(self, results: Sequence[Sequence[int]]) -> list[list[int]]:
        """Drop operations whose values nobody needs, and inputs (`used` are left); the results by their new numbers."""
        needed = {r for rs in results for r in rs}
        for i in range(len(self.ops) - 1, -1, -1):
            if self.count + i in needed:
                needed.update(r for r in self.ops[i].args if isinstance(r, int))
        kept = [i for i in range(len(self.ops)) if self.count + i in needed]
        self.used = [i for i in range(self.count) if i in needed or i in self.keep]
        if len(self.used) + sum(map(len, results)) > MAX_NUMBERS:
            raise _TooLarge
        number = {old: new for new, old in enumerate([*self.used, *(self.count + i for i in kept)])}
        self.count = len(self.used)
        self.ends = [sum(i < end for i in kept) for end in self.ends]
        self.ops = [
            self.ops[i]._replace(args=tuple(number.get(r, r) if isinstance(r, int) else r for r in self.ops[i].args))
            for i in kept
        ]
        return [[number.get(r, r) for r in rs] for rs in results]

    def run(self, program: Program, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The references to a flat program's results, given those to its inputs."""
        env: dict[Var, np.ndarray] = dict(zip(program.inputs, args, strict=True))

        def read(x: Atom) -> np.ndarray:
            return env[x] if type(x) is Var else np.array(self.literal(x))  # type: ignore[arg-type]

        for eqn in program.eqns:
            env[eqn.outputs[0]] = self._eqn(eqn, [read(x) for x in eqn.inputs])
        return [np.broadcast_to(read(o), o.aval.shape) for o in program.outputs]

    def _eqn(self, eqn: Eqn, args: list[np.ndarray]) -> np.ndarray:
        prim, out = eqn.prim, eqn.outputs[0].aval
        avals = [x.aval for x in eqn.inputs]
        if prim.name == "iota":
            assert prim.numpy is not None
            values = prim.numpy(**eqn.params)
            return np.array([self.literal(Lit(v)) for v in values.flat], np.int64).reshape(out.shape)
        if out.size > MAX_OPS or len(eqn.outputs) != 1:
            raise _TooLarge
        if prim.name in _REARRANGE and kernel_dtypes([out]):
            assert prim.numpy is not None
            return np.asarray(prim.numpy(*args, **eqn.params), np.int64)
        if prim.kind == "map" and has_kernel(prim, avals, [out]):
            return self._map(prim, eqn.params, args, out)
        if prim.kind == "reduce" and has_kernel(prim, avals, [out]) and set(eqn.params) == {"axes"}:
            return self._reduce(prim, args[0], avals[0], eqn.params["axes"])
        if prim.name == "dot" and out.dtype in SUPPORTED and out.dtype.kind == "f":
            return self._dot(args, out, **eqn.params)
        raise _TooLarge

    def _map(self, prim: Primitive, params: dict[str, Any], args: Sequence[np.ndarray], out: Aval) -> np.ndarray:
        columns = [np.broadcast_to(x, out.shape).reshape(-1).tolist() for x in args]
        found = [self.emit(prim, params, each, out.dtype) for each in zip(*columns, strict=True)]
        return np.array(found, np.int64).reshape(out.shape)

    def _reduce(self, prim: Primitive, x: np.ndarray, aval: Aval, axes: tuple[int, ...]) -> np.ndarray:
        if aval.size == 0:
            raise _TooLarge

        def combine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
            return np.array([self._combined(prim, aval.dtype, *pair) for pair in pairs], np.int64).reshape(a.shape)

        return reduce_tree(combine, _NOTHING, x, axes, aval.dtype)

    def _combined(self, prim: Primitive, dtype: np.dtype, a: int, b: int) -> int:
        """Two of them combined; with the identity, which changes no bit, nothing is to do."""
        return b if a == _NOTHING else a if b == _NOTHING else self.emit(prim, {}, (a, b), dtype)

    def _dot(self, args: Sequence[np.ndarray], out: Aval, contract: Any, batch: Any, strong: int | None) -> np.ndarray:
        from fxgrad.primitives.dot import as_matrices

        (x_order, a_shape, y_order, b_shape, shape) = as_matrices(args[0].shape, args[1].shape, contract, batch)
        a = (args[0] if x_order is None else args[0].transpose(x_order)).reshape(a_shape)
        b = (args[1] if y_order is None else args[1].transpose(y_order)).reshape(b_shape)
        if a.size * b_shape[2] > MAX_OPS or not 0 < a_shape[2] <= block_length(out.dtype):
            raise _TooLarge
        found = self._sums(_LINK, a, b, out.dtype)
        if strong is not None:
            strict = self._sums(_STRICT_LINKS[strong], a, b, out.dtype)
            pairs = zip(found.flat, strict.flat, strict=True)
            found = np.array([self.emit(_UNLESS_NAN, {}, (int(x), int(y)), out.dtype) for x, y in pairs], np.int64)
        return found.reshape(shape)

    def _sums(self, prim: Primitive, a: np.ndarray, b: np.ndarray, dtype: np.dtype) -> np.ndarray:
        zero = self.literal(Lit(dtype.type(0)))
        found = np.full((a.shape[0], a.shape[1], b.shape[2]), zero, np.int64)
        for k in range(a.shape[2]):
            for g, i, j in np.ndindex(*found.shape):
                found[g, i, j] = self.emit(prim, {}, (int(a[g, i, k]), int(b[g, k, j]), int(found[g, i, j])), dtype)
        return found


_NOTHING = np.int64(-(1 << 62))  # the reference to an identity


def _internal(name: str, body: Any) -> Primitive:
    return Primitive(name, "map", lambda *avals: [avals[-1]], Doc("a part of a product", ""), body=body)


# A product's sum is a chain of fma(x, y, sum); in a strong one that gives NaN, zeros of the strong operand are passed over.
_LINK = _internal("fma", lambda k, x, y, total: k.fma(x, y, total))
_STRICT_LINKS = [
    _internal("fma_unless_x_is_0", lambda k, x, y, total: k.select(x == 0.0, total, k.fma(x, y, total))),
    _internal("fma_unless_y_is_0", lambda k, x, y, total: k.select(y == 0.0, total, k.fma(x, y, total))),
]
_UNLESS_NAN = _internal("x_unless_nan", lambda k, x, y: k.select(x != x, y, x))


def unroll(
    inputs: Sequence[Aval], programs: Sequence[tuple[Program, Sequence[int]]], whole: Sequence[bool]
) -> tuple[Unrolled, list[list[int]]] | None:
    """Flat programs one after the other, in single numbers.

    Args:
        inputs: all operands.
        programs: each with the numbers of the operands it takes.
        whole: of which operands all numbers are kept, used or not.
    Returns:
        What they compute, and the references to each program's results; None if there is no short form.
    """
    try:
        made = Unrolled(inputs)
        args: list[np.ndarray] = []
        start = 0
        for a in inputs:
            args.append(np.arange(start, start + a.size, dtype=np.int64).reshape(a.shape))
            start += a.size
        made.keep = {int(i) for x, all_of in zip(args, whole, strict=True) if all_of for i in x.reshape(-1)}
        out = []
        for program, numbers in programs:
            results = made.run(program, [args[i] for i in numbers])
            out.append([int(r) for x in results for r in x.reshape(-1)])
            made.ends.append(len(made.ops))
        return made, made.without_dead(out)
    except _TooLarge:
        return None
