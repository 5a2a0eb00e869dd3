"""The pytest plugin: the fixture `assert_gradients`, pictures of checks that fail, and a line on how close the others were.

pytest finds it when fxgrad is installed; without that, `-p fxgrad.testing.plugin`. It imports the checks when a test uses them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fxgrad.testing.check import Check

_checks = pytest.StashKey[list]()
_failed = pytest.StashKey[list]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("fxgrad", "gradient checks").addoption(
        "--gradient-curves",
        metavar="DIR",
        default=None,
        help="write the error curve (SVG) of every gradient check that fails with the fixture assert_gradients into DIR",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_checks] = []


@pytest.fixture
def assert_gradients(request: pytest.FixtureRequest) -> Callable[..., Check]:
    """`fxgrad.testing.assert_gradients(f, *args, **options)`, of which pytest keeps a record."""
    from fxgrad import testing

    def check(f: Callable[..., Any], *args: Any, **options: Any) -> Check:
        __tracebackhide__ = True
        try:
            found = testing.assert_gradients(f, *args, **options)
        except testing.GradientError:
            request.node.stash.setdefault(_failed, []).append((f, args, options.get("library")))
            raise
        request.config.stash[_checks].append((found.closest, request.node.nodeid))
        return found

    return check


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Any:
    report = yield
    out = item.config.getoption("--gradient-curves")
    if out is not None and report.when == "call" and report.failed:
        failed: list[Any] = item.stash.get(_failed, [])
        for number, (f, args, library) in enumerate(failed):
            report.sections.append(("error of the measured derivative", _curve(f, args, library, Path(out), item.nodeid, number)))
    return report


def _curve(f: Callable[..., Any], args: tuple, library: str | None, out: Path, test: str, number: int) -> str:
    """Write the picture of a check that failed; what the report says of it."""
    from fxgrad import testing
    from fxgrad.errors import FxError

    try:
        curves = testing.gradient_error_curve(f, args, library=library)
    except FxError as error:  # nothing can be measured there: that is what the check has said
        return str(error)
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{re.sub(r'[^A-Za-z0-9]+', '_', test).strip('_')}{f'_{number}' if number else ''}.svg"
    curves.to_svg(file)
    best = "\n".join(str(curves).splitlines()[: len(curves.curves) + 1])
    return f"{file}\n{best}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    checks = config.stash[_checks]
    if checks and config.get_verbosity() >= 0:
        closest, test = max(checks)
        plural = "s" if len(checks) > 1 else ""
        terminalreporter.write_line(
            f"gradients: {len(checks)} check{plural} passed, the closest with {closest:.2g} of what is allowed ({test})"
        )
