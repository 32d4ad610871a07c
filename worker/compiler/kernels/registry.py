"""The kernels in force: the built-in ones and those that installed packages add."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint

from worker.compiler.extensions import ExtensionPoint, in_modules
from worker.compiler.kernels import built_in
from worker.compiler.kernels.kernel import Kernel

POINT = ExtensionPoint(
    group="bessemer.kernels",
    kinds=(Kernel,),
    name_of=lambda kernel: kernel.symbol,
    built_in=in_modules(built_in, "KERNELS"),
)


@dataclass(frozen=True)
class KernelBook:
    """Kernels by symbol, those with the longest chains first."""

    kernels: dict[str, Kernel]

    def names(self, operator: str) -> tuple[str, ...]:
        """The libraries that have an operator."""
        found = (kernel.name for kernel in self.kernels.values() if kernel.operator == operator)
        return tuple(dict.fromkeys(found))

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators that some library has."""
        return tuple(sorted({kernel.operator for kernel in self.kernels.values()}))


@lru_cache(maxsize=1)
def kernel_book() -> KernelBook:
    """The kernels in force.

    Raises:
        ExtensionError: an entry point does not give kernels, or two packages give the same symbol.
    """
    return make_kernel_book(POINT.installed())


def make_kernel_book(installed: Iterable[EntryPoint]) -> KernelBook:
    """The built-in kernels and those of entry points; see ``kernel_book``."""
    found = POINT.in_force(installed)
    return KernelBook(dict(sorted(found.items(), key=lambda item: -len(item[1].chain))))
