"""Prints the pages of docs/ that are made from the code: `python -m fxgrad.docs ops`, `numerics` and `numpy`.

`ops` reads the declarations of the primitives; `numerics` is the contract in words, with the constants of the code, and the
table of measured errors from docs/numerics.json, which `python -m bench.accuracy` writes; `numpy`, made in
fxgrad/numpy/registry.py, says what of NumPy is there. A test compares the pages in the
repository with what is printed here.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from fxgrad import errors, primitives
from fxgrad.ir.types import SHORT_NAMES, Aval, short_name
from fxgrad.primitives.base import REGISTRY, Primitive

__all__ = ["numerics_page", "ops_page"]

DATA = Path(__file__).resolve().parent.parent / "docs" / "numerics.json"

ORDER = (  # others follow
    "elementwise", "transcendental", "special", "reduce", "shape", "index", "sort", "dot", "conv", "complex", "complex_functions",
    "fft", "linalg", "decompositions", "call", "control",
)  # fmt: skip
KINDS = {
    "map": "kernel", "reduce": "kernel (tree)", "view": "view", "host": "NumPy", "call": "program",
    "control": "programs", "expand": "expanded",
}  # fmt: skip
DTYPES = [np.dtype(name) for name in SHORT_NAMES]
FAMILIES = {
    "bool": ("bool",),
    "float": ("f16", "f32", "f64"),
    "complex": ("c64", "c128"),
    "int": ("i8", "i16", "i32", "i64"),
    "uint": ("u8", "u16", "u32", "u64"),
}
# Parameters with which a type rule is asked whether it takes a dtype.
PROBE: dict[str, Any] = {
    "axes": (0,), "axis": 0, "reverse": False, "right": False, "shape": (3,), "dims": (0,), "perm": (0,), "n": 5,
    "start": (0,), "stop": (3,), "step": (1,), "low": (0,), "high": (0,), "interior": (0,), "sizes": (2,), "mode": "add",
    "lower": True, "op": "n", "unit": False, "checked": True, "trans": False, "full": False, "upper": False, "rcond": None,
    "hermitian": False, "rows": 3, "contract": ((0,), (0,)), "batch": ((), ()), "strong": None, "dtype": np.dtype(np.float32),
    "size": 3, "what": "take", "inverse": False, "windows": ((0,), (0,)), "out": (1,), "stride": (1,), "x_dilation": (1,),
    "w_dilation": (1,), "windows_first": True, "window": (1,), "dilation": (1,), "largest": True,
}  # fmt: skip


# ---- operations --------------------------------------------------------------------------------------------------------


def modules() -> list[ModuleType]:
    """The modules of fxgrad.primitives, in reading order."""
    names = sorted(m.name for m in pkgutil.iter_modules(primitives.__path__))
    names.sort(key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    return [importlib.import_module(f"{primitives.__name__}.{name}") for name in names]


def declared(module: ModuleType) -> list[Primitive]:
    """The primitives a module declares, in order: assigned there, and not other names for what it imports."""
    assigned: set[str] = set()
    imported: set[str] = set()
    for statement in ast.parse(inspect.getsource(module)).body:
        if isinstance(statement, ast.Assign):
            names = [t for target in statement.targets for t in ast.walk(target) if isinstance(t, ast.Name)]
            assigned |= {t.id for t in names if isinstance(t.ctx, ast.Store)}
        elif isinstance(statement, ast.ImportFrom):
            imported |= {n.asname or n.name for n in statement.names}
    foreign = {id(vars(module).get(name)) for name in imported}
    mine = {id(x) for name, x in vars(module).items() if name in assigned and isinstance(x, Primitive)} - foreign
    return [p for p in REGISTRY.values() if id(p) in mine]


def _signature(prim: Primitive) -> tuple[list[str], list[str]]:
    """Names of operands (a starred one may repeat) and of parameters, from whichever rule spells them out."""
    named_by_numpy = prim.kind == "host" and prim.numpy is not None and "args" not in inspect.signature(prim.numpy).parameters
    for rule in (prim.numpy,) if named_by_numpy else (prim.typ, prim.body, prim.numpy):
        if rule is None or isinstance(rule, np.ufunc):
            continue
        parameters = list(inspect.signature(rule).parameters.values())
        if rule is prim.body:
            parameters = parameters[1:] if prim.kind == "map" else []
        named = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
        operands = [p for p in named if p.kind is not p.KEYWORD_ONLY]
        if prim.kind == "map" and (not operands or operands[0].kind is operands[0].VAR_POSITIONAL):
            continue  # the schema's type rule takes any number; the body tells
        starred = [("*" if p.kind is p.VAR_POSITIONAL else "") + p.name for p in operands]
        return starred, [p.name for p in named if p.kind is p.KEYWORD_ONLY]
    count = prim.numpy.nin if isinstance(prim.numpy, np.ufunc) else 1
    return ["x", "y"][:count], []


def _avals(prim: Primitive, operands: Sequence[str], dtype: np.dtype, shape: tuple[int, ...] = (3,)) -> list[Aval]:
    """Operands of the given dtype, and of the index and mask dtypes where those are meant."""
    out = []
    for name in operands:
        plain = name.lstrip("*")
        if plain in ("starts", "indices"):
            out.append(Aval(() if plain == "starts" else (3,), np.dtype(np.int64)))
        elif plain in ("mask", "m") and prim.name == "select":
            out.append(Aval((3,), np.dtype(np.bool_)))
        else:
            out.append(Aval(() if plain == "value" else shape, dtype))
    return out


def _takes(prim: Primitive, dtype: np.dtype) -> bool:
    """Whether the type rule accepts operands of this dtype."""
    operands, parameters = _signature(prim)
    for shape in ((3,), (3, 3)):  # vectors; matrices for linear algebra
        try:
            prim.typ(*_avals(prim, operands, dtype, shape), **{p: PROBE[p] for p in parameters})
        except (errors.FxError, TypeError, ValueError):
            continue
        return True
    return False


def _dtypes(prim: Primitive) -> str:
    operands, _ = _signature(prim)
    if prim.kind in ("call", "control") or prim.name == "custom_vjp_linear":
        return "its program's"
    if prim.name.startswith("tape_") or prim.name == "no_tape":
        return "tape"
    if not operands or (prim.kind == "view" and prim.name not in ("real", "imag")):
        return "all"
    taken = {short_name(d) for d in DTYPES if _takes(prim, d)}
    if taken == set(SHORT_NAMES.values()):
        return "all"
    words = []
    for family, names in FAMILIES.items():
        held = [n for n in names if n in taken]
        words += [family] if len(held) == len(names) else held
    return ", ".join(words)


def _modes(prim: Primitive) -> str:
    """Which rules the declaration holds: f(orward), r(everse, of an equation linear in an operand), v(map)."""
    return "".join(
        mark for mark, rule in (("f", prim._jvp), ("r", prim._transpose or prim.transpose_onto), ("v", prim._batch)) if rule
    )


def _reference(prim: Primitive) -> str:
    found = prim.doc.reference
    section = re.fullmatch(r"DLMF (\S+)", found)
    if section:
        return f"[{found}](https://dlmf.nist.gov/{section[1]})"
    if found:
        return found
    if prim.doc.backward.startswith(("0", "none")):
        return "constant between jumps" if prim.doc.backward.startswith("0") else "no derivative"
    return "linear" if prim._transpose else "given by its user" if prim.name.startswith("custom") else "-"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*") if "](" not in text else text


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _op_row(prim: Primitive) -> str:
    operands, parameters = _signature(prim)
    call = f"`{prim.name}{'[' + ', '.join(parameters) + ']' if parameters else ''} {' '.join(operands)}`".replace(" `", "`")
    stored = "" if prim.kind not in ("map", "expand") or prim.cheap else ", dear"
    cells = (prim.doc.forward, prim.doc.backward, _reference(prim), _dtypes(prim), KINDS[prim.kind] + stored, _modes(prim))
    return _row((call, *map(_cell, cells)))


OPS_HEAD = """# Operations

