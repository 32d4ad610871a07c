"""Which of TVM's runtime libraries a bundle carries, and where they are installed."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from bessemer.bundle.manifest import FFI_LIBRARY, RUNTIME_EXTRA_LIBRARY, RUNTIME_LIBRARY

EXTRA_PREFIXES = ("tvm.contrib.sort.", "tvm.contrib.random.", "runtime.disco.")
"""The functions that ``libtvm_runtime_extra.so`` registers start with one of these."""


def needs_extra(imports: Iterable[str]) -> bool:
    """Whether a library that calls these runtime functions needs ``libtvm_runtime_extra.so``."""
    return any(name.startswith(EXTRA_PREFIXES) for name in imports)


def runtime_libraries(imports: Iterable[str]) -> tuple[str, ...]:
    """The runtime libraries of a bundle, in the order in which they are loaded before ``model.so``."""
    return (RUNTIME_LIBRARY, RUNTIME_EXTRA_LIBRARY) if needs_extra(imports) else (RUNTIME_LIBRARY,)


def runtime_sources(imports: Iterable[str]) -> dict[str, Path]:
    """Every runtime library of a bundle, by its path in the bundle, as it is installed here.

    Raises:
        FileNotFoundError: TVM is not installed.
    """
    tvm_lib = package_folder("tvm") / "lib"
    sources = {FFI_LIBRARY: package_folder("tvm_ffi") / "lib" / Path(FFI_LIBRARY).name}
    return sources | {path: tvm_lib / Path(path).name for path in runtime_libraries(imports)}


def package_folder(name: str) -> Path:
    """The folder of an installed package, which is not imported.

    Raises:
        FileNotFoundError: it is not installed.
    """
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the package {name} is not installed")
    return Path(spec.submodule_search_locations[0])
