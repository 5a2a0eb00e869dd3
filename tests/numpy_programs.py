"""Random programs in NumPy's functions, drawn by hypothesis: what `tests/test_random_programs.py` runs in every mode.

A `Spec` is data (inputs, steps), so that a failing one can be made smaller and printed; `Spec.run(np_, arrays)` interprets it
with NumPy or with `fxgrad.numpy`. While a program is drawn it is also computed with NumPy, which tells shapes and dtypes; so
every program is valid, and none is thrown away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special
from hypothesis import strategies as st

import fxgrad.numpy as fnp
from fxgrad import lax

Shape = tuple[int, ...]
SHAPES: list[Shape] = [(3,), (), (2, 3), (1,), (3, 1), (1, 3), (17,), (0,), (2, 1, 3), (0, 3), (4, 2), (5, 5)]
LARGEST = 600  # elements of an intermediate value

# ---- operations --------------------------------------------------------------------------------------------------------
# Each takes the namespace, the operands, and its parameters.

UNARY = ["negative", "absolute", "sign", "exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tanh", "arctan", "floor",
         "square", "cbrt", "reciprocal", "logistic", "sinh", "rint"]  # fmt: skip
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "arctan2", "hypot", "power", "logaddexp"]
COMPARE = ["less", "greater_equal", "equal", "not_equal"]
REDUCE = ["sum", "mean", "max", "min", "prod", "var", "logsumexp"]


def _unary(np_: Any, x: Any, name: str) -> Any:
    if name == "logistic":
        return lax.logistic(x) if np_ is fnp else scipy.special.expit(x)
    return getattr(np_, name)(x)


def _binary(np_: Any, x: Any, y: Any, name: str) -> Any:
    return getattr(np_, name)(np_.absolute(x) if name == "power" else x, y)


def _reduce(np_: Any, x: Any, name: str, axis: Any, keepdims: bool) -> Any:
    if name == "logsumexp":
        peak = np_.max(x, axis=axis, keepdims=True)
        total = np_.sum(np_.exp(x - peak), axis=axis, keepdims=keepdims)
        return np_.log(total) + np_.max(x, axis=axis, keepdims=keepdims)
    return getattr(np_, name)(x, axis=axis, keepdims=keepdims)


def _to_integers(np_: Any, x: Any, dtype: str) -> Any:
    return np_.where(np_.isfinite(x), np_.clip(x * 4, -9, 9), 0.0).astype(dtype)


def _pick(np_: Any, x: Any, i: Any) -> Any:
    """Rows of x at computed places."""
    return np_.take(x, np_.remainder(i, max(1, x.shape[0])), axis=0)


def _softmax(np_: Any, x: Any) -> Any:
    e = np_.exp(x - np_.max(x, axis=-1, keepdims=True))
    return e / np_.sum(e, axis=-1, keepdims=True)


OPS: dict[str, Callable[..., Any]] = {
    "unary": _unary,
    "binary": _binary,
    "scalar": lambda np_, x, name, c: _binary(np_, x, c, name),
    "compare": lambda np_, x, y, name: getattr(np_, name)(x, y),
    "where": lambda np_, m, x, y: np_.where(m, x, y),
    "logic": lambda np_, m, n, name: getattr(np_, name)(m, n),
    "clip": lambda np_, x, lo, hi: np_.clip(x, lo, hi),
    "convert": lambda np_, x, dtype: x.astype(dtype),
    "to_integers": _to_integers,
    "reduce": _reduce,
    "arg": lambda np_, x, name, axis: getattr(np_, name)(x, axis=axis),
    "anyall": lambda np_, m, name, axis: getattr(np_, name)(m, axis=axis),
    "cumulate": lambda np_, x, name, axis: getattr(np_, name)(x, axis=axis),
    "softmax": _softmax,
    "reshape": lambda np_, x, shape: np_.reshape(x, shape),
    "transpose": lambda np_, x, axes: np_.transpose(x, axes),
    "flip": lambda np_, x, axis: np_.flip(x, axis),
    "broadcast": lambda np_, x, shape: np_.broadcast_to(x, shape),
    "expand": lambda np_, x, axis: np_.expand_dims(x, axis),
    "concatenate": lambda np_, x, y, axis: np_.concatenate([x, y, x], axis=axis),
    "stack": lambda np_, x, y: np_.stack([x, y]),
    "pad": lambda np_, x, width, c: np_.pad(x, width, constant_values=c),
    "repeat": lambda np_, x, n, axis: np_.repeat(x, n, axis=axis),
    "roll": lambda np_, x, n, axis: np_.roll(x, n, axis=axis),
    "index": lambda np_, x, key: x[tuple(np.asarray(k) if isinstance(k, list) else k for k in key)],
    "pick": _pick,
    "sort": lambda np_, x, axis: np_.sort(x, axis=axis),
    "matmul": lambda np_, x, y: np_.matmul(x, y),
    "outer": lambda np_, x, y: np_.multiply(x[:, None], y[None, :]),
}


# ---- programs ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One operation on earlier values (inputs first, then steps, by number)."""

    op: str
    operands: tuple[int, ...]
    params: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Input:
    shape: Shape
    dtype: str
    seed: int

    def array(self, seed: int = 0) -> np.ndarray:
        """Ordinary numbers for even seeds; odd ones also have zeros, ties, infinities, NaN and numbers near the ends."""
        rng = np.random.default_rng([self.seed, seed])
        x = rng.normal(size=self.shape)
        if self.seed % 2:
            odd = rng.choice(
                [0.0, -0.0, 1.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 88.5, -104.0, 1e30, -1e-30, 1e-40], self.shape
            )
            x = np.where(rng.random(self.shape) < 0.4, odd, x)
        return np.asarray(x).astype(self.dtype)


