"""numba, for functions of 64-bit integers: its bytecode reader, type inference and lowering, with a target of our own.

numba's own target knows all of NumPy and Python, which costs 0.3 s to load before the first function and makes every `+` a
search; and it optimises, links and loads each function by itself: for the executor 3.6 s, against 0.6. This one knows integers,
truth values, `min`, `max`, `abs`, `range` and what `operation` adds, writes plain C functions into one LLVM module, and leaves
the rest to `codegen.py`. Signed overflow wraps; division by zero is undefined, as in C. A variable has one type, and its first
value must not be a constant if others follow that are not in the same expression's branches.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import bytecode, callconv, cgutils, datamodel, imputils, interpreter, lowering, types
from numba.core.compiler import Flags
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUContext
from numba.core.funcdesc import PythonFunctionDescriptor
from numba.core.postproc import PostProcessor
from numba.core.targetconfig import ConfigStack
from numba.core.typed_passes import type_inference_stage
from numba.core.typing.context import BaseContext
from numba.core.typing.templates import Registry, make_concrete_template

__all__ = ["Routine", "compile_routines", "operation"]

N, B, VOID = types.intp, types.boolean, ir.VoidType()
_typings, _lowerings = Registry(), imputils.Registry("words")


class _Iterator(types.SimpleIteratorType):
    """What `range` answers, its own iterator: the address of two words on the stack, the next number and the end."""


RANGE, TURN = _Iterator("words.range", N), types.Pair(N, B)
datamodel.register_default(_Iterator)(datamodel.models.OpaqueModel)


class Routine(types.ExternalFunction):
    """A function of words, called by its name in the module; `body` is what is compiled."""

    def __init__(self, body: Callable[..., Any], result: Any, inline: bool):
        super().__init__(f"fx.{body.__name__}", result(*[N] * body.__code__.co_argcount))
        self.body, self.inline = body, inline


def compile_routines(routines: Iterable[Routine]) -> str:
    """One LLVM module of the routines and those they call, as text."""
    with global_compiler_lock, ConfigStack().enter(Flags()):
        typings = _Typings()
        target = _Target(typings)
        target.refresh()
        library = _Library(target)
        with target.push_code_library(library):
            for routine in _reached(routines):
                _lower(routine, typings, target, library)
    return str(library.module)


def _reached(roots: Iterable[Routine]) -> list[Routine]:
    found: list[Routine] = []
    waiting = list(roots)
    while waiting:
        routine = waiting.pop()
        if routine not in found:
            found.append(routine)
            scope = routine.body.__globals__
            named = [scope.get(name) for name in routine.body.__code__.co_names]
            waiting += [x for x in named if isinstance(x, Routine)]
    return found


def _lower(routine: Routine, typings: Any, target: Any, library: Any) -> None:
    identity = bytecode.FunctionIdentity.from_function(routine.body)
    code = interpreter.Interpreter(identity).interpret(bytecode.ByteCode(identity))
    PostProcessor(code).run()
    arguments, result = routine.sig.args, routine.sig.return_type
    typed = type_inference_stage(typings, target, code, arguments, result)
    description = PythonFunctionDescriptor.from_specialized_function(
        code, typed.typemap, typed.return_type, typed.calltypes, lambda *_, **__: routine.symbol, routine.inline, False, ()
    )
    lowering.Lower(target, library, description, code).lower()


# ---- the target ------------------------------------------------------------------------------------------------------------


class _Typings(BaseContext):
    def _load_builtins(self) -> None:
        self.install_registry(_typings)


class _Target(CPUContext):
    def init(self) -> None:
        pass

    def codegen(self) -> None:
        pass

    def refresh(self) -> None:
        self.install_registry(_lowerings)
        self.typing_context.refresh()

    def get_abi_sizeof(self, t: Any) -> int:
        return 8

    def post_lowering(self, module: Any, library: Any) -> None:
        pass

    def declare_env_global(self, module: Any, name: str) -> None:
        pass

    def declare_external_function(self, module: Any, description: Any) -> Any:
        t = self.call_conv.get_function_type(description.restype, description.argtypes)
        return cgutils.get_or_insert_function(module, t, description.mangled_name)

    def call_external_function(self, builder: Any, callee: Any, types: Any, arguments: Any) -> Any:
        value = super().call_external_function(builder, callee, types, arguments)
        return self.get_dummy_value() if value.type == VOID else value

    @property
    def call_conv(self) -> Any:
        return _Plain(self)


class _Plain(callconv.BaseCallConv):
    """C's calling convention: nothing raises."""

    def _make_call_helper(self, builder: Any) -> None:
        pass

    def get_function_type(self, result: Any, arguments: Sequence[Any]) -> Any:
        kinds = self.context.get_argument_type
        return ir.FunctionType(VOID if result == types.void else kinds(result), [kinds(a) for a in arguments])

    def decorate_function(self, function: Any, names: Any, arguments: Any, noalias: bool = False) -> None:
        pass

    def get_arguments(self, function: Any) -> Any:
        return function.args

    def return_value(self, builder: Any, value: Any) -> None:
        if builder.function.return_value.type == VOID:
            builder.ret_void()
        else:
            builder.ret(value)


