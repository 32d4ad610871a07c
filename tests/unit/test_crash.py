"""A crash's log is summarized in one line."""

import pytest
from tensor_samples import tensor

from bessemer.contract.tensor import TensorSpec
from worker.compiler.frontend.sample_inputs import input_bytes, refuse_oversized
from worker.errors import JobError
from worker.supervisor.outcome import crash_site

PYTHON = """a line of the model
Fatal Python error: Segmentation fault

Stack (most recent call first):
  File "/model.py", line 3 in forward
  File "/torch/module.py", line 12 in _call_impl

Extension modules: numpy (total: 1)
"""
NATIVE = """!!!!!!! Segfault encountered !!!!!!!
  File "./libc_sigaction.c", line 0, in 0x00007fe644c5a04f
  File "../raise.c", line 26, in __GI_raise
  File "./libc_sigaction.c", line 0, in 0x00007fe644c5a04f
  File "strlen.S", line 76, in strlen
  File "<unknown>", line 0, in ffi_call
"""
AT = "Python at /model.py:3 (forward), /torch/module.py:12 (_call_impl)"


@pytest.mark.parametrize(
    ("log", "site"),
    [
        (PYTHON + NATIVE, f"in strlen, ffi_call; {AT}"),
        (PYTHON, AT),
        (NATIVE, "in strlen, ffi_call"),
        ("no crash", ""),
        ("", ""),
        ("Fatal Python error: x\n\nStack (most recent call first):\n", ""),
    ],
)
def test_a_crash_names_its_place_in_machine_code_and_in_python(log: str, site: str) -> None:
    assert crash_site(log) == site


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("x=2x3", 24), ("x=scalar:bool", 1), ("x=4:bfloat16", 8), ("x=4:uint8", 4), ("x=2:float64", 16)],
)
def test_an_input_takes_the_bytes_of_its_elements(text: str, size_bytes: int) -> None:
    assert input_bytes(tensor(text)) == size_bytes


def test_inputs_beyond_the_limit_are_refused_before_they_are_made() -> None:
    specs: tuple[TensorSpec, ...] = (tensor("x=2"), tensor("y=1048576x1024"))
    refuse_oversized(specs, None)
    refuse_oversized(specs, 16 << 30)
    with pytest.raises(JobError, match=r"12288 MiB .* of 4096 MiB; the largest is y=1048576x1024:float32"):
        refuse_oversized(specs, 4 << 30)
