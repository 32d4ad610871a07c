"""Links libraries and programs for each operating system by zig's linkers, without the system's SDK.

====================  =====================================================================================
Linux                 stubs of libc; a program has its own first instructions (``start.c``)
macOS                 zig's own description of ``libSystem``; zig signs what it links for Arm
Windows               import libraries made of zig's lists of what Windows exports (``start_windows.c``)
====================  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bessemer.contract.triple import (
    OLDEST_MACOS,
    WINDOWS_X86_64,
    System,
    architecture_of,
    macos_version,
    system_of,
)
from worker.compiler.codegen.link import link_shared, linker_path, run_zig
from worker.compiler.codegen.standalone.sources import prepared_folder
from worker.compiler.codegen.standalone.stubs import loader_stub, stubs_of
from worker.compiler.platforms import Libc, libc_of

WINDOWS_LIBRARIES = ("ucrtbase", "kernel32")
"""The Windows libraries that a model needs: the C runtime, part of Windows since 10, and the system's."""


_SAME_HELPERS = ("-force:multiple",)
"""Allows duplicate symbols: TVM adds the same half-precision conversions to every object."""


def link_library(
    output: Path, objects: Sequence[Path], triple: str, folder: Path, libraries: Sequence[Path] = ()
) -> None:
    """Link a shared library. Programs that link it look for its file's name on their search path.

    Args:
        output: the library to write.
        objects: the object files.
        triple: the target's.
        folder: for what linking needs.
        libraries: on Linux, shared libraries that it needs and finds in the folder ``lib`` beside it.

    Raises:
        LinkError: the linker failed.
    """
    paths = [str(path) for path in objects]
    match system_of(triple):
        case System.MACOS:
            kind = ("build-lib", "-dynamic", "-install_name", f"@rpath/{output.name}")
            _link_macos(kind, output, paths, triple, folder)
        case System.WINDOWS:
            dll = ("-dll", "-noentry", f"-implib:{_import_library_of(output)}")
            _link_windows((*dll, *_SAME_HELPERS), output, paths, folder)
        case _:
            libc = libc_of(triple)
            if libc is not None:
                loader = ("--as-needed", str(loader_stub(libc, triple, folder)), "--no-as-needed")
                paths += [*map(str, stubs_of(libc, triple, folder)), *loader]
            link_shared(output, paths, [str(path) for path in libraries], output.name)


def link_lone_program(output: Path, objects: Sequence[Path], triple: str, folder: Path) -> None:
    """Link a program for Linux that needs nothing but libc, and may open libraries.

    Raises:
        LinkError: the linker failed.
    """
    libc = libc_of(triple)
    assert libc is not None
    loader = ("--as-needed", str(loader_stub(libc, triple, folder)))
    _run_linux_linker(output, [*map(str, objects), *map(str, stubs_of(libc, triple, folder)), *loader], libc)
    output.chmod(0o755)


def link_program(output: Path, objects: Sequence[Path], library: Path, triple: str, folder: Path) -> None:
    """Link a program that needs a library from its own folder.

    Raises:
        LinkError: the linker failed.
    """
    paths = [str(path) for path in objects]
    match system_of(triple):
        case System.MACOS:
            options = ("build-exe", "-rpath", "@loader_path")
            _link_macos(options, output, [*paths, str(library)], triple, folder)
        case System.WINDOWS:
            options = ("-entry:bessemer_start", "-subsystem:console", "-stack:8388608")
            _link_windows(options, output, [*paths, str(_import_library_of(library))], folder)
        case _:
            _link_linux(output, paths, library, triple, folder)
    output.chmod(0o755)


def _link_linux(output: Path, objects: Sequence[str], library: Path, triple: str, folder: Path) -> None:
    libc = libc_of(triple)
    assert libc is not None
    beside = (f"-L{library.parent}", f"-l:{library.name}", "--allow-shlib-undefined")
    _run_linux_linker(output, [*objects, *map(str, stubs_of(libc, triple, folder)), *beside], libc)


def _run_linux_linker(output: Path, linked: Sequence[str], libc: Libc) -> None:
    options = ("-pie", "--dynamic-linker", libc.loader, "-rpath", "$ORIGIN", "--no-as-needed")
    run_zig("ld.lld", *options, "-o", str(output), *linked)


def _link_macos(
    options: Sequence[str], output: Path, paths: Sequence[str], triple: str, folder: Path
) -> None:
    """Link with zig, which compiles nothing here but writes small files into caches in ``folder``."""
    command, *rest = options
    version = ".".join(map(str, max(macos_version(triple), OLDEST_MACOS)))
    target = ("-target", f"{architecture_of(triple)}-macos.{version}", "-lc")
    caches = ("--cache-dir", str(folder / "zig"), "--global-cache-dir", str(folder / "zig"))
    nothing_else = ("-fno-compiler-rt", "-fno-ubsan-rt")
    run_zig(command, *rest, *target, *caches, *nothing_else, *paths, f"-femit-bin={output}")


def _link_windows(options: Sequence[str], output: Path, paths: Sequence[str], folder: Path) -> None:
    run_zig("lld-link", "-Brepro", *options, f"-out:{output}", *paths, *map(str, import_libraries(folder)))


def _import_library_of(library: Path) -> Path:
    """The import library of a DLL, which linkers read instead of it."""
    return library.with_suffix(".lib")


def import_libraries(folder: Path) -> tuple[Path, ...]:
    """The import libraries of Windows. Those that were not made in advance are made in ``folder``.

    Raises:
        LinkError: zig failed.
    """
    return tuple(_import_library(name, folder) for name in WINDOWS_LIBRARIES)


def _import_library(name: str, folder: Path) -> Path:
    prepared = prepared_folder(WINDOWS_X86_64) / f"{name}.lib"
    if prepared.exists():
        return prepared
    lists, made = linker_path().parent / "lib" / "libc" / "mingw", folder / f"{name}.lib"
    exports = folder / f"{name}.def"
    source = ("-x", "c", f"-I{lists / 'def-include'}", str(lists / "lib-common" / f"{name}.def.in"))
    run_zig("cc", "-E", "-P", "-w", "-target", "x86_64-windows-gnu", *source, "-o", str(exports))
    run_zig("dlltool", "-m", "i386:x86-64", "-d", str(exports), "-l", str(made))
    return made
