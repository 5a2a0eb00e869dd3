"""Eager evaluation: one primitive, or a program, on the kernels compiled code uses.

`operation(prim, avals, params)` is made once for each structure and then costs little more than the operation. A program runs
op by op at first; once it is hot it is compiled in the background and runs compiled from then on, with the same bits. Nothing
here imports the compiler until a kernel is needed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.config import config, jit_disabled
from fxgrad.ir.program import Program, programs_in
from fxgrad.ir.types import TAPE, Aval, Lit, Var
from fxgrad.primitives.base import Primitive, kernel_dtypes
from fxgrad.runtime import background
from fxgrad.runtime.buffers import Block
from fxgrad.runtime.caches import on_clear
from fxgrad.runtime.conv import conv_call
from fxgrad.runtime.loops import control_call
from fxgrad.runtime.matmul import product_call
from fxgrad.runtime.tree import reduce_tree

__all__ = [
    "EagerPlan", "Runner", "direct", "evaluate", "has_kernel", "operation", "own", "prepared_tables", "run_program", "runner",
    "wait_for_background",
]  # fmt: skip

_HALF = np.dtype(np.float16)
_SINGLE = np.dtype(np.float32)
_memo: dict[Any, Callable] = {}
MEMO_LIMIT = 1 << 16
_MOST_VARIANTS = 256  # layouts of the operands of one operation


def _memo_key(prim: Primitive, avals: Sequence[Aval], params: dict[str, Any]) -> Any:
    key = (prim, tuple(avals), tuple(sorted(params.items())) if params else ())
    return key if prim.kind not in ("call", "control") else (*key, *[p.places for p in programs_in(params)])


def operation(prim: Primitive, avals: Sequence[Aval], params: dict[str, Any]) -> Callable:
    """Evaluation of one primitive: a function of arrays that returns its result, or the list of its results."""
    key = _memo_key(prim, avals, params)
    found = _memo.get(key)
    if found is None:
        if len(_memo) >= MEMO_LIMIT:  # a program that meets ever new shapes; what is in use is made again
            forget_operations()
        found = _memo[key] = _make(prim, avals, params)
    return found


_contexts: list[Context] = []  # in which NumPy does not warn of floating-point errors; entering one beats np.errstate


def quietly(f: Callable[..., Any], *args: Any) -> Any:
    """`f(*args)` without NumPy's floating-point warnings; f calls no user code."""
    try:
        context = _contexts.pop()
    except IndexError:
        context = Context()
        context.run(partial(np.seterr, all="ignore"))
    try:
        return context.run(f, *args)
    finally:
        _contexts.append(context)


def _is_silent(run: Callable) -> bool:
    """Kernels raise no floating-point warnings."""
    return getattr(run, "__name__", "") == "kernel_call"


def direct(prim: Primitive, avals: Sequence[Aval], params: dict[str, Any]) -> Callable[..., Any]:
    """What `evaluate` does for operands of these types in native byte order, for a primitive with one result."""
    run = operation(prim, avals, params)
    (out,) = prim.types(avals, params)
    if _is_silent(run):
        return run if out.shape else lambda *arrays: run(*arrays)[()]
    if not out.shape:
        return lambda *arrays: np.asarray(quietly(run, *arrays))[()]
    if len(avals) == 1:
        return lambda x: quietly(run, x)
    return lambda *arrays: quietly(run, *arrays)


prepared_tables: list[dict[Any, Any]] = []  # of functions that keep what `direct` and `runner` gave them
_calls: dict[Any, tuple[Callable, bool]] = {}  # by shapes and dtype characters, which hash faster than avals


@on_clear
def forget_operations() -> None:
    """Drop prepared operations (those in use stay valid)."""
    tables: list[dict[Any, Any]] = [_memo, _calls, *prepared_tables]
    for table in tables:
        table.clear()


def _call_of(prim: Primitive, args: Sequence[Any], params: dict[str, Any]) -> tuple[Callable, bool]:
    """The operation for these arguments, and whether it is a kernel, which raises no floating-point warnings."""
    key: Any = (prim, *[(a.shape, a.dtype.char) for a in args], *(sorted(params.items()) if params else ()))
    try:
        found = _calls.get(key)
    except TypeError:  # an unhashable parameter
        found, key = None, None
    if found is None:
        run = operation(prim, [Aval(a.shape, a.dtype) for a in args], params)
        found = run, _is_silent(run)
        if key is not None:
            _calls[key] = found
    return found


def native_order(arrays: Sequence[Any]) -> Sequence[Any]:
    """The same values in the machine's byte order (seldom a copy: files and network data come otherwise)."""
    for a in arrays:
        if not a.dtype.isnative:
            return [x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("=")) for x in arrays]
    return arrays


