"""Writes docs/explain.json and docs/pictures/explain.png, what docs/explain.md shows: `python -m bench.explained`.

The page's first block runs as it stands, as a file layer.py of its own, since the report quotes its lines. The picture needs a
Chromium.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import runpy
import shutil
import tempfile
from pathlib import Path

import fxgrad as fx
from bench import page
from bench.report import machine

DOCS = Path(__file__).resolve().parents[1] / "docs"
SIZE = (1000, 1150)  # of the picture: the figures, both pictures of the page, the first steps


def explained(written: Path, threads: int, picture: Path) -> str:
    """What fx.explain prints in the first block of a page; the HTML page it writes there becomes a picture."""
    block = re.search(r"^```python\n(.*?)^```$", written.read_text(), re.MULTILINE | re.DOTALL)
    if block is None:
        raise ValueError(f"{written} has no block of Python")
    fx.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("layer.py").write_text(block[1])
        found = runpy.run_path("layer.py")["found"]
        browser = next(filter(None, map(shutil.which, page.BROWSERS)), None)
        if browser is None:
            print(f"no browser: {picture} stays as it is")
        else:
            page.run(browser, Path("layer.html").resolve(), *SIZE, False, f"--screenshot={picture}")
    return str(found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.explained", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=DOCS, help="a folder in the place of docs")
    options = parser.parse_args()
    pictures = (options.out / "pictures").resolve()
    pictures.mkdir(parents=True, exist_ok=True)
    data = {"machine": machine(), "threads": options.threads}
    data["text"] = explained(DOCS / "explain.md", options.threads, pictures / "explain.png")
    (options.out / "explain.json").write_text(json.dumps(data, indent=1) + "\n")
    print(data["text"])


if __name__ == "__main__":
    main()
