"""jit: trace once, compile once, call many times.

A trace is kept for each structure of arguments (tree, shapes, dtypes, static values) and is good as long as what it read from
closures, globals and objects is bound to the same things. Compiled code is found by the structure of the program, so functions
that trace to the same program share it.
"""

from __future__ import annotations

import inspect
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from threading import RLock
from typing import Any, NamedTuple

import numpy as np

from fxgrad import errors, tree
from fxgrad.api.wrapping import name_after, reduction
from fxgrad.checkpointing import budget_of
from fxgrad.compile.misses import NEW_ARGUMENTS, Miss
from fxgrad.compile.trees import TreeCode, depth
from fxgrad.config import config, jit_disabled
from fxgrad.ir.program import Program, dce
from fxgrad.primitives import call
from fxgrad.runtime.collector import without_full_collections
from fxgrad.runtime.stale import glance, peep, reachable
from fxgrad.structure import LEAF_TYPES, Structure
from fxgrad.trace.draws import watching_draws
from fxgrad.trace.function import Traced, argument_names, as_leaf, aval_of_leaf, canonical, name_of, trace_function
from fxgrad.trace.guards import Guards
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import current_trace, inline

__all__ = ["CacheInfo", "Jitted", "Lowered", "jit"]

TRACES_KEPT = 256
MISSES_KEPT = 32
_DEEPEST = 24  # trees that are taken apart and put together by generated code
_MISS = object()


class CacheInfo(NamedTuple):
    """hits and misses of a jitted function's trace cache, and how many traces it holds.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> f = fx.jit(np.sin)
        >>> f(1.0), f(2.0), f(np.ones(3))
        (np.float64(0.8414709848078965), np.float64(0.9092974268256817), array([0.84147098, 0.84147098, 0.84147098]))
        >>> f.cache_info()
        CacheInfo(hits=1, misses=2, size=2)
    """

    hits: int
    misses: int
    size: int


class _Static:
    """A static argument as part of a key: equal in type and value (1, True and 1.0 differ, and so do 0.0 and -0.0).

    Its hash is that of the first time it was asked for: an object that changes later must not be lost among the keys.
    """

    __slots__ = ("_hash", "value")

    def __init__(self, value: Any):
        self.value = value
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Static):
            return False
        a, b = self.value, other.value
        if isinstance(a, tuple) and isinstance(b, tuple):
            return len(a) == len(b) and all(_Static(x) == _Static(y) for x, y in zip(a, b, strict=True))
        return type(a) is type(b) and (repr(a) == repr(b) if isinstance(a, (float, complex)) else bool(a == b))

    def __hash__(self) -> int:
        if self._hash is None:
            x = self.value
            same = repr(x) if isinstance(x, (float, complex)) else tuple(map(_Static, x)) if isinstance(x, tuple) else x
            self._hash = hash((type(x), same))
        return self._hash


CONTENTS = "the contents of an array that NumPy read while tracing"


