"""Programs: their text form (round trips, golden texts, malformed texts), hashes, and check()."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxgrad import errors
from fxgrad.ir.check import check
from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.text import format_eqn, format_program, format_value, parse
from fxgrad.ir.types import LONG_NAMES, Aval, Lit, Var
from fxgrad.primitives import base, call, dot, elementwise, index, reduce, shape  # noqa: F401 (they register primitives)

LOSS = """\
program loss(a: f64[3,4], b: f64[4]) {
  c: f64[3] = dot[batch=((),()), contract=((1,),(0,)), strong=None] a b
  d: f64[3] = tanh c
  e: f64[] = sum[axes=(0,)] d
  return e
}"""
NESTED = """\
program '<lambda>'(const a: f32[2]; b: f32[2]) {
  c: f32[2], d: bool[2] = jit_call[program=program f(a: f32[2], b: f32[2]) {
    c: f32[2] = checkpoint[policy=('names','x'), program=program main(a: f32[2], b: f32[2]) {
      c: f32[2] = mul a b
      d: f32[2] = name[name='x'] c
      return d
    }] a b
    d: bool[2] = lt c -0.0:f32
    return c, d
  }] a b
  e: f64[2] = convert[dtype=f64] c
  f: i64[] = argmax[axes=(0,)] e
  return f, d, inf:f64, complex(-0.0,nan):c64
}"""
EMPTY = "program main() {\n  return\n}"
GOLDEN = [LOSS, NESTED, EMPTY]


def make(prim: str, inputs: list, **params) -> Eqn:
    """An equation whose outputs have the types that the primitive gives."""
    primitive = base.lookup(prim)
    return Eqn(primitive, inputs, params, [Var(a) for a in primitive.typ(*[i.aval for i in inputs], **params)])


# ---- round trips ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", GOLDEN)
def test_golden_text(source):
    program = parse(source)
    assert str(program) == source
    assert parse(str(program)) == program
    check(program)


def test_free_form():
    loose = """
    # any names, any spacing
    program loss ( x : f64[3,4] ,w: f64[4])
    { y :f64[3]=dot[strong=None,contract=((1 , ),(0,)),  batch=((),( ))]x w z: f64[3] = tanh y   # comments
      nan: f64[] = sum [axes=(0,)] z return
      nan }"""
    assert str(parse(loose.replace("sum [", "sum["))) == LOSS


def scalars(dtype: np.dtype) -> st.SearchStrategy:
    """Scalars of all bit patterns."""
    if dtype.kind == "b":
        return st.sampled_from([np.False_, np.True_])
    special = [np.dtype(dtype).type(v) for v in (0, 1)]
    if dtype.kind in "fc":
        special += [dtype.type(v) for v in (-0.0, np.inf, -np.inf, np.nan, 0.1, 1 / 3)]
        real = np.finfo(dtype)
        special += [dtype.type(v) for v in (real.max, real.tiny, real.smallest_subnormal, real.eps)]
    raw = st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize).map(lambda b: np.frombuffer(b, dtype)[0])
    return st.one_of(st.sampled_from(special), raw)


DTYPES = sorted(LONG_NAMES.values(), key=str)


@given(st.sampled_from(DTYPES).flatmap(scalars))
@settings(max_examples=200, deadline=None)
def test_literals_keep_their_bits(x):
    program = Program([], [], [Lit(x)])
    assert parse(str(program)) == program


def test_every_float16_keeps_its_bits():
    values = np.arange(65536, dtype=np.uint16).view(np.float16)
    program = Program([], [], [Lit(x) for x in values])
    back = np.array([o.value for o in parse(str(program)).outputs])
    assert np.array_equal(np.isnan(back), np.isnan(values))
    assert np.array_equal(back[~np.isnan(back)].view(np.uint16), values[~np.isnan(values)].view(np.uint16))


def test_any_nan_is_any_nan():
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    one, other = (Program([], [], [Lit(x)]) for x in odd)
    assert one == other and str(one) == str(other) == "program main() {\n  return nan:f64\n}"
    assert Lit(np.complex128(complex(np.nan, 0.0))) != Lit(np.complex128(complex(np.nan, -0.0)))


@st.composite
def programs(draw, depth: int = 2):
    """Random programs of real primitives over arrays of a few shapes."""
    floats = st.sampled_from([np.dtype(np.float32), np.dtype(np.float64)])
    shapes = st.sampled_from([(), (3,), (2, 3), (0,), (3, 3)])
    inputs = [Var(Aval(draw(shapes), draw(floats))) for _ in range(draw(st.integers(1, 3)))]
    known = list(inputs)
    eqns = []
    for _ in range(draw(st.integers(0, 8))):
        x = draw(st.sampled_from(known))
        kind, ndim, dtype = draw(st.integers(0, 10)), x.aval.ndim, x.aval.dtype
        number = dtype.kind in "fiu"
        if kind == 0 and dtype.kind == "f":
            eqn = make(draw(st.sampled_from(["tanh", "exp", "neg", "stop_gradient", "floor"])), [x])
        elif kind == 1 and number:
            eqn = make(draw(st.sampled_from(["mul", "add", "maximum", "lt"])), [x, Lit(draw(scalars(dtype)))])
        elif kind == 2 and number:
            same = [v for v in known if v.aval is x.aval]
            eqn = make(draw(st.sampled_from(["sub", "mul", "eq"])), [x, draw(st.sampled_from(same))])
        elif kind == 3 and number:
            eqn = make("sum", [x], axes=tuple(i for i in range(ndim) if draw(st.booleans())))
        elif kind == 4 and ndim:
            eqn = make(
                "cumsum" if number else "reverse",
                [x],
                **({"axis": 0, "reverse": draw(st.booleans())} if number else {"axes": (0,)}),
            )
        elif kind == 5:
            eqn = make("transpose", [x], perm=tuple(draw(st.permutations(range(ndim)))))
        elif kind == 6:
            eqn = make("convert", [x], dtype=draw(st.sampled_from(DTYPES[1:])) if number else np.dtype(np.int8))
        elif kind == 7:
            eqn = make("name", [x], name=draw(st.text(max_size=5)))
        elif kind == 8 and number:
            eqn = make("integer_pow", [x], n=draw(st.integers(-3, 3)))
        elif kind == 9 and depth:
            inner = draw(programs(depth=depth - 1)).without_consts()
            args = [make("iota", [], shape=a.shape or (1,), dtype=a.dtype, axis=0) for a in inner.in_avals]
            args += [make("reshape", e.outputs, shape=a.shape) for e, a in zip(list(args), inner.in_avals, strict=True)]
            eqns += args
            eqn = make("jit_call", [e.outputs[0] for e in args[len(inner.inputs) :]], program=inner)
        else:
            eqn = make("select", [Lit(np.bool_(draw(st.booleans()))), x, x])
        eqns.append(eqn)
        known += eqn.outputs
    outputs = draw(st.lists(st.one_of(st.sampled_from(known), st.sampled_from(DTYPES).flatmap(scalars).map(Lit)), max_size=3))
    consts = (np.zeros(inputs[0].aval.shape, inputs[0].aval.dtype),) * draw(st.integers(0, 1))
    return Program(inputs, eqns, outputs, consts, draw(st.sampled_from(["main", "f", "model.loss", "<lambda>", "two words"])))


@given(programs())
@settings(max_examples=80, deadline=None)
def test_round_trip(program):
    check(program)
    back = parse(str(program))
    check(back)
    assert back == program and hash(back) == hash(program)
    assert str(back) == str(program) and back.name == program.name
    assert len(back.consts) == len(program.consts)
    assert parse(format_program(program, names=False)) == program
    assert back.content_hash() == program.content_hash()
    again = pickle.loads(pickle.dumps(program))
    assert again == program and again.name == program.name and all(a is not None for a in again.consts)


PLAIN = [st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.complex_numbers(allow_nan=False), st.text()]
PLAIN.append(st.sampled_from([*DTYPES, Aval((2, 0), np.dtype("f4")), parse(LOSS)]))
PLAIN.append(st.sampled_from(DTYPES).flatmap(scalars).filter(lambda x: x == x))
VALUES = st.recursive(st.one_of(*PLAIN), lambda inner: st.lists(inner, max_size=3).map(tuple))


@given(VALUES)
@settings(max_examples=150, deadline=None)
def test_parameter_values(value):
    x = Var(Aval((), np.dtype(np.float64)))
    program = Program([x], [Eqn(call.name, [x], {"name": value}, [y := Var(x.aval)])], [y])
    back = parse(str(program)).eqns[0].params["name"]
    assert back == value and type(back) is type(value) and str(parse(str(program))) == str(program)


def test_values_without_text():
    with pytest.raises(errors.FxTypeError, match="no values of type list"):
        format_value([1, 2])
    assert (
        format_eqn(Eqn(call.name, [x := Var(Aval((), np.dtype("f8")))], {"name": [1]}, [Var(x.aval)]))
        == "b: f64[] = name[name=<[1]>] a"
    )


# ---- hashes --------------------------------------------------------------------------------------------------------------


def test_names_do_not_count():
    assert parse(LOSS) == parse(LOSS.replace("loss", "other"))
    renamed = """program other(x: f64[3,4], w: f64[4]) {
      y: f64[3] = dot[batch=((),()), contract=((1,),(0,)), strong=None] x w
      z: f64[3] = tanh y  s: f64[] = sum[axes=(0,)] z  return s }"""
    assert parse(renamed) == parse(LOSS) and parse(renamed).content_hash() == parse(LOSS).content_hash()
    inner = NESTED.replace("program f(", "program g(")
    assert parse(inner).content_hash() == parse(NESTED).content_hash() and "program f" not in format_program(
        parse(NESTED), names=False
    )


@pytest.mark.parametrize(
    "old, new",
    [
        ("= tanh", "= exp"),
        ("sum[axes=(0,)] d", "sum[axes=(0,)] c"),
        ("b: f64[4])", "b: f64[4], x: f64[])"),
        ("(a: f64[3,4], ", "(const a: f64[3,4]; "),
        ("return e", "return e, e"),
        ("strong=None", "strong=0"),
    ],
)
def test_structure_counts(old, new):
    changed = parse(LOSS.replace(old, new))
    assert changed != parse(LOSS) and changed.content_hash() != parse(LOSS).content_hash()


def test_hash_is_the_same_in_every_process():
    code = "import sys; from fxgrad.ir.text import parse; print(*[parse(text).content_hash() for text in sys.argv[1:]])"
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        out = subprocess.run(
            [sys.executable, "-c", code, LOSS, NESTED], env=env, capture_output=True, text=True, check=True
        ).stdout
        assert out.split() == [parse(LOSS).content_hash(), parse(NESTED).content_hash()]


def test_linear_time():
    """100,000 equations would overflow any recursion and take hours if anything were quadratic; 10,000 show both."""
    x = v = Var(Aval((3,), np.dtype(np.float64)))
    eqns = []
    for i in range(10000):
        eqns.append(make("tanh", [v]) if i % 2 else make("mul", [v, Lit(np.float64(i / 7))]))
        v = eqns[-1].outputs[0]
    program = Program([x], eqns, [v])
    assert parse(str(program)) == program
    check(program)


# ---- malformed texts -----------------------------------------------------------------------------------------------------

X = "program f(x: f64[3], m: bool[3]) {\n  "
MALFORMED = [
    ("", "line 1, column 1: expected 'program', found the end of the text"),
    ("program (x: f64[3]) { return x }", "line 1, column 9: expected the name of the program"),
    ("program f(x f64[3]) { return x }", "line 1, column 11: expected a variable and its type"),
    ("program f(x: f46[3]) { return x }", "line 1, column 14: unknown dtype 'f46'; there are bool, f16, f32"),
    ("program f(x: f64[3], x: f64[]) { return x }", "line 1, column 22: variable 'x' is defined twice"),
    ("program f(const x: f64[3], y: f64[]) { return x }", "expected ';' after the captured inputs"),
    ("program f(x: f64[3]) { return x } }", "line 1, column 35: text after the end"),
    ("program f(x: f64[3]) { return x", "expected '}' after the outputs, found the end of the text"),
    (X + "y: f64[3] = tanhh x\n  return y }", "line 2, column 15: there is no primitive 'tanhh'; did you mean 'tanh'?"),
    (X + "y: f64[3] = tanh xx\n  return y }", "line 2, column 20: variable 'xx' is not defined"),
    (X + "y: f64[3] = tanh y\n  return y }", "line 2, column 20: variable 'y' is not defined"),
    (X + "x: f64[3] = tanh x\n  return x }", "line 2, column 3: variable 'x' is defined twice"),
    (X + "y: f64[3], y: f64[3] = tanh x\n  return x }", "line 2, column 14: variable 'y' is defined twice"),
    (X + "y: f32[3] = tanh x\n  return y }", "line 2, column 3: tanh gives f64[3] here, the text says f32[3]"),
    (X + "y: f64[3], z: f64[3] = tanh x\n  return y }", "tanh gives f64[3] here, the text says f64[3], f64[3]"),
    (X + "= tanh x\n  return x }", "tanh gives f64[3] here, the text says nothing"),
    (X + "y: f64[3] = tanh x x\n  return y }", "line 2, column 15: tanh does not take 2 operands"),
    (X + "y: f64[3] = tanh\n  return y }", "line 2, column 15: tanh does not take 0 operands"),
    (X + "y: f64[3] = tanh[n=1] x\n  return y }", "tanh does not take 1 operand and parameters n"),
    (X + "y: f64[3] = add x\n  return y }", "add does not take 1 operand"),
    (X + "y: f64[3] = add x m\n  return y }", "add got f64[3], bool[3]"),
    (X + "y: f64[] = sum x\n  return y }", "line 2, column 14: sum does not take 1 operand ("),
    (X + "y: f64[] = sum[axes=(1,)] x\n  return y }", "must be sorted, distinct and within rank 1"),
    (X + "y: f64[] = sum[axes=(0)] x\n  return y }", "line 2, column 25: a tuple of one is written"),
    (X + "y: f64[] = sum[axes=(0,), axes=(0,)] x\n  return y }", "line 2, column 29: parameter 'axes' is given twice"),
    (X + "y: f64[] = sum[axes=[0]] x\n  return y }", "line 2, column 23: expected a value, found '['"),
    (X + "y: f64[] = sum[axes=(0,) x\n  return y }", "line 2, column 28: expected ',' or ']' after a parameter, found 'x'"),
    (X + "y: f64[3] = convert[dtype=f46] x\n  return y }", "line 2, column 29: unknown value 'f46'"),
    (X + "y: f64[3] = name[name='a\n'] x\n  return y }", "expected a string"),
    (X + "y: f64[3] = mul x 2.0\n  return y }", "line 2, column 21: an operand is a variable or a typed scalar"),
    (X + "y: f64[3] = mul x 300:i8\n  return y }", "300 is out of range for int8"),
    (X + "y: f64[3] = mul x 1e39:f32\n  return y }", "1e+39 is out of range for float32"),
    (X + "y: f64[3] = mul x True:f64\n  return y }", "True is not a float64"),
    (X + "y: f64[3] = mul x 1.5:i32\n  return y }", "1.5 is not a int32"),
    (X + "y: f64[3] = mul x, x\n  return y }", "line 2, column 20: expected a value, found ','"),
    (
        X + "y: f64[3] = jit_call[program=program g(a: f64[3]) {\n    return b }] x\n  return y }",
        "line 3, column 12: variable 'b'",
    ),
    (X + "y: f64[3] = jit_call[program=program g(a: f64[2]) { return a }] x\n  return y }", "call got f64[3]"),
    (X + "y: f64[3] = jit_call[program=program g(const a: f64[3];) { return a }] x\n  return y }", "no captured inputs"),
]


@pytest.mark.parametrize("source, message", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed(source, message):
    with pytest.raises(errors.FxValueError) as info:
        parse(source)
    assert str(info.value).startswith("cannot parse program text, line ") and message in str(info.value)


def test_caret_points_at_the_column():
    with pytest.raises(errors.FxValueError) as info:
        parse(X + "y: f64[3] = tahn x\n  return y }")
    shown, caret = str(info.value).split("\n")[-2:]
    assert shown == "    y: f64[3] = tahn x" and shown[caret.index("^") :].startswith("tahn")


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_damaged_texts_fail_cleanly(data):
    """Whatever is cut out or put in: a program or an FxValueError, nothing else."""
    source = data.draw(st.sampled_from(GOLDEN))
    i, j = sorted(data.draw(st.tuples(*[st.integers(0, len(source))] * 2)))
    damage = data.draw(st.sampled_from(["", "(", "]", "x", ":", "f64[", "\\", "'", "program", "-", "1e999", "\x00", "é"]))
    with contextlib.suppress(errors.FxValueError):
        parse(source[:i] + damage + source[min(j, i + 3) :])


# ---- check ---------------------------------------------------------------------------------------------------------------

F3 = Aval((3,), np.dtype(np.float64))


def chain(n: int) -> tuple[Var, list[Eqn]]:
    x = v = Var(F3)
    eqns = []
    for _ in range(n):
        eqns.append(make("tanh", [v]))
        v = eqns[-1].outputs[0]
    return x, eqns


def test_check_shows_the_neighbours_and_the_line():
    x, eqns = chain(20)
    code = compile("def f():\n    pass", __file__, "exec")
    eqns[10] = Eqn(eqns[10].prim, eqns[10].inputs, {}, [Var(Aval((4,), F3.dtype))], (code.co_consts[0], 0))
    with pytest.raises(errors.FxTypeError) as info:
        check(Program([x], eqns, [x], name="loss"))
    lines = str(info.value).split("\n")
    assert (
        lines[0] == "program 'loss' is not well formed: in equation 10 (tanh), its outputs are f64[4], its type rule gives f64[3]"
    )
    assert lines[1].startswith("  at test_ir.py:1 ")
    assert lines[2] == "      ... 5 equations" and lines[-1] == "      ... 4 equations"
    assert len(lines) == 4 + 11 and [i for i, line in enumerate(lines) if "-->" in line] == [8]
    assert lines[8] == "  --> l: f64[4] = tanh k" and lines[7] == "      k: f64[3] = tanh j"
    assert lines[9].endswith("m: f64[3] = tanh ?:f64[3]")


def test_check_scoping():
    x, eqns = chain(3)
    with pytest.raises(
        errors.FxTypeError, match=r"equation 0 \(tanh\), operand 0 is a variable of type f64\[3\] that is not defined"
    ):
        check(Program([x], eqns[1:], [x]))
    with pytest.raises(errors.FxTypeError, match="output 0 is a variable"):
        check(Program([x], eqns[:1], [eqns[2].outputs[0]]))
    with pytest.raises(errors.FxTypeError, match=r"equation 3 \(tanh\), output 0 \(a f64\[3\]\) is defined already"):
        check(Program([x], [*eqns, eqns[1]], [x]))
    with pytest.raises(errors.FxTypeError, match="output 0 .* is defined already"):
        check(Program([x], [Eqn(eqns[0].prim, [x], {}, [x])], [x]))
    with pytest.raises(errors.FxTypeError, match="twice among the inputs"):
        check(Program([x, x], [], [x]))
    check(Program([x], eqns, [x, x]))


def test_check_atoms_and_parameters():
    x = Var(F3)
    wrong = Lit(np.float64(1.0))
    wrong.aval = F3
    for atom, message in [(np.float64(1.0), "is a float64, not a Var or Lit"), (wrong, "whose aval is f64")]:
        with pytest.raises(errors.FxTypeError, match=message):
            check(Program([x], [Eqn(elementwise.mul, [x, atom], {}, [Var(F3)])], [x]))
    y = Var(F3)
    with pytest.raises(errors.FxTypeError, match="parameter 'name': the text form of programs has no values of type list"):
        check(Program([x], [Eqn(call.name, [x], {"name": [1]}, [y])], [y]))
    with pytest.raises(errors.FxTypeError, match="its type rule refuses it: mul does not take 3 operands"):
        check(Program([x], [Eqn(elementwise.mul, [x, x, x], {}, [y])], [y]))
    with pytest.raises(errors.FxTypeError, match="its type rule refuses it: add got"):
        check(Program([x], [Eqn(elementwise.add, [x, Lit(np.float32(1))], {}, [y])], [y]))


def test_check_consts():
    x = Var(F3)
    check(Program([x], [], [x], (np.zeros(3),)))
    with pytest.raises(errors.FxTypeError, match=r"captured value 0 is a f32\[3\], its variable a f64\[3\]"):
        check(Program([x], [], [x], (np.zeros(3, np.float32),)))
    with pytest.raises(errors.FxTypeError, match="2 captured values for 1 inputs"):
        check(Program([x], [], [x], (np.zeros(3), None)))


def test_check_nested():
    x, eqns = chain(2)
    inner = Program([x], eqns[1:], [eqns[1].outputs[0]], name="inner")
    y = Var(F3)
    outer = Program([y], [make("jit_call", [y], program=inner)], [y], name="outer")
    with pytest.raises(
        errors.FxTypeError, match="(?s)program 'inner' is not well formed.*That program is in equation 0 of 'outer'"
    ):
        check(outer)
    captured = Program([x], [], [x], (np.zeros(3),), name="inner")
    with pytest.raises(errors.FxTypeError, match="its program 'inner' has 1 captured inputs"):
        check(Program([y], [make("jit_call", [y], program=captured)], [y]))
