"""The programs of examples/numpy_programs, each loaded with the array module one wants: the "one changed import"."""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

__all__ = ["FOLDER", "NAMES", "load", "problem"]

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "numpy_programs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
IMPORT = "import numpy as np\n"


@functools.cache
def load(name: str, module: str = "numpy") -> ModuleType:
    """The program as a module whose `import numpy as np` reads `import {module} as np`, at the same lines."""
    path = FOLDER / f"{name}.py"
    source = path.read_text()
    if source.count(IMPORT) != 1:
        raise ValueError(f"{path.name} has no line '{IMPORT.strip()}'")
    program = ModuleType(f"{name}_on_{module.replace('.', '_')}")
    program.__file__ = str(path)
    exec(compile(source.replace(IMPORT, f"import {module} as np\n"), str(path), "exec"), program.__dict__)
    return program


def problem(name: str, small: bool = True, seed: int = 0) -> tuple[Any, ...]:
    """The arguments of the program's `run`."""
    return load(name).problem(np.random.default_rng(seed), small)
