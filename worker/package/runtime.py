"""The runtime libraries and license texts that a bundle carries, and where they are installed."""

from collections.abc import Iterable
from functools import cache
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

from bessemer.bundle.manifest import FFI_LIBRARY, LICENSES_FOLDER, RUNTIME_EXTRA_LIBRARY, RUNTIME_LIBRARY

EXTRA_PREFIXES = ("tvm.contrib.sort.", "tvm.contrib.random.", "runtime.disco.")
"""The prefixes of the functions that ``libtvm_runtime_extra.so`` registers."""


def needs_extra(imports: Iterable[str]) -> bool:
    """Whether a library that calls these runtime functions needs ``libtvm_runtime_extra.so``."""
    return any(name.startswith(EXTRA_PREFIXES) for name in imports)


def runtime_libraries(imports: Iterable[str]) -> tuple[str, ...]:
    """The runtime libraries of a bundle, in the order to load them before ``model.so``."""
    return (RUNTIME_LIBRARY, RUNTIME_EXTRA_LIBRARY) if needs_extra(imports) else (RUNTIME_LIBRARY,)


def runtime_sources(imports: Iterable[str]) -> dict[str, Path]:
    """The installed file of every runtime library, by its path in the bundle.

    Raises:
        FileNotFoundError: TVM is not installed.
    """
    tvm_lib = package_folder("tvm") / "lib"
    sources = {FFI_LIBRARY: package_folder("tvm_ffi") / "lib" / Path(FFI_LIBRARY).name}
    return sources | {path: tvm_lib / Path(path).name for path in runtime_libraries(imports)}


def package_folder(name: str) -> Path:
    """The folder of an installed package, without importing it.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the package {name} is not installed")
    return Path(spec.submodule_search_locations[0])


CHECKOUT = Path(__file__).resolve().parents[2]


@cache
def license_sources() -> dict[str, Path]:
    """The installed file of every license text, by its path in the bundle.

    TVM's and tvm-ffi's libraries contain parts under other licenses: compiler-rt's half-precision
    conversions (MIT) and libbacktrace (BSD).

    Raises:
        FileNotFoundError: a package or one of its texts is not installed.
    """
    tvm, tvm_ffi = package_folder("tvm"), package_folder("tvm_ffi")
    sources = {
        "bessemer/LICENSE": CHECKOUT / "LICENSE",
        "tvm/LICENSE": tvm / "LICENSE",
        "tvm/NOTICE": tvm / "NOTICE",
        "tvm/LICENSE.builtin_fp16.txt": tvm / "licenses" / "LICENSE.builtin_fp16.txt",
        "tvm-ffi/LICENSE": _distribution_text("apache-tvm-ffi", "LICENSE"),
        "tvm-ffi/NOTICE": _distribution_text("apache-tvm-ffi", "NOTICE"),
        "tvm-ffi/LICENSE.libbacktrace.txt": tvm_ffi / "3rdparty" / "libbacktrace" / "LICENSE",
    }
    return {f"{LICENSES_FOLDER}/{name}": path for name, path in sources.items()}


def _distribution_text(package: str, name: str) -> Path:
    for path in distribution(package).files or ():
        if path.name == name and path.parent.name == "licenses":
            return Path(str(path.locate()))
    raise FileNotFoundError(f"the package {package} has no {name}")