@dataclass(frozen=True)
class Spec:
    """A program: its inputs, its steps, and the numbers of the values it answers (the first is of a float dtype)."""

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    dtypes: tuple[str, ...]  # of all values

    def arrays(self, seed: int = 0) -> list[np.ndarray]:
        return [i.array(seed) for i in self.inputs]

    def run(self, np_: Any, arrays: Sequence[Any], after: Callable[[int, Any], Any] = lambda i, x: x) -> list[Any]:
        """The outputs; `after` sees (and may replace) every value."""
        values = list(arrays)
        for step in self.steps:
            x = OPS[step.op](np_, *[values[i] for i in step.operands], **dict(step.params))
            values.append(after(len(values), x))
        return [values[i] for i in self.outputs]

    def function(self, *arrays: Any) -> list[Any]:
        """The program for fxgrad."""
        return self.run(fnp, arrays)

    def loss(self, *arrays: Any) -> Any:
        """A scalar that every float output enters with weights of its own."""
        total = None
        for i, x in zip(self.outputs, self.function(*arrays), strict=True):
            if np.dtype(self.dtypes[i]).kind == "f":
                weights = np.cos(np.arange(float(np.prod(x.shape)))).reshape(x.shape).astype(x.dtype)
                term = fnp.sum(x * weights)
                total = term if total is None else total + term
        return total

    def __repr__(self) -> str:
        lines = [f"  v{n} = {i.dtype}{list(i.shape)}, seed {i.seed}" for n, i in enumerate(self.inputs)]
        for n, s in enumerate(self.steps, len(self.inputs)):
            params = "".join(f", {k}={v!r}" for k, v in s.params)
            lines.append(f"  v{n} = {s.op}({', '.join(f'v{i}' for i in s.operands)}{params})  # {self.dtypes[n]}")
        return "\n".join(["program {", *lines, f"  return {', '.join(f'v{i}' for i in self.outputs)}", "}"])


