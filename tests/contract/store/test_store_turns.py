"""Workers take turns among the tenants, on both databases."""

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from dbos import DBOSClient
from postgresql_databases import Databases
from test_store_queue import Handler, consuming, enqueue, until

from bessemer.contract.queue import QueueName
from bessemer.contract.tenant_turns import Standing, Turns
from bessemer.store.queue import dbos_private
from bessemer.store.queue.dbos_consumer import open_consumer
from bessemer.store.queue.dbos_engine import VERSION, open_client
from bessemer.store.queue.dbos_private import claiming_in_turn
from bessemer.store.queue.dbos_queue import open_queue
from bessemer.store.queue_port import Queue, Task, TaskKind, split_partition
from bessemer.store.settings import StoreSettings

WORKERS = 4


def tasks(tenant: str, count: int, priority: int = 0, needs: str | None = None) -> list[Task]:
    return [Task(TaskKind.COMPILE, f"{tenant}-{number}", priority, needs, tenant) for number in range(count)]


def owners(handler: Handler) -> list[str]:
    """The tenants of the tasks that were begun, in order."""
    return [task.id.split("-")[0] for task in handler.begun]


@pytest.fixture
def clients(settings: StoreSettings, queue: Queue) -> Iterator[list[DBOSClient]]:
    """One for each of several workers."""
    with ExitStack() as stack:
        opened = [open_client(settings.engine) for _ in range(WORKERS)]
        for client in opened:
            stack.callback(client.destroy)
        yield opened


async def test_a_thousand_queued_tasks_delay_another_tenants_first_by_one_turn(
    settings: StoreSettings, queue: Queue
) -> None:
    handler = Handler(held=True)
    await enqueue(queue, *tasks("heavy", 1000, priority=100))
    async with consuming(settings, handler):
        await until(lambda: len(handler.begun) == 1)
        await enqueue(queue, *tasks("light", 1))
        handler.release.set()
        await until(lambda: len(handler.begun) >= 4)
    assert owners(handler)[:4] == ["heavy", "light", "heavy", "heavy"]


async def test_tenants_take_turns_whatever_their_tasks_priorities_and_needs(
    settings: StoreSettings, queue: Queue
) -> None:
    handler = Handler()
    first, *rest = tasks("b", 3)
    urgent = Task(TaskKind.COMPILE, "b-urgent", 7, "x86_64 znver4", "b")
    await enqueue(queue, *tasks("a", 4, 100), first, *rest, urgent, *tasks("c", 1, -100, "x86_64 other"))
    async with consuming(settings, handler):
        await until(lambda: len(handler.ended) == 9)
    assert [task.id for task in handler.begun] == [
        *("a-0", "b-urgent", "c-0"),
        *("a-1", "b-0", "a-2", "b-1", "a-3", "b-2"),
    ]


def test_tasks_are_taken_in_the_order_in_which_they_were_submitted(
    queue: Queue, clients: list[DBOSClient]
) -> None:
    submitted = [
        Task(TaskKind.COMPILE, f"{6 - number}-late", needs="x86_64 znver4" if number % 2 else None)
        for number in range(6)
    ]
    for task in submitted:
        queue.enqueue(task)
        time.sleep(0.002)  # PostgreSQL counts milliseconds
    with claiming_in_turn(lambda *_needs: True, lambda _tenant: None):
        claimed = [key for number in range(6) for key in claim(clients[0], f"worker-{number}")]
    assert claimed == [task.key for task in submitted]


async def test_a_tenant_at_its_limit_waits_and_delays_no_other(settings: StoreSettings, queue: Queue) -> None:
    handler = Handler()
    most = {"suspended": 0}
    await enqueue(queue, *tasks("suspended", 2), *tasks("other", 2))
    async with consuming(settings, handler, most_running=most.get):
        await until(lambda: len(handler.ended) == 2)
        assert owners(handler) == ["other", "other"]
        most.clear()
        await until(lambda: len(handler.ended) == 4)
    assert owners(handler)[2:] == ["suspended", "suspended"]


