"""Compiles the built-in kernels for this processor: ``python -m worker.compiler.kernels.compile``.

It runs when an environment or an image is built. A job never compiles C: zig's cache would have to be
writable, and one job could leave objects there that another links.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from worker.compiler.kernels.kernel import OBJECTS

SOURCES = Path(__file__).parent / "c"
_GLIBC = "2.28"
_FLAGS = ("-std=c11", "-O3", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")


def compile_kernels(folder: Path = OBJECTS) -> tuple[Path, ...]:
    """Compile every source to ``folder/<architecture>``.

    Raises:
        subprocess.CalledProcessError: the compiler refused.
        ModuleNotFoundError: a package with headers, or zig, is not installed.
    """
    architecture = platform.machine()
    target = folder / architecture
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as cache:
        return tuple(
            _compile(source, target / f"{source.stem}.o", architecture, cache)
            for source in sorted(SOURCES.glob("*.c"))
        )


def _compile(source: Path, target: Path, architecture: str, cache: str) -> Path:
    includes = [f"-I{_folder(package) / 'include'}" for package in ("tvm_ffi", "scipy_openblas32")]
    triple = f"{architecture}-linux-gnu.{_GLIBC}"
    command = [str(_folder("ziglang") / "zig"), "cc", "-c", "-target", triple, *_FLAGS, *includes]
    caches = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    subprocess.run([*command, str(source), "-o", str(target)], check=True, env={**os.environ, **caches})
    return target


def _folder(package: str) -> Path:
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"the package {package} is not installed", name=package)
    return Path(found.submodule_search_locations[0])


if __name__ == "__main__":
    for path in compile_kernels():
        print(f"compiled {path.name}", file=sys.stderr)  # noqa: T201