class _Library:
    """The module into which all functions go."""

    def __init__(self, target: Any):
        self.module = ir.Module("words")

    def create_ir_module(self, name: str) -> Any:
        return self.module

    def add_ir_module(self, module: Any) -> None:
        pass

    def add_linking_library(self, library: Any) -> None:
        pass


# ---- what it knows ---------------------------------------------------------------------------------------------------------


def operation(function: Any, signature: Any, emit: Callable[..., Any]) -> None:
    """Teach it a function: `emit(b, *arguments)` gives the LLVM value."""
    cases = _cases.setdefault(function, [])
    if not cases:
        template = make_concrete_template(getattr(function, "__name__", "operation"), function, cases)
        template.cases = cases
        _typings.register_global(function, types.Function(template))
    cases.append(signature)

    def implementation(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
        value = emit(b, *arguments)
        return context.get_dummy_value() if signature.return_type == types.void else value

    _lowerings.lower(function, *signature.args)(implementation)


_cases: dict[Any, list[Any]] = {}


def _floor_div(b: Any, x: Any, y: Any) -> Any:
    quotient = b.sdiv(x, y)
    inexact = b.icmp_signed("!=", b.mul(quotient, y), x)
    signs = b.icmp_signed("<", b.xor(x, y), ir.Constant(x.type, 0))
    return b.sub(quotient, b.zext(b.and_(inexact, signs), x.type))


def _floor_mod(b: Any, x: Any, y: Any) -> Any:
    return b.sub(x, b.mul(_floor_div(b, x, y), y))


def _least(sign: str) -> Callable[..., Any]:
    return lambda b, x, y: b.select(b.icmp_signed(sign, x, y), x, y)


def _compare(sign: str) -> Callable[..., Any]:
    return lambda b, x, y: b.icmp_signed(sign, x, y)


for f, emit in {
    operator.add: ir.IRBuilder.add,
    operator.iadd: ir.IRBuilder.add,
    operator.sub: ir.IRBuilder.sub,
    operator.mul: ir.IRBuilder.mul,
    operator.floordiv: _floor_div,
    operator.mod: _floor_mod,
    operator.and_: ir.IRBuilder.and_,
    operator.or_: ir.IRBuilder.or_,
    operator.lshift: ir.IRBuilder.shl,
    operator.rshift: ir.IRBuilder.ashr,
    min: _least("<"),
    max: _least(">"),
}.items():
    operation(f, N(N, N), emit)
for f, sign in {
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}.items():
    operation(f, B(N, N), _compare(sign))
operation(operator.neg, N(N), ir.IRBuilder.neg)
operation(abs, N(N), lambda b, x: b.select(b.icmp_signed("<", x, ir.Constant(x.type, 0)), b.neg(x), x))
operation(bool, B(N), lambda b, x: b.icmp_signed("!=", x, ir.Constant(x.type, 0)))
operation(bool, B(B), lambda b, x: x)
operation(operator.not_, B(B), ir.IRBuilder.not_)
operation(range, RANGE(N), lambda b, stop: _range(b, ir.Constant(stop.type, 0), stop))
operation(range, RANGE(N, N), lambda b, start, stop: _range(b, start, stop))


def _range(b: Any, start: Any, stop: Any) -> Any:
    state = cgutils.alloca_once(b, start.type, 2)
    b.store(start, state)
    b.store(stop, _end(b, state))
    return b.bitcast(state, cgutils.voidptr_t)


def _end(b: Any, state: Any) -> Any:
    return b.gep(state, [ir.IntType(32)(1)])


@_lowerings.lower("getiter", RANGE)
def _iterator(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
    return arguments[0]


@_lowerings.lower("iternext", RANGE)
def _next(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
    state = b.bitcast(arguments[0], ir.IntType(64).as_pointer())
    turn = context.make_helper(b, TURN)
    turn.first = b.load(state)
    turn.second = b.icmp_signed("<", turn.first, b.load(_end(b, state)))
    b.store(b.add(turn.first, turn.first.type(1)), state)
    return turn._getvalue()


for name, result in {"getiter": RANGE, "iternext": TURN}.items():
    _typings.register(make_concrete_template(name, name, [result(RANGE)]))


# ---- constants and casts ----------------------------------------------------------------------------------------------------


@_lowerings.lower_constant(types.Integer)
def _integer(context: Any, b: Any, t: Any, value: Any) -> Any:
    return context.get_value_type(t)(value)


@_lowerings.lower_constant(types.Boolean)
def _truth(context: Any, b: Any, t: Any, value: Any) -> Any:
    return ir.IntType(1)(bool(value))


@_lowerings.lower_constant(types.Function)
@_lowerings.lower_constant(types.NoneType)
def _nothing(context: Any, b: Any, t: Any, value: Any) -> Any:
    return context.get_dummy_value()


@_lowerings.lower_cast(types.IntegerLiteral, types.Integer)
def _literal(context: Any, b: Any, source: Any, wanted: Any, value: Any) -> Any:
    return context.get_value_type(wanted)(source.literal_value)


@_lowerings.lower_cast(types.Integer, types.Integer)
def _resize(context: Any, b: Any, source: Any, wanted: Any, value: Any) -> Any:
    t = context.get_value_type(wanted)
    return b.trunc(value, t) if t.width < value.type.width else b.sext(value, t)
