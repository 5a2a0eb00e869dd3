"""From a `dot` equation to product kernels: operands are read where they lie, through transposes, slices and broadcasts.

An operand is copied first only if the axes that are contracted, or those that are free, cannot be walked with one stride and do
not fit into the two loops over batches either.
"""

from __future__ import annotations

import numpy as np

from fxgrad.compile.analysis import Analysis
from fxgrad.compile.fuse import Task
from fxgrad.compile.kernelize import Launch, copy_launch, fill_launch
from fxgrad.ir.types import Aval, Var
from fxgrad.kernels.matmul_plan import Product, plan_product

__all__ = ["product_launches"]


def product_launches(a: Analysis, task: Task) -> list[Launch]:
    """The kernels of a product, after those that bring an operand in order."""
    (eqn,), (out,) = task.eqns, task.stored
    if 0 in (eqn.inputs[0].aval.shape[i] for i in eqn.params["contract"][0]):
        return [fill_launch(out, 0)]
    layout = a.product_layout(eqn, a.access(eqn.outputs[0])[1])
    assert layout.copied is not None
    roots, copies = [a.root(x) for x in eqn.inputs], []
    for i in layout.copied:
        x, order = eqn.inputs[i], layout.orders[i]
        copy = Var(Aval(tuple(x.aval.shape[d] for d in order), x.aval.dtype))
        root, lying = a.access(x)
        copies.append(copy_launch(root, lying.transposed(tuple(order)), copy))
        roots[i] = copy
    x, y = roots
    assert isinstance(x, Var) and isinstance(y, Var)
    return copies + _runs(layout.product(), {"a": x, "b": y, "c": out})


def _runs(p: Product, arrays: dict[str, Var]) -> list[Launch]:
    batches, found = p.outer * p.inner, []
    read = sum(min(batches * n * p.k * p.dtype.itemsize, arrays[x].aval.nbytes) for n, x in ((p.m, "a"), (p.n, "b")))
    for run in plan_product(p):
        if run.passed:
            arrays["p"] = Var(Aval((run.passed,), np.dtype(np.uint8)))
        *reads, write = (arrays[n] for n in run.pointers)
        multiplies = {"a", "b"} <= set(run.pointers)
        moved, flops = (read, 2 * batches * p.m * p.n * p.k) if multiplies else (reads[0].aval.nbytes, 0)
        found.append(Launch(run.kernel, run.plan, reads, [write], moved, write.aval.nbytes, flops, run.rows))
    return found