Generated by `python -m fxgrad.docs ops` (`make docs`) from the declarations in `fxgrad/primitives`, one object an operation;
a test keeps it in step. These are the {count} operations a program is made of (`fx.make_ir` prints programs); the functions
of `fxgrad.numpy` are written with them.

- **Operation**: name, parameters in brackets, operands, as in the text of a program; `*` marks operands that may be several.
- **Forward**: the result. **Backward**: what each operand in turn receives, `g` being the cotangent of the result, `y` (or
  `z`) the result itself. Products with `g` are strong: where `g` is 0 the result is 0, whatever the other factor is. In
  forward mode `g` is the tangent.
- **Derivation**: where the rule can be looked up. DLMF is NIST's [Digital Library of Mathematical
  Functions](https://dlmf.nist.gov).
- **Dtypes**: of the differentiable operands, all of one dtype. float means f16, f32, f64 (f16 is computed in f32 and rounded
  once); complex c64, c128; int i8 to i64; uint u8 to u64. Only float and complex operands have derivatives.
- **Runs as**: `kernel` is compiled and fuses with its neighbours (`dear`: worth storing rather than computing twice), `kernel
  (tree)` is a reduction in the fixed order of docs/numerics.md, `view` moves nothing, `NumPy` is a call of NumPy, `program`
  carries a program of its own, `programs` runs some conditionally or repeatedly, `expanded` is replaced by its definition
  through other operations.
- **Rules**: f forward mode, r transposition, v vmap. Reverse mode transposes what forward mode leaves, so an operation
  without r of its own is differentiated in reverse through the operations of its forward rule.
"""


def ops_page() -> str:
    """docs/ops.md."""
    found = modules()  # loaded before what they declare is counted
    parts = [OPS_HEAD.format(count=len(REGISTRY))]
    head = ("Operation", "Forward", "Backward", "Derivation", "Dtypes", "Runs as", "Rules")
    shown: list[Primitive] = []
    for module in found:
        prims = declared(module)
        if not prims:
            continue
        name, about = module.__name__.rpartition(".")[2], (module.__doc__ or "").split("\n")[0].rstrip(".:")
        parts.append(f"\n## {name}\n\n{about} (`fxgrad/primitives/{name}.py`).\n\n{_row(head)}\n{_row(['---'] * len(head))}")
        parts += map(_op_row, prims)
        shown += prims
    assert sorted(p.name for p in shown) == sorted(REGISTRY), "each primitive is assigned to one name in one module"
    return "\n".join(parts) + "\n"


# ---- numerics ----------------------------------------------------------------------------------------------------------

NUMERICS_HEAD = """# Numerics

What fxgrad promises about the values it computes, and what it does not. Generated by `python -m fxgrad.docs numerics` (`make
docs`); the tables of measured errors are in `docs/numerics.json`, written by `python -m bench.accuracy` (`make accuracy`) and
checked on a smaller sample by `tests/test_docs.py` in every test run.

## One program, one answer

A function has the same bits when it runs operation by operation, under `jit`, with fusion on or off, checkpointed or not,
batched by `vmap` or in a loop, and with a warm or a cold cache. So do its derivatives. Tests of this compare with `==`. One
limit: *which* NaN a NaN is (its sign and payload) is not specified, since CPUs and LLVM choose it. Any NaN equals any NaN here.
-0.0 and 0.0 differ.

All this is about fxgrad's own operations: functions of `fxgrad.numpy` anywhere, and everything inside a transform. A plain
`np` function on plain arrays outside every transform is NumPy's and has NumPy's bits.

## What is exact

- `+ - * /`, `sqrt` and comparisons are IEEE 754, rounded to nearest even. No product and sum is contracted into an fma,
  nothing is reassociated, and subnormal numbers are kept. Nothing is compiled with fast-math flags.
- Simplifications before compilation are exact: `x * 0` is not replaced by 0, nor `x + 0` by `x`.
- `abs`, `neg`, `sign`, `floor`, `ceil`, `round` (ties to even), `maximum`, `minimum`, `clip`, `where`, indexing and
  everything that only moves values are exact.
- Integer arithmetic wraps; `x // 0` and `x % 0` of integers are 0, as in NumPy.
- `x ** n` for a fixed integer n multiplies by repeated squaring, and divides once if n is negative; it is not `pow` and has
  an error that grows with log2(n).
- `rsqrt`, `cbrt` and the other functions in the tables below are not exact; the tables say by how much.

## Math functions

exp, log, sin, tanh, erf, pow and the others are fxgrad's own, for float32 and float64: the same bits on every CPU and in
every mode, special values as in C99 and NumPy, subnormal results included. They differ from NumPy's own in the last place now
and then. float16 is computed in float32 and rounded once. Complex operations are real ones on the parts: the same
bits in every mode; a product has NumPy's rounding, functions are within a few ulp of their absolute value.

One ulp (unit in the last place) is the distance of neighbouring floats at the exact result. An exact result rounded to
nearest is off by at most 0.5.
"""

NUMERICS_TAIL = """
## Reductions

A floating-point `sum` (and `prod`, `mean`, `var`, `logsumexp`, ..., which are made of it) of n numbers is a fixed tree that
depends on **n and the dtype alone**: not on memory layout, on which axes are reduced, on batching, fusion or threads.

1. The numbers, in row-major order of the reduced axes, are cut into blocks of {block_small:,} (dtypes of up to four bytes) or
   {block_large:,} (eight bytes).
2. Within a block, lane l of {lanes_small} (up to four bytes) or {lanes_large} (eight) adds up elements l, l + L, l + 2L, ...
   in that order.
3. The lanes are added by halves: l with l + L/2, then l with l + L/4, and so on.
4. The sums of the blocks are added from left to right.

So the error bound grows with n/{block_small:,} + 256 + {depth}, not with n. The sum of nothing is 0, the product of nothing
is 1. Sums of float16 are added up in float32 and rounded once. `max` and `min` are exact. `cumsum`, `cumprod` and their
derivatives run in sequence along their axis.

## Matrix products

An element of a float32 or float64 product (`@`, `dot`, `einsum`, `tensordot`) is a sum over k that depends on **its row, its
column and nothing else**: not on memory layout, transposes, batching, the size of the matrices, threads or the CPU.

1. k is cut into blocks of {product_block}, the last one perhaps shorter.
2. Within a block runs a chain of fused multiply-adds in the order of k, `s = fma(a[i, k], b[k, j], s)`, from s = 0.
3. The blocks' results are added from the first to the last.

So the error bound grows with n/{product_block} + {product_block}. Products of float16 are computed in float32 and rounded once.
Integers wrap. A complex product is four real ones. With
`fx.config.matmul = "blas"` all of them are, which gives up the promise above. Decompositions and solves call LAPACK, one
matrix at a time: the same bits in every mode on one machine, not on every machine. Fourier transforms are NumPy's.

## Convolutions

An element of a convolution is such a sum as well. k runs through the positions of the kernel in row-major order, and in each
through the channels of the group; places outside of the input count as zeros; where the input is dilated (`lhs_dilation`, the
derivative of a strided convolution), positions that meet its holes are left out. The derivative by the kernel sums over the
batch and in it over the places of the result, in row-major order. So bits depend neither on the layout, nor on how many
images go together, nor on `vmap`. `fx.config.matmul` is about products alone.

Pooling: `max_pool` and `min_pool` are exact, of equal elements (and of NaN) the first counts. `avg_pool` and other sums over
windows add the elements one after the other in row-major order; from 17 positions on along one axis after the other, the last
one first, and if windows are tiles of the array by the tree of a reduction.

## Loops and random numbers

`scan`, `fori_loop` and `while_loop` have the values and derivatives of the unrolled Python loop, to the bit: the cotangent
of a constant is summed turn by turn, from the last turn on. Three exceptions: a row of `xs` gets no 0.0 added, so -0.0
stays; an initial carry that is also used outside the loop, and more than once in the first turn, has the loop's share
summed first; and so has a constant or an unchanged carry that is handed out as a stacked result.

`fx.random` is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw, 2011) on counters: the same numbers on every
machine, in every
mode. The streams are not JAX's.

