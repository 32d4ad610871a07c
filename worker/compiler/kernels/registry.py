"""All kernels: the built-in ones, and those that installed packages add.

Both are entry points of ``GROUP`` whose objects are tuples of kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from worker.compiler.extensions import built_in, collect
from worker.compiler.kernels.kernel import Kernel

GROUP = "bessemer.kernels"

BUILT_IN = built_in(GROUP, "worker.compiler.kernels.*:KERNELS", ("elementwise", "openblas"))


@dataclass(frozen=True)
class KernelBook:
    """Kernels by symbol; longer chains come first."""

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
        ExtensionError: an entry point gives no kernels, or two give the same symbol.
    """
    return make_kernel_book((*BUILT_IN, *entry_points(group=GROUP)))


def make_kernel_book(points: Iterable[EntryPoint]) -> KernelBook:
    """The kernels of entry points; see ``kernel_book``."""
    found = collect(points, (Kernel,), lambda kernel: kernel.symbol)
    kernels = {symbol: kernel for symbol, (kernel, _) in found.items()}
    return KernelBook(dict(sorted(kernels.items(), key=lambda item: -len(item[1].chain))))