class _Entry:
    """One trace: the program, what it captured, how its result is put together, and its compiled form."""

    __slots__ = (
        "budget",
        "captures",
        "contents",
        "donated",
        "executable",
        "guards",
        "out_tree",
        "program",
        "quick",
        "statics",
        "traced",
    )

    def __init__(self, traced: Traced, guards: Guards, statics: Guards, donated: Sequence[int], budget: int | None):
        self.traced, self.guards, self.statics = traced, guards, statics  # guards of the function, of its static arguments
        self.program = canonical(dce(traced.program))
        self.captures = traced.captures
        self.donated = tuple([len(traced.captures) + i for i in donated])
        self.budget = budget
        # Arrays within reach may have been read by NumPy, once, while tracing. Those that are captured most likely were not, and
        # are read at every call; so they get a shorter look.
        captured = {id(c) for c in traced.captures}
        looks = [(a, peep if id(a) in captured else glance) for a in (*guards.arrays, *statics.arrays)]
        self.contents = [(a, look, look(a)) for a, look in looks if reachable(a)]
        self.out_tree = traced.out_tree
        self.executable: Callable[..., list[Any]] | None = None
        self.quick: Callable[[tuple[Any, ...]], Any] | None = None

    def changed(self) -> str | None:
        """What the trace has read that is different now."""
        for a, v in zip(self.captures, self.program.inputs, strict=False):
            if a.shape != v.aval.shape or a.dtype != v.aval.dtype:
                return "the shape or dtype of a captured array"
        found = self.guards.changed() or self.statics.changed()
        if found is None and any([look(a) != mark for a, look, mark in self.contents]):
            return CONTENTS
        return found

    def learn(self, old: _Entry) -> None:
        """Arrays whose contents changed without moving the trace: only the program reads them, so they are watched no more."""
        if self.program is old.program:
            moved = {id(a) for a, look, mark in old.contents if look(a) != mark}
            kept = {id(a) for a, _, _ in old.contents} - moved
            self.contents = [c for c in self.contents if id(c[0]) in kept]

    def compiled(self) -> Callable[..., list[Any]]:
        if self.executable is None:
            from fxgrad.compile.lower import compile_program

            self.executable = compile_program(self.program, budget=self.budget)
            if self.donated:
                from fxgrad.compile.donation import Donating

                self.executable = Donating(
                    self.executable, compile_program(self.program, self.donated, self.budget), self.donated
                )
        return self.executable

    def quick_call(self, structure: Structure, kinds: Sequence[type]) -> Callable[[tuple[Any, ...]], Any] | None:
        """A function of the tuple of arguments that answers what the compiled function does, or `_MISS`, nothing done.

        It wants what the last call had: this structure, leaves of these types, shapes and dtypes, nothing rebound, no transform
        around. All that is known is written out, since on small arrays the way into the kernels is what a call costs.
        """
        if max(depth(structure), depth(self.out_tree)) > _DEEPEST:
            return None
        executable: Any = self.compiled()
        code = TreeCode("return miss")
        names = executable.source.arguments
        captured, given = names[: len(self.captures)], names[len(self.captures) :]
        code.take(structure, "args", [*given])
        for name, kind in zip(given, kinds, strict=True):
            if kind is not np.ndarray:  # a number; those of Python are weak, NumPy's are not
                code.convert(name, kind, np.asarray)
        answer = lambda outs: code.build(self.out_tree, outs)  # noqa: E731
        changed = "changed() is not None" if self.contents else "guards.checks and guards.changed() is not None"
        head = [*code.lines, f"if trace() is not None or disabled() or {changed}: return miss"]
        head += [f"{name} = k{i}" for i, name in enumerate(captured)]
        code.scope |= {f"k{i}": c for i, c in enumerate(self.captures)} | {
            "trace": current_trace, "disabled": jit_disabled, "guards": self.guards, "changed": self.changed, "miss": _MISS,
        }  # fmt: skip
        make = executable.function if self.donated else executable.source.function
        return make(head, "args", "return miss", answer, code.scope)