## Conversions and dtypes

- Dtypes are NumPy 2's: Python numbers are weak (`np.float32(1) * 2.0` is float32), int32 with float32 gives float64, and so
  on. Results of rank 0 are NumPy scalars.
- float64 to float32 rounds to nearest even and overflows to infinity. Integers to floats round to nearest even.
- Float to integer truncates towards zero. NaN and what does not fit into int64 become -2**63, which then wraps to the
  narrower type (for uint64, values up to 2**64 fit too), on every machine. C leaves these cases open, and NumPy answers what
  the machine does (on x86 NaN to int32 is -2**31, here it is 0).
- To bool: everything but 0 is true, NaN too. Integer to integer wraps.

## NaN, infinities, zeros

- `max`, `min`, `maximum`, `minimum` give NaN if an operand is NaN. `sort` and `argsort` put NaN last and are stable; `argmax`
  and `argmin` find the first NaN.
- `maximum(0.0, -0.0)` is its first operand. `logsumexp` of -inf only is -inf, with inf among its operands inf; `softmax` of
  logits of ±1e4 or -inf is exact at the ends, where 0 and 1 are the answer.
- No floating-point warnings are raised.

## Derivatives

A derivative is computed by the rules in docs/ops.md, in the dtype of its input, and has the same bits in every mode. Rules
use values that are already there, so the error of a slope is a few ulp of the factors in it, more where they cancel. Where a
function has no derivative, or the formula none:

