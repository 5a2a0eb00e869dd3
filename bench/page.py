"""Looks at the page of fx.explain in a real browser: `python -m bench.page`; exits with an error if there is none.

For a desktop's and a phone's width, light and dark, it lets the browser lay the page out, checks what only a browser knows
(nothing is wider than the screen, the pictures for this width are shown, colours follow the scheme, text can be told from its
ground), and writes a screenshot to look at.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import fxgrad as fx

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
SIZES = ((1280, 3600), (390, 4600))
DARK = "--blink-settings=preferredColorScheme=0"

# Runs in the browser and leaves its findings in the title, since --dump-dom shows the document as it is then.
PROBE = """<script>
addEventListener("load", () => {
  const parts = [0.299, 0.587, 0.114];
  const light = c => c.match(/[\\d.]+/g).reduce((sum, x, i) => sum + x * (parts[i] ?? 0), 0) / 255;
  const style = getComputedStyle(document.body), all = [...document.querySelectorAll("svg")];
  const shown = all.filter(s => s.getBoundingClientRect().width > 0);
  const box = x => x.getBoundingClientRect();
  const boxes = shown.flatMap(s => [...s.querySelectorAll("text")].map(t => [t, s].map(box)));
  document.title = "PROBE" + JSON.stringify({
    width: innerWidth, scroll: document.documentElement.scrollWidth,
    ground: light(style.backgroundColor), ink: light(style.color),
    pictures: all.length, shown: shown.length,
    outside: boxes.filter(([t, s]) => t.left < s.left - 1 || t.right > s.right + 1 || t.top < s.top - 1).length,
    smallest: Math.min(...shown.map(s => s.getBoundingClientRect().width / s.viewBox.baseVal.width)),
  });
});
</script>"""


def sample() -> str:
    """The page of a gradient with products, reductions and kernels of many operations."""

    def loss(w: dict, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        hidden = np.tanh(x @ w["hidden"])
        return np.mean((fx.nn.softmax(hidden @ w["out"]) - y) ** 2)

    rng = np.random.default_rng(0)
    w = {"hidden": rng.standard_normal((64, 256)), "out": rng.standard_normal((256, 32))}
    step = fx.jit(fx.grad(loss))
    for n in (128, 2048):
        found = fx.explain(step, w, rng.standard_normal((n, 64)), rng.standard_normal((n, 32)))
    return found.to_html()


def run(browser: str, page: Path, width: int, height: int, dark: bool, *more: str) -> str:
    """One start of the browser on the page; what it prints."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},{height}"]
    command = [browser, *flags, *([DARK] if dark else []), *more, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def problems(found: dict[str, float], width: int, dark: bool) -> list[str]:
    """What is wrong with a page of which the browser has found this."""
    wrong = []
    if found["width"] != width or found["scroll"] > width:
        wrong.append(f"the page is {found['scroll']} pixels wide on a screen of {found['width']} (asked for {width})")
    if (found["ground"] < found["ink"]) != dark or abs(found["ground"] - found["ink"]) < 0.6:
        wrong.append(f"ground {found['ground']:.2f} and ink {found['ink']:.2f} do not fit the scheme")
    if 2 * found["shown"] != found["pictures"] or not found["shown"]:
        wrong.append(f"{found['shown']} of {found['pictures']} pictures are shown")
    if found["outside"] or found["smallest"] < 0.95:
        wrong.append(f"{found['outside']} texts stand outside their picture; pictures are scaled by {found['smallest']:.2f}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__.split("\n")[0])
    parser.add_argument("--browser", help=f"a Chromium; otherwise the first found of {', '.join(BROWSERS)}")
    parser.add_argument("--out", type=Path, help="a directory for the page and its screenshots")
    options = parser.parse_args()
    browser = next(filter(None, map(shutil.which, [options.browser] if options.browser else BROWSERS)), None)
    if browser is None:
        print("no browser: install Debian's chromium-headless-shell, or name one with --browser", file=sys.stderr)
        return 1
    out = options.out or Path(tempfile.mkdtemp(prefix="fxgrad-page-"))
    out.mkdir(parents=True, exist_ok=True)
    page, probed = (out / "page.html").resolve(), (out / "probed.html").resolve()
    page.write_text(sample(), encoding="utf-8")
    probed.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    bad = 0
    for width, height in SIZES:
        for dark in (False, True):
            name = f"{width}-{'dark' if dark else 'light'}"
            title = re.search(r"PROBE(\{.*?\})", run(browser, probed, width, height, dark, "--dump-dom"))
            wrong = problems(json.loads(title[1]), width, dark) if title else ["the browser did not run the probe"]
            run(browser, page, width, height, dark, f"--screenshot={out.resolve() / name}.png")
            print(f"{name}: {'; '.join(wrong) or 'fine'}   {out / name}.png")
            bad += len(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
