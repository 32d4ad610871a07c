"""Uploaded extensions in real jobs: loaded for one job only, by name, and checked in a fresh process."""

import io
import itertools
import json
import tarfile
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch
import zstandard
from torch import nn

from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.invocation import Invocation
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import Report
from bessemer.contract.request import CompilationRequest
from bessemer.store.blobs.sweep import sweep_blobs
from bessemer.store.queue_port import Task, TaskKind
from tests.tenant_data import own

Rig = Any
NUMBERS = itertools.count(1)
REWRITE = """
    from tvm import relax
    from tvm.relax.dpl import is_op, wildcard
    from worker.compiler.rewrites.rewrite import Rewrite

    x = wildcard()
    REWRITES = (
        Rewrite("relu_once", "two ReLUs are one", is_op("relax.nn.relu")(is_op("relax.nn.relu")(x)),
                lambda match: relax.op.nn.relu(match[x])),
    )
"""
SPACE = """
    from tvm import s_tir
    from tvm.script import tirx as T
    from worker.compiler.legalize.registry import Legalization
    from worker.compiler.spaces.space import Intrinsic, Space
    from tvm import te


    @T.prim_func(s_tir=True)
    def description(x: T.handle, y: T.handle):
        A = T.match_buffer(x, (8,), "float32", offset_factor=1)
        B = T.match_buffer(y, (8,), "float32", offset_factor=1)
        with T.sblock("root"):
            T.reads(A[0:8])
            T.writes(B[0:8])
            for i in range(8):
                with T.sblock("tanh"):
                    v = T.axis.spatial(8, i)
                    B[v] = T.tanh(A[v])


    @T.prim_func(s_tir=True)
    def implementation(x: T.handle, y: T.handle):
        A = T.match_buffer(x, (8,), "float32", offset_factor=1)
        B = T.match_buffer(y, (8,), "float32", offset_factor=1)
        with T.sblock("root"):
            T.reads(A[0:8])
            T.writes(B[0:8])
            for i in T.unroll(8):
                B[i] = T.tanh(A[i])


    def tanh(builder, call):
        def compute(x):
            return te.compute(x.shape, lambda *index: te.tanh(x(*index)), name="tanh")

        return builder.call_te(compute, call.args[0], primfunc_name_hint="my_tanh")


    def rows(schedule):
        row, column = schedule.get_loops(schedule.get_sblock("tanh"))
        schedule.parallel(row)
        schedule.tensorize(column, "mine-row")


    LEGALIZATIONS = (Legalization("relax.tanh", tanh),)
    SPACES = (
        Space("mine", rows, "tanh of rows of 8"),
        Intrinsic("mine-row", description, implementation),
    )
"""
FUNCTION = """
    import numpy as np
    from tvm import relax
    from worker.compiler.translation.rule import ModuleRule


    def double(x, out):
        np.from_dlpack(out)[:] = np.from_dlpack(x) * 2


    RULES = (
        ModuleRule("Doubled", lambda emit, x: relax.call_dps_packed("mine.double", [x], out_ty=x.ty)),
    )
    FUNCTIONS = {"mine.double": double}
"""


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.doubled = Doubled()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.doubled(torch.relu(torch.relu(x))))


def compiled(rig: Rig, *files: str, **fields: Any) -> Compilation:
    path = rig.folder / "network.pt2"
    torch.export.save(torch.export.export(Network().eval(), (torch.randn(16, 8),)), path)
    data = own(rig.store)
    digests = []
    for number, file in enumerate(files):
        extension = rig.folder / "extension.py"
        extension.write_text(dedent(file))
        blob = data.artifacts.put_file(extension)
        data.extensions.add(blob.digest, blob.size_bytes, f"mine_{number}.py")
        digests.append(blob.digest)
    request = CompilationRequest.model_validate(
        {
            "model": data.artifacts.put_file(path).digest,
            "target": "host",
            "benchmark": {"seconds": 0.05, "baselines": []},
            "extensions": tuple(digests),
            **fields,
        }
    )
    name = f"extended-{next(NUMBERS)}"
    data.jobs.submit(name, request)
    row: Compilation = rig.handle(Task(TaskKind.COMPILE, name))
    return row


def artifact(job: Compilation, name: str) -> str:
    """The digest of a job's file."""
    (digest,) = (one.digest for one in job.artifacts if one.name == name)
    return digest


def bundled(rig: Rig, job: Compilation, name: str) -> bytes:
    """The content of a file of a job's bundle."""
    digest = artifact(job, ARCHIVE)
    packed = b"".join(own(rig.store).artifacts.stream(digest))
    raw = zstandard.ZstdDecompressor().stream_reader(packed).read()
    with tarfile.open(fileobj=io.BytesIO(raw)) as files:
        file = files.extractfile(name)
        assert file is not None
        return file.read()


