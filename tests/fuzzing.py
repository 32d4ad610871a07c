"""A plugin of pytest that repeats each fuzz test with new examples for ``FUZZ_SECONDS``: ``make fuzz``."""

import os
import time
from typing import Any

import pytest
from hypothesis.statistics import collector

SECONDS = float(os.environ["FUZZ_SECONDS"])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Run the test until its time is over or it fails, and print how many examples it ran."""
    began = time.monotonic()
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    examples, outcome = 0, "a failure"

    def count(statistics: dict[str, Any]) -> None:
        nonlocal examples
        phases = (phase for name, phase in statistics.items() if name.endswith("-phase"))
        examples += sum(len(phase["test-cases"]) for phase in phases)

    try:
        while time.monotonic() < began + SECONDS:
            with collector.with_value(count):
                pyfuncitem.obj(**arguments)
        outcome = "no failure"
    finally:
        plugin = pyfuncitem.config.pluginmanager.get_plugin
        with plugin("capturemanager").global_and_fixture_disabled():
            seconds = time.monotonic() - began
            told = f"{pyfuncitem.name}: {examples} examples in {seconds:.0f} s, {outcome}"
            plugin("terminalreporter").ensure_newline()
            plugin("terminalreporter").write_line(told)
    return True
