"""Build sdist and wheel, install the wheel into an empty environment, and use it: `make release`. Needs pip and a package index.

The wheel is built from the sdist, so what the sdist lacks shows. The environment gets the run-time dependencies and nothing else,
and the smoke test runs outside of this directory with warnings as errors.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUN_TIME = {"fxgrad", "numpy", "numba", "llvmlite"}
TOOLS = {"pip", "setuptools", "wheel"}
IN_SDIST = (
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "Makefile",
    "pyproject.toml",
    "tests/laws.py",
    "docs/design.md",
)

SMOKE = """
import importlib.metadata, sys, tempfile
import numpy as np
import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.testing.bits import assert_same_bits

assert importlib.metadata.version("fxgrad") == fx.__version__ == sys.argv[1]
assert "site-packages" in fx.__file__, fx.__file__

def loss(w, x):
    return np.mean(np.tanh(x @ w["a"] + w["b"]) ** 2)

rng = np.random.default_rng(0)
w, x = {"a": rng.normal(size=(4, 3)), "b": np.zeros(3)}, rng.normal(size=(64, 4))
g = fx.grad(loss)(w, x)
for other in (fx.jit(fx.grad(loss)), fx.grad(fx.jit(loss)), fx.grad(fx.checkpoint(loss))):
    for name in w:
        assert_same_bits(other(w, x)[name], g[name])
fx.testing.check_grads(loss, (w, x), order=1)
state = (optimizer := fx.optim.adamw(1e-2)).init(w)
before = loss(w, x)
for _ in range(20):
    updates, state = optimizer.update(fx.jit(fx.grad(loss))(w, x), state, w)
    w = fx.optim.apply_updates(w, updates)
assert loss(w, x) < before
assert not {"torch", "jax", "scipy", "matplotlib"} & set(sys.modules)
print("smoke test passed, fxgrad", fx.__version__, "NumPy", np.__version__)
"""


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """The output of a command, which is shown if it fails."""
    shown = [str(c) for c in command]
    found = subprocess.run(shown, cwd=cwd, text=True, capture_output=True, check=False, env={**os.environ, **environment})
    if found.returncode:
        raise SystemExit(f"{' '.join(shown[:6])} failed:\n{found.stdout}{found.stderr}")
    return found.stdout


def version() -> str:
    """The version, from the one place that has it."""
    found = re.findall(r'^__version__ = "(.+)"$', (ROOT / "fxgrad" / "__init__.py").read_text(), re.MULTILINE)
    assert len(found) == 1, found
    return found[0]


def environment(where: Path, *packages: str) -> Path:
    """A new environment with these packages; answers its Python."""
    venv.create(where, with_pip=True)
    python = where / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return python


def check_contents(sdist: Path, wheel: Path) -> None:
    """The wheel has every module of the package and nothing beside it; the sdist has what its tests need."""
    modules = {str(p.relative_to(ROOT)) for p in (ROOT / "fxgrad").rglob("*.py")}
    in_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert modules <= in_wheel, sorted(modules - in_wheel)[:5]
    assert all(name.startswith("fxgrad/") for name in in_wheel), sorted(in_wheel)[:5]
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    absent = [name for name in (*modules, *IN_SDIST) if name not in in_sdist]
    assert not absent, f"not in the sdist: {absent[:5]}"


def main(argv: Sequence[str]) -> int:
    """Build into dist/ (or the directory named) and check; 0 if all is well."""
    out = Path(argv[0]).resolve() if argv else ROOT / "dist"
    with tempfile.TemporaryDirectory() as scratch:
        build = environment(Path(scratch) / "build", "build")
        run(build, "-m", "build", "--outdir", out, ROOT)
        sdist, wheel = (out / f"fxgrad-{version()}{end}" for end in (".tar.gz", "-py3-none-any.whl"))
        check_contents(sdist, wheel)
        print(f"built {sdist.name} ({sdist.stat().st_size:,} bytes), {wheel.name} ({wheel.stat().st_size:,} bytes)")
        clean = environment(Path(scratch) / "clean", str(wheel))
        run(clean, "-m", "pip", "check")
        there = {line.split("==")[0].lower() for line in run(clean, "-m", "pip", "list", "--format=freeze").splitlines()}
        assert there - TOOLS == RUN_TIME, f"installed: {sorted(there)}"
        cache = str(Path(scratch) / "cache")
        print(run(clean, "-W", "error", "-c", SMOKE, version(), cwd=Path(scratch), FXGRAD_CACHE_DIR=cache).strip())
        command = [clean, "-m", "fxgrad.testing", "numpy:tanh", "--shapes", "3", "--order", "1"]
        print(run(*command, cwd=Path(scratch), FXGRAD_CACHE_DIR=cache).splitlines()[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
