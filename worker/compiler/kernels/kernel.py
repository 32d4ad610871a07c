"""The description of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

OBJECTS = Path(__file__).parent / "objects"
"""The objects of the built-in kernels, by architecture; ``worker.compiler.kernels.compile`` makes them."""


@dataclass(frozen=True)
class Operand:
    """A tensor operand: sizes (None if dynamic) and dtype."""

    shape: tuple[int | None, ...]
    dtype: str

    def __str__(self) -> str:
        return "x".join("?" if size is None else str(size) for size in self.shape) or "scalar"


Fits = Callable[[tuple[Operand, ...]], bool]


@dataclass(frozen=True)
class SharedLibrary:
    """A shared library that objects need, and its license texts; both go into the bundle."""

    path: Path
    licenses: tuple[Path, ...]


@dataclass(frozen=True)
class Kernel:
    """A function ``symbol(*operands, out)`` that computes a chain of operators into the caller's memory.

    Attributes:
        operator: the operator's name in a request.
        name: the library's name in a request.
        chain: Relax operators; each reads the result of the one before as its first or second argument.
            Their other arguments, in order, are the operands.
        symbol: the function's name. The object defines ``__tvm_ffi_<symbol>``, a ``TVMFFISafeCallType``;
            without an object, an extension's ``FUNCTIONS`` has the name.
        objects: a folder with ``<architecture>/<object>``, position-independent ELF.
        object: the file name of the object.
        fits: returns whether the kernel can compute operands of these shapes and dtypes.
        libraries: libraries that the object needs besides TVM's runtime and the C library.
    """

    operator: str
    name: str
    chain: tuple[str, ...]
    symbol: str
    objects: Path | None = None
    object: str = ""
    fits: Fits = lambda _operands: True
    libraries: tuple[SharedLibrary, ...] = ()

    def object_for(self, architecture: str) -> Path | None:
        """The path of the object for an architecture, such as ``x86_64``; the file may be missing.

        None for a library function, which is not linked.
        """
        return None if self.objects is None else self.objects / architecture / self.object
