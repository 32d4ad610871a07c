"""Splitting LLVM IR and assembly by function."""

from pathlib import Path

import pytest
import zstandard

from bessemer.contract.code import (
    CODE_INDEX,
    CODE_TEXTS,
    MAX_NAME,
    CodeCall,
    CodeKind,
    CodeListing,
    listed_name,
)
from worker.snapshots.code_listing import (
    assembly_functions,
    llvm_functions,
    ptx_entries,
    ptx_sources,
    sources_of,
    write_code,
)
from worker.snapshots.frames import FrameWriter

LLVM = """; ModuleID = 'TVMMod'
define dllexport i32 @__tvm_ffi_add(ptr %args) {
entry:
    #dbg_value(ptr %args, !11, !DIExpression(), !15)
  %0 = call fastcc i32 @add_compute_(ptr %args), !dbg !15
  ret i32 %0
}

; Function Attrs: noinline
define internal fastcc i32 @add_compute_(ptr %x) {
  ret i32 0
}

define private i32 @task() {
  ret i32 0
}

define dllexport i32 @__tvm_ffi_mul(ptr %args) {
  ret i32 0
}
"""
ASSEMBLY = """\t.type\t__tvm_ffi_add,@function
__tvm_ffi_add:
.Lfunc_begin0:
\t.cfi_startproc
\tcallq\tadd_compute_
.Ltmp1:
\tretq
.Lfunc_end0:
\t.size\t__tvm_ffi_add, .Lfunc_end0-__tvm_ffi_add
add_compute_:
.LBB1_1:
\tjne\t.LBB1_1
\tjmp\t.Ltask
.Lfunc_end1:
.Ltask:
\tnop
.Lfunc_end2:
_mul:
\tret
"""


def test_functions_of_llvm_ir_are_kept_without_debug_notes() -> None:
    found = llvm_functions(LLVM)
    assert list(found) == ["__tvm_ffi_add", "add_compute_", "task", "__tvm_ffi_mul"]
    assert "dbg" not in "".join(found.values())
    assert found["add_compute_"].startswith("; Function Attrs")


def test_functions_of_assembly_end_at_their_last_label() -> None:
    found = assembly_functions(ASSEMBLY, {"__tvm_ffi_add", "add_compute_", "task", "mul"})
    assert found == {
        "__tvm_ffi_add": "__tvm_ffi_add:\n\tcallq\tadd_compute_\n\tretq\n",
        "add_compute_": "add_compute_:\n.LBB1_1:\n\tjne\t.LBB1_1\n\tjmp\t.Ltask\n",
        "task": ".Ltask:\n\tnop\n",
        "mul": "_mul:\n\tret\n",
    }


def test_a_function_comes_with_the_functions_that_it_calls(tmp_path: Path) -> None:
    (tmp_path / "kernels0000.ll").write_text(LLVM)
    (tmp_path / "kernels0000.s").write_text(ASSEMBLY)
    found = {
        name: (texts[CodeKind.LLVM_IR], texts[CodeKind.ASSEMBLY])
        for name, texts in sources_of(tmp_path, ["add", "mul", "gone"])
    }
    assert list(found) == ["add", "mul"]
    assert "@add_compute_(ptr %x)" in found["add"][0]
    assert "jne" in found["add"][1]
    assert "nop" in found["add"][1]
    assert "add_compute_" not in found["mul"][0]
    write_code(
        tmp_path,
        [CodeCall(function="add", inputs=(), operators=())],
        [],
        ["add", "mul"],
        sources_of(tmp_path, ["add"]),
    )
    listing = CodeListing.read_json((tmp_path / CODE_INDEX).read_bytes())
    assert [function.name for function in listing.functions] == ["add", "mul"]
    add, mul = listing.functions
    assert add.text(CodeKind.LLVM_IR).text_bytes == len(found["add"][0])
    assert mul.text(CodeKind.ASSEMBLY).packed_bytes == 0
    assert (tmp_path / CODE_TEXTS).stat().st_size > 0


