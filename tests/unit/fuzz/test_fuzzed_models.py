"""Any upload has a format or is refused with a code, in bounded memory."""

import io
import pickle
import tempfile
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mutations import mutated

from bessemer.contract.problem import ErrorCode
from worker.compiler.frontend.file_format import recognize
from worker.compiler.frontend.pickles import LEGACY_MAGIC
from worker.compiler.frontend.zip_archive import check_archive, read_entry
from worker.errors import JobError

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.filterwarnings("ignore:Duplicate name", "ignore:invalid escape sequence"),
]

MAX_MEMORY_BYTES = 16 << 20
REFUSALS = {ErrorCode.MODEL_NOT_RECOGNIZED, ErrorCode.MODEL_DAMAGED, ErrorCode.MODEL_UNSAFE_ARCHIVE}
GRAPH_MODULE = b"\x80\x02ctorch.fx.graph_module\nreduce_graph_module\n}\x85R."
NAMES = st.sampled_from(
    [
        *(
            "m/data.pkl",
            "m/version",
            "m/archive_format",
            "m/models/model.json",
            "m/constants.pkl",
            "m/code/a.py",
        ),
        *("data.pkl", "a.npy", "../up", "m/../../up", "/root", "m\\up", "m/", "", ".", "m//a", "é", "a\0b"),
    ]
)
METHODS = st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
CONTENTS = (
    st.sampled_from([b"", b"pt2", b"{}", GRAPH_MODULE, bytes(500), pickle.dumps({"a": 1}, 2)]) | st.binary()
)


def zipped(entries: list[tuple[str, bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content, method in entries:
            info = zipfile.ZipInfo("x")
            info.filename, info.compress_type = name, method
            archive.writestr(info, content)
    return buffer.getvalue()


VERSION = ("m/version", b"3\n", zipfile.ZIP_STORED)
PT2 = zipped([VERSION, ("m/archive_format", b"pt2", 0), ("m/models/model.json", b"{}", 0)])
SCRIPT = zipped([VERSION, ("m/constants.pkl", b"\x80\x02).", 0), ("m/code/a.py", b"def f(): ...\n" * 20, 8)])
SAVED = zipped([VERSION, ("m/data.pkl", GRAPH_MODULE, 0), ("m/data/0", bytes(200), 0)])
MODULE = b"import tvm\nfrom tvm.script import ir as I\n@I.ir_module\nclass Module: ...\n"
MODULE_JSON = b'{"root_index":0,"nodes":[{"type":"None"}]}'
MODULE_ARCHIVE = zipped([("module.py", MODULE, 0), ("weights.npz", SAVED, 0)])
NESTED = zipped([VERSION, ("m/data.pkl", SAVED, 0)])
LEGACY = (
    b"".join(pickle.dumps(value, 2) for value in (LEGACY_MAGIC, 1001, {"little_endian": True})) + GRAPH_MODULE
)

ARCHIVES = mutated(
    st.sampled_from([PT2, SCRIPT, SAVED, NESTED, SAVED + SAVED, MODULE_ARCHIVE])
    | st.lists(st.tuples(NAMES, CONTENTS, METHODS), max_size=5).map(lambda rest: zipped([VERSION, *rest])),
    b"PK",
)
MODULES = mutated(st.sampled_from([MODULE, MODULE_JSON]))
UPLOADS = ARCHIVES | MODULES | mutated(st.just(LEGACY)) | mutated(st.just(GRAPH_MODULE)) | st.binary()


@contextmanager
def uploaded(data: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        path.write_bytes(data)
        yield path


@contextmanager
def bounded(max_bytes: int) -> Iterator[None]:
    tracemalloc.start()
    yield
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes <= max_bytes


@given(UPLOADS)
def test_an_upload_has_a_format_or_is_refused(data: bytes) -> None:
    with uploaded(data) as path, bounded(MAX_MEMORY_BYTES):
        try:
            recognize(path)
        except JobError as error:
            assert error.code in REFUSALS


@given(ARCHIVES)
def test_torch_reads_from_an_archive_that_passes_what_the_check_read(data: bytes) -> None:
    with uploaded(data) as path:
        try:
            names = check_archive(path).names
        except JobError:
            return
        assert not [name for name in names if ".." in PurePosixPath(name).parts]
        with suppress(RuntimeError, UnicodeDecodeError):  # torch refuses more than the check does
            reader = torch._C.PyTorchFileReader(str(path))
            for name in reader.get_all_records():
                assert reader.get_record(name) == read_entry(path, name)
