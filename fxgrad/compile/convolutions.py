"""From a `conv` equation to kernels."""

from __future__ import annotations

import math

import numpy as np

from fxgrad.compile.analysis import Analysis
from fxgrad.compile.conv_layout import ConvLayout, Phase
from fxgrad.compile.fuse import Task
from fxgrad.compile.kernelize import Launch, copy_launch, fill_launch
from fxgrad.ir.types import Atom, Aval, Lit, Var
from fxgrad.kernels.conv_plan import plan_windows

__all__ = ["conv_launches"]


def conv_launches(a: Analysis, task: Task) -> list[Launch]:
    """The kernels of a convolution, after those that bring an operand in order."""
    (eqn,), (out,) = task.eqns, task.stored
    if 0 in (x.aval.size for x in eqn.inputs):
        return [fill_launch(out, 0)]
    layout = a.product_layout(eqn, a.access(eqn.outputs[0])[1])
    assert isinstance(layout, ConvLayout) and layout.copied is not None
    x, launches = a.root(eqn.inputs[0]), []
    if layout.copied:
        order = layout.orders[0]
        copy = Var(Aval(tuple(eqn.inputs[0].aval.shape[d] for d in order), out.aval.dtype))
        launches.append(copy_launch(x, a.access(eqn.inputs[0])[1].transposed(order), copy))
        x = copy
    assert isinstance(x, Var)
    written: list[Launch] = []
    for phase in layout.phases:
        before, last = _of_phase(a, layout, phase, x, eqn.inputs[1], out)
        launches += before
        if written:
            last = last._replace(reads=[*last.reads, out], writes=[], rows=None, why="places that meet other parts of the kernel")
        written.append(last)
        launches.append(last)
    return launches


def _of_phase(
    a: Analysis, layout: ConvLayout, phase: Phase, x: Var, operand: Atom, out: Var
) -> tuple[list[Launch], Launch]:  # fmt: skip
    """What leads to the product of a phase, and the product."""
    p = phase.product
    if p is None:
        zero = Lit(out.aval.dtype.type(0))
        return [], copy_launch(zero, phase.c, out, phase.c)
    w, before = a.root(operand), []
    if phase.w_copied:
        order = layout.orders[1]
        copy = Var(Aval(tuple(phase.w.shape[d] for d in order), out.aval.dtype))
        before.append(copy_launch(w, phase.w.transposed(order), copy))
        w = copy
    assert isinstance(w, Var)
    arrays = {"a": x, "b": w, "c": out}
    size, m = p.dtype.itemsize, p.product.m
    flops = 2 * p.outer * p.inner * m * p.n * p.product.k
    *packing, product = plan_windows(p)
    for run in packing:
        arrays["p"] = Var(Aval((run.passed,), np.dtype(np.uint8)))
        before.append(Launch(run.kernel, run.plan, [w], [arrays["p"]], w.aval.nbytes, run.passed, 0))
    *reads, write = (arrays[n] for n in product.pointers)
    written = math.prod(phase.c.shape) * size
    rows = product.rows if len(layout.phases) == 1 else None
    return before, Launch(
        product.kernel, product.plan, reads, [write], x.aval.nbytes + w.aval.nbytes, written, flops, rows
    )  # fmt: skip
