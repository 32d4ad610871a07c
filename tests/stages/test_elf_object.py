"""Objects that hold only data, linked for each platform of Linux."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from worker.compiler.codegen.link import run_zig
from worker.compiler.codegen.standalone.elf_object import (
    DataSection,
    Reserved,
    insert_data,
    section_place,
    write_data_object,
    write_placing_script,
)
from worker.compiler.codegen.standalone.sources import compile_source

READER = """\
extern const unsigned char held[] __attribute__((visibility("hidden")));
static int counter;
__attribute__((visibility("default"))) const unsigned char *first(void) { return held + 0 * ++counter; }
__attribute__((visibility("default"))) const char *text(void) { return "read-only data beside the code"; }
"""
Way = Callable[[Path, str], Path]
HELD = DataSection(".held", "held", 4096)
CONTENT = (b"abc", memoryview(bytes(range(256))), b"\0")


def linked(folder: Path, *script: Path) -> Path:
    objects = (folder / "reader.o", folder / "held.o", *script)
    run_zig("ld.lld", "-shared", "-o", str(folder / "all.so"), *map(str, objects))
    return folder / "all.so"


def at_once(folder: Path, triple: str) -> Path:
    compile_reader(folder, triple)
    write_data_object(folder / "held.o", folder / "reader.o", HELD, CONTENT)
    return linked(folder)


def inserted(folder: Path, triple: str) -> Path:
    compile_reader(folder, triple)
    write_data_object(folder / "held.o", folder / "reader.o", HELD, Reserved(sum(map(len, CONTENT))))
    library = linked(folder, write_placing_script(folder, HELD.name))
    insert_data(library, HELD.name, CONTENT)
    return library


def compile_reader(folder: Path, triple: str) -> None:
    (folder / "reader.c").write_text(READER)
    compile_source(folder / "reader.c", folder / "reader.o", triple)


ways = pytest.mark.parametrize("make", [at_once, inserted])


@ways
def test_a_library_finds_the_data_aligned_to_pages(make: Way, tmp_path: Path) -> None:
    library = ctypes.CDLL(str(make(tmp_path, "x86_64-unknown-linux-gnu")))
    library.first.restype = ctypes.c_void_p

    at = library.first()

    assert at % 4096 == 0
    assert ctypes.string_at(at, 260) == b"".join(CONTENT)


@ways
@pytest.mark.parametrize(
    "triple", ["aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu", "x86_64-unknown-linux-musl"]
)
def test_the_linker_takes_the_object_for_every_platform(make: Way, tmp_path: Path, triple: str) -> None:
    library = make(tmp_path, triple)

    with library.open("rb") as file:
        section = ELFFile(file).get_section_by_name(HELD.name)
        assert section.data() == b"".join(CONTENT)
        assert section["sh_type"] == "SHT_PROGBITS"
        assert section["sh_offset"] % HELD.alignment == 0


def test_inserted_data_moves_what_follows_it(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    before = at_once(tmp_path / "before", "x86_64-unknown-linux-gnu")
    after = inserted(tmp_path / "after", "x86_64-unknown-linux-gnu")

    assert symbols_of(after) == symbols_of(before) == {"held", "first", "counter"}


def symbols_of(library: Path) -> set[str]:
    with library.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        return {symbol.name for symbol in table.iter_symbols()} & {"held", "first", "counter"}


@pytest.mark.parametrize(
    "triple", ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu"]
)
def test_code_reaches_its_own_data_beside_more_than_two_gibibytes(triple: str, tmp_path: Path) -> None:
    compile_reader(tmp_path, triple)
    write_data_object(tmp_path / "held.o", tmp_path / "reader.o", HELD, Reserved(5 << 30))

    library = linked(tmp_path, write_placing_script(tmp_path, HELD.name))

    assert library.stat().st_size < 1 << 20
    with library.open("rb") as file:
        place = section_place(file, HELD.name)
    assert place is not None
    assert place.size_bytes == 5 << 30


def test_a_file_without_the_section_has_no_place(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no object")
    with (tmp_path / "text").open("rb") as file:
        assert section_place(file, HELD.name) is None


def test_data_for_another_object_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.o").write_bytes(b"\xcf\xfa\xed\xfe" * 32)

    with pytest.raises(ValueError, match="not an ELF object"):
        write_data_object(tmp_path / "held.o", tmp_path / "other.o", HELD, CONTENT)
