"""The license texts of everything that a bundle carries."""

from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from bessemer.bundle.manifest import LICENSES_FOLDER
from worker.package.runtime import package_folder

CHECKOUT = Path(__file__).resolve().parents[2]


@cache
def license_sources() -> dict[str, Path]:
    """Every license text, by its path in the bundle.

    TVM's and tvm-ffi's libraries contain parts under other licenses: compiler-rt's half-precision
    conversions (MIT) and libbacktrace (BSD).

    Raises:
        FileNotFoundError: a package, or one of its texts, is not installed.
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
