"""A plugin of pytest that repeats each fuzz test with new examples for ``FUZZ_SECONDS``: ``make fuzz``."""

import os
import time
from typing import Any

import pytest
from hypothesis.statistics import collector

SECONDS = float(os.environ["FUZZ_SECONDS"])
TOLD = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TOLD] = []


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    began = time.monotonic()
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    examples = 0

    def count(statistics: dict[str, Any]) -> None:
        nonlocal examples
        phases = (phase for name, phase in statistics.items() if name.endswith("-phase"))
        examples += sum(len(phase["test-cases"]) for phase in phases)

    failed = True
    try:
        while time.monotonic() < began + SECONDS:
            with collector.with_value(count):
                pyfuncitem.obj(**arguments)
        failed = False
    finally:
        told = f"{pyfuncitem.name}: {examples} examples in {time.monotonic() - began:.0f} s"
        pyfuncitem.config.stash[TOLD].append(f"{told}, {'a failure' if failed else 'no failure'}")
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.section("fuzzing")
    for line in config.stash[TOLD]:
        terminalreporter.write_line(line)
