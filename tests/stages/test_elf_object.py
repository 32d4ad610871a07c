"""Objects that hold only data, linked for each platform of Linux."""

import ctypes
from pathlib import Path

import pytest

from worker.compiler.codegen.link import run_zig, write_in_large_parts
from worker.compiler.codegen.standalone.elf_object import DataSection, Hole, section_place, write_data_object
from worker.compiler.codegen.standalone.sources import compile_source

READER = """\
extern const unsigned char held[] __attribute__((visibility("hidden")));
__attribute__((visibility("default"))) const unsigned char *first(void) { return held; }
"""
HELD = DataSection(".held", "held", 4096)
CONTENT = (b"abc", memoryview(bytes(range(256))), b"\0")


def linked(folder: Path, triple: str) -> Path:
    (folder / "reader.c").write_text(READER)
    compile_source(folder / "reader.c", folder / "reader.o", triple)
    write_data_object(folder / "held.o", folder / "reader.o", HELD, CONTENT)
    run_zig(
        "ld.lld",
        "-shared",
        "-o",
        str(folder / "all.so"),
        *(str(folder / f"{n}.o") for n in ("reader", "held")),
    )
    return folder / "all.so"


def test_a_library_finds_the_data_aligned_to_pages(tmp_path: Path) -> None:
    library = ctypes.CDLL(str(linked(tmp_path, "x86_64-unknown-linux-gnu")))
    library.first.restype = ctypes.c_void_p

    at = library.first()

    assert at % 4096 == 0
    assert ctypes.string_at(at, 260) == b"".join(CONTENT)


@pytest.mark.parametrize(
    "triple", ["aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu", "x86_64-unknown-linux-musl"]
)
def test_the_linker_takes_the_object_for_every_platform(tmp_path: Path, triple: str) -> None:
    assert b"".join(CONTENT) in linked(tmp_path, triple).read_bytes()


def test_a_hole_is_filled_where_the_section_lies(tmp_path: Path) -> None:
    (tmp_path / "reader.c").write_text(READER)
    compile_source(tmp_path / "reader.c", tmp_path / "reader.o", "x86_64-unknown-linux-gnu")
    whole, hollow = tmp_path / "whole.o", tmp_path / "hollow.o"
    content = bytes(range(256)) * 4096
    write_data_object(whole, tmp_path / "reader.o", HELD, (content, b"\0"))
    write_data_object(hollow, tmp_path / "reader.o", HELD, (Hole(len(content)), b"\0"))
    assert hollow.stat().st_blocks < whole.stat().st_blocks

    with hollow.open("rb") as file:
        place = section_place(file, HELD.name)
    assert place is not None
    assert place.size_bytes == len(content) + 1
    write_in_large_parts(hollow, place.offset, (content[:5], memoryview(content)[5:]))
    assert hollow.read_bytes() == whole.read_bytes()


def test_a_file_without_the_section_has_no_place(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no object")
    with (tmp_path / "text").open("rb") as file:
        assert section_place(file, HELD.name) is None


def test_data_for_another_object_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.o").write_bytes(b"\xcf\xfa\xed\xfe" * 32)

    with pytest.raises(ValueError, match="not an ELF object"):
        write_data_object(tmp_path / "held.o", tmp_path / "other.o", HELD, CONTENT)