class Jitted:
    """A compiled function; see `jit`.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> f = fx.jit(lambda x: 2.0 * x)
        >>> f(np.ones(2))
        array([2., 2.])
        >>> f
        <jit(<lambda>)>
    """

    # slots: the guards of a function that holds this one look at __dict__, and shall not see what changes with every call
    __slots__ = (
        "__dict__",
        "__weakref__",
        "_donate_argnums",
        "_entries",
        "_f",
        "_guards",
        "_hits",
        "_lock",
        "_memory_budget",
        "_missed",
        "_misses",
        "_quick",
        "_signature",
        "_static_argnames",
        "_static_argnums",
    )

    def __init__(
        self,
        f: Callable[..., Any],
        static_argnums: Sequence[int],
        static_argnames: Sequence[str],
        donate_argnums: int | Sequence[int] = (),
        memory_budget: int | None = None,
    ):
        self._f = f
        name_after(self, f, "jit")
        self._signature = _signature(f)
        self._static_argnums, self._static_argnames = _static_names(self._signature, static_argnums, static_argnames)
        self._donate_argnums = _donated_numbers(self._signature, donate_argnums, self._static_argnums)
        self._memory_budget = None if memory_budget is None else budget_of(memory_budget, "jit(..., memory_budget)")
        self._entries: OrderedDict[Any, _Entry] = OrderedDict()
        self._quick: Callable[[tuple[Any, ...]], Any] | None = None  # of the entry used last
        self._guards: Guards | None = None  # shared by the entries made while nothing was rebound
        self._lock = RLock()
        self._hits = self._misses = 0
        self._missed: deque[Miss] = deque(maxlen=MISSES_KEPT)  # the last ones and why, for the log and for explain

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        quick = self._quick
        if quick is not None and not kwargs:
            found = quick(args)
            if found is not _MISS:
                self._hits += 1
                return found
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        entry, leaves, shape = self._entry(args, kwargs)
        operands = [*entry.captures, *leaves]
        if current_trace() is not None:
            outs = call.applied(call.jit_call, operands, {"program": entry.program, "name": entry.program.name})
        elif jit_disabled():
            outs = inline(entry.program, operands)
        else:
            again = entry.executable is not None
            run = entry.compiled()
            outs = run(*[x if type(x) is np.ndarray else np.asarray(x) for x in operands])
            if again and shape is not None:
                entry.quick = entry.quick or entry.quick_call(*shape)
                self._quick = entry.quick
        for y, weak in zip(outs, entry.traced.out_weak, strict=True):
            if weak and type(y) is Tracer:
                y.weak = True
        return tree.unflatten(entry.out_tree, outs)

    def _entry(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], called: bool = True
    ) -> tuple[_Entry, list[Any], tuple[Structure, list[type]] | None]:
        """The trace for these arguments, made if there is none or what it read has changed; and the leaves.

        Also the structure of the arguments and the types of their leaves, if they are positional, and arrays or numbers. Only
        calls count as hits.
        """
        positional = not kwargs and not self._static_argnums
        args, kwargs = self._canonical_call(args, kwargs)
        statics = {i: args[i] for i in self._static_argnums if i < len(args)}
        named = {k: kwargs[k] for k in self._static_argnames if k in kwargs}
        dynamic = tuple(a for i, a in enumerate(args) if i not in statics)
        keywords = {k: v for k, v in kwargs.items() if k not in named}
        flat, structure = tree.flatten((dynamic, keywords))
        try:
            pairs = [as_leaf(x, lambda: f"an argument of the jitted '{name_of(self._f)}'") for x in flat]
        except errors.FxError:
            moving = [i for i in range(len(args)) if i not in statics]
            self._refuse_leaf((dynamic, keywords), [argument_names(self._f, args)[i] for i in moving])
            raise
        avals = tuple(aval_of_leaf(x) for x, _ in pairs)
        weak = tuple(w for _, w in pairs)
        key = (structure, avals, weak, tuple((k, _Static(v)) for k, v in (*statics.items(), *sorted(named.items()))))
        leaves = [x for x, _ in pairs]
        kinds = [type(x) for x in flat]
        shape = (structure.children[0], kinds) if positional and LEAF_TYPES.issuperset(kinds) else None
        with self._lock:
            try:
                entry = self._entries.get(key)
            except TypeError as problem:
                raise errors.FxTypeError(
                    f"a static argument of the jitted '{name_of(self._f)}' is not hashable: {problem}",
                    why="Static arguments are part of the key under which the trace is kept.",
                    fix="Pass tuples instead of lists, or make it a traced argument.",
                ) from None
            changed = entry.changed() if entry is not None else NEW_ARGUMENTS
            if entry is not None and changed is None:
                self._hits += called
                return entry, leaves, shape
            self._misses += 1
            self._note_miss(key, changed or NEW_ARGUMENTS, args)

            def run(*values: Any) -> Any:
                moving, new_kwargs = tree.unflatten(structure, values)
                rest = iter(moving)
                return self._f(*[statics[i] if i in statics else next(rest) for i in range(len(args))], **new_kwargs, **named)

            held = {**{name: args[i] for i, name in enumerate(argument_names(self._f, args)) if i in statics}, **named}
            old, entry = entry, self._trace(run, leaves, weak, held, self._donated_leaves(structure, statics, leaves))
            if old is not None and changed == CONTENTS:
                entry.learn(old)
            if not any(type(c) is Tracer for c in entry.captures):
                self._entries[key] = entry
                self._entries.move_to_end(key)
                if len(self._entries) > TRACES_KEPT:
                    self._entries.popitem(last=False)
            return entry, leaves, shape

    def _refuse_leaf(self, given: tuple[tuple[Any, ...], dict[str, Any]], names: Sequence[str]) -> None:
        """Raise what is wrong with a leaf of (positional arguments, keyword arguments) under its name: argument 'w'['bias']."""
        for (group, first, *rest), x in tree.flatten_with_path(given)[0]:
            name = names[first.key] if group.key == 0 else first.key
            label = f"argument '{name}'{tree.path_string(tuple(rest))} of the jitted '{name_of(self._f)}'"
            try:
                as_leaf(x, lambda label=label: label)  # type: ignore[misc]
            except errors.FxError as problem:
                raise problem from None

    def _donated_leaves(self, structure: Structure, statics: dict[int, Any], leaves: Sequence[Any]) -> list[int]:
        """Which leaves belong to donated arguments (scalars have no memory to give)."""
        if not self._donate_argnums:
            return []
        out: list[int] = []
        first, position = 0, -1
        for child in structure.children[0].children:
            position += 1
            while position in statics:
                position += 1
            last = first + child.num_leaves
            if position in self._donate_argnums:
                out += [i for i in range(first, last) if leaves[i].shape]
            first = last
        return out

    def _trace(
        self, run: Callable[..., Any], leaves: list[Any], weak: tuple[bool, ...], held: dict[str, Any], donated: Sequence[int]
    ) -> _Entry:
        """Trace `run`; `held` are the static arguments by name, which may have attributes that it reads."""
        if self._guards is None or self._guards.changed() is not None:
            self._guards = Guards(self._f)
        guards = self._guards
        statics = Guards(held)
        marks = [(x, glance(x)) for x in leaves if type(x) is np.ndarray and reachable(x)]

        def trace() -> Traced:
            return trace_function(run, _abstract(leaves), weak, "jit", known=False, name=name_of(self._f))

        with without_full_collections():
            traced, drew = watching_draws(trace, [*guards.generators, *statics.generators])
        if drew:
            code = getattr(inspect.unwrap(self._f), "__code__", None)
            raise errors.UnsupportedError(
                f"'{name_of(self._f)}' draws random numbers (numpy.random or random) while jit traces it",
                where=(code, 0) if code is not None else None,
                why="It runs once for many calls, so that all of them would get the same random numbers.",
                fix="Draw outside and pass the numbers as an argument: f(x, rng.normal(size=n)).",
            )
        for x, mark in marks:
            if glance(x) != mark:
                raise errors.StaleValueError(
                    f"an argument {aval_of_leaf(x)} was changed in place while jit traced '{name_of(self._f)}'",
                    why="The compiled function reads its arguments when it is called, so earlier uses would see the new value.",
                    fix="Work on a copy, a.copy(), or make a new array instead of changing this one: a = np.where(mask, v, a).",
                )
        if guards.changed() is not None:  # by the function itself (a counter of its calls, say): a side effect of tracing
            guards.checks = Guards(self._f).checks
        if statics.changed() is not None:
            statics.checks = Guards(held).checks
        return _Entry(traced, guards, statics, donated, self._memory_budget)

    def _canonical_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Keyword arguments moved to their positions, so that f(x, y=1) and f(x, 1) share a trace."""
        if not kwargs or self._signature is None:
            return args, kwargs
        bound = self._signature.bind(*args, **kwargs)
        return bound.args, bound.kwargs

    def _note_miss(self, key: Any, changed: str, args: tuple[Any, ...]) -> None:
        miss = Miss(key, next(reversed(self._entries), None), changed, argument_names(self._f, args))
        self._missed.append(miss)
        if "cache" in config.log:
            sys.stderr.write(f"fxgrad: jit({name_of(self._f)}) traces: {miss.why}\n")

    def cache_info(self) -> CacheInfo:
        """Hits, misses and size of the trace cache.

        Example:
            >>> import fxgrad as fx
            >>> f = fx.jit(lambda x: x * 2.0)
            >>> f(1.0), f(2.0)
            (np.float64(2.0), np.float64(4.0))
            >>> f.cache_info()
            CacheInfo(hits=1, misses=1, size=1)
        """
        return CacheInfo(self._hits, self._misses, len(self._entries))

    def clear_cache(self) -> None:
        """Forget all traces of this function.

        Example:
            >>> import fxgrad as fx
            >>> f = fx.jit(lambda x: x * 2.0)
            >>> f(1.0), f.clear_cache()
            (np.float64(2.0), None)
            >>> f.cache_info()
            CacheInfo(hits=0, misses=1, size=0)
        """
        with self._lock:
            self._entries.clear()
            self._quick = None
            self._missed.clear()

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The program for these arguments, to look at or compile.

        Example:
            >>> import numpy as np, fxgrad as fx
            >>> lowered = fx.jit(lambda x: 2.0 * np.sin(x)).lower(np.ones(3))
            >>> print(lowered.as_text())
            program '<lambda>'(a: f64[3]) {
              b: f64[3] = sin a
              c: f64[3] = mul 2.0:f64 b
              return c
            }
        """
        entry, _, _ = self._entry(args, kwargs, called=False)
        return Lowered(entry)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A jitted function in a class body is a method, like any function."""
        from types import MethodType

        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<{self.__name__}>"

    def __reduce__(self) -> Any:
        made_by = jit, (self._f, self._static_argnums, self._static_argnames, self._donate_argnums, self._memory_budget)
        return reduction(self, made_by, sys._getframe(1))

    __name__: str


class Lowered:
    """A traced function before compilation.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> lowered = fx.jit(lambda x: 2.0 * x).lower(np.ones(1000))
        >>> compiled = lowered.compile()
        >>> compiled.cost_analysis()["flops"]
        1000
    """

    def __init__(self, entry: _Entry):
        self._entry = entry
        p = entry.program  # the first of this structure, perhaps of another function: only its name is not ours
        self.program = Program(p.inputs, p.eqns, p.outputs, p.consts, entry.traced.program.name)
        self.program.memo = p.memo

    def __reduce__(self) -> Any:
        raise errors.not_picklable("a lowered program", "Pickle the jitted function, and lower it where it arrives.")

    def as_text(self) -> str:
        """The program.

        Example:
            >>> import numpy as np, fxgrad as fx
            >>> print(fx.jit(np.sin).lower(np.ones(3)).as_text())
            program sin(a: f64[3]) {
              b: f64[3] = sin a
              return b
            }
        """
        return str(self.program)

    def compile(self) -> Any:
        """The executable: `as_text()` shows its kernels, `cost_analysis()` its flops and bytes.

        Example:
            >>> import numpy as np, fxgrad as fx
            >>> compiled = fx.jit(np.sin).lower(np.ones(3)).compile()
            >>> compiled(np.zeros(3))
            [array([0., 0., 0.])]
        """
        return self._entry.compiled()


def _abstract(leaves: Sequence[Any]) -> list[Any]:
    """Tracers stay (an outer trace knows them by identity), arrays need only their avals."""
    return [aval_of_leaf(x) for x in leaves]


def _signature(f: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(f)
    except (TypeError, ValueError):
        return None


def _several(given: Any, kind: type, option: str, what: str) -> tuple[Any, ...]:
    """One or several ints, or strings, as a tuple."""
    kinds = (int, np.integer) if kind is int else (kind,)
    several = (given,) if isinstance(given, kinds) else tuple(given) if isinstance(given, Iterable) else None
    if several is None or not all(isinstance(x, kinds) and not isinstance(x, bool) for x in several):
        raise errors.FxTypeError(
            f"jit got {option}={given!r}",
            why=f"It takes {what}.",
            fix=f"Pass {option}={'0' if kind is int else repr('n')}, or a tuple of several.",
        )
    return tuple(map(kind, several))


def _static_names(signature: inspect.Signature | None, argnums: Any, argnames: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Static arguments by position and by name; each given way implies the other where the signature allows."""
    numbers = _several(argnums, int, "static_argnums", "positions of arguments: ints")
    names = _several(argnames, str, "static_argnames", "names of arguments: strings")
    if signature is None:
        return numbers, names
    positional = [p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    wrong = [n for n in numbers if n < -len(positional) or n >= len(positional)]
    if wrong and (min(wrong) < 0 or not any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())):
        raise errors.FxValueError(
            f"jit got static_argnums={argnums!r}, but the function has no argument {wrong[0]}",
            why="A position that is never passed would be ignored silently.",
            fix=f"Its positional arguments are {', '.join(f'{i} ({name})' for i, name in enumerate(positional)) or 'none'}.",
        )
    numbers = tuple(n + len(positional) if n < 0 else n for n in numbers)
    unknown = [
        n
        for n in names
        if n not in signature.parameters and not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    ]
    if unknown:
        raise errors.FxValueError(
            f"jit got static_argnames={list(names)}, but the function has no parameter {unknown[0]!r}",
            why="A name that is never passed would be ignored silently.",
            fix=f"Its parameters are {', '.join(signature.parameters)}.",
        )
    all_numbers = sorted({*numbers, *(positional.index(n) for n in names if n in positional)})
    all_names = sorted({*names, *(positional[n] for n in numbers if n < len(positional))})
    return tuple(all_numbers), tuple(all_names)


