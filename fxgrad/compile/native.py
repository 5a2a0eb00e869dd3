"""Native functions that Python calls: written in Python, compiled by numba once, loaded without numba ever after.

numba's import and registries cost half a second, which every process would pay for a few functions. So what numba made of them
(the LLVM text its dispatchers show) is compiled to object code that the cache keeps, with entry points of our own. Arguments are
64-bit integers, addresses most of them; so is the result.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fxgrad.compile import store

__all__ = ["builtin", "load_native"]

_METH_FASTCALL = 0x0080
_NOTHING = -2  # the status numba's functions answer when they return None
_PYTHON = """
declare i32 @PyErr_BadArgument()
declare void @PyErr_BadInternalCall()
declare ptr @PyErr_Occurred()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
"""


def load_native(unit: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Native functions by name: built-in functions of what `@njit` made, addresses of what `@cfunc` made.

    `make` compiles them with numba, if the cache has no code yet; their source is part of the cache's key.
    """
    from fxgrad.compile.codegen import load_object

    name = "n_" + hashlib.sha256(unit.encode()).hexdigest()[:40]
    with store.lock:
        data = store.read(name) or _provide(name, make)
        head, _, code = data.partition(b"\n")
        about = json.loads(head)
        _resolve(about["needs"])
        found = load_object(name, code, [f"{name}_{f}" for f in about["functions"]])
    return {
        f: builtin(f, address) if kind == "njit" else address
        for (f, kind), address in zip(about["functions"].items(), found, strict=True)
    }


def _provide(name: str, make: Callable[[], Mapping[str, Any]]) -> bytes:
    with store.exclusive(name[2:]):
        data = store.read(name)
        if data is None:
            data = _compile(name, make())
            store.write(name, data)
    return data


def _compile(name: str, functions: Mapping[str, Any]) -> bytes:
    from fxgrad.compile.codegen import compile_linked

    modules, kinds = [], {}
    for f, compiled in functions.items():
        if hasattr(compiled, "native_name"):
            kinds[f], target = "cfunc", compiled.native_name.removeprefix("cfunc.")
            arity, returns = len(compiled._sig.args), str(compiled._sig.return_type) != "none"
            modules += [compiled.inspect_llvm(), _c_entry(f"{name}_{f}", arity, returns, target)]
        else:
            (signature,) = compiled.signatures
            kinds[f], target = "njit", compiled.overloads[signature].fndesc.llvm_func_name
            entry = _python_entry(f"{name}_{f}", len(signature), bool(compiled.targetoptions.get("nogil")), target)
            modules += [compiled.inspect_llvm(signature), entry]
    code, needs = compile_linked(modules, [f"{name}_{f}" for f in functions])
    return json.dumps({"functions": kinds, "needs": needs}).encode() + b"\n" + code


def _call(target: str, arity: int) -> tuple[str, str]:
    """The declaration of a function with numba's convention, status = f(result, error, arguments...), and a call of it."""
    types, values = ", i64" * arity, "".join(f", i64 %a{i}" for i in range(arity))
    return f'declare i32 @"{target}"(ptr, ptr{types})\n', f'  %status = call i32 @"{target}"(ptr %result, ptr %error{values})\n'


_ROOM = "  %result = alloca i64\n  %error = alloca ptr\n  store i64 0, ptr %result\n"


def _c_entry(name: str, arity: int, returns: bool, target: str) -> str:
    """A function with C's convention."""
    declaration, call = _call(target, arity)
    arguments = ", ".join(f"i64 %a{i}" for i in range(arity))
    last = "  %value = load i64, ptr %result\n  ret i64 %value" if returns else "  ret void"
    return f'{declaration}define {"i64" if returns else "void"} @"{name}"({arguments}) {{\n{_ROOM}{call}{last}\n}}\n'


def _python_entry(name: str, arity: int, nogil: bool, target: str) -> str:
    """A METH_FASTCALL function."""
    declaration, call = _call(target, arity)
    read = "".join(
        f"  %p{i} = getelementptr ptr, ptr %args, i64 {i}\n  %o{i} = load ptr, ptr %p{i}\n"
        f"  %a{i} = call i64 @PyLong_AsLongLong(ptr %o{i})\n"
        for i in range(arity)
    )
    if nogil:
        call = f"  %state = call ptr @PyEval_SaveThread()\n{call}  call void @PyEval_RestoreThread(ptr %state)\n"
    return f"""{_PYTHON}{declaration}
define ptr @"{name}"(ptr %self, ptr %args, i64 %count) {{
{_ROOM}  %fits = icmp eq i64 %count, {arity}
  br i1 %fits, label %read, label %wrong
wrong:
  %ignored = call i32 @PyErr_BadArgument()
  ret ptr null
read:
{read}  %raised = call ptr @PyErr_Occurred()
  %good = icmp eq ptr %raised, null
  br i1 %good, label %run, label %failed
failed:
  ret ptr null
run:
{call}  %done = icmp eq i32 %status, 0
  %nothing = icmp eq i32 %status, {_NOTHING}
  %fine = or i1 %done, %nothing
  br i1 %fine, label %answer, label %broken
broken:
  call void @PyErr_BadInternalCall()
  ret ptr null
answer:
  %value = load i64, ptr %result
  %object = call ptr @PyLong_FromLongLong(i64 %value)
  ret ptr %object
}}
"""


def _resolve(symbols: Sequence[str]) -> None:
    """Tell LLVM where functions of Python and C are: they need not be visible to the whole process, and it would abort."""
    import llvmlite.binding as llvm

    libraries = ctypes.pythonapi, ctypes.CDLL(None)
    for symbol in symbols:
        place = next((getattr(lib, symbol) for lib in libraries if hasattr(lib, symbol)), None)
        if place is None:
            raise ImportError(f"fxgrad's native functions need '{symbol}', which this process does not have")
        llvm.add_symbol(symbol, ctypes.cast(place, ctypes.c_void_p).value)


class _MethodDef(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


_definitions: dict[tuple[str, int], _MethodDef] = {}  # outlive the functions that point at them


def builtin(name: str, address: int, bound: Any = None) -> Any:
    """The METH_FASTCALL function at an address as a built-in function; `bound` is its self."""
    definition = _definitions.setdefault((name, address), _MethodDef(name.encode(), address, _METH_FASTCALL, None))
    return _new_builtin(ctypes.addressof(definition), bound, None)


_new_builtin = ctypes.pythonapi.PyCFunction_NewEx
_new_builtin.restype, _new_builtin.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