LONG = "fused_" + "add_multiply_" * 30


def test_long_names_are_cut_and_stay_different(tmp_path: Path) -> None:
    names = [f"{LONG}1", f"{LONG}2"]
    codes = [f"assembly of {name}" for name in names]
    sources = [(name, {CodeKind.ASSEMBLY: code}) for name, code in zip(names, codes, strict=True)]
    calls = [CodeCall(function=listed_name(name), inputs=(), operators=()) for name in names]
    write_code(tmp_path, calls, [], names, sources)
    listing = CodeListing.read_json((tmp_path / CODE_INDEX).read_bytes())
    assert [function.name for function in listing.functions] == list(map(listed_name, names))
    assert [function.text(CodeKind.ASSEMBLY).text_bytes for function in listing.functions] == [
        len(code) for code in codes
    ]
    first, second = (function.text(CodeKind.ASSEMBLY) for function in listing.functions)
    assert first.offset != second.offset


@pytest.mark.parametrize("name", ["", "add", "x" * MAX_NAME, "x" * (MAX_NAME + 1), LONG])
def test_a_listed_name_is_as_long_as_a_request_may_name(name: str) -> None:
    listed = listed_name(name)
    assert len(listed) == min(len(name), MAX_NAME)
    assert (listed == name) is (len(name) <= MAX_NAME)
    assert listed[: MAX_NAME - 9] == name[: MAX_NAME - 9]


PTX = """//
.version 9.0
.target sm_90
.extern .shared .align 16 .b8 bessemer_shared[];

\t// .globl\tadd_kernel
.visible .entry add_kernel(
\t.param .u64 .ptr .align 1 add_kernel_param_0
)
.maxntid 128
{
\t.reg .b32 \t%r<3>;
\t// begin inline asm
\t{add.f16 %rs1,%rs2,%rs3;
}
\t// end inline asm
\tret;

}
\t// .globl\tadd_kernel_1
.visible .entry add_kernel_1(
\t.param .u64 .ptr .align 1 add_kernel_1_param_0
)
{
\tret;
}
"""


def test_a_function_of_a_gpu_has_the_ptx_of_its_kernels(tmp_path: Path) -> None:
    assert list(ptx_entries(PTX)) == ["add_kernel", "add_kernel_1"]
    kernels = {"add": ("add_kernel", "add_kernel_1", "add_kernel"), "mul": ("gone",), "view": ()}
    found = dict(ptx_sources(PTX, kernels))
    assert found["add"][CodeKind.PTX].count(".entry") == 2
    assert found["add"][CodeKind.PTX].count("ret;") == 2
    assert found["add"][CodeKind.PTX].startswith(".visible .entry add_kernel(\n")
    assert ".version" not in found["add"][CodeKind.PTX]
    write_code(tmp_path, [], [], list(kernels), ptx_sources(PTX, kernels))
    listing = CodeListing.read_json((tmp_path / CODE_INDEX).read_bytes())
    assert [function.code_bytes > 0 for function in listing.functions] == [True, False, False]
    assert not any(function.truncated for function in listing.functions)


def test_a_cut_text_says_how_long_it_was(tmp_path: Path) -> None:
    frames = FrameWriter(tmp_path / "texts", 10)
    first, second, third = (frames.append(text) for text in ("12345\n", "12\n456\n", "1234\n"))
    assert (first.text_bytes, first.whole_bytes, first.is_whole) == (6, None, True)
    assert (second.text_bytes, second.whole_bytes) == (3, 7)
    assert (third.text_bytes, third.packed_bytes, third.whole_bytes) == (0, 0, 5)
    assert frames.append("").is_whole
    unpacked = [
        zstandard.decompress((tmp_path / "texts").read_bytes()[each.offset :][: each.packed_bytes])
        for each in (first, second)
    ]
    assert unpacked == [b"12345\n", b"12\n"]