@pytest.mark.parametrize(("running_jobs", "begun"), [(1, 0), (2, 1)])
async def test_a_consumer_keeps_to_the_quota_of_its_settings(
    settings: StoreSettings, queue: Queue, clients: list[DBOSClient], running_jobs: int, begun: int
) -> None:
    handler = Handler()
    await enqueue(queue, *tasks("a", 2))
    assert claimed_by_tenant(clients[:1], rounds=1) == {"a": 1}
    limited = settings.model_copy(update={"quota_running_jobs": running_jobs})
    running = asyncio.create_task(open_consumer(limited, "worker").run(handler))
    await asyncio.sleep(0.5)
    await until(lambda: len(handler.begun) == begun)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_claims_at_the_same_moment_leave_the_tenants_even(queue: Queue, clients: list[DBOSClient]) -> None:
    for task in (*tasks("a", 40), *(task for name in "bcdef" for task in tasks(name, 3))):
        queue.enqueue(task)
    assert claimed_by_tenant(clients, rounds=3) == dict.fromkeys("abcdef", 2)


def test_claims_at_the_same_moment_keep_within_the_limit(queue: Queue, clients: list[DBOSClient]) -> None:
    for task in (*tasks("a", 9), *tasks("b", 9)):
        queue.enqueue(task)
    assert claimed_by_tenant(clients, rounds=3, most={"a": 2}) == {"a": 2, "b": 9}


def test_a_suspended_claim_does_not_block_the_others(
    databases: Databases, queue_template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL; a process that is suspended while it writes to SQLite blocks every writer anyway."""
    monkeypatch.setattr(dbos_private, "END_IF_IDLE", dbos_private.END_IF_IDLE.replace("10s", "1s"))
    url = databases.new(f"TEMPLATE {queue_template}")
    settings = StoreSettings(data=tmp_path, database_url=url)
    asked, resume = threading.Event(), threading.Event()
    calls = itertools.count(1)

    def most_running(_tenant: str) -> None:
        if next(calls) == 2:  # the first claim has its lock
            asked.set()
            resume.wait(60)

    with ExitStack() as stack:
        queue = stack.enter_context(closing(open_queue(settings)))
        for task in tasks("a", 2):
            queue.enqueue(task)
        suspended, other = (open_client(settings.engine) for _ in range(2))
        stack.callback(suspended.destroy)
        stack.callback(other.destroy)
        stack.enter_context(claiming_in_turn(lambda _needs: True, most_running))
        threads = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(resume.set)
        first = threads.submit(claim, suspended, "worker-1")
        assert asked.wait(60)
        assert len(claim(other, "worker-2")) == 1
        resume.set()
        with pytest.raises(sa.exc.DBAPIError):
            first.result()
        assert len(claim(other, "worker-2")) == 1


def claim(client: DBOSClient, worker_id: str) -> list[str]:
    """Claim as an idle worker does; returns the key of the task, if any."""
    queue = client.retrieve_queue(QueueName.COMPILE)
    assert queue is not None
    keys: list[str] = client._sys_db.start_queued_workflows(queue, worker_id, VERSION, None)[0]
    return keys


def claimed_by_tenant(
    clients: list[DBOSClient], rounds: int, most: dict[str, int] | None = None
) -> dict[str, int]:
    """How many tasks each tenant has in flight after each worker has claimed ``rounds`` times at once."""

    def claim_often(number: int) -> list[str]:
        return [key for _ in range(rounds) for key in claim(clients[number], f"worker-{number}")]

    with (
        claiming_in_turn(lambda _needs: True, (most or {}).get),
        ThreadPoolExecutor(len(clients)) as threads,
    ):
        keys = [key for found in threads.map(claim_often, range(len(clients))) for key in found]
    return dict(Counter(Task.of_key(key).id.split("-")[0] for key in keys))


async def test_the_turns_of_a_queue_can_be_read(settings: StoreSettings, queue: Queue) -> None:
    handler = Handler(held=True)
    await enqueue(queue, *tasks("a", 2), *tasks("b", 1))
    async with consuming(settings, handler):
        await until(lambda: len(handler.begun) == 1)
        turns = await asyncio.to_thread(queue.turns, QueueName.COMPILE)
        assert (dict(turns.running), turns.standing("b")) == ({"a": 1}, Standing(0, 0, "b"))
        assert turns.standing("a") > turns.standing("b")
        handler.release.set()
        await until(lambda: len(handler.ended) == 3)
    assert (await asyncio.to_thread(queue.turns, QueueName.QUICK)) == Turns({}, {})


@pytest.mark.parametrize("needs", [None, "x86_64 znver4 +avx512vnni"])
def test_a_tasks_partition_names_its_tenant_and_needs(needs: str | None) -> None:
    task = Task(TaskKind.COMPILE, "task", needs=needs, tenant="vision")
    assert split_partition(task.partition) == ("vision", needs)
