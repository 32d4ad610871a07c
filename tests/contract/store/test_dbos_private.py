"""DBOS has each private attribute that the queue uses: an upgrade that removes one fails by name."""

import ast
import inspect
from operator import attrgetter
from pathlib import Path

import pytest

from bessemer.store.queue import dbos_private
from bessemer.store.queue.dbos_engine import open_client, prepare_engine
from bessemer.store.settings import StoreSettings

METHODS = ("_begin", "_claim_gate", "dequeue_scopes", "get_queue_partitions", "_in_flight_status_prover")
COLUMNS = (
    "workflow_uuid",
    "status",
    "completed_at",
    "application_name",
    "queue_name",
    "queue_partition_key",
    "priority",
    "created_at",
)
OF_CLIENT = (
    "_sys_db.engine",
    *(f"_sys_db.{name}" for name in METHODS),
    *(f"_sys_db.tables.workflow_status.c.{name}" for name in COLUMNS),
    *(
        f"_sys_db.tables.{name}.c.workflow_uuid"
        for name in ("workflow_input", "workflow_output", "operation_outputs")
    ),
)


@pytest.mark.parametrize("name", OF_CLIENT)
def test_dbos_has_the_private_attribute(tmp_path: Path, name: str) -> None:
    settings = StoreSettings(data=tmp_path)
    prepare_engine(settings.engine)
    client = open_client(settings.engine)
    try:
        attrgetter(name)(client)
    finally:
        client.destroy()


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("_begin", 2),
        ("_claim_gate", 3),
        ("dequeue_scopes", 2),
        ("get_queue_partitions", 2),
        ("_in_flight_status_prover", 1),
    ],
)
def test_the_private_method_takes_as_many_parameters(method: str, parameters: int) -> None:
    signature = inspect.signature(getattr(dbos_private.SystemDatabase, method))
    assert len(signature.parameters) == parameters


def test_only_one_module_uses_the_private_interface() -> None:
    store = Path(inspect.getfile(dbos_private)).parents[1]
    users = {path.name for path in store.rglob("*.py") if private_uses(ast.parse(path.read_text()))}
    assert users == {"dbos_private.py"}


def private_uses(tree: ast.Module) -> list[ast.AST]:
    return [
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dbos._"))
        or (isinstance(node, ast.Attribute) and node.attr == "_sys_db")
    ]
