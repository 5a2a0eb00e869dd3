"""From a `dot` equation to product kernels: operands are read where they lie, through transposes, slices and broadcasts.

An operand is copied first only if the axes that are contracted, or those that are free, cannot be walked with one stride and do
not fit into the two loops over batches either.
"""

from __future__ import annotations

from fxgrad.compile.fuse import Analysis, Task
from fxgrad.compile.kernelize import Launch, copy_launch, fill_launch
from fxgrad.ir.types import Aval, Var
from fxgrad.kernels.matmul_plan import plan_product

__all__ = ["product_launches"]


def product_launches(a: Analysis, task: Task) -> list[Launch]:
    """The kernels of a product, after those that bring an operand in order."""
    (eqn,), (out,) = task.eqns, task.stored
    if 0 in (eqn.inputs[0].aval.shape[i] for i in eqn.params["contract"][0]):
        return [fill_launch(out, 0)]
    layout = a.product_layout(eqn, a.access(eqn.outputs[0])[1])
    assert layout.copied is not None
    roots, copies = [a.access(x)[0] for x in eqn.inputs], []
    for i in layout.copied:
        x, order = eqn.inputs[i], layout.orders[i]
        copy = Var(Aval(tuple(x.aval.shape[d] for d in order), x.aval.dtype))
        copies.append(copy_launch(a, x, order, copy))
        roots[i] = copy
    strong = eqn.params["strong"]
    p = layout.product(out.aval.dtype, 0 if strong is None else strong + 1)
    run = plan_product(p)
    x, y = roots
    assert isinstance(x, Var) and isinstance(y, Var)
    pointers = [{"a": x, "b": y, "c": out}[name] for name in run.pointers]
    batches, size = p.outer * p.inner, p.dtype.itemsize
    read = min(batches * p.m * p.k * size, x.aval.nbytes) + min(batches * p.n * p.k * size, y.aval.nbytes)
    flops = 2 * batches * p.m * p.n * p.k
    return [*copies, Launch(run.kernel, run.plan, pointers[:-1], pointers[-1:], read, out.aval.nbytes, flops)]
