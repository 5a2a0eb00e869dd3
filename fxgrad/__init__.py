"""fxgrad: functional transformations (grad, vjp, jvp, vmap, checkpoint, jit) of NumPy code."""

from typing import Any

from fxgrad import errors, io, lax, models, nn, numpy, optim, random, scipy, tree
from fxgrad.api.batching import vmap
from fxgrad.api.forward import jvp, linearize
from fxgrad.api.jacobians import hessian, hvp, jacfwd, jacobian, jacrev
from fxgrad.api.programs import eval_shape, make_ir, parse_ir, stop_gradient
from fxgrad.api.reverse import grad, value_and_grad, vjp
from fxgrad.checkpointing import checkpoint, checkpoint_name, checkpoint_policies, checkpoint_sequential, remat
from fxgrad.compile.jit import jit
from fxgrad.config import config, disable_jit
from fxgrad.control import cond, fori_loop, scan, switch, while_loop
from fxgrad.custom import custom_jvp, custom_vjp
from fxgrad.errors import (
    ConcretizationError,
    FxError,
    LeakedTracerError,
    MutationError,
    NonDifferentiableError,
    StaleValueError,
    TreeMismatchError,
    UnsupportedError,
)
from fxgrad.explain import explain
from fxgrad.ir.program import Program
from fxgrad.ir.types import Aval
from fxgrad.numpy import asarray
from fxgrad.runtime.caches import clear_caches
from fxgrad.runtime.team import get_num_threads, set_num_threads

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "testing":  # imported when it is used
        import fxgrad.testing

        return fxgrad.testing
    raise AttributeError(f"module 'fxgrad' has no attribute {name!r}")


__all__ = [
    "Aval",
    "ConcretizationError",
    "FxError",
    "LeakedTracerError",
    "MutationError",
    "NonDifferentiableError",
    "Program",
    "StaleValueError",
    "TreeMismatchError",
    "UnsupportedError",
    "asarray",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "checkpoint_sequential",
    "clear_caches",
    "cond",
    "config",
    "custom_jvp",
    "custom_vjp",
    "disable_jit",
    "errors",
    "eval_shape",
    "explain",
    "fori_loop",
    "get_num_threads",
    "grad",
    "hessian",
    "hvp",
    "io",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "lax",
    "linearize",
    "make_ir",
    "models",
    "nn",
    "numpy",
    "optim",
    "parse_ir",
    "random",
    "remat",
    "scan",
    "scipy",
    "set_num_threads",
    "stop_gradient",
    "switch",
    "testing",
    "tree",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
