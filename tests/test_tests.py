"""Tests of the tests: planted faults, each caught by a generic law, which holds again when the fault is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
from fxgrad.compile import cache, codegen, layout, lower, single
from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Lit
from fxgrad.kernels import reduction
from fxgrad.kernels.vector import Vec
from fxgrad.primitives import call, dot, elementwise, index, reduce, shape, sort, transcendental
from fxgrad.testing.bits import assert_same_bits
from fxgrad.trace.function import forget_programs
from fxgrad.transforms import linearize
from fxgrad.transforms import transpose as transposition
from tests import laws
from tests.cases import CASES, Case, Shape

BY_NAME = {c.name: c for c in CASES}
Patch = pytest.MonkeyPatch


_engines: list[Any] = []  # code lives as long as its engine, and somebody may still call it


@pytest.fixture
def forget(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """A function that forgets programs and compiled kernels.

    Kernels are kept, on disk and linked, under their text, which a planted body does not change: so every call begins a cache
    directory and an engine of its own.
    """
    before, calls = fx.config.cache_dir, iter(range(10))

    def do() -> None:
        forget_programs()
        cache.clear_caches(disk=False)
        _engines.append(codegen._engine())
        codegen._engine.cache_clear()
        codegen._linked.clear()
        fx.config.cache_dir = str(tmp_path / str(next(calls)))

    yield do
    do()
    fx.config.cache_dir = before


def rule(patch: Patch, prim: Any, field: str, change: Callable[..., Any]) -> None:
    """Replace a rule by change(right rule, *arguments)."""
    right = getattr(prim, field)
    patch.setattr(prim, field, lambda *args, **params: change(right, *args, **params))


# ---- the faults --------------------------------------------------------------------------------------------------------


def accumulation_dropped(patch: Patch) -> None:
    """Of the cotangents of a value used twice the first stays."""
    patch.setattr(transposition, "plus", lambda total, g: total)


def broadcast_summed_over_the_kept_axes(patch: Patch) -> None:
    def wrong(right: Any, cts: Any, inputs: Any, *, shape: Shape, dims: Any) -> list:
        if len(dims) == 1 and len(shape) == 2:
            return [reduce.sum_(cts[0], axes=dims)]
        return right(cts, inputs, shape=shape, dims=dims)

    rule(patch, shape.broadcast, "_transpose", wrong)


def product_rule_transposed(patch: Patch) -> None:
    def wrong(right: Any, cts: Any, inputs: Any, **params: Any) -> list:
        return [g if g is None else shape.transpose(g, perm=(1, 0)) for g in right(cts, inputs, **params)]

    rule(patch, dot.dot, "_transpose", wrong)


def product_operands_swapped(patch: Patch) -> None:
    """The cotangent of the first operand goes by the rule of the second."""

    def wrong(right: Any, cts: Any, inputs: Any, *, contract: Any, **params: Any) -> list:
        return right(cts, inputs, contract=((0,), (1,)), **params)

    rule(patch, dot.dot, "_transpose", wrong)


def branches_swapped_forwards(patch: Patch) -> None:
    rule(patch, elementwise.select, "_jvp", lambda right, primals, ts: right(primals, (ts[0], ts[2], ts[1])))


def branches_swapped_backwards(patch: Patch) -> None:
    def wrong(right: Any, cts: Any, inputs: Any) -> list:
        none, a, b = right(cts, inputs)
        return [none, b, a]

    rule(patch, elementwise.select, "_transpose", wrong)


def wrong_partial(patch: Patch) -> None:
    def wrong(right: Any, primals: Any, tangents: Any) -> tuple[list, list]:
        x = primals[0]
        return [transcendental.sin(x)], [elementwise.lin_mul(tangents[0], transcendental.sin(x))]

    rule(patch, transcendental.sin, "_jvp", wrong)


def wrong_sign_in_second_derivative(patch: Patch) -> None:
    """The slope of cos, which only the second derivative of sin needs."""

    def wrong(right: Any, primals: Any, tangents: Any) -> tuple[list, list]:
        x = primals[0]
        return [transcendental.cos(x)], [elementwise.lin_mul(tangents[0], transcendental.sin(x))]

    rule(patch, transcendental.cos, "_jvp", wrong)


def batch_axis_reduced(patch: Patch) -> None:
    rule(patch, reduce.sum_, "_batch", lambda right, size, args, batched, *, axes: ([reduce.sum_(args[0], axes=axes)], [True]))


def batch_axis_misplaced(patch: Patch) -> None:
    """The batch axis of a gather is left where it landed."""

    def wrong(right: Any, size: Any, args: Any, batched: Any, *, axes: Any) -> tuple[list, list[bool]]:
        return [index.gather(*args, axes=tuple(a + 1 for a in axes))], [True]

    rule(patch, index.gather, "_batch", wrong)


def product_and_sum_contracted(patch: Patch) -> None:
    """A compiled x*y + z with one rounding."""
    products: list[tuple[Any, Any, Any]] = []

    def mul(k: Any, x: Any, y: Any) -> Any:
        z = x * y
        products.append((z, x, y))
        return z

    def add(k: Any, a: Any, b: Any) -> Any:
        for z, x, y in products:
            if a is z and isinstance(z, Vec) and z.dtype.kind == "f":
                return k.fma(x, y, b)
        return a + b

    patch.setattr(elementwise.mul, "body", mul)
    patch.setattr(elementwise.add, "body", add)


def sum_reassociated(patch: Patch) -> None:
    """Lanes of a block added one after the other where vectors run along the reduced axis, by halves where they do not."""

    def one_after_the_other(combine: reduction.Combiner, x: Vec) -> Vec:
        from llvmlite import ir

        b, total = combine.b, None
        for lane in range(x.lanes):
            place = ir.Constant(ir.VectorType(reduction.I32, 1), [lane])
            one = Vec(b, b.shuffle_vector(x.v, ir.Constant(x.v.type, ir.Undefined), place), combine.dtype)
            total = one if total is None else combine(total, one)
        assert total is not None
        return total

    patch.setattr(reduction.Combiner, "halves", one_after_the_other)


def compiled_constant_changed(patch: Patch) -> None:
    """The compiler takes literals for others."""

    def wrong(program: Any) -> Any:
        flat = right(program)
        for eqn in flat.eqns:
            eqn.inputs[:] = [
                Lit(a.value + a.value) if isinstance(a, Lit) and a.value.dtype.kind == "f" else a for a in eqn.inputs
            ]
        return flat

    right = lower.flatten
    patch.setattr(lower, "flatten", wrong)


def checkpoint_loses_a_cotangent(patch: Patch) -> None:
    def wrong(right: Any, cts: Any, inputs: Any, before: Any, **params: Any) -> list:
        found = right(cts, inputs, before, **params)
        moving = [i for i, g in enumerate(found) if g is not None]
        return [None if len(moving) > 1 and i == moving[-1] else g for i, g in enumerate(found)]

    rule(patch, call.checkpoint, "transpose_onto", wrong)


def checkpoint_recomputes_something_else(patch: Patch) -> None:
    """What is computed again in the backward pass is exp(x) - 1 where it was exp(x)."""
    right = linearize._free_vars

    def wrong(eqns: Any, outputs: Any, bound: Any) -> Any:
        for i, e in enumerate(eqns):
            if e.prim is transcendental.exp:
                eqns[i] = Eqn(transcendental.expm1, e.inputs, e.params, e.outputs, e.source)
        return right(eqns, outputs, bound)

    patch.setattr(linearize, "_free_vars", wrong)


def operand_written(patch: Patch) -> None:
    right = sort.argsort.numpy

    def wrong(x: Any, *, axis: int) -> Any:
        result = right(x, axis=axis)
        x.sort(axis)
        return result

    patch.setattr(sort.argsort, "numpy", wrong)


def zeros_weak(patch: Patch) -> None:
    """0 * inf is NaN: the branch not taken poisons the gradient."""
    patch.setattr(elementwise.lin_mul, "body", lambda k, t, r: t * r)
    patch.setattr(elementwise.lin_div, "body", lambda k, t, r: t / r)


def strides_ignored(patch: Patch) -> None:
    """Kernels take every array for contiguous."""

    def wrong(aval: Any, strides: Any, ndim: int) -> Any:
        return right(aval, layout.contiguous(aval.shape, aval.dtype.itemsize).strides, ndim)

    right = single._place
    patch.setattr(single, "_place", wrong)


def compiled_operands_swapped(patch: Patch) -> None:
    """The compiler takes subtraction for commutative."""

    def wrong(program: Any, *how: Any) -> Any:
        for eqn in program.eqns:
            if eqn.prim is elementwise.sub:
                eqn.inputs[:] = eqn.inputs[::-1]
        return right(program, *how)

    right = lower.partition
    patch.setattr(lower, "partition", wrong)


# ---- what catches them -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plant:
    """A fault, the law that catches it, and the case it is caught at."""

    fault: Callable[[Patch], None]
    law: Callable[[Case, list[np.ndarray]], None]
    case: str
    shapes: tuple[Shape, ...]

    def __str__(self) -> str:
        return f"{self.fault.__name__}-{self.law.__name__}"


def branch_not_taken(case: Case, args: list[np.ndarray]) -> None:
    """What `where` did not take has no part in the gradient, NaN or infinite as its slope may be."""
    gradient = fx.grad(lambda x: np.sum(np.where(x > 0, np.sqrt(x), 0.0)))(np.array([-1.0, 0.0, 4.0]))
    assert_same_bits(gradient, np.array([0.0, 0.0, 0.25]))


PLANTS = [
    Plant(accumulation_dropped, laws.three_uses_sum, "mul", ((3,), (3,))),
    Plant(accumulation_dropped, laws.vjp_is_difference, "concatenate", ((2, 3),)),
    Plant(accumulation_dropped, laws.dot_product_identity, "concatenate", ((2, 3),)),
    Plant(broadcast_summed_over_the_kept_axes, laws.vjp_is_difference, "add", ((3, 3), (3,))),
    Plant(broadcast_summed_over_the_kept_axes, laws.dot_product_identity, "mul", ((3,), (3, 3))),
    Plant(product_rule_transposed, laws.vjp_is_difference, "matmul", ((3, 3), (3, 3))),
    Plant(product_rule_transposed, laws.dot_product_identity, "einsum", ((3, 3), (3, 3))),
    Plant(product_operands_swapped, laws.dot_product_identity, "matmul", ((3, 3), (3, 3))),
    Plant(branches_swapped_forwards, laws.jvp_is_difference, "select", ((3,), (3,))),
    Plant(branches_swapped_forwards, laws.vjp_is_difference, "select", ((3,), (3,))),
    Plant(branches_swapped_backwards, laws.dot_product_identity, "select", ((3,), (3,))),
    Plant(wrong_partial, laws.jvp_is_difference, "sin", ((3,),)),
    Plant(wrong_partial, laws.vjp_is_difference, "sin", ((2, 3),)),
    Plant(wrong_sign_in_second_derivative, laws.second_order, "sin", ((3,),)),
    Plant(batch_axis_reduced, laws.vmap_is_loop, "sum_first", ((3, 3),)),
    Plant(batch_axis_misplaced, laws.vmap_is_loop, "take", ((3, 3),)),
    Plant(product_and_sum_contracted, laws.eager_is_compiled, "linear", ((17,), (17,))),
    Plant(sum_reassociated, laws.layouts_do_not_matter, "sum", ((70, 70),)),
    Plant(compiled_constant_changed, laws.eager_is_compiled, "linear", ((3,), (3,))),
    Plant(compiled_operands_swapped, laws.eager_is_compiled, "sub", ((3,), (3,))),
    Plant(checkpoint_loses_a_cotangent, laws.derivatives_are_compiled, "mul", ((3,), (3,))),
    Plant(checkpoint_recomputes_something_else, laws.derivatives_are_compiled, "exp", ((3,),)),
    Plant(operand_written, laws.value, "argsort", ((5,),)),
    Plant(strides_ignored, laws.layouts_do_not_matter, "exp", ((2, 3),)),
    Plant(zeros_weak, branch_not_taken, "sin", ((3,),)),
]

LINEAR = Case("linear", lambda x, y: x * y + x * 0.1, lambda x, y: x * y + x * 0.1, [((17,), (17,))], [(-2, 2), (-2, 2)])


@pytest.mark.parametrize("plant", [pytest.param(p, id=str(p)) for p in PLANTS])
def test_planted_fault_is_caught(plant: Plant, forget: Callable[[], None], monkeypatch: Patch) -> None:
    case = BY_NAME.get(plant.case, LINEAR)
    args = case.arrays(plant.shapes)
    forget()
    with monkeypatch.context() as patch:
        plant.fault(patch)
        with pytest.raises(AssertionError):
            plant.law(case, [a.copy() for a in args])
    forget()
    plant.law(case, args)


def test_without_forgetting_a_fault_would_hide(forget: Callable[[], None], monkeypatch: Patch) -> None:
    """What the fixture is for: programs derived before the fault was planted are remembered."""
    case = BY_NAME["sin"]
    args = case.arrays(((3,),))
    forget()
    laws.vjp_is_difference(case, args)
    wrong_partial(monkeypatch)
    laws.vjp_is_difference(case, args)
