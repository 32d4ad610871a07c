"""The queue: every task is handled, once where nothing goes wrong, again where a worker is lost."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from bessemer.store.database import SQLITE, Database
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.queue.dbos_consumer import DbosConsumer, open_consumer
from bessemer.store.queue.dbos_engine import SCHEMA
from bessemer.store.queue.dbos_queue import open_queue
from bessemer.store.queue_port import CanTake, MostRunning, Queue, Task, TaskKind
from bessemer.store.settings import StoreSettings
from tests.queue_processes import next_line, worker_process

PATIENCE_SECONDS = 60


def compile_task(task_id: str) -> Task:
    return Task(TaskKind.COMPILE, task_id)


ENGINE_TABLES = ("workflow_status", "workflow_input", "workflow_output", "operation_outputs")


def keys(settings: StoreSettings, table: str) -> list[str]:
    """The keys of the tasks of which an engine's table has a row."""
    schema = "" if settings.engine.get_backend_name() == SQLITE else f"{SCHEMA}."
    with closing(Database(settings.engine)) as database, database.read() as connection:
        return list(connection.execute(sa.text(f"SELECT workflow_uuid FROM {schema}{table}")).scalars())


class Handler:
    """Records the tasks it was given; waits in each until ``release`` is set, where ``held``."""

    def __init__(self, held: bool = False) -> None:
        self.begun: list[Task] = []
        self.ended: list[Task] = []
        self.release = asyncio.Event()
        if not held:
            self.release.set()

    async def __call__(self, task: Task) -> None:
        self.begun.append(task)
        try:
            await self.release.wait()
        finally:
            self.ended.append(task)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def consuming(
    settings: StoreSettings,
    handle: Callable[[Task], object],
    worker_id: str = "worker",
    can_take: CanTake = lambda _queue, _tenant, _needs: True,
    most_running: MostRunning = lambda _tenant: None,
) -> AsyncIterator[None]:
    consumer = DbosConsumer(settings.engine, worker_id, can_take, most_running)
    running = asyncio.create_task(consumer.run(handle))
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def enqueue(queue: Queue, *tasks: Task) -> None:
    for task in tasks:
        await asyncio.to_thread(queue.enqueue, task)


async def test_a_task_is_handled(settings: StoreSettings, queue: Queue) -> None:
    handler = Handler()
    tasks = [Task(kind, "0123456789abcdef" * 4) for kind in TaskKind]
    async with consuming(settings, handler):
        await enqueue(queue, *tasks)
        await until(lambda: len(handler.ended) == len(tasks))
    assert set(handler.begun) == set(tasks)


async def test_a_task_that_was_asked_for_before_is_handled_once(
    settings: StoreSettings, queue: Queue
) -> None:
    handler = Handler()
    first, second, third = (compile_task(f"task-{number}") for number in range(3))
    await enqueue(queue, first, first)
    async with consuming(settings, handler):
        await enqueue(queue, first, second)
        await until(lambda: second in handler.ended)
        await enqueue(queue, first, third)
        await until(lambda: third in handler.ended)
    assert handler.begun == [first, second, third]


async def test_higher_priorities_are_taken_first_and_equals_in_their_order(
    settings: StoreSettings, queue: Queue
) -> None:
    handler = Handler()
    priorities = [0, -100, 7, 0, 100, 7, -100]
    tasks = [Task(TaskKind.COMPILE, f"task-{number}", each) for number, each in enumerate(priorities)]
    await enqueue(queue, *tasks)
    async with consuming(settings, handler):
        await until(lambda: len(handler.ended) == len(tasks))
    assert handler.begun == [tasks[number] for number in (4, 2, 5, 0, 3, 1, 6)]


