"""JSON databases of TVM's MetaSchedule, read and written without TVM.

Each line of ``database_workload.json`` is a function. Each line of ``database_tuning_record.json`` is a
record that names its function by the number of its line, from 0::

    ["1844530", "BASE64"]                                     # hash; length in 8 bytes, and the module's JSON
    [0, [TRACE, [SECONDS, …], TARGET, [["TENSOR", DTYPE, SHAPE], …]]]
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from bessemer.contract.error_words import in_words
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.contract.records import (
    ANY_COMPILER,
    MAX_DATABASE_BYTES,
    MAX_IMPORTED,
    MAX_PACKED_CHARACTERS,
    MAX_TRACE_CHARACTERS,
    MAX_WORKLOAD_BYTES,
    MeasuredTrial,
    SearchScope,
    TuningDatabase,
    record_target,
)
from bessemer.store.rows.tenant_records import ExportedRecord, ImportedTrial

IMPORTED = "imported"
MAX_DEPTH = 64
_LENGTH_BYTES = 8
_MAX_CHARACTERS = {"workloads": 3 * MAX_WORKLOAD_BYTES // 2, "records": 4 * MAX_TRACE_CHARACTERS}
"""The maximum length of a line. The limits of its parts are lower."""

_FILES = {"workloads": "database_workload.json", "records": "database_tuning_record.json"}


class InvalidDatabaseError(Exception):
    """The files are not a valid database of MetaSchedule."""

    def __init__(self, file: str, line: int, reason: str) -> None:
        super().__init__(f"{_FILES[file]}, line {line}: {reason}")

    @property
    def problem(self) -> Problem:
        """The problem document."""
        return make_problem(ErrorCode.RECORDS_INVALID, str(self))


class ReadDatabase(NamedTuple):
    """What a database holds.

    Attributes:
        trials: its records that ran.
        workloads: the packed modules of their functions, by hash.
        failed: the number of records that failed.
    """

    trials: tuple[ImportedTrial, ...]
    workloads: dict[str, str]
    failed: int

    @property
    def size_bytes(self) -> int:
        """The bytes that it takes to store, if the tenant has none of it yet."""
        texts = (text for each in self.trials for text in (each.trial.trace, each.trial.arguments))
        targets = (each.scope.tvm_target for each in self.trials)
        return sum(len(text.encode()) for text in (*texts, *targets, *self.workloads.values()))


def read_database(database: TuningDatabase) -> ReadDatabase:
    """Read an untrusted database.

    Raises:
        InvalidDatabaseError: it is not one, or too large.
    """
    functions = [_workload(line, number) for number, line in _lines(database.workloads, "workloads")]
    trials: list[ImportedTrial] = []
    failed = 0
    for number, line in _lines(database.records, "records"):
        imported = _record(line, number, functions)
        if imported is None:
            failed += 1
        else:
            trials.append(imported)
    used = {each.trial.workload for each in trials}
    packed = {function.workload: function.packed for function in functions if function.workload in used}
    return ReadDatabase(tuple(trials), packed, failed)


def write_database(records: Sequence[ExportedRecord], limit: int = MAX_DATABASE_BYTES) -> TuningDatabase:
    """Write records in TVM's format: the first ones that fit in ``limit`` characters.

    Jobs wrote the records, so they are untrusted. Records that are not JSON, or whose modules cannot be
    unpacked, are left out.
    """
    numbers: dict[str, int] = {}
    workloads: list[str] = []
    lines: list[str] = []
    for record in records:
        is_new = record.workload not in numbers
        try:
            function = _function_line(record) if is_new else ""
            line = _record_line(numbers.get(record.workload, len(numbers)), record)
        except (ValueError, RecursionError, zlib.error):
            continue
        limit -= len(function) + len(line)
        if limit < 0:
            break
        if is_new:
            numbers[record.workload] = len(numbers)
            workloads.append(function)
        lines.append(line)
    return TuningDatabase(workloads="".join(workloads), records="".join(lines))


def _function_line(record: ExportedRecord) -> str:
    return json.dumps([record.workload, _unpacked(record.packed)]) + "\n"


def _record_line(number: int, record: ExportedRecord) -> str:
    """A record's line. Raises ``ValueError`` or ``RecursionError`` if its texts are not JSON."""
    texts = (record.trace, record.tvm_target, record.arguments)
    trace, target, arguments = (json.loads(text, parse_constant=_no_constant) for text in texts)
    own = [trace, [record.seconds], target, arguments]
    return json.dumps([number, own], separators=(",", ":")) + "\n"


