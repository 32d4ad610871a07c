"""The contract's table of processors matches the installed LLVM."""

import pytest

from bessemer.contract.llvm_processors import X86_32, X86_64
from bessemer.contract.target import ExplicitTarget, resolve_target
from docs.processors import PAGE, page
from worker.compiler.target import compile_target, processor_with
from worker.errors import JobError

NAMES = [name for names in X86_64.values() for name in names]


def made(name: str) -> str:
    return str(compile_target(resolve_target(ExplicitTarget(mcpu=name), name, 1)).llvm.attrs["mcpu"])


@pytest.mark.slow
def test_the_table_matches_the_installed_llvm() -> None:
    assert PAGE.read_text() == page(), "run `python -m docs.processors`"


def test_each_processor_of_the_table_is_a_target_for_64_bit_code() -> None:
    assert [made(name) for name in NAMES] == NAMES


@pytest.mark.parametrize("name", sorted(X86_32))
def test_a_processor_without_64_bit_code_is_not_a_target(name: str) -> None:
    with pytest.raises(JobError, match="no 64-bit code"):
        made(name)


@pytest.mark.parametrize(
    ("named", "present", "expected"),
    [
        pytest.param(
            "rocketlake", {"avx512f", "avx512fp16"}, "sapphirerapids", id="a hypervisor hides the model"
        ),
        pytest.param("rocketlake", {"avx512f"}, "rocketlake", id="the name fits"),
        pytest.param("graniterapids", {"avx512fp16"}, "graniterapids", id="the name has the instruction set"),
        pytest.param("znver5", {"avx512f"}, "znver5", id="another vendor"),
    ],
)
def test_instruction_sets_correct_a_processors_name(named: str, present: set[str], expected: str) -> None:
    known = {"graniterapids": frozenset({"avx512f", "avx512fp16"})}.get(named, frozenset({"avx512f"}))

    assert processor_with(frozenset(present), named, known) == expected
