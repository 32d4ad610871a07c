"""Libraries for other architectures, C libraries and systems."""

import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from platform_samples import NEEDS_READOBJ, built_for, bundle_of, headers, preset, skip_unless_it_runs

from bessemer.contract.problem import ErrorCode
from worker.compiler.pipeline.verify import verify
from worker.compiler.platforms import launcher_of
from worker.compiler.values import StageContext
from worker.errors import JobError

PROCESSORS = (
    ("aarch64", "aarch64-unknown-linux-gnu"),
    ("neoverse-v2", "aarch64-unknown-linux-gnu"),
    ("cortex-a53", "aarch64-unknown-linux-gnu"),
    ("apple-m1", "aarch64-unknown-linux-gnu"),
    ("riscv64", "riscv64-unknown-linux-gnu"),
    ("riscv64-v", "riscv64-unknown-linux-gnu"),
)
LIBRARIES_OF_C = (
    ("aarch64", "aarch64-unknown-linux-gnu.2.17"),
    ("aarch64", "aarch64-unknown-linux-musl"),
    ("x86-64-v2", "x86_64-unknown-linux-musl"),
    ("x86-64-v2", "x86_64-unknown-linux-gnu.2.17"),
)
RUNNABLE = (
    *((*target, model) for target in PROCESSORS for model in ("perceptron", "convolutions", "encoder")),
    *((*target, "encoder") for target in LIBRARIES_OF_C),
    *((*target, "halves") for target in PROCESSORS if target[0] in ("aarch64", "riscv64", "riscv64-v")),
)
MACOS_LIBRARIES = ["/usr/lib/libSystem.B.dylib", "@rpath/model.dylib"]
WINDOWS_LIBRARIES = ["KERNEL32.dll", "ucrtbase.dll"]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "triple", "model"), RUNNABLE)
def test_a_library_computes_what_the_model_does_where_its_program_runs(
    name: str, triple: str, model: str, context: StageContext, tmp_path: Path
) -> None:
    skip_unless_it_runs(triple)
    folder = bundle_of(built_for(preset(name, triple), model, context), context, tmp_path / "bundle")
    launcher = launcher_of(triple)
    assert launcher is not None

    done = subprocess.run([*launcher.command, folder / "run"], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
    assert ": matches the reference (" in done.stdout


@pytest.mark.sampled
@NEEDS_READOBJ
@pytest.mark.parametrize(
    ("name", "triple", "kind", "needed"),
    [
        (
            "apple-m1",
            "aarch64-apple-macos11.0",
            "Mach-O arm64",
            MACOS_LIBRARIES,
        ),
        (
            "x86-64-v3",
            "x86_64-apple-macos12.3",
            "Mach-O 64-bit x86-64",
            MACOS_LIBRARIES,
        ),
        ("x86-64-v3", "x86_64-pc-windows-gnu", "COFF-x86-64", WINDOWS_LIBRARIES),
        ("x86-64-v3", "x86_64-pc-windows-msvc", "COFF-x86-64", WINDOWS_LIBRARIES),
    ],
)
def test_a_library_for_a_system_without_workers_is_linked_and_not_verified(
    name: str, triple: str, kind: str, needed: list[str], context: StageContext, tmp_path: Path
) -> None:
    target = preset(name, triple)
    built = built_for(target, "convolutions", context, verification="none", static_library=True)
    folder = bundle_of(built, context, tmp_path / "bundle")

    library, program = folder / built.library.name, next(folder.glob("run*"))
    read = headers(library, "--needed-libs")
    assert f"Format: {kind}\n" in read
    assert [line.strip() for line in read.partition("NeededLibraries [")[2].splitlines()[1:-1]] == needed
    assert f"Format: {kind}\n" in headers(program)
    assert (folder / "model.lib").exists() == (library.suffix == ".dll")
    for function in ("open", "run", "close", "entries", "error"):
        assert f"bessemer_model_{function}" in headers(library, "--coff-exports", "--symbols")


def test_a_library_for_a_system_without_workers_fails_verification(context: StageContext) -> None:
    built = built_for(preset("apple-m1"), "perceptron", context)

    with pytest.raises(JobError, match="cannot be run") as raised:
        verify(built, context)

    assert raised.value.code is ErrorCode.TARGET_NOT_RUNNABLE


_NAMES = """
__errno_location __libc_start_main __tls_get_addr bcmp calloc clock_gettime erff exit expf fclose ferror
fmodf fopen fprintf fputc fputs fread free fseek ftell fwrite getpid ldexp lgammaf madvise malloc memcmp
memcpy memmove memset mmap mprotect mremap munmap nearbyintf posix_memalign powf printf
pthread_cond_broadcast pthread_cond_destroy pthread_cond_init pthread_cond_wait pthread_create
pthread_join pthread_mutex_destroy pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock putchar
puts qsort realloc rewind roundf sched_yield snprintf stderr stdout strchr strcmp strcpy strerror strlen
strncmp strrchr strstr strtod strtol sysconf tanf tgammaf
"""
SINCE_2_17 = frozenset(_NAMES.split())
"""Names that a library and its program may take from libc; glibc 2.17 has them all."""


@pytest.mark.parametrize(
    ("name", "triple"),
    [
        ("x86-64-v2", "x86_64-unknown-linux-gnu.2.17"),
        ("x86-64-v2", "x86_64-unknown-linux-gnu"),
        ("aarch64", "aarch64-unknown-linux-gnu.2.28"),
        ("riscv64", "riscv64-unknown-linux-gnu.2.27"),
    ],
)
def test_a_library_needs_no_version_of_libc_and_nothing_newer_than_2_17(
    name: str, triple: str, context: StageContext
) -> None:
    built = built_for(preset(name, triple), "functions", context)

    assert built.program is not None
    for path in (built.library, built.program):
        with path.open("rb") as file:
            elf = ELFFile(file)
            assert elf.get_section_by_name(".gnu.version_r") is None
            symbols = elf.get_section_by_name(".dynsym").iter_symbols()
            undefined = {
                symbol.name
                for symbol in symbols
                if symbol["st_shndx"] == "SHN_UNDEF" and symbol["st_info"]["bind"] == "STB_GLOBAL"
            }
        assert {one for one in undefined if not one.startswith("bessemer_")} <= SINCE_2_17