def evaluate(prim: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list:
    """One primitive on arrays or NumPy scalars, now; views may share memory with operands, as NumPy's do."""
    args = native_order(args)
    run, silent = _call_of(prim, args, params)
    result = run(*args) if silent else quietly(run, *args)
    if type(result) is list or type(result) is tuple:
        return [x[()] if x.ndim == 0 else x for x in result]
    return [result if result.ndim else result[()]]


def run_program(program: Program, args: Sequence[Any]) -> list:
    """A program on arrays; what has been prepared for it is kept on the program."""
    results = runner(program)(args)
    if config.debug_nans:
        from fxgrad.runtime.nans import check_program

        check_program(program, args, results)
    return results


def _make(prim: Primitive, avals: Sequence[Aval], params: dict[str, Any]) -> Callable:
    outs = prim.typ(*avals, **params)
    if prim.kind != "expand" and not prim.exact_parts and prim.definition([*avals, *outs]) is not None:
        from fxgrad.trace.tracing import trace_expansion

        return _from_program(runner(trace_expansion(prim, avals, params)), len(outs))
    if prim.kind in ("map", "reduce"):
        return _make_arithmetic(prim, avals, params, outs[0])
    if prim.kind in ("view", "host"):
        run = _from_numpy(prim, params)
        prepare = _PREPARED.get(prim.name)
        return run if prepare is None else prepare(avals, params, outs[0], run)
    if prim.kind == "expand":
        from fxgrad.trace.tracing import trace_expansion

        return _from_program(EagerPlan(trace_expansion(prim, avals, params)).run, len(outs))
    if prim.kind == "call":
        return _from_program(_call_runner(prim, params["program"]), len(outs))
    if prim.kind == "control":
        run = control_call(prim, avals, params, outs)
        return _from_program(lambda arrays: run(*arrays), len(outs))
    raise ValueError(f"primitive '{prim.name}' has unknown kind '{prim.kind}'")


_PREPARED = {"dot": product_call, "conv": conv_call}  # kernels of their own


def _call_runner(prim: Primitive, program: Program) -> Callable[[list], list]:
    if prim.name == "jit_call":
        from fxgrad.compile.lower import compile_program

        return lambda arrays: compile_program(program)(*arrays)
    return EagerPlan.of(program).run


def _from_program(run: Callable[[list], list], count: int) -> Callable:
    if count == 1:
        return lambda *arrays: run(list(arrays))[0]
    return lambda *arrays: run(list(arrays))


def _from_numpy(prim: Primitive, params: dict[str, Any]) -> Callable:
    if prim.numpy is None:
        raise errors.UnsupportedError(
            f"primitive '{prim.name}' has no NumPy evaluation",
            why=f"Its kind is '{prim.kind}', and such operations run as NumPy calls.",
            fix=f"Give Primitive('{prim.name}', ...) a numpy= function.",
        )
    return partial(prim.numpy, **params) if params else prim.numpy


# ---- map and reduce ------------------------------------------------------------------------------------------------------


def has_kernel(prim: Primitive, avals: Sequence[Aval], outs: Sequence[Aval]) -> bool:
    """Whether the operation can be part of a kernel."""
    if prim.name == "complex":  # a place in memory for two results, of which either is in a register
        return True
    return prim.body is not None and prim.supports(avals) and kernel_dtypes(avals) and kernel_dtypes(outs)


def _make_arithmetic(prim: Primitive, avals: Sequence[Aval], params: dict[str, Any], out: Aval) -> Callable:
    exact = prim.numpy is not None and (prim.kind == "map" or avals[0].dtype.kind != "f")
    if any(a.dtype == _HALF for a in (*avals, out)):
        return _by_single(prim, avals, params, out)
    if exact:
        return _from_numpy(prim, params)
    if has_kernel(prim, avals, [out]):
        return _map_call(prim, avals, params, out) if prim.kind == "map" else _reduce_call(prim, avals[0], params, out)
    return _by_body(prim, avals, params)


def _by_single(prim: Primitive, avals: Sequence[Aval], params: dict[str, Any], out: Aval) -> Callable:
    """float16 by way of float32, rounded once at the end."""
    if prim.name == "convert":
        return _from_numpy(prim, params)
    wide = [a.with_dtype(_SINGLE) if a.dtype == _HALF else a for a in avals]
    run = operation(prim, wide, params)
    halves = [a.dtype == _HALF for a in avals]
    narrow = out.dtype == _HALF

    def call(*arrays: Any) -> Any:
        result = run(*[np.asarray(x).astype(_SINGLE) if half else x for x, half in zip(arrays, halves, strict=True)])
        return np.asarray(result).astype(_HALF) if narrow else result

    return call


def _by_body(prim: Primitive, avals: Sequence[Aval], params: dict[str, Any]) -> Callable:
    """Dtypes without kernels (complex): the kernel body computed on NumPy arrays."""
    body = prim.body
    if body is None or any(a.dtype.kind not in "cbiu" for a in avals):
        names = ", ".join(map(str, avals))
        raise errors.FxTypeError(
            f"{prim.name} got {names}",
            why="There is neither a kernel nor a NumPy evaluation for these dtypes.",
            fix="Convert the operands to float32, float64 or an integer dtype first.",
        )
    from fxgrad.kernels import language

    if prim.kind == "map":
        return lambda *arrays: body(language, *map(np.asarray, arrays), **params)
    assert prim.identity is not None
    identity = prim.identity(avals[0].dtype)
    return lambda x: reduce_tree(partial(body, language), identity, x, **params)


_Variant = Callable[[Sequence[tuple[int, ...]]], tuple[int, int]]


def _map_call(prim: Primitive, avals: Sequence[Aval], params: dict[str, Any], out: Aval) -> Callable:
    """The primitive's own kernel, one variant for each layout of the operands met."""
    if out.size == 0:
        return lambda *arrays: np.empty(out.shape, out.dtype)
    from fxgrad.compile.single import map_variant

    def variant(strides: Sequence[tuple[int, ...]]) -> tuple[int, int]:
        return map_variant(prim, avals, params, out, strides)

    return _kernel_call(avals, out, variant)


def _reduce_call(prim: Primitive, x: Aval, params: dict[str, Any], out: Aval) -> Callable:
    assert prim.identity is not None
    if x.size == 0:
        value = prim.identity(x.dtype)
        return lambda a: np.full(out.shape, value, out.dtype)
    from fxgrad.compile.single import reduce_variant

    axes: tuple[int, ...] = params["axes"]
    order = (*(d for d in range(x.ndim) if d not in axes), *axes)

    def variant(strides: Sequence[tuple[int, ...]]) -> tuple[int, int] | None:
        return reduce_variant(prim, x, axes, out, strides[0])

    def in_order(a: Any) -> Any:
        """The reduced axes last, without gaps: for layouts that do not walk them as one."""
        moved = np.ascontiguousarray(np.transpose(np.asarray(a, x.dtype), order))
        last = Aval(moved.shape, x.dtype)
        return operation(prim, [last], {"axes": tuple(range(x.ndim - len(axes), x.ndim))})(moved)

    return _kernel_call([x], out, variant, in_order)


def _kernel_call(avals: Sequence[Aval], out: Aval, variant: Callable, otherwise: Callable | None = None) -> Callable:
    """Call of a kernel that looks at the arrays' layout natively; the usual one is C-contiguous."""
    from fxgrad.compile.cache import Recent
    from fxgrad.compile.layout import contiguous
    from fxgrad.runtime.launch import expected_table, launch, launch_checked

    usual = variant([contiguous(a.shape, a.dtype.itemsize).strides for a in avals])
    if usual is None:
        assert otherwise is not None
        return otherwise
    variants = Recent(_MOST_VARIANTS)

    def slow(*arrays: Any) -> Any:
        operands = [_readable(a, aval) for a, aval in zip(arrays, avals, strict=True)]
        key = tuple([a.strides for a in operands])
        found = variants.get(key, usual)
        if found is usual:  # not met lately
            found = variants[key] = variant(key)
        if found is None:
            assert otherwise is not None
            return otherwise(*operands)
        result = np.empty(out.shape, out.dtype)
        operands.append(result)
        t = tuple(operands)
        kernel, plan = found
        launch(kernel, plan, id(t))
        return result

    scalars = tuple(i for i, a in enumerate(avals) if a.shape == ())
    make = _call_template(len(avals), scalars)
    return make(np.empty, np.asarray, launch_checked, slow, out.shape, out.dtype, *usual, expected_table(avals))


def _readable(a: Any, aval: Aval) -> np.ndarray:
    """A native, aligned ndarray of the dtype expected."""
    a = np.asarray(a, aval.dtype)
    if a.shape != aval.shape:
        raise ValueError(f"an operation prepared for {aval} was given shape {a.shape}")
    return a if a.flags.aligned and a.strides is not None else a.copy()


_templates: dict[tuple, Callable] = {}


def _call_template(count: int, scalars: tuple[int, ...]) -> Callable:
    """Python source specialised to the number of operands, since every call pays for it."""
    key = (count, scalars)
    if key not in _templates:
        names = ", ".join(f"a{i}" for i in range(count))
        lines = [
            "def make(empty, asarray, launch_checked, slow, shape, dtype, kernel, plan, expected):",
            f"    def kernel_call({names}):",
            *(f"        a{i} = asarray(a{i})" for i in scalars),
            "        out = empty(shape, dtype)",
            f"        t = ({names}{', ' if count else ''}out,)",
            "        if launch_checked(kernel, plan, id(t), expected):",
            f"            return slow({names})",
            "        return out",
            "    return kernel_call",
        ]
        scope: dict[str, Any] = {}
        exec("\n".join(lines), scope)
        _templates[key] = scope["make"]
    return _templates[key]


# ---- programs ------------------------------------------------------------------------------------------------------------


def own(x: Any, taken: set[int], aval: Aval) -> Any:
    """x as a result to hand out: its own memory, C-contiguous and writable; rank 0 as a NumPy scalar.

    `taken` holds the ids of arguments and of results handed out before.
    """
    if type(x) is not np.ndarray:
        x = np.asarray(x)
    if not aval.shape:
        return x.astype(aval.dtype, copy=False)[()]
    flags = x.flags
    if (
        not (x.base is None or isinstance(x.base, Block))
        or not (flags.c_contiguous and flags.writeable and flags.aligned)
        or x.dtype != aval.dtype
    ):
        return np.array(x, aval.dtype, order="C")
    if id(x) in taken:
        return x.copy()
    taken.add(id(x))
    return x


class EagerPlan:
    """A program prepared to run op by op: operations over a flat list of slots, values dropped after their last use."""

    def __init__(self, program: Program):
        self.program = program
        slots: dict[Var, int] = {}
        for v in program.inputs:
            slots[v] = len(slots)
        self._template: list[Any] = [None] * len(slots)
        self._literals: dict[Lit, int] = {}
        self._slots = slots
        _fetch_kernels(program)
        last = self._last_uses()
        self._steps = [self._step(eqn, i, last) for i, eqn in enumerate(program.eqns)]
        self._outputs = [(self._slot(o), o.aval) for o in program.outputs]
        del self._slots, self._literals

    @classmethod
    def of(cls, program: Program) -> EagerPlan:
        return program.memoize("eager", lambda: cls(program))

    def _last_uses(self) -> list[list[Var]]:
        """For every equation the variables nobody reads after it."""
        kept = {o for o in self.program.outputs if type(o) is Var}
        last: list[list[Var]] = []
        for eqn in reversed(self.program.eqns):
            names = dict.fromkeys([a for a in (*eqn.inputs, *eqn.outputs) if type(a) is Var and a not in kept])
            kept.update(names)
            last.append(list(names))
        return last[::-1]

    def _slot(self, atom: Any) -> int:
        if type(atom) is Var:
            return self._slots[atom]
        if atom not in self._literals:
            self._literals[atom] = len(self._template)
            self._template.append(atom.value)
        return self._literals[atom]

    def _step(self, eqn: Any, i: int, last: list[list[Var]]) -> tuple:
        run = operation(eqn.prim, [a.aval for a in eqn.inputs], eqn.params)
        ins = [self._slot(a) for a in eqn.inputs]
        for v in eqn.outputs:
            self._slots[v] = len(self._template)
            self._template.append(None)
        outs = [self._slots[v] for v in eqn.outputs]
        dead = tuple([self._slots[v] for v in last[i]])
        if len(outs) != 1:
            return 3, run, ins, 0, outs, dead
        if len(ins) == 1:
            return 1, run, ins[0], 0, outs[0], dead
        if len(ins) == 2:
            return 2, run, ins[0], ins[1], outs[0], dead
        return 0, run, ins, 0, outs[0], dead

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """The program's outputs; arrays among them own their memory and alias nothing."""
        return quietly(self._run, arrays)

    def _run(self, arrays: Sequence[Any]) -> list[Any]:
        slots = self._template.copy()
        slots[: len(arrays)] = native_order(arrays)
        out: Any = None
        try:
            for arity, run, a, b, out, dead in self._steps:
                if arity == 2:
                    slots[out] = run(slots[a], slots[b])
                elif arity == 1:
                    slots[out] = run(slots[a])
                elif arity == 0:
                    slots[out] = run(*[slots[i] for i in a])
                else:
                    for o, value in zip(out, run(*[slots[i] for i in a]), strict=True):
                        slots[o] = value
                for i in dead:
                    slots[i] = None
        except errors.FxError as problem:
            raise self._placed(problem, out) from None
        taken = {id(a) for a in arrays}
        return [own(slots[slot], taken, aval) for slot, aval in self._outputs]

    def _placed(self, problem: errors.FxError, out: Any) -> errors.FxError:
        """The error of the step that writes `out`, said to come from the line of the traced function."""
        eqn = self.program.eqns[next(i for i, step in enumerate(self._steps) if step[4] == out)]
        return problem.at(eqn.source) if eqn.prim.raises and eqn.source is not None else problem


def _fetch_kernels(program: Program) -> None:
    """Get all kernels the program's operations need in one unit, where they are not known yet."""
    wanted: dict[Any, tuple] = {}
    for eqn in program.eqns:
        prim = eqn.prim
        if prim.kind not in ("map", "reduce") or (prim.numpy is not None and prim.kind == "map"):
            continue
        avals = [a.aval for a in eqn.inputs]
        key = _memo_key(prim, avals, eqn.params)
        if key in _memo or key in wanted:
            continue
        out = eqn.outputs[0].aval
        if has_kernel(prim, avals, [out]) and all([a.size for a in (*avals, out)]):
            wanted[key] = (prim, avals, eqn.params, out)
    if len(wanted) > 1:
        from fxgrad.compile.cache import kernel_addresses
        from fxgrad.compile.single import usual_kernels

        kernel_addresses(usual_kernels([*wanted.values()]))


# ---- hot programs ----------------------------------------------------------------------------------------------------------

HOT = 32  # runs op by op after which compiling a program should pay
HOT_SECONDS = 0.5  # or the time they took: about what compiling costs
_NEVER = float("inf"), float("inf")


def runner(program: Program) -> Runner:
    """How eager evaluation runs this program; kept on the program."""
    found = program.memo.get("runner")
    if found is None:
        found = program.memo.setdefault("runner", Runner(program))
    return found


class Runner:
    """A program of arrays, run op by op until it is hot and compiled from then on: `run(arrays) -> list of arrays`.

    Compiled code has the same bits and the same memory semantics (results alias nothing), so nobody can tell. It belongs to the
    settings under which it was compiled.
    """

    __slots__ = ("_compiled", "_due", "_due_seconds", "_runs", "_scalars", "_seconds", "program")

    def __init__(self, program: Program):
        self.program = program
        self._compiled: dict[tuple, Callable[..., list]] = {}
        self._runs, self._seconds = 0, 0.0  # op by op
        self._due: float
        compiles = len(program.eqns) > 1 and not any([a.aval.dtype == TAPE for a in (*program.inputs, *program.outputs)])
        self._due, self._due_seconds = (HOT, HOT_SECONDS) if compiles else _NEVER
        self._scalars = any([v.aval.shape == () for v in program.inputs])  # which may come as NumPy scalars

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        compiled = self._compiled.get((config.fusion, config.matmul))
        if compiled is None or jit_disabled():
            return self._op_by_op(arrays)
        if self._scalars:
            return compiled(*[x if type(x) is np.ndarray else np.asarray(x) for x in arrays])
        return compiled(*arrays)

    def _op_by_op(self, arrays: Sequence[Any]) -> list[Any]:
        plan = EagerPlan.of(self.program)
        start = time.perf_counter()
        results = plan.run(arrays)
        self._seconds += time.perf_counter() - start
        self._runs += 1
        hot = self._runs >= self._due or self._seconds >= self._due_seconds
        if hot and self._runs > 1 and config.background_compile and not jit_disabled():
            # handed over again later should this attempt be refused, dropped by a fork, or outdated
            self._due, self._due_seconds = 2 * self._runs, 2 * self._seconds
            settings = config.fusion, config.matmul
            background.submit((self, settings), self.program.name, partial(self._compile, settings))
        return results

    def _compile(self, settings: tuple) -> None:
        """In the background: from now on these settings have compiled code."""
        from fxgrad.compile.lower import compile_program

        if settings != (config.fusion, config.matmul):
            return
        start = time.perf_counter()
        try:
            compiled = compile_program(self.program)
        except Exception:
            self._due, self._due_seconds = _NEVER
            raise
        if settings == (config.fusion, config.matmul):
            self._compiled[settings] = compiled
        if "eager" in config.log:
            took = 1e3 * (time.perf_counter() - start)
            sys.stderr.write(
                f"fxgrad: '{self.program.name}' ({len(self.program.eqns)} operations) runs compiled from now on: "
                f"{self._runs} runs op by op, compiled in {took:.0f} ms\n"
            )


def wait_for_background(timeout: float = 60.0) -> bool:
    """Wait until everything hot is compiled (for tests and measurements); False if it is not within `timeout` seconds."""
    return background.wait(timeout)