class _Function(NamedTuple):
    workload: str
    packed: str


def _lines(text: str, file: str) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each line that is not empty."""
    count = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        count += 1
        if count > MAX_IMPORTED:
            raise InvalidDatabaseError(file, number, f"more than {MAX_IMPORTED} lines")
        if len(line) > _MAX_CHARACTERS[file]:
            raise InvalidDatabaseError(file, number, f"longer than {_MAX_CHARACTERS[file]} characters")
        try:
            value = json.loads(line, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise InvalidDatabaseError(file, number, "not JSON") from error
        if _is_deep(value):
            raise InvalidDatabaseError(file, number, f"nested more than {MAX_DEPTH} deep")
        yield number, value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a finite number")


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, list | dict)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def _workload(line: Any, number: int) -> _Function:
    if not (isinstance(line, list) and len(line) == 2 and all(isinstance(each, str) for each in line)):
        raise InvalidDatabaseError("workloads", number, "not a pair of a hash and a module")
    workload, encoded = line
    if not (workload.isascii() and workload.isdigit() and len(workload) <= 20):
        raise InvalidDatabaseError("workloads", number, "the hash is not a number")
    try:
        module = base64.b64decode(encoded, validate=True)[_LENGTH_BYTES:]
    except ValueError as error:
        raise InvalidDatabaseError("workloads", number, "the module is not base64") from error
    packed = base64.b64encode(zlib.compress(module)).decode()
    if len(module) > MAX_WORKLOAD_BYTES or len(packed) > MAX_PACKED_CHARACTERS:
        raise InvalidDatabaseError("workloads", number, "the module is too large")
    return _Function(workload, packed)


def _record(line: Any, number: int, functions: Sequence[_Function]) -> ImportedTrial | None:
    """A record; None if it has no times."""
    match line:
        case [int(index), [list(trace), list() | None as seconds, dict(target), list(arguments)]]:
            pass
        case _:
            reason = "not a function's number and a trace, times, a target and argument types"
            raise InvalidDatabaseError("records", number, reason)
    if isinstance(index, bool) or not 0 <= index < len(functions):
        raise InvalidDatabaseError("records", number, f"there is no function {index}")
    times = [each for each in seconds or () if isinstance(each, int | float) and 0 < each < 1e6]
    if not times:
        return None
    try:
        return ImportedTrial(
            scope=SearchScope(
                target=record_target(target),
                threads=target.get("num-cores", 1),
                compiler=ANY_COMPILER,
                tvm_target=_text(target),
            ),
            trial=MeasuredTrial(
                workload=functions[index].workload,
                function=IMPORTED,
                space=IMPORTED,
                trace=_text(trace),
                arguments=_text(arguments),
                seconds=min(map(float, times)),
            ),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidDatabaseError("records", number, f"{place}: {in_words(first)}") from error
    except ValueError as error:
        raise InvalidDatabaseError("records", number, str(error)) from error


def _text(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _unpacked(packed: str) -> str:
    """The module as TVM's databases have it: base64 of its length and its JSON.

    Raises:
        ValueError: it is not base64, is cut off, or unpacks to more than ``MAX_WORKLOAD_BYTES``.
        zlib.error: it is not deflated.
    """
    inflater = zlib.decompressobj()
    module = inflater.decompress(base64.b64decode(packed), MAX_WORKLOAD_BYTES)
    if not inflater.eof:
        raise ValueError("the module is too large")
    return base64.b64encode(len(module).to_bytes(_LENGTH_BYTES, "little") + module).decode()
