"""Databases of MetaSchedule from anyone, and exports of what jobs have claimed."""

import base64
import json
import zlib
from dataclasses import replace

import pytest

from app.tuning_databases import InvalidDatabaseError, read_database, write_database
from bessemer.contract.records import MAX_TRACE_CHARACTERS, MAX_WORKLOAD_BYTES, TuningDatabase
from bessemer.store.rows.tenant_records import ExportedRecord

MODULE = b'{"root_index":0}'


def packed(module: bytes) -> str:
    return base64.b64encode(zlib.compress(module)).decode()


GOOD = ExportedRecord("1", packed(MODULE), "[[],[]]", "[]", '{"kind":"llvm","mcpu":"znver4"}', 1e-5)


def workload_line(module: bytes) -> str:
    return json.dumps(["1", base64.b64encode(len(module).to_bytes(8, "little") + module).decode()])


@pytest.mark.parametrize(
    "bad",
    [
        replace(GOOD, workload="2", trace="no JSON"),
        replace(GOOD, workload="2", trace="NaN"),
        replace(GOOD, workload="2", trace="[" * MAX_TRACE_CHARACTERS),
        replace(GOOD, workload="2", arguments="{"),
        replace(GOOD, workload="2", tvm_target=""),
        replace(GOOD, workload="2", packed="no base64"),
        replace(GOOD, workload="2", packed=base64.b64encode(b"not deflated").decode()),
        replace(GOOD, workload="2", packed=packed(bytes(MAX_WORKLOAD_BYTES + 1))),
    ],
)
def test_an_export_leaves_out_what_is_no_record(bad: ExportedRecord) -> None:
    assert write_database([bad, GOOD, bad]) == write_database([GOOD])


def test_an_export_has_a_function_only_with_a_record() -> None:
    written = write_database([GOOD, replace(GOOD, seconds=2e-5), replace(GOOD, workload="2")])
    assert [json.loads(line)[0] for line in written.workloads.splitlines()] == ["1", "2"]
    assert [json.loads(line)[0] for line in written.records.splitlines()] == [0, 0, 1]


def test_an_export_ends_at_its_limit_however_far_a_module_inflates() -> None:
    large = replace(GOOD, workload="2", packed=packed(bytes(1 << 20)))
    whole = write_database([GOOD])
    limit = len(whole.workloads) + len(whole.records) + (1 << 20)
    assert write_database([GOOD, large, GOOD], limit) == whole


@pytest.mark.parametrize(
    ("workloads", "records", "detail"),
    [
        (workload_line(bytes(MAX_WORKLOAD_BYTES + 1)), "", "the module is too large"),
        (
            "[" + "0," * (3 * MAX_WORKLOAD_BYTES // 4) + "0]",
            "",
            "database_workload.json, line 1: longer than",
        ),
        ("", "[" + "[]," * (2 * MAX_TRACE_CHARACTERS) + "0]", "record.json, line 1: longer than"),
    ],
)
def test_lines_and_modules_that_are_too_large_are_refused(workloads: str, records: str, detail: str) -> None:
    with pytest.raises(InvalidDatabaseError, match=detail):
        read_database(TuningDatabase(workloads=workloads, records=records))
