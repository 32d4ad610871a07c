"""Any file of inputs is arrays or refused."""

import io
import json
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_values import edited
from mutations import mutated

from bessemer.contract.problem import ErrorCode
from worker.errors import JobError
from worker.job.input_files import read_inputs

pytestmark = [pytest.mark.fuzz, pytest.mark.filterwarnings("ignore")]

REFUSALS = (ErrorCode.INPUTS_UNREADABLE, ErrorCode.LIMIT_MEMORY)
X = np.arange(6, dtype=np.float32).reshape(2, 3)
HEADER = {
    "__metadata__": {"made": "here"},
    "x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "mask": {"dtype": "BOOL", "shape": [2], "data_offsets": [24, 26]},
}


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=X, mask=np.array([True, False]))
    return buffer.getvalue()


def safetensors(header: Any) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + X.tobytes() + b"\1\0"


FILES = mutated(st.just(npz()), b"PK") | mutated(st.just(npz()), b"NUMPY") | st.binary()


@given(FILES | edited(st.just(HEADER)).map(safetensors) | mutated(st.just(safetensors(HEADER))))
def test_a_file_of_inputs_is_arrays_or_refused(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(data)
        try:
            arrays = read_inputs(Path(file.name))
        except JobError as error:
            assert error.code in REFUSALS
            assert file.name not in error.detail
            return
        assert not any(array.dtype.hasobject for array in arrays.values())
