"""One rule for collisions of names, at every extension point."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest

from worker.compiler.extensions import ExtensionError, ExtensionPoint
from worker.compiler.kernels import registry as kernels
from worker.compiler.legalize import registry as legalizations
from worker.compiler.rewrites import registry as rewrites
from worker.compiler.spaces import registry as spaces
from worker.compiler.translation import registry as rules

POINTS: tuple[ExtensionPoint[Any], ...] = (
    kernels.POINT,
    legalizations.POINT,
    rewrites.POINT,
    rules.POINT,
    spaces.POINT,
)


def packages(monkeypatch: pytest.MonkeyPatch, group: str, *given: tuple[object, ...]) -> list[EntryPoint]:
    """Installed packages, each of which gives some extensions."""
    points = []
    for number, items in enumerate(given):
        module = ModuleType(f"package_{number}")
        module.ITEMS = items  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        points.append(EntryPoint(name="sample", value=f"{module.__name__}:ITEMS", group=group))
    return points


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.group)
def test_an_installed_extension_replaces_the_built_in_one_of_its_name(
    point: ExtensionPoint[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, (built_in,) = next(iter(point.chains(()).items()))
    installed = packages(monkeypatch, point.group, (built_in.item,))

    chain = point.chains(installed)[name]

    assert [found.source for found in chain] == ["package_0:ITEMS", built_in.source]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.group)
def test_two_packages_that_give_one_name_are_refused(
    point: ExtensionPoint[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    item = next(iter(point.in_force(()).values()))
    installed = packages(monkeypatch, point.group, (item,), (item,))

    with pytest.raises(ExtensionError, match="is in package_0:ITEMS and in package_1:ITEMS"):
        point.chains(installed)
