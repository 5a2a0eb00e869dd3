"""Collects what is known of a compiled function, measures it, and holds the result as an Explanation."""

from __future__ import annotations

import functools
import linecache
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fxgrad import errors
from fxgrad.compile.inline import flatten
from fxgrad.compile.jit import Jitted
from fxgrad.explain.facts import Block, CacheFacts, Facts, KernelFacts, Line, MemoryFacts, Speed, StepFacts, faster_than_limit
from fxgrad.ir.program import Program
from fxgrad.ir.types import Aval, Var
from fxgrad.trace.function import name_of
from fxgrad.trace.tracing import current_trace

if TYPE_CHECKING:
    from fxgrad.compile.lower import Executable, Step
    from fxgrad.runtime.machine import Limits

__all__ = ["Explanation", "explanation"]

_REPEAT = 7  # calls are timed in at least so many groups, the fastest counts
_GROUP = 0.002  # seconds of a group, if a call is shorter
_LEAST, _MOST = 0.1, 1.0  # seconds for which groups are begun, and after which none is
_renewed: set[int] = set()  # thread counts whose limits this process has measured again


class Explanation:
    """What `fx.explain` has found: `str()` is a text, `to_html()` a page with pictures, `as_dict()` is for JSON.

    `facts` holds the figures, `limits` what the machine reaches.
    """

    def __init__(self, facts: Facts, limits: Limits):
        self.facts, self.limits = facts, limits

    def __str__(self) -> str:
        from fxgrad.explain.text import format_text

        return format_text(self.facts, self.limits)

    def __repr__(self) -> str:
        from fxgrad.explain.text import plural

        return f"<Explanation of {self.facts.name}: {plural(len(self.facts.steps), 'step')}>"

    def to_html(self, path: str | Path | None = None) -> str:
        """A page that needs nothing else (no network, no scripts).

        Arguments:
            path: a file to write it to, if any.

        Returns:
            The page as text.

        Example:
            >>> import numpy as np, fxgrad as fx
            >>> page = fx.explain(fx.jit(np.sin), np.ones(3)).to_html()  # doctest: +ELLIPSIS
            sin: ...
        """
        from fxgrad.explain.html import format_page

        page = format_page(self.facts, self.limits)
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def _repr_html_(self) -> str:
        from fxgrad.explain.html import format_fragment

        return format_fragment(self.facts, self.limits)

    def as_dict(self) -> dict[str, Any]:
        """All figures as dicts, lists, strings and numbers (bytes, seconds, flops; None where there is no value)."""
        return _plain({**asdict(self.facts), "versions": dict(self.facts.versions), "limits": self.limits.as_dict()})


