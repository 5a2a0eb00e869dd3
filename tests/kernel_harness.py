"""Runs kernel bodies of fxgrad.kernels.vector through LLVM on whole arrays, without the rest of the compiler."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from fxgrad.kernels import vector as v

_I8, _I64 = ir.IntType(8), ir.IntType(64)


def _lanes(dtype: np.dtype) -> int:
    return 64 // dtype.itemsize


@cache
def compile_kernel(body: Callable, dtypes: tuple[np.dtype, ...], out: np.dtype) -> Callable:
    """Native loop `run(addresses, n)` over whole vectors: `addresses` is an int64 array of inputs then output, n in lanes."""
    lanes = _lanes(dtypes[0])

    def vector_pointer(b: ir.IRBuilder, address: ir.Value, dtype: np.dtype, i: ir.Value) -> ir.Value:
        byte = b.add(address, b.mul(i, _I64(dtype.itemsize)))
        return b.inttoptr(byte, ir.VectorType(v.llvm_type(dtype), lanes).as_pointer())

    @intrinsic
    def loop(typing_context, addresses, n):
        def codegen(context, b, signature, args):
            table = b.inttoptr(args[0], _I64.as_pointer())
            pointers = [b.load(b.gep(table, [_I64(j)])) for j in range(len(dtypes) + 1)]
            entry, head, done = b.block, b.append_basic_block("loop"), b.append_basic_block("done")
            b.cbranch(b.icmp_signed("<", _I64(0), args[1]), head, done)
            b.position_at_end(head)
            i = b.phi(_I64)
            i.add_incoming(_I64(0), entry)
            inputs = []
            for pointer, dtype in zip(pointers[:-1], dtypes, strict=True):
                inputs.append(v.Vec(b, b.load(vector_pointer(b, pointer, dtype, i), align=dtype.itemsize), dtype))
            result = body(*inputs)
            assert result.dtype == out, f"{body.__name__} returned {result.dtype}, expected {out}"
            b.store(result.v, vector_pointer(b, pointers[-1], out, i), align=out.itemsize)
            following = b.add(i, _I64(lanes))
            i.add_incoming(following, b.block)
            b.cbranch(b.icmp_signed("<", following, args[1]), head, done)
            b.position_at_end(done)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp), codegen

    @njit(types.void(types.intp, types.intp), nogil=True)
    def run(addresses, n):
        loop(addresses, n)

    return run


def run_kernel(body: Callable, *arrays: Any, out: Any = None) -> np.ndarray:
    """`body` of the arrays (one shape), emitted through LLVM; the result has the shape, and dtype `out` or that of the first."""
    arrays = [np.ascontiguousarray(a) for a in arrays]
    out = arrays[0].dtype if out is None else np.dtype(out)
    n, lanes = arrays[0].size, _lanes(arrays[0].dtype)
    padded = -(-n // lanes) * lanes
    inputs = []
    for a in arrays:
        assert a.size == n and a.dtype.kind != "b"
        buffer = np.ones(padded, a.dtype)
        buffer[:n] = a.ravel()
        inputs.append(buffer)
    result = np.empty(padded, out)
    addresses = np.array([a.ctypes.data for a in (*inputs, result)], np.int64)
    compile_kernel(body, tuple(a.dtype for a in inputs), out)(addresses.ctypes.data, padded)
    return result[:n].reshape(arrays[0].shape)


def compute_numpy(body: Callable, *arrays: Any) -> np.ndarray:
    """`body` of the arrays in its NumPy form, warnings silenced."""
    with np.errstate(all="ignore"):
        return np.asarray(body(*arrays))


def same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two float arrays hold the same bits, any NaN counting as any other."""
    integer = f"i{a.dtype.itemsize}"
    return (a.view(integer) == b.view(integer)) | (np.isnan(a) & np.isnan(b))
