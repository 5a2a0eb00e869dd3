"""Reads the text form of programs (fxgrad/ir/text.py): one pass, no backtracking, every error with its line and column."""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import inspect
import pkgutil
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from fxgrad import errors
from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import LONG_NAMES, TYPE_NAMES, Atom, Aval, Lit, Var

if TYPE_CHECKING:
    from fxgrad.primitives.base import Primitive

__all__ = ["NAME", "parse", "type_of"]

NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)
_SPACE = re.compile(r"(?:\s+|#[^\n]*)*")
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_AVAL = re.compile(r"([a-z]+\d*)\[((?:\d+(?:,\d+)*)?)\]", re.ASCII)
_OUTPUT = re.compile(r"([A-Za-z_]\w*)\s*:\s*([a-z]+\d*\[(?:\d+(?:,\d+)*)?\])", re.ASCII)
_STRING = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"")
_NUMBER = re.compile(r"-?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|inf\b|nan\b)", re.ASCII)
_DTYPE_SUFFIX = re.compile(r":([a-z]+\d*)", re.ASCII)


def parse(text: str) -> Program:
    """Read a program from its text form.

    Args:
        text: one program, as `str(program)` prints it or written by hand: any variable names, any spacing, `#` comments.
    Returns:
        The Program. For inputs marked `const`, `consts` holds None, as values are not part of the text.
    Raises:
        FxValueError: malformed text, an unknown primitive, a variable that is not defined (or twice), or an equation that its
            primitive's type rule refuses; the message has line and column.

    >>> parse("program f(x: f64[3]) { y: f64[] = sum[axes=(0,)] x  return y }").out_avals
    [f64[]]
    """
    parser = _Parser(text)
    program = parser.program()
    parser.skip()
    if parser.pos != len(text):
        raise parser.error("text after the end of the program")
    return program


def type_of(prim: Primitive, avals: list[Aval], params: dict[str, Any]) -> list[Aval]:
    """What the type rule says; whatever it raises on operands or parameters it does not take is a ValueError with the reason."""
    try:
        _check_arity(prim, len(avals), tuple(params))
        return list(prim.typ(*avals, **params))
    except errors.FxError as error:
        lines = [line.strip() for line in str(error).split("\n")]
        raise ValueError(" ".join(line for line in lines if not line.startswith("at "))) from error
    except Exception as error:
        given = f"{len(avals)} operand{'s' if len(avals) != 1 else ''}" + (
            f" and parameters {', '.join(sorted(params))}" if params else ""
        )
        raise ValueError(f"{prim.name} does not take {given} ({error})") from error


@functools.cache
def _check_arity(prim: Primitive, n: int, params: tuple[str, ...]) -> None:
    """The type rules of elementwise primitives take any number of operands; the kernel body knows."""
    if prim.kind == "map" and prim.body is not None:
        inspect.signature(prim.body).bind(None, *[None] * n, **dict.fromkeys(params))


def find_primitive(name: str) -> Primitive | None:
    """The primitive of this name; loads the modules that declare primitives if it is not there yet."""
    from fxgrad import primitives
    from fxgrad.primitives.base import REGISTRY

    if name not in REGISTRY:
        for module in pkgutil.iter_modules(primitives.__path__):
            importlib.import_module(f"{primitives.__name__}.{module.name}")
    return REGISTRY.get(name)


