"""Program and Eqn: typed, closed, in SSA form."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fxgrad.ir.types import Atom, Aval, Lit, Var

if TYPE_CHECKING:
    from fxgrad.primitives.base import Primitive

__all__ = ["Eqn", "Program", "dce", "subprograms"]


class Eqn:
    """`outputs = prim[params] inputs`; `source` is where it came from: (code object, offset of the instruction)."""

    __slots__ = ("inputs", "outputs", "params", "prim", "source")

    def __init__(
        self, prim: Primitive, inputs: Sequence[Atom], params: dict[str, Any], outputs: Sequence[Var], source: Any = None
    ):
        self.prim, self.inputs, self.params, self.outputs, self.source = prim, inputs, params, outputs, source


class _Key(tuple):
    """A structure as a key of dictionaries, hashed once: it is long, and looked up several times."""

    _hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = tuple.__hash__(self)
        return self._hash


class Program:
    """A closed, typed function of arrays.

    `inputs` are variables, `eqns` run in order, `outputs` are variables or literals. The first `len(consts)` inputs are captured
    arrays; their values stand beside them in `consts`, held by reference. Programs inside equations have no consts. Two
    programs are equal when their structure is: names and captured values do not count.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> p = fx.make_ir(lambda x: np.sin(x) * 2.0)(np.ones(3))
        >>> print(p)
        program '<lambda>'(a: f64[3]) {
          b: f64[3] = sin a
          c: f64[3] = mul b 2.0:f64
          return c
        }
        >>> [eqn.prim.name for eqn in p.eqns]
        ['sin', 'mul']
    """

    __slots__ = ("__weakref__", "_key", "consts", "eqns", "inputs", "memo", "name", "outputs")

    def __init__(
        self,
        inputs: Sequence[Var],
        eqns: Sequence[Eqn],
        outputs: Sequence[Atom],
        consts: Sequence[Any] = (),
        name: str = "main",
    ):
        self.inputs, self.eqns, self.outputs = tuple(inputs), list(eqns), tuple(outputs)
        self.consts, self.name = tuple(consts), name
        self._key: tuple | None = None
        self.memo: dict[Any, Any] = {}  # what transforms and the compiler have derived from this program

    @property
    def in_avals(self) -> list[Aval]:
        return [v.aval for v in self.inputs]

    @property
    def out_avals(self) -> list[Aval]:
        return [v.aval for v in self.outputs]

    def without_consts(self) -> Program:
        """The same program with its captured arrays as ordinary leading inputs."""
        return self if not self.consts else Program(self.inputs, self.eqns, self.outputs, (), self.name)

    @property
    def key(self) -> tuple:
        """The structure as a hashable value: variables numbered in order of definition."""
        if self._key is None:
            number: dict[Var, int] = {v: i for i, v in enumerate(self.inputs)}
            row: list[Any] = [len(self.consts), *[v.aval for v in self.inputs]]
            for eqn in self.eqns:
                row.append(eqn.prim)  # then its operands and its parameters, which end with a tuple
                for a in eqn.inputs:
                    row.append(number[a] if type(a) is Var else a)  # noqa: PERF401 - a comprehension is a call before Python 3.12
                params = eqn.params
                row.append(tuple(sorted(params.items())) if len(params) > 1 else tuple(params.items()))
                for v in eqn.outputs:
                    number[v] = len(number)
            self._key = _Key([*row, *[number[a] if type(a) is Var else a for a in self.outputs]])
        return self._key

    @property
    def places(self) -> tuple:
        """Where the equations come from that may raise when they run, which their errors name, in order."""
        found: list[Any] = []
        for eqn in self.eqns:
            if eqn.prim.raises:
                found.append(eqn.source)
            elif eqn.prim.kind in ("call", "control"):
                for inner in subprograms(eqn):
                    found += inner.places
        return tuple(found)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Program) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def memoize(self, key: Any, make: Callable[[], Any]) -> Any:
        """`make()` the first time, its result from then on."""
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]

    def content_hash(self) -> str:
        """A hash of the text form without names; the same in every process. Keys compiled code."""
        from fxgrad.ir.text import format_program

        return hashlib.sha256(format_program(self, names=False).encode()).hexdigest()

    def __str__(self) -> str:
        from fxgrad.ir.text import format_program

        return format_program(self)

    def __repr__(self) -> str:
        return f"<Program {self.name}: {len(self.inputs)} inputs, {len(self.eqns)} eqns, {len(self.outputs)} outputs>"

    def __reduce__(self) -> tuple:
        """Pickles as text: variables are told apart by identity, which a pickle would have to rebuild one by one."""
        from fxgrad.ir.text import parse

        return _rebuild, (parse, str(self), self.consts)


def _rebuild(parse: Callable[[str], Program], text: str, consts: tuple) -> Program:
    program = parse(text)
    return Program(program.inputs, program.eqns, program.outputs, consts, program.name)


def subprograms(eqn: Eqn) -> Iterable[Program]:
    """The programs an equation carries in its params."""
    return programs_in(eqn.params)


def programs_in(params: dict[str, Any]) -> Iterable[Program]:
    """The programs among the values of params, and in tuples there."""
    for value in params.values():
        if isinstance(value, Program):
            yield value
        elif isinstance(value, tuple):
            yield from (p for p in value if isinstance(p, Program))


def dce(program: Program, used_outputs: Sequence[bool] | None = None) -> Program:
    """Drop equations whose results nobody reads (and the outputs not in `used_outputs`); inputs stay as they are."""
    outputs = (
        [o for o, use in zip(program.outputs, used_outputs, strict=True) if use] if used_outputs is not None else program.outputs
    )
    live: set[Var] = {o for o in outputs if type(o) is Var}
    kept: list[Eqn] = []
    pruned = False
    for eqn in reversed(program.eqns):
        if len(eqn.outputs) == 1:
            if eqn.outputs[0] not in live:
                continue
        elif live.isdisjoint(eqn.outputs):
            continue
        elif eqn.prim.prune is not None and not live.issuperset(eqn.outputs):
            before, eqn = eqn, eqn.prim.prune(eqn, [v in live for v in eqn.outputs])
            pruned = pruned or eqn is not before
        kept.append(eqn)
        for a in eqn.inputs:
            if type(a) is Var:
                live.add(a)
    if not pruned and len(kept) == len(program.eqns) and len(outputs) == len(program.outputs):
        return program
    return Program(program.inputs, kept[::-1], outputs, program.consts, program.name)


def literal(value: Any, dtype: Any) -> Lit:
    """A Lit of `value` in `dtype`."""
    import numpy as np

    return Lit(np.dtype(dtype).type(value))