def _donated_numbers(signature: inspect.Signature | None, argnums: Any, statics: Sequence[int]) -> tuple[int, ...]:
    """Donated arguments by position."""
    numbers = _several(argnums, int, "donate_argnums", "positions of arguments: ints")
    if signature is not None and numbers:
        kinds = [p.kind for p in signature.parameters.values()]
        count = sum(k in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for k in kinds)
        numbers = tuple(n + count if n < 0 else n for n in numbers)
        many = inspect.Parameter.VAR_POSITIONAL in kinds
        wrong = [n for n in numbers if n in statics or n < 0 or (n >= count and not many)]
        if wrong:
            raise errors.FxValueError(
                f"jit got donate_argnums={argnums!r}: argument {wrong[0]} is {'static' if wrong[0] in statics else 'not there'}",
                why="Only arrays that the function takes as positional arguments have memory to give.",
                fix=f"Name positions from 0 to {count - 1}, of arguments that are not static.",
            )
    return numbers


def jit(
    f: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    memory_budget: int | None = None,
) -> Jitted:
    """Compile a function: trace it once, fuse its operations into kernels, and run those from then on, with the same bits.

    Arguments:
        f: a function of arrays, numbers and trees of them. It is traced again when shapes, dtypes or static arguments are
            new, or when a global, closure variable or attribute it reads has been rebound. Captured arrays are read at each call.
        static_argnums, static_argnames: arguments that are part of the trace: hashable, compared by type and value.
        donate_argnums: positional arguments, with all arrays in them, that the caller gives up: results may take their memory.
            Afterwards they are read-only, their contents unspecified; donating one again is an error, and so are writes to it.
            Views of them made before are not known and would see the results. An array that does not own its memory, is
            read-only, or overlaps another argument or a captured array is left alone.
        memory_budget: bytes that a call may take at one time, arguments and results among them: the `peak_bytes` of
            `lower(*args).compile().memory_analysis()`. Where it would take more, values that are needed long after they were made
            (by the backward pass, say) are computed again there, those that cost least; the bits are the same. It is the
            budget of this function where it is called; a transform of it, or a jitted function around it, has its own.

    Returns:
        A function that returns fresh NumPy arrays (rank 0: NumPy scalars), with `lower(*args)`, `cache_info()`, `clear_cache()`.

    Raises:
        ConcretizationError: f asks for the value of a traced array (`if x > 0`, `int(x)`).
        FxValueError: at the call, if no way is found to stay within `memory_budget`; the message has the least that is possible.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.jit(lambda x: np.sum(x * 2.0))(np.ones(3))
        np.float64(6.0)
    """
    if not callable(f):
        raise errors.FxTypeError(
            f"jit takes a function, got {type(f).__name__}",
            why="It compiles a function and returns the compiled one.",
            fix="Write fx.jit(f), then call the result with the arguments.",
        )
    return Jitted(f, static_argnums, static_argnames, donate_argnums, memory_budget)  # type: ignore[arg-type]