def _plain(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    return [_plain(v) for v in x] if isinstance(x, (list, tuple)) else x


def explanation(jitted: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
    """What `fx.explain` prints and returns."""
    target, args, kwargs = _unwrap(jitted, args, kwargs)
    if current_trace() is not None:
        raise errors.FxTypeError(
            f"fx.explain of '{name_of(target._f)}' was called inside a transform",
            why="It runs the compiled function to time it, which takes arrays; here there are traced values.",
            fix="Call it outside: fx.explain(fx.jit(fx.grad(f)), x) explains a gradient.",
        )
    entry, leaves, _ = target._entry(args, kwargs, called=False)
    from fxgrad.runtime.machine import machine_limits
    from fxgrad.runtime.team import get_num_threads

    compiled: Any = entry.compiled()
    executable = compiled.plain if entry.donated else compiled  # explaining is no reason to give up donated arguments

    known = not any(type(x) is Aval for x in leaves)
    arrays = [np.asarray(x) for x in (*entry.captures, *leaves)] if known else None
    threads = get_num_threads()
    times, memory = _measure(executable, arrays), _memory(compiled)
    limits = machine_limits(threads)
    facts = _collect(target, entry, executable, times, memory, limits)
    if threads not in _renewed and faster_than_limit(facts):  # the limits were taken while the machine was busy
        _renewed.add(threads)
        limits = machine_limits(threads, better=True)
        facts = _collect(target, entry, executable, times, memory, limits)
    return Explanation(facts, limits)


def _unwrap(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Jitted, tuple[Any, ...], dict[str, Any]]:
    """The jitted function behind a method or a partial, and all its arguments."""
    given = f
    while True:
        if isinstance(f, MethodType):
            f, args = f.__func__, (f.__self__, *args)
        elif isinstance(f, functools.partial):
            f, args, kwargs = f.func, (*f.args, *args), {**f.keywords, **kwargs}
        else:
            break
    if not isinstance(f, Jitted):
        kind, name = type(given).__name__, name_of(given)
        known = isinstance(given, (FunctionType, np.ufunc)) and name.isidentifier()
        raise errors.FxTypeError(
            "fx.explain takes a jitted function, got "
            + (f"'{name}', a {kind}" if callable(given) else f"{kind} {repr(given)[:40]}"),
            why="It shows compiled code, and only fx.jit compiles.",
            fix=f"Write fx.explain(fx.jit({name if known else 'f'}), ...) with the arguments of a call.",
        )
    return f, args, kwargs


# ---- measuring -------------------------------------------------------------------------------------------------------------


class _Times(NamedTuple):
    """Seconds of a call in the fastest of some groups of calls, and of each step; None where nothing was measured."""

    seconds: float | None
    groups: int
    calls: int
    steps: Sequence[float | None]


def _measure(executable: Executable, arrays: Sequence[np.ndarray] | None) -> _Times:
    if arrays is None:
        return _Times(None, 0, 0, [None] * len(executable.steps))
    return _Times(*_measure_call(executable, arrays), executable.measure_steps(arrays))


def _measure_call(executable: Executable, arrays: Sequence[np.ndarray]) -> tuple[float, int, int]:
    """(seconds of a call in the fastest of several groups; how many groups, of how many calls)."""

    def group(n: int) -> float:
        start = time.perf_counter()
        for _ in range(n):
            executable(*arrays)
        return (time.perf_counter() - start) / n

    begin = time.perf_counter()
    group(1)  # fresh pages, cold caches
    n = max(1, min(int(_GROUP / max(group(1), 1e-7)), 1000))
    best, groups = group(n), 1
    while (spent := time.perf_counter() - begin) < _MOST and (groups < _REPEAT or spent < _LEAST):
        best, groups = min(best, group(n)), groups + 1
    return best, groups, n


# ---- collecting ------------------------------------------------------------------------------------------------------------


def _collect(target: Jitted, entry: Any, executable: Executable, times: _Times, memory: MemoryFacts, limits: Limits) -> Facts:
    kernels, names = _kernels(executable)
    flat = _with_lines(entry.traced.program, executable)
    steps = tuple(
        _step(i, step, flat, tuple(names[k.digest] for k in _kernels_of(step)), t, limits)
        for i, (step, t) in enumerate(zip(executable.steps, times.steps, strict=True), 1)
    )
    avals, captured = [str(v.aval) for v in entry.program.inputs], len(entry.captures)
    traces = target.cache_info()
    return Facts(
        name=name_of(target._f),
        arguments=tuple(avals[captured:]),
        captured=tuple(avals[:captured]),
        results=tuple(str(v.aval) for v in entry.program.outputs),
        operations=len(flat.eqns),
        threads=limits.threads,
        groups=times.groups,
        calls=times.calls,
        speed=_total(steps, times.seconds),
        steps=steps,
        kernels=kernels,
        memory=memory,
        cache=CacheFacts(traces.size, traces.hits, traces.misses, tuple(m.why for m in list(target._missed))),
        versions=_versions(),
    )


def _kernels_of(step: Step) -> list[Any]:
    return step.all_kernels


def _kernels(executable: Executable) -> tuple[tuple[KernelFacts, ...], dict[str, str]]:
    """The kernels in the order of their first use, each once, and their names by digest."""
    from fxgrad.compile.cache import generated

    users: dict[str, tuple[Any, list[int]]] = {}
    for i, step in enumerate(executable.steps, 1):
        for k in _kernels_of(step):
            users.setdefault(k.digest, (k, []))[1].append(i)
    names = {digest: f"K{n}" for n, digest in enumerate(users, 1)}
    facts = [KernelFacts(names[d], k.text, tuple(dict.fromkeys(steps)), d in generated) for d, (k, steps) in users.items()]
    return tuple(facts), names


def _with_lines(own: Program, executable: Executable) -> Program:
    """The flat program of this very function: compiled code is shared by functions of one structure, their lines are not."""
    flat = flatten(own)
    return flat if flat == executable.flat else executable.flat


def _step(number: int, step: Step, flat: Program, kernels: tuple[str, ...], seconds: float | None, limits: Limits) -> StepFacts:
    eqns = [flat.eqns[i] for i in step.equations]
    dtypes = [v.aval.dtype for e in eqns for v in (*e.inputs, *e.outputs) if v.aval.dtype.kind in "fc"]
    size = step.bytes_read + step.bytes_written
    wide = any(d in (np.float64, np.complex128) for d in dtypes) or not dtypes
    by_memory, by_peak = size / limits.bandwidth(size), step.flops / limits.peak(np.float64 if wide else np.float32)
    bound = "nothing" if not size and not step.flops else "bandwidth" if by_memory >= by_peak else "peak"
    speed = _speed(step.bytes_read, step.bytes_written, step.flops, max(by_memory, by_peak), bound, seconds)
    lines = dict.fromkeys(_line(*e.source) for e in eqns if e.source is not None)
    return StepFacts(
        number, step.kind, step.title, kernels, _avals(step.reads), _avals(step.writes), tuple(step.why), tuple(lines), speed,
        tuple(repr(step).splitlines()[1:]),
    )  # fmt: skip


def _avals(variables: Sequence[Var]) -> tuple[str, ...]:
    return tuple(str(v.aval) for v in dict.fromkeys(variables))


def _line(code: Any, offset: int) -> Line:
    number = errors.line_of(code, offset)
    return Line(code.co_filename, number, code.co_name, linecache.getline(code.co_filename, number).strip())


def _speed(read: int, written: int, flops: int, limit: float, bound: str, seconds: float | None) -> Speed:
    moved = read + written
    timed = seconds or None  # a clock may say 0
    return Speed(
        read, written, flops, limit, bound, seconds,
        intensity=flops / moved if moved else None,
        bandwidth=moved / timed if timed else None,
        rate=flops / timed if timed else None,
        share=limit / timed if timed else None,
    )  # fmt: skip


def _total(steps: Sequence[StepFacts], seconds: float | None) -> Speed:
    """Of a whole call: what its steps do, one after the other."""
    speeds = [s.speed for s in steps]
    limits = {bound: sum(s.limit for s in speeds if s.bound == bound) for bound in ("bandwidth", "peak")}
    limit = sum(limits.values())
    bound = max(limits, key=lambda b: limits[b]) if limit else "nothing"
    read, written, flops = (sum(getattr(s, n) for s in speeds) for n in ("bytes_read", "bytes_written", "flops"))
    return _speed(read, written, flops, limit, bound, seconds)


def _memory(executable: Executable) -> MemoryFacts:
    """The plan: what arguments and results take, what lies in between, and where that is in the arena."""
    m, memory = executable.memory_analysis(), executable.memory
    lives = [(v, memory.places[v].offset, first, last) for v, (first, last) in memory.lives.items()]
    blocks = tuple(Block(str(v.aval), offset, v.aval.nbytes, first + 1, last + 1) for v, offset, first, last in lives)
    return MemoryFacts(m.argument_bytes, m.output_bytes, m.temp_bytes + m.host_bytes, m.peak_bytes, blocks)


def _versions() -> tuple[tuple[str, str], ...]:
    import llvmlite
    import numba

    import fxgrad

    return (
        ("fxgrad", fxgrad.__version__),
        ("numpy", np.__version__),
        ("numba", numba.__version__),
        ("llvmlite", llvmlite.__version__),
    )
