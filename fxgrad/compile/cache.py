"""Machine code of kernels: compiled once for a machine, whatever program asks, kept on disk for the next process.

Kernels compiled together are a unit: one LLVM module, one file `u_...` in the cache directory with their texts, their digests and
the object code, named by what is in it. Beside it lies a small file `k_...` for every kernel, which names its unit. Python writes
the LLVM text of one unit while LLVM, on another thread, compiles the one before.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

from fxgrad.compile import store
from fxgrad.runtime.caches import forget_all

__all__ = ["Recent", "clear_caches", "generated", "kernel_addresses"]


class Recent(OrderedDict):
    """A dictionary of at most `limit` entries; those not asked for by `get` for longest make room."""

    def __init__(self, limit: int):
        super().__init__()
        self.limit = limit

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            self.move_to_end(key)
            return self[key]
        except KeyError:  # also where another thread has just made room
            return default

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        while len(self) > self.limit:
            self.popitem(last=False)


generated: list[str] = []  # digests of kernels whose code was generated in this process, in order
_UNIT = 6  # kernels in a unit: a few share what a module costs, and LLVM need not wait for all of them
_addresses: dict[str, int] = {}


def kernel_addresses(kernels: Sequence[Any]) -> list[int]:
    """Addresses of the kernels' machine code; those not yet known to the machine are compiled."""
    found = [_addresses.get(k.digest) for k in kernels]
    if None in found:
        with store.lock:  # until they are read: `clear_caches` may run on another thread
            _provide({k.digest: k for k in kernels if k.digest not in _addresses})
            found = [_addresses[k.digest] for k in kernels]
    return found  # type: ignore[return-value]


def _provide(kernels: dict[str, Any]) -> None:
    rest = _load_known(kernels)
    if not rest:
        return
    with store.exclusive(min(rest)):
        rest = _load_known(rest)  # another process may have done it meanwhile
        if rest:
            _compile(sorted(rest.values(), key=lambda k: hasattr(k, "emit")))  # long texts while LLVM is busy


def _load_known(kernels: dict[str, Any]) -> dict[str, Any]:
    """Load what is on disk; the others."""
    for digest in kernels:
        if digest not in _addresses and (name := store.read(f"k_{digest[:40]}")) is not None:
            _load_unit(name.decode(), digest)
    return {d: k for d, k in kernels.items() if d not in _addresses}


def _load_unit(name: str, wanted: str) -> None:
    data = store.read(name)
    if data is None:
        return
    head, _, rest = data.partition(b"\n")
    unit = json.loads(head)
    if wanted in unit["kernels"]:
        _link(name, unit["kernels"], rest[unit["text"] :])


def _link(name: str, digests: Sequence[str], code: bytes) -> None:
    from fxgrad.compile.codegen import load_object

    found = load_object(name, code, [_symbol(name, i) for i in range(len(digests))])
    _addresses.update(zip(digests, found, strict=True))


def _symbol(unit: str, i: int) -> str:
    return f"fx_{unit}_{i}"


def _compile(kernels: Sequence[Any]) -> None:
    """Unit after unit; each is linked and written as soon as it is there."""
    from fxgrad.compile.codegen import compile_ir

    units = [kernels[i : i + _UNIT] for i in range(0, len(kernels), _UNIT)]
    names = list(map(_name, units))
    texts = map(_emit, names, units)
    for name, unit, code in zip(
        names, units, map(compile_ir, texts) if len(units) == 1 else _beside(compile_ir, texts), strict=True
    ):
        _finish(name, unit, code)


def _beside(work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """`map(work, items)`, the work on another thread while this one makes the items."""
    waiting: SimpleQueue[Any] = SimpleQueue()
    done: SimpleQueue[Any] = SimpleQueue()

    def worker() -> None:
        while (item := waiting.get()) is not None:
            try:
                done.put((work(item), None))
            except Exception as error:  # noqa: BLE001 - raised where the result is awaited
                done.put((None, error))

    thread = threading.Thread(target=worker, name="fxgrad-llvm", daemon=True)
    thread.start()
    count = 0
    try:
        for item in items:
            waiting.put(item)
            count += 1
    finally:
        waiting.put(None)
    for _ in range(count):
        result, error = done.get()
        if error is not None:
            raise error
        yield result
    thread.join()


def _name(unit: Sequence[Any]) -> str:
    return "u_" + hashlib.sha256("".join(k.digest for k in unit).encode()).hexdigest()[:40]


def _emit(name: str, unit: Sequence[Any]) -> str:
    """The LLVM module of a unit, as text."""
    from llvmlite import ir

    from fxgrad.kernels.loops import emit_kernel

    module = ir.Module(name)
    for i, kernel in enumerate(unit):
        generated.append(kernel.digest)
        emit_kernel(kernel, module, _symbol(name, i)).linkage = "external"
    return str(module)


def _finish(name: str, unit: Sequence[Any], code: bytes) -> None:
    digests = [k.digest for k in unit]
    _link(name, digests, code)
    text = "\n\n".join(k.text for k in unit).encode() + b"\n"
    store.write(name, json.dumps({"kernels": digests, "text": len(text)}).encode() + b"\n" + text + code)
    for digest in digests:
        store.write(f"k_{digest[:40]}", name.encode())


def clear_caches(disk: bool = True) -> None:
    """Forget what is compiled (code in use stays valid) and, with `disk`, delete this machine's files."""
    forget_all()
    with store.lock:
        _addresses.clear()
        if disk:
            store.clear()
