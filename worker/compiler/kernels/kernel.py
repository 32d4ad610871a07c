"""What a kernel says of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

OBJECTS = Path(__file__).parent / "objects"
"""The objects of the built-in kernels, by architecture; ``worker.compiler.kernels.compile`` makes them."""


@dataclass(frozen=True)
class Operand:
    """A tensor that an operator takes: sizes (None where they are open) and dtype."""

    shape: tuple[int | None, ...]
    dtype: str

    def __str__(self) -> str:
        return "x".join("?" if size is None else str(size) for size in self.shape) or "scalar"


Fits = Callable[[tuple[Operand, ...]], bool]


@dataclass(frozen=True)
class SharedLibrary:
    """A shared library that objects need; it travels in the bundle, with the texts of its license."""

    path: Path
    licenses: tuple[Path, ...]


@dataclass(frozen=True)
class Kernel:
    """A function ``symbol(*operands, out)`` that computes a chain of operators into memory of its caller's.

    Attributes:
        operator: what a request calls it by.
        name: of the library, as a request names it.
        chain: Relax operators, each but the first of which reads the one before as its first or second
            argument. The operands are what they read else, in their order.
        symbol: the function; the object defines it as ``__tvm_ffi_<symbol>``, a ``TVMFFISafeCallType``.
        objects: a folder with ``<architecture>/<object>``, position-independent ELF.
        object: the file's name.
        fits: whether it can compute operands of these shapes and dtypes.
        libraries: what the object needs besides TVM's runtime and the C library.
    """

    operator: str
    name: str
    chain: tuple[str, ...]
    symbol: str
    objects: Path
    object: str
    fits: Fits
    libraries: tuple[SharedLibrary, ...] = ()

    def object_for(self, architecture: str) -> Path:
        """The object for an architecture, as triples begin with it; it may be missing."""
        return self.objects / architecture / self.object