class _Drawing:
    """A program being drawn: its steps and NumPy's values of them."""

    def __init__(self, draw: Callable[[Any], Any], inputs: Sequence[Input]):
        self.draw = draw
        self.values: list[np.ndarray] = [i.array() for i in inputs]
        self.steps: list[Step] = []

    def one_of(self, items: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(items)))

    def value(self, kinds: str, good: Callable[[np.ndarray], bool] = lambda x: True) -> int | None:
        """The number of an earlier value of these dtype kinds, the last ones first; None if there is none."""
        found = [i for i, x in enumerate(self.values) if x.dtype.kind in kinds and good(x)]
        return self.one_of(found[::-1]) if found else None

    def append(self, op: str, operands: Sequence[int], **params: Any) -> bool:
        step = Step(op, tuple(operands), tuple(params.items()))
        with np.errstate(all="ignore"):
            x = np.asarray(OPS[op](np, *[self.values[i] for i in operands], **params))
        if x.size > LARGEST or x.ndim > 4:
            return False
        self.steps.append(step)
        self.values.append(x)
        return True

    def step(self) -> None:
        """One operation; where its kind does not fit the values there are, an elementwise one."""
        kind = self.one_of(_KINDS)
        if not getattr(self, kind)():
            self.unary()

    # ---- kinds of operations: each appends a step and tells whether it could ----

    def unary(self) -> bool:
        i = self.value("f")
        return i is not None and self.append("unary", [i], name=self.one_of(UNARY))

    def scalar(self) -> bool:
        i = self.value("f")
        return self.append("scalar", [i], name=self.one_of(BINARY), c=self.one_of([2.0, 0.5, -1.0, 0.0, 1e-3, 3, 1e20]))

    def pair(self, kinds: str) -> tuple[int, int] | None:
        """Two values that broadcast together."""
        i = self.value(kinds)
        if i is None:
            return None
        j = self.value(kinds, lambda y: _broadcast(self.values[i].shape, y.shape))
        return None if j is None else (i, j)

    def binary(self) -> bool:
        pair = self.pair("f")
        return self.append("binary", pair, name=self.one_of(BINARY))

    def mixed(self) -> bool:
        """Integers or booleans with floats: NumPy's promotion."""
        pair = self.pair("fi")
        return self.append("binary", pair, name=self.one_of(["add", "multiply", "subtract", "maximum"]))

    def compare(self) -> bool:
        return self.append("compare", self.pair("f"), name=self.one_of(COMPARE))

    def logic(self) -> bool:
        pair = self.pair("b")
        return pair is not None and self.append("logic", pair, name=self.one_of(["logical_and", "logical_or", "logical_xor"]))

    def where(self) -> bool:
        pair, m = self.pair("f"), None
        shape = np.broadcast_shapes(*(self.values[i].shape for i in pair))
        m = self.value("b", lambda x: _broadcast(x.shape, shape))
        if m is None:
            self.append("compare", pair, name="less")
            m = len(self.values) - 1
        return self.append("where", [m, *pair])

    def clip(self) -> bool:
        return self.append("clip", [self.value("f")], lo=self.one_of([-1.0, 0.0]), hi=self.one_of([1.0, 0.5]))

    def convert(self) -> bool:
        i = self.value("fib")
        return self.append("convert", [i], dtype=self.one_of(["float32", "float64"]))

    def integers(self) -> bool:
        return self.append("to_integers", [self.value("f")], dtype=self.one_of(["int32", "int64", "uint8"]))

    def axis(self, x: np.ndarray) -> int:
        return self.draw(st.integers(-x.ndim, x.ndim - 1))

    def reduce(self) -> bool:
        i = self.value("f")
        x, name = self.values[i], self.one_of(REDUCE)
        axis = None if not x.ndim or self.draw(st.booleans()) else self.axis(x)
        if name not in ("sum", "prod") and (x.size == 0 or (axis is not None and x.shape[axis] == 0)):
            name = "sum"
        return self.append("reduce", [i], name=name, axis=axis, keepdims=self.draw(st.booleans()))

    def arg(self) -> bool:
        i = self.value("f", lambda x: x.ndim > 0 and x.size > 0)
        return i is not None and self.append(
            "arg", [i], name=self.one_of(["argmax", "argmin", "argsort"]), axis=self.axis(self.values[i])
        )

    def anyall(self) -> bool:
        i = self.value("b", lambda x: x.ndim > 0)
        return i is not None and self.append("anyall", [i], name=self.one_of(["any", "all"]), axis=self.axis(self.values[i]))

    def along(self, op: str, **params: Any) -> bool:
        i = self.value("f", lambda x: x.ndim > 0 and x.size > 0)
        return i is not None and self.append(op, [i], **params, axis=self.axis(self.values[i]))

    def cumulate(self) -> bool:
        return self.along("cumulate", name=self.one_of(["cumsum", "cumprod"]))

    def sort(self) -> bool:
        return self.along("sort")

    def softmax(self) -> bool:
        i = self.value("f", lambda x: x.ndim > 0 and x.size > 0)
        return i is not None and self.append("softmax", [i])

    def view(self) -> bool:
        i = self.value("f")
        x, kind = self.values[i], self.one_of(["reshape", "transpose", "flip", "broadcast", "expand"])
        if kind == "reshape":
            return self.append(
                "reshape", [i], shape=self.one_of([(-1,), (*x.shape, 1), x.shape[::-1]] if x.size else [x.shape[::-1]])
            )
        if kind == "transpose":
            return self.append("transpose", [i], axes=tuple(self.draw(st.permutations(range(x.ndim)))))
        if kind == "flip" and x.ndim:
            return self.append("flip", [i], axis=self.axis(x))
        if kind == "broadcast":
            return self.append(
                "broadcast", [i], shape=(self.one_of([2, 1, 3]), *(n if n != 1 else self.one_of([1, 3]) for n in x.shape))
            )
        return self.append("expand", [i], axis=self.draw(st.integers(0, x.ndim)))

    def join(self) -> bool:
        i = self.value("f", lambda x: x.ndim > 0)
        if i is None:
            return False
        x = self.values[i]
        j = self.value("f", lambda y: y.shape == x.shape and y.dtype == x.dtype)
        if self.draw(st.booleans()):
            return self.append("stack", [i, j])
        return self.append("concatenate", [i, j], axis=self.axis(x))

    def move(self) -> bool:
        kind = self.one_of(["pad", "repeat", "roll"])
        if kind == "pad":
            i = self.value("f", lambda x: x.ndim > 0)
            return i is not None and self.append("pad", [i], width=self.one_of([1, (0, 2)]), c=self.one_of([0.0, 1.5]))
        return self.along(kind, n=self.one_of([1, 2]))

    def index(self) -> bool:
        i = self.value("f", lambda x: x.ndim > 0 and x.size > 0)
        if i is None:
            return False
        n = self.values[i].shape[0]
        keys: list[tuple] = [
            (0,), (-1,), (slice(None, None, 2),), (slice(None, None, -1),), (slice(1, None),), (Ellipsis, None),
            ([0, -1, 0],), ([[0], [n - 1]],), (Ellipsis, -1), (Ellipsis, [0, 0]),
        ]  # fmt: skip
        return self.append("index", [i], key=self.one_of(keys))

    def pick(self) -> bool:
        i = self.value("f", lambda x: x.ndim > 0 and x.shape[0] > 0)
        j = self.value("i")
        return i is not None and j is not None and self.append("pick", [i, j])

    def product(self) -> bool:
        i = self.value("f", lambda x: 0 < x.ndim < 3)
        if i is None:
            return False
        x = self.values[i]
        j = self.value("f", lambda y: 0 < y.ndim < 3 and y.shape[-2 if y.ndim == 2 else -1] == x.shape[-1])
        return j is not None and self.append("matmul", [i, j])

    def outer(self) -> bool:
        i, j = (self.value("f", lambda x: x.ndim == 1) for _ in range(2))
        return i is not None and j is not None and self.append("outer", [i, j])


