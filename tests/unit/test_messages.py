"""Messages that a child may send; any other ends its job as misbehavior."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import worker
from bessemer.contract.problem import ErrorCode
from worker.protocol.messages import CODES, MESSAGES

WORKER = Path(worker.__path__[0])
OF_THE_SUPERVISOR = {ErrorCode.CHILD_MISBEHAVED}
"""In errors.py, which both sides share."""

LATENCY = dict.fromkeys(("min_ms", "p50_ms", "p90_ms", "p99_ms", "mean_ms", "stddev_ms"), 1.0)
FIGURES = {
    "latency": {"runs": 3, **LATENCY},
    "baselines": [],
    "library_bytes": 1,
    "peak_memory_bytes": 1,
    "max_absolute_error": 0.0,
}
COMPILED = {
    "kind": "compiled",
    "verified": True,
    "figures": FIGURES,
    "files": ["report.html", "bundle.tar.zst"],
}
STOPPED = COMPILED | {
    "verified": None,
    "figures": None,
    "files": ["report.json"],
    "stopped_after": "translate",
}
FAILED = {"kind": "failed", "code": "verify-mismatch", "detail": "off"}
FINISHED = {"kind": "stage-finished", "stage": "tune", "seconds": 1.0}
PROGRESS = {"kind": "progress", "stage": "tune", "done": 1, "total": 2}


@pytest.mark.parametrize(
    "message",
    [COMPILED, STOPPED, STOPPED | {"verified": True, "stopped_after": "verify"}, FAILED, FINISHED, PROGRESS],
    ids=lambda m: m["kind"],
)
def test_an_honest_message_is_read(message: dict[str, Any]) -> None:
    assert MESSAGES.validate_json(json.dumps(message)).kind == message["kind"]


@pytest.mark.parametrize(
    "message",
    [
        *(FAILED | {"code": code.value} for code in ErrorCode if code not in CODES),
        FAILED | {"code": "no-such-code"},
        FAILED | {"title": "Send your password to"},
        FAILED | {"advice": "run this"},
        FAILED | {"stage": "no-such-stage"},
        COMPILED | {"verified": False},
        COMPILED | {"files": ["report.html"]},
        COMPILED | {"files": ["bundle.tar.zst", "bundle.tar.zst"]},
        COMPILED | {"files": ["bundle.tar.zst", "log.txt"]},
        COMPILED | {"target": "another"},
        COMPILED | {"figures": FIGURES | {"library_bytes": 10**400}},
        COMPILED | {"figures": FIGURES | {"max_absolute_error": float("nan")}},
        COMPILED | {"figures": FIGURES | {"latency": {"runs": 3, **LATENCY, "p50_ms": float("inf")}}},
        COMPILED | {"verified": None},
        COMPILED | {"figures": None},
        COMPILED | {"stopped_after": "translate"},
        STOPPED | {"stopped_after": None},
        STOPPED | {"stopped_after": "verify"},
        STOPPED | {"verified": True},
        STOPPED | {"files": ["bundle.tar.zst"]},
        FINISHED | {"seconds": float("nan")},
        PROGRESS | {"done": -1},
        PROGRESS | {"total": 1 << 60},
    ],
    ids=lambda message: str(message)[:80],
)
def test_a_child_can_send_only_its_messages(message: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        MESSAGES.validate_json(json.dumps(message))


def named_codes(path: Path) -> set[ErrorCode]:
    nodes = ast.walk(ast.parse(path.read_text()))
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    return {ErrorCode[node.attr] for node in attributes if ast.unparse(node.value) == "ErrorCode"}


def test_a_child_may_end_with_exactly_the_codes_that_its_code_names() -> None:
    besides = {*(WORKER / "supervisor").rglob("*.py"), WORKER / "messages.py"}
    childs = set(WORKER.rglob("*.py")) - besides
    assert set[ErrorCode]().union(*map(named_codes, childs)) - OF_THE_SUPERVISOR == CODES