async def test_a_task_is_taken_only_by_a_worker_that_can_do_it(settings: StoreSettings, queue: Queue) -> None:
    narrow, wide = Handler(), Handler()
    plain = compile_task("plain")
    routed = [Task(TaskKind.COMPILE, name, 9, f"x86_64 {name}") for name in ("known", "foreign", "other")]
    await enqueue(queue, *routed, plain)
    able = ("compile", "default", "x86_64 known")
    async with consuming(settings, narrow, "worker-1", lambda *asked: asked == able):
        await until(lambda: plain in narrow.ended)
        await asyncio.sleep(0.3)
    assert narrow.begun == [routed[0], plain]
    async with consuming(settings, wide, "worker-2"):
        await until(lambda: len(wide.ended) == 2)
    assert wide.begun == routed[1:]


async def test_what_is_handed_over_keeps_its_needs(settings: StoreSettings, queue: Queue) -> None:
    held, other, able = Handler(held=True), Handler(), Handler()
    task, plain = Task(TaskKind.COMPILE, "task", needs="aarch64 generic"), compile_task("plain")
    await enqueue(queue, task)
    async with consuming(settings, held, "worker-1"):
        await until(lambda: held.begun == [task])
    await enqueue(queue, plain)
    async with consuming(settings, other, "worker-2", lambda *_: False):
        await until(lambda: plain in other.ended)
        await asyncio.sleep(0.3)
    async with consuming(settings, able, "worker-3"):
        await until(lambda: able.ended == [task])
    assert other.begun == [plain]


async def test_a_worker_takes_one_task_of_each_queue_at_a_time(settings: StoreSettings, queue: Queue) -> None:
    handler = Handler(held=True)
    quick = Task(TaskKind.INSPECT, "quick")
    await enqueue(queue, compile_task("long-1"), compile_task("long-2"), quick)
    async with consuming(settings, handler):
        await until(lambda: len(handler.begun) == 2)
        await asyncio.sleep(0.5)
        assert set(handler.begun) == {compile_task("long-1"), quick}
        handler.release.set()
        await until(lambda: len(handler.ended) == 3)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What is logged, the engine's own lines included."""
    engine = logging.getLogger("dbos")
    engine.addHandler(caplog.handler)
    yield caplog
    engine.removeHandler(caplog.handler)


async def test_a_task_is_begun_again_where_the_store_was_away_and_one_line_says_so(
    settings: StoreSettings, queue: Queue, told: pytest.LogCaptureFixture
) -> None:
    begun: list[Task] = []

    async def fail_once(task: Task) -> None:
        begun.append(task)
        if len(begun) == 1:
            raise StoreUnavailableError("away")

    await enqueue(queue, compile_task("task"))
    async with consuming(settings, fail_once):
        await until(lambda: len(begun) == 2)
    assert told.messages == ["compile:task is retried later: away"]


async def test_a_handler_that_fails_is_not_called_again_and_harms_no_other_task(
    settings: StoreSettings, queue: Queue
) -> None:
    begun: list[Task] = []

    async def fail(task: Task) -> None:
        begun.append(task)
        raise RuntimeError("a defect")

    tasks = [compile_task("task-1"), compile_task("task-2")]
    await enqueue(queue, *tasks)
    async with consuming(settings, fail):
        await until(lambda: len(begun) == 2)
    assert begun == tasks


async def test_a_task_that_the_queue_gave_up_is_handled_again_once_it_is_revived(
    settings: StoreSettings, queue: Queue
) -> None:
    begun: list[Task] = []
    task, longer = compile_task("task-1"), compile_task("task-10")

    async def fail_twice(task: Task) -> None:
        begun.append(task)
        if len(begun) <= 2:
            raise RuntimeError("given up")

    async def revived() -> bool:
        return bool(await asyncio.to_thread(queue.requeue, [task]))

    await enqueue(queue, task)
    assert not await revived()
    async with consuming(settings, fail_twice):
        for count in (1, 2):
            await until(lambda count=count: len(begun) == count)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await revived():
                    pass
        await until(lambda: len(begun) == 3)
        await enqueue(queue, task, longer)
        await until(lambda: longer in begun)
    assert begun == [task] * 3 + [longer]


