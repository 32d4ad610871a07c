import re
from pathlib import Path

import pytest

import worker.errors
from bessemer.contract.problem import ErrorCode
from worker.errors import (
    MAX_MESSAGE_CHARACTERS,
    JobError,
    failure_of,
    ran_out_of_memory,
    short_message,
    without_server_details,
)


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
        OSError(12, "Cannot allocate memory"),
        RuntimeError("InternalError: std::bad_alloc"),
        RuntimeError("MemoryError: as another process said"),
        caused_by(ValueError("no"), MemoryError()),
        caused_by(ValueError("no"), caused_by(KeyError("x"), RuntimeError("not enough memory"))),
    ],
)
def test_every_form_of_failed_allocation_is_a_memory_limit(error: Exception) -> None:
    failure = failure_of(ErrorCode.BUILD_FAILED, error, "the linker refused")

    assert ran_out_of_memory(error)
    assert failure.code is ErrorCode.LIMIT_MEMORY
    assert failure.detail.startswith("an allocation failed: ")


def test_other_exceptions_get_the_code_of_their_catcher() -> None:
    failure = failure_of(ErrorCode.TUNE_FAILED, KeyError())
    assert (failure.code, failure.detail) == (ErrorCode.TUNE_FAILED, "KeyError")
    assert failure_of(ErrorCode.TUNE_FAILED, KeyError(), "said better").detail == "said better"


def test_a_job_error_keeps_its_code() -> None:
    error = JobError(ErrorCode.TUNE_FAILED, "as it was")
    assert failure_of(ErrorCode.BUILD_FAILED, caused_by(error, error)) is error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError(), "ValueError"),
        (ValueError(" one\n\n  two "), "ValueError: one two"),
        (RuntimeError("short\nException raised from f at c10.cpp:1"), "RuntimeError: short"),
    ],
)
def test_a_short_message_is_one_line_without_frames(error: Exception, message: str) -> None:
    assert short_message(error) == message


def test_a_short_message_is_short() -> None:
    assert len(short_message(ValueError("x" * 5000))) == len("ValueError: ") + MAX_MESSAGE_CHARACTERS


@pytest.mark.parametrize(
    "error", [NameError("name 'MemoryError_' is not defined"), KeyError("not enough memory")]
)
def test_a_mistake_in_a_program_is_not_a_memory_limit(error: Exception) -> None:
    assert failure_of(ErrorCode.MODEL_RAISED, error).code is ErrorCode.MODEL_RAISED


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('File "/opt/x/lib/python3.11/site-packages/torch/nn.py", line 3', 'File "torch/nn.py", line 3'),
        ("at /usr/lib/python3.11/json/decoder.py:12", "at json/decoder.py:12"),
        ("cannot open /tmp/work/0/jobs/01ABC/scratch/bundle/lib.so", "cannot open scratch/bundle/lib.so"),
        ("<Net object at 0x7f7e8c04b1d0>", "<Net object at 0x…>"),
        (
            "0xff is not an address, and models/net.py:3 is the user's",
            "0xff is not an address, and models/net.py:3 is the user's",
        ),
    ],
)
def test_a_text_shows_neither_paths_of_the_server_nor_addresses(text: str, shown: str) -> None:
    assert without_server_details(text) == shown


def test_the_error_tree_shows_every_worker_error() -> None:
    sources = "\n".join(path.read_text() for path in Path(worker.errors.__file__).parent.rglob("*.py"))
    errors = set(re.findall(r"^class (\w+Error)\b", sources, re.MULTILINE))
    assert errors == set(re.findall(r"^\W*(\w+Error) ", str(worker.errors.__doc__), re.MULTILINE))
