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
__attribute__((visibility("default"))) const unsigned char *first(void) { return held; }
__attribute__((visibility("default"))) int count(void) { return ++counter; }
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


def test_inserted_data_leaves_variables_at_zero(tmp_path: Path) -> None:
    library = ctypes.CDLL(str(inserted(tmp_path, "x86_64-unknown-linux-gnu")))

    assert library.count() == 1


@pytest.mark.parametrize(
    "triple",
    [
        "x86_64-unknown-linux-gnu",
        "aarch64-unknown-linux-gnu",
        "riscv64-unknown-linux-gnu",
        "x86_64-unknown-linux-musl",
    ],
)
def test_a_library_with_inserted_data_has_consistent_headers(tmp_path: Path, triple: str) -> None:
    with inserted(tmp_path, triple).open("rb") as file:
        elf = ELFFile(file)
        loads = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD"]
        others = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_RISCV_ATTRIBUTES"]
        symbols = {symbol.name for symbol in elf.get_section_by_name(".symtab").iter_symbols()}
        attributes = elf.get_section_by_name(".riscv.attributes")

    for segment in loads:
        assert segment["p_filesz"] <= segment["p_memsz"]
        assert segment["p_vaddr"] % segment["p_align"] == segment["p_offset"] % segment["p_align"]
    assert loads[-1]["p_filesz"] == loads[-1]["p_memsz"] == sum(map(len, CONTENT))
    assert all(segment["p_offset"] == attributes["sh_offset"] for segment in others)
    assert bool(others) == triple.startswith("riscv64")
    assert symbols >= {"held", "first", "counter"}


@pytest.mark.parametrize(
    ("name", "content", "refusal"),
    [
        (HELD.name, (b"short",), "room for 260 bytes, not 5"),
        (".text", CONTENT, "not a reserved section"),
        (".bss", CONTENT, "follows .bss in memory"),
        (".missing", CONTENT, "not a reserved section"),
    ],
)
def test_only_a_reserved_section_that_is_last_gets_its_data(
    tmp_path: Path, name: str, content: tuple[bytes, ...], refusal: str
) -> None:
    compile_reader(tmp_path, "x86_64-unknown-linux-gnu")
    write_data_object(tmp_path / "held.o", tmp_path / "reader.o", HELD, Reserved(sum(map(len, CONTENT))))
    library = linked(tmp_path, write_placing_script(tmp_path, HELD.name))
    before = library.read_bytes()

    with pytest.raises(ValueError, match=refusal):
        insert_data(library, name, content)

    assert library.read_bytes() == before


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