def report_of(rig: Rig, job: Compilation) -> Report:
    assert job.problem is None, job.problem
    stream = own(rig.store).artifacts.stream(artifact(job, "report.json"))
    return Report.model_validate_json(b"".join(stream))


def test_an_extension_takes_part_in_the_job_that_names_it_and_in_no_other(rig: Rig) -> None:
    enable = {"enable": ["relu_once"]}
    job = compiled(rig, REWRITE, optimize=enable)
    assert (job.state, job.verified) == (JobState.SUCCEEDED, True)
    report = report_of(rig, job)
    assert [(each.name, each.defines) for each in report.extensions] == [
        ("mine_0.py", {"REWRITES": ("relu_once",)})
    ]
    first = report.rewrites[0]
    assert (first.name, first.source, first.count) == (
        "relu_once",
        "mine_0.py",
        1,
    )

    without = compiled(rig, optimize=enable)
    assert without.problem is not None
    assert without.problem.code is ErrorCode.REWRITE_UNKNOWN


def test_processes_that_build_candidates_have_an_intrinsic_of_an_extension(rig: Rig) -> None:
    job = compiled(
        rig,
        SPACE,
        optimize={"fusion": "none"},
        tune={"trials": 1, "spaces": {"my_tanh": "mine"}, "force": True},
    )
    report = report_of(rig, job)
    assert report.tune is not None
    assert [(task.name, task.space, task.kept) for task in report.tune.tasks] == [("my_tanh", "mine", True)]
    assert report.extensions[0].defines == {
        "LEGALIZATIONS": ("relax.tanh",),
        "SPACES": ("mine", "mine-row"),
    }
    (mark,) = json.loads(bundled(rig, job, "records/extensions.json"))
    assert (mark["digest"], mark["name"]) == (report.extensions[0].digest, "mine_0.py")


def test_a_fresh_process_checks_a_library_that_calls_a_function_of_an_extension(rig: Rig) -> None:
    job = compiled(rig, FUNCTION)
    assert report_of(rig, job).functions == ("mine.double",)
    assert job.figures is not None
    assert job.figures.check is not None


def test_a_file_that_does_not_load_ends_its_job_before_the_first_stage(rig: Rig) -> None:
    job = compiled(rig, REWRITE, "x = 1\ny = x +\n")
    assert job.problem is not None
    assert (job.problem.code, job.problem.stage) == (ErrorCode.EXTENSION_INVALID, None)
    assert job.problem.detail == "mine_1.py, line 2: SyntaxError: invalid syntax"


def test_an_extension_that_is_gone_is_named(rig: Rig) -> None:
    job = compiled(rig, extensions=("e" * 64,))
    assert job.problem is not None
    assert job.problem.code is ErrorCode.EXTENSION_MISSING
    assert "e" * 64 in job.problem.detail


def invoked(rig: Rig, job: Compilation) -> Invocation:
    """An invocation after the extensions of the compilation were deleted, with their files."""
    data, name = own(rig.store), f"invoked-{next(NUMBERS)}"
    inputs = rig.folder / "inputs.npz"
    np.savez(inputs, x=np.ones((16, 8), np.float32))
    blob = data.artifacts.put_file(inputs)
    data.invocations.submit(name, job.id, blob.digest, blob.size_bytes, 0)
    for digest in job.request.extensions:
        assert data.extensions.delete(digest)
    for _ in ("to the trash", "out of it"):
        sweep_blobs(rig.store.database, rig.store.artifacts, -1, -1)
    rig.runner.run(rig.supervisor().handle(Task(TaskKind.INVOKE, name)))
    row = data.invocations.get(name)
    assert row is not None
    return row


@pytest.mark.parametrize(
    ("file", "code"),
    [(REWRITE, None), (FUNCTION, ErrorCode.LIBRARY_FUNCTION_MISSING)],
    ids=["rewrite", "function"],
)
def test_a_library_runs_without_the_extensions_that_it_does_not_call(
    rig: Rig, file: str, code: ErrorCode | None
) -> None:
    row = invoked(rig, compiled(rig, file))
    assert (row.state is JobState.SUCCEEDED) is (code is None), row.problem
    assert (row.problem and row.problem.code) == code


def test_a_file_may_be_named_as_an_extension_and_twice_as_records(rig: Rig) -> None:
    extension = rig.folder / "extension.py"
    extension.write_text(dedent(REWRITE))
    blob = own(rig.store).artifacts.put_file(extension)
    job = compiled(rig, REWRITE, tune={"trials": 1, "records": (blob.digest, blob.digest)})
    assert job.problem is not None
    assert job.problem.code is ErrorCode.RECORDS_INVALID
