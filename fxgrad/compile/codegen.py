"""LLVM by way of llvmlite: from IR as text to object code, from object code to addresses.

No passes are run: kernels spell out their lanes, hoist what does not change and inline what is short, so that instruction
selection finds nothing left to do. numba's pipeline, made for code that comes from Python, takes twice as long as the code
generator itself over them and gains nothing (measured on the transformer block: 0.96 s of passes, 0.4 s of code generation,
kernels equally fast).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm

__all__ = ["CodegenError", "compile_ir", "compile_linked", "host", "load_object"]

_SPEED = 2  # of instruction selection and register allocation; 1 and 3 take as long
# What code from Python needs most. LLVM's own list takes four times as long (0.1 s more) and gains 3 ns of 70 in a call.
_PASSES = ("always_inliner", "sroa", "simplify_cfg", "loop_rotate", "instruction_combine", "simplify_cfg")


class CodegenError(RuntimeError):
    """LLVM refused what it was given: a fault of fxgrad, not of the user."""


@functools.cache
def host() -> tuple[str, str, str]:
    """Triple, CPU and features of this machine: code for another triple, CPU or set of features is other code."""
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@functools.cache
def _target() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple, cpu, features = host()
    target = llvm.Target.from_triple(triple)
    x86 = target.name.startswith("x86")
    return target.create_target_machine(
        cpu=cpu, features=features, opt=_SPEED, reloc="static" if x86 else "default", codemodel="jitdefault", jit=True
    )


@functools.cache
def _engine() -> Any:
    """One engine for all object code, which lives as long as the process: whoever holds an address may call it."""
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())


def compile_ir(text: str) -> bytes:
    """Object code of an LLVM module."""
    return _target().emit_object(_parse(text))


def compile_linked(texts: Sequence[str], exports: Sequence[str]) -> tuple[bytes, list[str]]:
    """Object code of several modules together: the functions `exports` and what they need; also the symbols it lacks."""
    whole, *others = [_parse(text) for text in texts]
    for module in others:
        whole.link_in(module)
    for x in (*whole.functions, *whole.global_variables):
        if not x.is_declaration and x.name not in exports:
            x.linkage = "internal"
    passes = llvm.create_new_module_pass_manager()
    for name in _PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(whole, llvm.create_pass_builder(_target(), llvm.create_pipeline_tuning_options()))
    lacking = [x.name for x in (*whole.functions, *whole.global_variables) if x.is_declaration]
    return _target().emit_object(whole), [name for name in lacking if not name.startswith("llvm.")]


def _parse(text: str) -> Any:
    try:
        module = llvm.parse_assembly(text)
        module.triple, module.data_layout = host()[0], str(_target().target_data)
        module.verify()
    except RuntimeError as error:
        raise CodegenError(f"the code generator wrote what LLVM does not accept: {error}") from error
    return module


def load_object(name: str, code: bytes, symbols: Sequence[str]) -> list[int]:
    """Addresses of functions in object code, which is linked once for each name."""
    engine = _engine()
    if name not in _linked:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        _linked.add(name)
    found = [engine.get_function_address(symbol) for symbol in symbols]
    if not all(found):
        raise CodegenError(f"object code '{name}' lacks one of {', '.join(symbols)}")
    return found


_linked: set[str] = set()