_KINDS = [
    *["unary"] * 5, *["binary"] * 7, *["scalar"] * 3, *["reduce"] * 5, *["view"] * 4, *["product"] * 2,
    *["where", "cumulate", "join", "index"] * 2, "mixed", "compare", "logic", "clip", "convert", "integers", "arg", "anyall",
    "softmax", "sort", "move", "pick", "outer",
]  # fmt: skip


def _broadcast(a: Shape, b: Shape) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1], strict=False))


@st.composite
def specs(draw: Callable[[Any], Any], largest: int = 25) -> Spec:
    """A program of 3 to `largest` operations over one to three arrays of one or two dtypes."""
    dtypes = draw(st.sampled_from([("float64",), ("float32",), ("float64", "float32")]))
    inputs = draw(
        st.lists(st.builds(Input, st.sampled_from(SHAPES), st.sampled_from(dtypes), st.integers(0, 9)), min_size=1, max_size=3)
    )
    drawing = _Drawing(draw, inputs)
    for _ in range(draw(st.integers(3, largest))):
        drawing.step()
    floats = [i for i, x in enumerate(drawing.values) if x.dtype.kind == "f"]
    others = draw(st.lists(st.integers(0, len(drawing.values) - 1), max_size=2, unique=True))
    outputs = tuple(dict.fromkeys([floats[-1], *others]))
    return Spec(tuple(inputs), tuple(drawing.steps), outputs, tuple(str(x.dtype) for x in drawing.values))


