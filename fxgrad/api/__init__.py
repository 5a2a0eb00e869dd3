"""The transforms users call. Each traces its function, rewrites the program, and runs it (or records it in an outer trace)."""

from fxgrad.api.batching import vmap
from fxgrad.api.forward import jvp, linearize
from fxgrad.api.jacobians import hessian, hvp, jacfwd, jacobian, jacrev
from fxgrad.api.programs import eval_shape, make_ir, parse_ir, stop_gradient
from fxgrad.api.reverse import grad, value_and_grad, vjp

__all__ = [
    "eval_shape",
    "grad",
    "hessian",
    "hvp",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "linearize",
    "make_ir",
    "parse_ir",
    "stop_gradient",
    "value_and_grad",
    "vjp",
    "vmap",
]