| where | what is answered |
|---|---|
| `maximum`, `minimum`, `max`, `min` with ties | the gradient is shared evenly |
| `abs`, `sign`, `linalg.norm`, `std` at 0 | 0 |
| `relu(0)` | 0; `maximum(x, 0)` at 0 is a tie: 1/2 |
| `clip` | slope 1 on the closed interval, the bounds get nothing there |
| `floor`, `ceil`, `round`, `sign`, comparisons, `argmax` | 0 |
| `max_pool`, `min_pool`, `reduce_window` with ties | the first in row-major order, as in PyTorch and JAX |
| `sort`, `median`, `quantile` with ties | stable: of equals the first comes first |
| `x ** 0` by x, `0 ** y` (y >= 0) by y | 0, no NaN |
| `prod`, `cumprod` with zeros among the factors | right, since nothing is divided |
| `sqrt`, `cbrt` at 0 | inf |
| `logsumexp` with an infinite result | shared evenly by the elements that equal it |
| `arctan2`, `hypot` at the origin; `arctan2` at infinity | 0 |
| integers and booleans | no derivative: `grad` raises, `vjp` and `jvp` answer None |

*Strong zeros.* A cotangent or tangent that is zero annihilates whatever it meets, infinities and NaN included, and gives
+0.0. So the branch `where` did not take, masked, overwritten and never selected entries cannot turn a gradient into NaN.
"""


def _number(x: float) -> str:
    """An argument as people write it: the shortest text that is read back as the same number."""
    return repr(float(x))


def _ulp(x: float) -> str:
    """Rounded up, so that the table never promises more than was measured."""
    return f"{np.ceil(x * 1000) / 1000:.3f}"


def _entry(found: dict[str, Any], single: bool) -> tuple[str, str]:
    where = ", ".join(str(np.float32(x)) if single else _number(x) for x in found["at"])
    return _ulp(found["max_ulp"]), where


def _table(functions: dict[str, Any], bounds: bool) -> list[str]:
    head = ["function", *(["bound"] if bounds else []), "float32", "at", "float64", "at"]
    lines = [_row(head), _row(["---"] * len(head))]
    for name, entry in functions.items():
        cells = [f"`{name}`", *([str(entry["bound"])] if bounds else [])]
        for dtype in ("float32", "float64"):
            cells += _entry(entry[dtype], dtype == "float32")
        lines.append(_row(cells))
    return lines


def numerics_page() -> str:
    """docs/numerics.md."""
    from fxgrad.kernels.matmul import block_length
    from fxgrad.kernels.spec import lanes_of_reduction, reduction_block

    f4, f8 = np.dtype(np.float32), np.dtype(np.float64)
    tail = NUMERICS_TAIL.format(
        product_block=block_length(f4),
        block_small=reduction_block(f4),
        block_large=reduction_block(f8),
        lanes_small=lanes_of_reduction(f4),
        lanes_large=lanes_of_reduction(f8),
        depth=int(np.log2(lanes_of_reduction(f4))),
    )
    return NUMERICS_HEAD + measured() + tail


def measured() -> str:
    """The tables of measured errors."""
    data = json.loads(DATA.read_text())
    about = data["about"]
    lines = [
        "",
        f"Largest errors found on {data['date']} ({data['machine']}), in ulp, rounded up, and the arguments where they stood:",
        "",
        *_table({k: v for k, v in data["functions"].items() if "bound" in v}, True),
        "",
        "Functions made of several operations have the errors of their parts, no bound is promised:",
        "",
        *_table({k: v for k, v in data["functions"].items() if "bound" not in v}, False),
        "",
        "`logaddexp` loses digits where its result is near 0, as NumPy's does.",
        "",
        *(f"- {what}: {about[what]}" for what in about),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    from fxgrad.numpy.registry import numpy_page

    pages = {"ops": ops_page, "numerics": numerics_page, "numpy": numpy_page}
    if len(arguments) != 1 or arguments[0] not in pages:
        sys.stderr.write("usage: python -m fxgrad.docs {ops,numerics,numpy}\n")
        return 2
    sys.stdout.write(pages[arguments[0]]())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