# ---- smaller programs --------------------------------------------------------------------------------------------------


def live(spec: Spec, outputs: Sequence[int], instead: dict[int, int] | None = None) -> Spec:
    """The program that answers `outputs`, without what they do not need; values named in `instead` replaced by earlier ones."""
    n = len(spec.inputs)

    def final(i: int) -> int:
        while instead and i in instead:
            i = instead[i]
        return i

    needed, stack = set(), [final(i) for i in outputs]
    while stack:
        i = stack.pop()
        if i not in needed:
            needed.add(i)
            stack += [final(j) for j in spec.steps[i - n].operands] if i >= n else []
    number = {i: k for k, i in enumerate(sorted(needed | set(range(n))))}
    steps = [
        Step(spec.steps[i - n].op, tuple(number[final(j)] for j in spec.steps[i - n].operands), spec.steps[i - n].params)
        for i in number
        if i >= n
    ]
    return Spec(spec.inputs, tuple(steps), tuple(number[final(i)] for i in outputs), tuple(spec.dtypes[i] for i in number))


def smaller(spec: Spec) -> Iterator[Spec]:
    """Simpler programs of the same kind: fewer outputs, earlier ones, a step left out, plainer inputs."""
    n = len(spec.inputs)
    for i in range(n, n + len(spec.steps)):
        if np.dtype(spec.dtypes[i]).kind == "f" and (i,) != spec.outputs:
            yield live(spec, [i])
    for i in range(len(spec.outputs)):
        if len(spec.outputs) > 1:
            yield live(spec, [*spec.outputs[:i], *spec.outputs[i + 1 :]])
    for i in range(n, n + len(spec.steps)):
        for j in spec.steps[i - n].operands:
            if spec.dtypes[j] == spec.dtypes[i]:
                yield live(spec, spec.outputs, {i: j})
    for i, old in enumerate(spec.inputs):
        for shape in ((), (1,), (3,)):
            if int(np.prod(shape)) < int(np.prod(old.shape)):
                new = Input(shape, old.dtype, old.seed)
                yield Spec((*spec.inputs[:i], new, *spec.inputs[i + 1 :]), spec.steps, spec.outputs, spec.dtypes)


def minimise(spec: Spec, fails: Callable[[Spec], bool], seconds: float) -> Spec:
    """A program for which `fails` holds too, and for none of its `smaller` ones if time allows."""
    end = time.monotonic() + seconds
    again = True
    while again and time.monotonic() < end:
        again = False
        for candidate in smaller(spec):
            if time.monotonic() > end:
                break
            if fails(candidate):
                spec, again = candidate, True
                break
    return spec
