"""Primitive: one object holds everything the library knows of an operation. The schemas supply what they can derive.

The rules are Python functions over *values*: inside a transform these are tracers, and whatever a rule calls is recorded in
the program being built. The fields:

    typ(*avals, **params) -> list[Aval]                                 the type rule; raises on wrong types
    jvp(primals, tangents, **params) -> (outs, tangents_out)            None is the symbolic zero tangent
    transpose(cts, inputs, **params) -> list                            one cotangent per input, None where there is none;
                                                                        linear inputs arrive as `Linear(aval)`
    transpose_onto(cts, inputs, before, **params) -> list               in place of transpose: what the inputs have received
                                                                        `before`, and on top of it what comes from here
    batch(size, args, batched, **params) -> (outs, batched_outs)        the batch axis is always axis 0
    body(k, *values, **params) -> value                                 kernel body in the language `k` (fxgrad.kernels)
    numpy(*arrays, **params)                                            NumPy evaluation with the bits of `body`
    expand(*values, **params) -> list                                   definition through other primitives
    parts(*values, **params) -> list                                    definition on complex operands through real ones
    prune(eqn, used) -> Eqn                                             drop unused outputs and what only they need
    split(eqn, unknown) -> (known eqns, later eqn, later outputs)       partial evaluation of an equation that carries a program

`kind` tells the compiler how the operation may be lowered: "map" and "reduce" have kernel bodies and fuse, "view" rearranges
without arithmetic, "host" is a NumPy call, "call" carries programs, "control" runs them conditionally or repeatedly, "expand" is
replaced by its definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxgrad import errors
from fxgrad.ir.types import TAPE, Aval, Var, aval_of

if TYPE_CHECKING:
    from fxgrad.ir.program import Eqn

__all__ = ["REGISTRY", "Doc", "Linear", "Primitive", "elementwise", "instantiate", "is_float", "linear_map", "register", "zeros"]

REGISTRY: dict[str, Primitive] = {}
TYPES_KEPT = 1 << 14  # remembered answers of one type rule


class Doc:
    """What docs/ops.md says of an operation: forward, the backward rule, and where the derivation can be read."""

    __slots__ = ("backward", "forward", "reference")

    def __init__(self, forward: str, backward: str, reference: str = ""):
        self.forward, self.backward, self.reference = forward, backward, reference


class Linear:
    """Stands for an input that an equation is linear in, when the equation is transposed."""

    __slots__ = ("aval",)

    def __init__(self, aval: Aval):
        self.aval = aval


class Primitive:
    """One operation. Calling it binds it: records an equation in the active trace, or evaluates it when there is none."""

    def __init__(
        self,
        name: str,
        kind: str,
        typ: Callable[..., list[Aval]],
        doc: Doc,
        *,
        jvp: Callable | None = None,
        transpose: Callable | None = None,
        transpose_onto: Callable | None = None,
        batch: Callable | None = None,
        body: Callable | None = None,
        numpy: Callable | None = None,
        expand: Callable | None = None,
        prune: Callable[[Eqn, list[bool]], Eqn] | None = None,
        split: Callable[[Eqn, list[bool]], tuple[list[Eqn], Eqn, list[Var]]] | None = None,
        supports: Callable[[Sequence[Aval]], bool] | None = None,
        identity: Callable[[np.dtype], Any] | None = None,
        cheap: bool = True,
        raises: bool = False,
    ):
        self.parts: Callable | None = None  # declared in primitives/complex.py; `numpy` has its bits if `exact_parts`
        self.exact_parts = False
        self.name, self.kind, self.typ, self.doc = name, kind, typ, doc
        self._jvp, self._transpose, self._batch = jvp, transpose, batch
        self.transpose_onto = transpose_onto
        self.body, self.numpy, self.expand, self.prune, self.split = body, numpy, expand, prune, split
        self.supports = supports or kernel_dtypes  # whether the kernel body takes these operands
        self.identity = identity  # of a reduction's combine body
        self.cheap = cheap  # recomputing costs less than a trip to memory
        self.raises = raises  # values can make it fail, so its error needs the user's line
        self._types: dict[tuple, list[Aval]] = {}

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple:
        return lookup, (self.name,)

    def definition(self, avals: Iterable[Aval]) -> Callable | None:
        """What defines the operation on operands, and with results, of these types through other primitives, if anything does."""
        if self.kind == "expand":
            return self.expand
        return self.parts if self.parts is not None and any([a.dtype.kind == "c" for a in avals]) else None

    def __call__(self, *args: Any, **params: Any) -> Any:
        outs = bind(self, args, params)
        return outs[0] if len(outs) == 1 else outs

    def types(self, avals: Sequence[Aval], params: dict[str, Any]) -> list[Aval]:
        """What `typ` answers, remembered: tracing asks for every equation."""
        if self.kind in ("call", "control"):  # whose parameters hold programs, which must not be kept alive here
            return self.typ(*avals, **params)
        key = (*avals, *params.items()) if params else tuple(avals)
        try:
            found = self._types.get(key)
        except TypeError:  # an unhashable parameter
            return self.typ(*avals, **params)
        if found is None:
            if len(self._types) >= TYPES_KEPT:
                self._types.clear()
            found = self._types[key] = self.typ(*avals, **params)
        return found

    def _rule(self, rule: Callable | None, transform: str, field: str) -> Callable:
        if rule is None:
            raise errors.NonDifferentiableError(
                f"primitive '{self.name}' has no rule for {transform}",
                why=f"Its declaration leaves the field '{field}' empty.",
                fix=f"Give Primitive('{self.name}', ...) a {field}= rule; docs/design.md shows the signature.",
            )
        return rule

    @property
    def jvp(self) -> Callable:
        return self._rule(self._jvp, "forward-mode differentiation", "jvp")

    @property
    def transpose(self) -> Callable:
        if self._transpose is None:
            raise errors.NonDifferentiableError(
                f"cannot transpose '{self.name}': it is not linear in what is differentiated",
                why="Reverse mode runs the derivative backwards: what a custom_jvp rule returns must be linear in its tangents.",
                fix="Use the tangents only in sums, in products with primals, and in linear functions such as np.sum or @.",
            )
        return self._transpose

    @property
    def batch(self) -> Callable:
        return self._rule(self._batch, "vmap", "batch")


def lookup(name: str) -> Primitive:
    """The primitive called `name`."""
    try:
        return REGISTRY[name]
    except KeyError:
        raise errors.UnsupportedError(
            f"there is no primitive '{name}'",
            fix="See docs/ops.md for the list.",
            why="Primitives are looked up by name, in programs read from text for example.",
        ) from None


def register(prim: Primitive) -> Primitive:
    if prim.name in REGISTRY:
        raise ValueError(f"primitive '{prim.name}' is declared twice")
    REGISTRY[prim.name] = prim
    return prim


def bind(prim: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Record the operation in the active trace, or evaluate it. Set by fxgrad.trace.tracing, which knows both."""
    raise NotImplementedError


