"""Check the gradients of a function from the command line: `python -m fxgrad.testing module:function --shapes 3,4 f64`."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.testing import GradientError, check_grads, gradient_error_curve
from fxgrad.testing.libraries import LIBRARIES

DTYPES = {"f16": "float16", "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128", "i64": "int64"}


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m fxgrad.testing",
        description="Compare the derivatives a function has, by its library, with measured ones. Exit code 1 if one is wrong.",
    )
    p.add_argument("function", help="module:function, or path/to/file.py:function")
    given = p.add_mutually_exclusive_group(required=True)
    given.add_argument("--args", help="the arguments, a Python expression with np: \"np.ones(3), {'w': 2.0}\"")
    given.add_argument(
        "--shapes",
        nargs="+",
        metavar="SHAPE|DTYPE",
        help="random arguments: 3,4 for each shape (- for a number), after it, if not f64, one of " + ", ".join(DTYPES),
    )
    p.add_argument("--domain", nargs=2, type=float, default=(-1.0, 1.0), metavar=("LOW", "HIGH"), help="of random arguments")
    p.add_argument("--order", type=int, default=2, help="the highest order of derivatives (2)")
    p.add_argument("--modes", default="fwd,rev", help="fwd, rev or both (fwd,rev)")
    p.add_argument("--grad", metavar="MODULE:FUNCTION", help="the gradient, where no library computes it")
    p.add_argument("--library", choices=sorted(LIBRARIES), help="whose function it is, if that cannot be seen")
    p.add_argument("--eps", type=float, help="a fixed step for central differences")
    p.add_argument("--atol", type=float)
    p.add_argument("--rtol", type=float)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--picture", type=Path, metavar="FILE.svg", help="write the error of differences against their step")
    return p


def _load(name: str) -> Any:
    """What `module:function` names."""
    where, colon, what = name.rpartition(":")
    if not colon or not what:
        raise errors.FxValueError(
            f"{name!r} names no function",
            why="A function is looked up in a module or a file.",
            fix="Write module:function or path/to/file.py:function.",
        )
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(where).stem, where)
        if spec is None or spec.loader is None or not Path(where).exists():
            raise errors.FxValueError(f"there is no file {where}", why="It was to be imported.", fix="Check the path.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    for part in what.split("."):
        if not hasattr(module, part):
            raise errors.FxValueError(
                f"{where} has no {what}", why="The name after the colon is looked up in it.", fix="Check the spelling."
            )
        module = getattr(module, part)
    return module


def _random(tokens: Sequence[str], domain: Sequence[float], seed: int) -> tuple:
    """The arguments that `--shapes` asks for."""
    rng, (low, high), out = np.random.default_rng(seed), domain, list[Any]()
    for token in tokens:
        if token in DTYPES:
            if not out:
                raise errors.FxValueError(
                    f"--shapes begins with a dtype, {token}", why="A dtype follows its shape.", fix=f"Write: --shapes 3,4 {token}"
                )
            dtype = np.dtype(DTYPES[token])
            out[-1] = np.round(out[-1] * 4).astype(dtype) if dtype.kind == "i" else out[-1].astype(dtype)
            if dtype.kind == "c":
                out[-1] = out[-1] + (1j * rng.uniform(low, high, out[-1].shape)).astype(dtype)
            continue
        try:
            shape = () if token == "-" else tuple(int(n) for n in token.strip(",").split(","))
        except ValueError:
            raise errors.FxValueError(
                f"--shapes: {token!r} is neither a shape nor a dtype",
                why="A shape is numbers with commas between, - for a number.",
                fix=f"Write 3,4 or one of {', '.join(DTYPES)}.",
            ) from None
        out.append(np.asarray(rng.uniform(low, high, shape)))
    return tuple(out)


def _arguments(options: argparse.Namespace) -> tuple:
    if options.shapes is not None:
        return _random(options.shapes, options.domain, options.seed)
    found = eval(options.args, {"np": np, "numpy": np})  # the user's own command line
    return found if isinstance(found, tuple) else (found,)


def main(argv: Sequence[str] | None = None) -> int:
    """0 if the derivatives are right, 1 if not; 2 where they could not be looked at."""
    options = _parser().parse_args(argv)
    try:
        f, args = _load(options.function), _arguments(options)
        grad = _load(options.grad) if options.grad else None
        code = 0
        try:
            check = check_grads(
                f, args, options.order, tuple(options.modes.split(",")), options.eps, options.atol, options.rtol,
                grad=grad, library=options.library, seed=options.seed,
            )  # fmt: skip
            sys.stdout.write(f"{check}\n")
        except GradientError as error:
            sys.stdout.write(f"{error}\n")
            code = 1
        if options.picture is not None:
            curves = gradient_error_curve(f, args, library=options.library, seed=options.seed)
            curves.to_svg(options.picture)
            sys.stdout.write("\n".join(str(curves).splitlines()[: len(curves.curves) + 1]) + f"\nwritten: {options.picture}\n")
    except (errors.FxError, ImportError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except Exception:  # noqa: BLE001 -- of the user's module, arguments or function: left to Python, its exit code would be 1
        traceback.print_exc()
        return 2
    return code


if __name__ == "__main__":
    sys.exit(main())