def test_only_what_neither_waits_nor_is_in_hand_is_revived(settings: StoreSettings, queue: Queue) -> None:
    stuck, waiting, unknown = (compile_task(name) for name in ("stuck", "waiting", "unknown"))
    assert queue.in_progress() == frozenset()
    queue.enqueue(stuck)
    with worker_process(settings, "worker") as process:
        assert next_line(process) == stuck.key
        queue.enqueue(waiting)
        assert queue.in_progress() == {stuck.key, waiting.key}
        assert queue.requeue([stuck, waiting, unknown]) == (unknown,)
        assert queue.requeue([stuck, waiting, unknown]) == ()
    assert queue.requeue(()) == ()


def test_a_task_that_is_forgotten_while_it_is_revived_is_enqueued_anew(
    settings: StoreSettings, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = compile_task("forgotten")
    monkeypatch.setattr(queue, "_statuses", lambda _: {task.key: "SUCCESS"})  # as it was a moment before
    assert queue.requeue([task]) == (task,)
    assert keys(settings, "workflow_status") == [task.key]


async def test_of_what_ended_nothing_is_kept_and_what_waits_or_is_in_hand_stays(
    settings: StoreSettings, queue: Queue
) -> None:
    handler, held = Handler(), Handler(held=True)
    ended, in_hand, waiting = (compile_task(name) for name in ("ended", "in-hand", "waiting"))

    async def handle(task: Task) -> None:
        await (handler if task == ended else held)(task)

    async with consuming(settings, handle):
        await enqueue(queue, ended, in_hand, waiting)
        await until(lambda: held.begun == [in_hand])
        assert await asyncio.to_thread(queue.delete_ended, 3600) == 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await asyncio.to_thread(queue.delete_ended, 0):
                pass
        known = {key for table in ENGINE_TABLES for key in await asyncio.to_thread(keys, settings, table)}
        assert known == {in_hand.key, waiting.key}
        held.release.set()
        await until(lambda: held.ended == [in_hand, waiting])
        assert await asyncio.to_thread(queue.requeue, [ended]) == (ended,)
        await until(lambda: handler.ended == [ended, ended])


async def test_a_worker_that_stops_ends_its_handling_and_another_one_takes_the_task(
    settings: StoreSettings, queue: Queue
) -> None:
    stopped, successor = Handler(held=True), Handler()
    task = compile_task("task")
    await enqueue(queue, task)
    async with consuming(settings, stopped, "worker-1"):
        await until(lambda: stopped.begun == [task])
    assert stopped.ended == [task]
    async with consuming(settings, successor, "worker-2"):
        await until(lambda: successor.ended == [task])


def test_a_killed_workers_task_is_handled_again_when_it_returns(
    settings: StoreSettings, queue: Queue
) -> None:
    queue.enqueue(compile_task("stuck"))
    for _ in range(2):
        with worker_process(settings, "worker") as process:
            assert next_line(process) == "compile:stuck"


def test_a_killed_workers_task_is_left_alone_until_it_is_handed_over(
    settings: StoreSettings, queue: Queue
) -> None:
    queue.enqueue(compile_task("stuck"))
    with worker_process(settings, "worker-1") as process:
        assert next_line(process) == "compile:stuck"
    assert queue.workers_with_tasks() == {"worker-1"}
    with worker_process(settings, "worker-2") as process:
        queue.enqueue(compile_task("other"))
        assert next_line(process) == "compile:other"
        assert queue.hand_back("worker-1") == (compile_task("stuck"),)
        assert next_line(process) == "compile:stuck"


def test_a_worker_process_connects_to_nothing_else_and_loads_no_compiler(
    settings: StoreSettings, queue: Queue
) -> None:
    queue.enqueue(compile_task("task"))
    with worker_process(settings, "worker") as process:
        assert next_line(process) == "compile:task"
        process.terminate()
        assert next_line(process) == "compilers: []"
        assert process.wait(PATIENCE_SECONDS) == 0


async def test_an_engine_that_cannot_be_reached_is_unavailable(tmp_path: Path) -> None:
    away = StoreSettings(data=tmp_path, engine_url="postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(StoreUnavailableError):
        open_queue(away)
    with pytest.raises(StoreUnavailableError):
        await open_consumer(away, "worker").run(Handler())