# ---- helpers for rules ------------------------------------------------------------------------------------------------

_KERNEL_DTYPES = frozenset(
    np.dtype(d) for d in ("bool", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
)
_FLOAT_DTYPES = frozenset((np.dtype(np.float32), np.dtype(np.float64)))


def kernel_dtypes(avals: Sequence[Aval]) -> bool:
    """The kernel language has these dtypes (float16 and complex are computed by conversion, outside kernels)."""
    return all([a.dtype in _KERNEL_DTYPES for a in avals])


def float_kernels(avals: Sequence[Aval]) -> bool:
    """For bodies written for float32 and float64 only."""
    return all([a.dtype in _FLOAT_DTYPES for a in avals])


def is_float(dtype: np.dtype) -> bool:
    """Differentiable dtypes."""
    return dtype.kind in "fc"


def zeros(aval: Aval) -> Any:
    """An array of zeros: recorded in the active trace, or made now."""
    from fxgrad.primitives.shape import broadcast
    from fxgrad.trace.tracing import current_trace

    if aval.dtype == TAPE:
        from fxgrad.primitives.tape import no_tape

        return no_tape(shape=aval.shape)
    zero = aval.dtype.type(0)
    if not aval.shape:
        return zero
    return np.zeros(aval.shape, aval.dtype) if current_trace() is None else broadcast(zero, shape=aval.shape, dims=())


def instantiate(tangent: Any, aval: Aval) -> Any:
    """The tangent, with a symbolic zero turned into an array."""
    return zeros(aval) if tangent is None else tangent


def add_tangents(terms: Sequence[Any]) -> Any:
    """Sum of tangents, in order; None if all are symbolic zeros."""
    total = None
    for t in terms:
        if t is not None:
            total = t if total is None else plus(total, t)
    return total


def plus(a: Any, b: Any) -> Any:
    """The sum of two tangents or cotangents, which may be tapes."""
    from fxgrad.primitives.elementwise import add

    if a.dtype == TAPE:
        from fxgrad.primitives.tape import tape_add

        return tape_add(a, b)
    return add(a, b)


def type_error(prim: str, avals: Sequence[Aval], why: str) -> errors.FxTypeError:
    return errors.FxTypeError(
        f"{prim} got {', '.join(map(str, avals))}",
        why=why,
        fix="Call the function of fxgrad.numpy, which converts and broadcasts; or do so first: astype, np.broadcast_to, reshape.",
    )


# ---- schemas -----------------------------------------------------------------------------------------------------------


def elementwise_shape(name: str, avals: Sequence[Aval]) -> tuple[int, ...]:
    """The common shape; scalars (literals) meet any shape."""
    shape: tuple[int, ...] = ()
    for a in avals:
        if a.shape != shape and a.shape != ():
            if shape != ():
                raise type_error(name, avals, "Operands of an elementwise primitive have one shape; broadcast first.")
            shape = a.shape
    return shape


def _elementwise_typ(name: str, result: str, operands: str) -> Callable[..., list[Aval]]:
    """Type rule: one common dtype of the kinds in `operands`; the result has it too, or is bool."""

    def typ(*avals: Aval, **params: Any) -> list[Aval]:
        dtype = avals[0].dtype
        if any(a.dtype != dtype for a in avals):
            raise type_error(name, avals, "Operands of an elementwise primitive have one dtype; convert first.")
        if dtype.kind not in operands:
            raise type_error(name, avals, f"It takes dtypes of kind {' '.join(operands)}; convert first.")
        return [Aval(elementwise_shape(name, avals), np.dtype(np.bool_) if result == "bool" else dtype)]

    return typ


def batch_elementwise(prim: Callable[[], Primitive]) -> Callable:
    """Operands without the batch axis are broadcast along it; a literal meets any shape.

    A scalar variable does not: its cotangent, in the shape of the result, would not be summed to the scalar's.
    """

    def rule(size: int, args: Sequence[Any], batched: Sequence[bool], **params: Any) -> tuple[list, list[bool]]:
        from fxgrad.primitives.shape import add_batch_axis, broadcast

        shapes = [aval_of(a).shape for a in args]
        full = max((s if b else (size, *s) for s, b in zip(shapes, batched, strict=True)), key=len)
        together = []
        for a, s, b in zip(args, shapes, batched, strict=True):
            if b:
                together.append(a if len(s) == len(full) else broadcast(a, shape=full, dims=(0,)))
            else:
                together.append(a if isinstance(a, np.generic) else add_batch_axis(a, size))
        return [prim()(*together, **params)], [True]

    return rule


def batch_together(size: int, args: Sequence[Any], batched: Sequence[bool]) -> list[Any]:
    """All operands with a leading axis of `size` (NumPy scalars, which meet any shape, stay)."""
    from fxgrad.primitives.shape import add_batch_axis

    return [a if b or isinstance(a, np.generic) else add_batch_axis(a, size) for a, b in zip(args, batched, strict=True)]


def elementwise(
    name: str,
    body: Callable | None,
    doc: Doc,
    *,
    partials: Sequence[Callable | None] | None,
    numpy: Callable | None = None,
    result: str = "same",
    operands: str = "f",
    transpose: Callable | None = None,
    supports: Callable[[Sequence[Aval]], bool] | None = None,
    cheap: bool = True,
) -> Primitive:
    """Declare y = f(x1, ..., xn) element by element.

    `partials[i](y, *xs, **params)` is the derivative by operand i; the tangent is the strong product of the two. `partials=None`
    declares a function whose derivative is zero wherever it exists (floor, comparisons).
    """

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list, list]:
        from fxgrad.primitives.elementwise import lin_mul

        y = prim(*primals, **params)
        if partials is None:
            return [y], [None]
        terms = [
            lin_mul(t, p(y, *primals, **params))
            for t, p in zip(tangents, partials, strict=True)
            if t is not None and p is not None
        ]
        return [y], [add_tangents(terms)]

    prim = Primitive(
        name,
        "map",
        _elementwise_typ(name, result, operands),
        doc,
        jvp=jvp,
        transpose=transpose,
        batch=batch_elementwise(lambda: prim),
        body=body,
        numpy=numpy,
        supports=supports or (float_kernels if operands in ("f", "fc", "c") else None),
        cheap=cheap,
    )
    return register(prim)


def linear_map(
    name: str,
    kind: str,
    typ: Callable,
    doc: Doc,
    *,
    transpose: Callable,
    batch: Callable,
    numpy: Callable | None = None,
    body: Callable | None = None,
    **fields: Any,
) -> Primitive:
    """Declare an operation linear in its first operand, the others being indices or sizes: its jvp is itself."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list, list]:
        y = prim(*primals, **params)
        t = tangents[0]
        return [y], [None if t is None else prim(t, *primals[1:], **params)]

    prim = Primitive(name, kind, typ, doc, jvp=jvp, transpose=transpose, batch=batch, numpy=numpy, body=body, **fields)
    return register(prim)