class _Parser:
    """A position in the text. Each method reads one construct and leaves the position behind it."""

    def __init__(self, text: str):
        self.text, self.pos = text, 0
        self.avals: dict[str, Aval] = {}  # by text
        self.primitives: dict[str, Primitive] = {}

    # -- tokens

    def error(self, what: str, pos: int | None = None) -> errors.FxValueError:
        text, pos = self.text, self.pos if pos is None else pos
        line = text.count("\n", 0, pos) + 1
        start = text.rfind("\n", 0, pos) + 1
        end = text.find("\n", pos)
        shown, column = text[start : len(text) if end < 0 else end], pos - start
        if len(shown) > 120:  # keep the surroundings of the column
            cut = max(0, column - 60)
            shown, column = shown[cut : cut + 120], column - cut
        return errors.FxValueError(
            f"cannot parse program text, line {line}, column {pos - start + 1}: {what}", why=f"{shown}\n  {' ' * column}^"
        )

    def skip(self) -> None:
        text, pos = self.text, self.pos
        if pos < len(text) and text[pos] in " \n\t\r#\f\v":
            self.pos = _SPACE.match(text, pos).end()  # type: ignore[union-attr]

    def found(self) -> str:
        self.skip()
        word = re.compile(r"\w+|\S|$").match(self.text, self.pos)
        return repr(word[0]) if word and word[0] else "the end of the text"

    def take(self, token: str) -> bool:
        """Whether this punctuation comes next; it is then read."""
        self.skip()
        if self.text.startswith(token, self.pos):
            self.pos += len(token)
            return True
        return False

    def expect(self, token: str, context: str) -> None:
        if not self.take(token):
            raise self.error(f"expected '{token}' {context}, found {self.found()}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.skip()
        found = pattern.match(self.text, self.pos)
        if found is not None:
            self.pos = found.end()
        return found

    def keyword(self, word: str) -> bool:
        """Whether this word comes next; it is then read."""
        self.skip()
        end = self.pos + len(word)
        if self.text.startswith(word, self.pos) and not (
            end < len(self.text) and (self.text[end].isalnum() or self.text[end] in "_:")
        ):
            self.pos = end
            return True
        return False

    # -- programs

    def program(self) -> Program:
        if not self.keyword("program"):
            raise self.error(f"expected 'program', found {self.found()}")
        name = self.match(NAME)
        title = name[0] if name else self.string("expected the name of the program")
        env: dict[str, Var] = {}
        self.expect("(", "after the program's name")
        inputs: list[Var] = []
        n_consts = 0
        if self.keyword("const"):
            inputs = self.declarations(env)
            n_consts = len(inputs)
            self.expect(";", "after the captured inputs")
        self.skip()
        if not self.text.startswith(")", self.pos):
            inputs += self.declarations(env)
        self.expect(")", "after the inputs")
        self.expect("{", "before the equations")
        eqns: list[Eqn] = []
        while not self.keyword("return"):
            eqns.append(self.equation(env))
        outputs: list[Atom] = []
        if not self.take("}"):
            outputs.append(self.operand(env))
            while self.take(","):
                outputs.append(self.operand(env))
            self.expect("}", "after the outputs")
        return Program(inputs, eqns, outputs, (None,) * n_consts, title)

    def declarations(self, env: dict[str, Var]) -> list[Var]:
        """`a: f64[3], b: i64[]`; the names are added to env."""
        out = []
        while True:
            self.skip()
            start = self.pos
            found = self.match(_OUTPUT)
            if found is None:
                raise self.error(f"expected a variable and its type, such as 'x: f64[3]', found {self.found()}")
            name = found[1]
            if name in env:
                raise self.error(f"variable '{name}' is defined twice", start)
            env[name] = var = Var(self.aval(found[2], found.start(2)))
            out.append(var)
            if not self.take(","):
                return out

    def aval(self, text: str, pos: int) -> Aval:
        aval = self.avals.get(text)
        if aval is None:
            parts = _AVAL.fullmatch(text)
            assert parts is not None
            if parts[1] not in TYPE_NAMES:
                raise self.error(f"unknown dtype '{parts[1]}'; there are {', '.join(LONG_NAMES)}", pos)
            shape = tuple([int(n) for n in parts[2].split(",")]) if parts[2] else ()
            aval = self.avals[text] = Aval(shape, TYPE_NAMES[parts[1]])
        return aval

    def equation(self, env: dict[str, Var]) -> Eqn:
        """`a: f64[3], b: i64[] = name[key=value, ...] operand ...`; no outputs is fine."""
        self.skip()
        start = self.pos
        defined: dict[str, Var] = {}  # an equation does not see its own outputs
        outputs = [] if self.text.startswith("=", start) else self.declarations(defined)
        self.expect("=", "before the primitive")
        self.skip()
        at = self.pos
        word = self.match(_WORD)
        if word is None:
            raise self.error(f"expected a primitive, found {self.found()}")
        prim = self.primitives.get(word[0]) or self.primitive(word[0], at)
        params = self.params() if self.text.startswith("[", self.pos) else {}
        inputs = []
        while not self.ends_operands():
            inputs.append(self.operand(env))
        try:
            expected = type_of(prim, [a.aval for a in inputs], params)
        except ValueError as error:
            raise self.error(str(error), at) from None
        if [v.aval for v in outputs] != expected:
            said, gives = (", ".join(map(str, avals)) or "nothing" for avals in ([v.aval for v in outputs], expected))
            raise self.error(f"{prim.name} gives {gives} here, the text says {said}", start)
        for name, var in defined.items():
            if name in env:
                raise self.error(f"variable '{name}' is defined twice", start)
            env[name] = var
        return Eqn(prim, inputs, params, outputs)

    def ends_operands(self) -> bool:
        """Whether what follows is the next equation, the return, or nothing an operand can start with."""
        self.skip()
        text, pos = self.text, self.pos
        if pos >= len(text) or text[pos] in "=}":
            return True
        word = _WORD.match(text, pos)
        if word is None or (word[0] == "complex" and text.startswith("(", word.end())):
            return False
        if word[0] == "return":
            return True
        colon = _SPACE.match(text, word.end()).end()  # type: ignore[union-attr]
        if not text.startswith(":", colon):
            return False
        aval = _AVAL.match(text, _SPACE.match(text, colon + 1).end())  # type: ignore[union-attr]
        return aval is not None  # `nan:f64` is an operand, `nan: f64[]` the next equation

    def primitive(self, name: str, pos: int) -> Primitive:
        from fxgrad.primitives.base import REGISTRY

        prim = find_primitive(name)
        if prim is None:
            raise self.error(f"there is no primitive '{name}'{_suggest(name, REGISTRY)}", pos)
        self.primitives[name] = prim
        return prim

    def operand(self, env: dict[str, Var]) -> Atom:
        self.skip()
        start = self.pos
        word = _WORD.match(self.text, start)
        if word is not None and not self.text.startswith((":", "("), word.end()):
            var = env.get(word[0])
            if var is None:
                raise self.error(f"variable '{word[0]}' is not defined{_suggest(word[0], env)}", start)
            self.pos = word.end()
            return var
        value = self.value()
        if not isinstance(value, np.generic):
            raise self.error("an operand is a variable or a typed scalar such as 2.0:f64", start)
        return Lit(value)

    # -- values

    def params(self) -> dict[str, Any]:
        self.expect("[", "before the parameters")
        params: dict[str, Any] = {}
        if self.take("]"):
            return params
        while True:
            self.skip()
            start = self.pos
            key = self.match(_WORD)
            if key is None:
                raise self.error(f"expected the name of a parameter, found {self.found()}")
            if key[0] in params:
                raise self.error(f"parameter '{key[0]}' is given twice", start)
            self.expect("=", f"after parameter '{key[0]}'")
            params[key[0]] = self.value()
            if self.take("]"):
                return params
            self.expect(",", "or ']' after a parameter")

    def value(self) -> Any:
        self.skip()
        text, start = self.text, self.pos
        first = text[start : start + 1]
        if first == "(":
            return self.tuple()
        if first in ("'", '"'):
            return self.string("expected a string")
        number = self.match(_NUMBER)
        if number is not None:
            digits = number[0]
            return self.typed(int(digits) if digits.lstrip("-").isdigit() else float(digits), start)
        word = _WORD.match(text, start)
        if word is None:
            raise self.error(f"expected a value, found {self.found()}")
        if word[0] == "program":
            inner = self.program()
            if inner.consts:
                raise self.error("a program inside an equation has no captured inputs", start)
            return inner
        self.pos = word.end()
        if word[0] in ("None", "True", "False"):
            value = {"None": None, "True": True, "False": False}[word[0]]
            return value if value is None else self.typed(value, start)
        if word[0] == "complex":
            return self.typed(self.complex(), start)
        if word[0] in LONG_NAMES:
            aval = _AVAL.match(text, start)
            if aval is None:
                return LONG_NAMES[word[0]]
            self.pos = aval.end()
            return self.aval(aval[0], start)
        raise self.error(f"unknown value '{word[0]}'{_suggest(word[0], LONG_NAMES)}", start)

    def tuple(self) -> tuple:
        self.expect("(", "before a tuple")
        items: list[Any] = []
        while not self.take(")"):
            items.append(self.value())
            if self.take(")"):
                if len(items) == 1:
                    raise self.error("a tuple of one is written (x,)", self.pos - 1)
                break
            self.expect(",", "or ')' in a tuple")
        return tuple(items)

    def complex(self) -> complex:
        self.expect("(", "after complex")
        real = self.match(_NUMBER)
        self.expect(",", "between the parts of a complex number")
        imag = self.match(_NUMBER)
        self.expect(")", "after a complex number")
        if real is None or imag is None:
            raise self.error("expected complex(real,imaginary)")
        return complex(float(real[0]), float(imag[0]))

    def string(self, expected: str) -> str:
        self.skip()
        start = self.pos
        found = self.match(_STRING)
        if found is None:
            raise self.error(f"{expected}, found {self.found()}")
        try:
            return ast.literal_eval(found[0])
        except (ValueError, SyntaxError) as error:
            raise self.error(f"bad string: {error}", start) from None

    def typed(self, value: Any, start: int) -> Any:
        """The value itself, or the NumPy scalar it makes with a dtype behind it."""
        suffix = _DTYPE_SUFFIX.match(self.text, self.pos)
        if suffix is None:
            return value
        dtype = LONG_NAMES.get(suffix[1])
        if dtype is None:
            raise self.error(f"unknown dtype '{suffix[1]}'; there are {', '.join(LONG_NAMES)}", suffix.start(1))
        self.pos = suffix.end()
        kinds: dict[str, tuple] = {"b": (bool,), "f": (float, int), "c": (complex,)}
        if type(value) not in kinds.get(dtype.kind, (int,)):
            raise self.error(f"{value!r} is not a {dtype}", start)
        with np.errstate(over="ignore", invalid="ignore"):
            try:
                made = dtype.type(value)
            except OverflowError:
                made = None
        if made is None or (dtype.kind in "fc" and np.isfinite(value) and not np.isfinite(made)):
            raise self.error(f"{value!r} is out of range for {dtype}", start)
        return made


def _suggest(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known)[:5000], 1, 0.75)
    return f"; did you mean '{close[0]}'?" if close else ""
