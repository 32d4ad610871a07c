from worker.compiler.codegen.memory import memory_of_run
from worker.compiler.codegen.standalone.plan import CallPlan, Memory, PlannedCall, PlannedTensor


def arena(byte: int, *shape: int) -> PlannedTensor:
    return PlannedTensor(Memory.ARENA, byte, shape, "float32")


def plan(tensors: tuple[PlannedTensor, ...], calls: dict[str, tuple[int, ...]], *outputs: int) -> CallPlan:
    return CallPlan(
        tensors=tensors,
        calls=tuple(PlannedCall(name, arguments) for name, arguments in calls.items()),
        inputs=(),
        outputs=outputs,
        direct=frozenset(),
        arena_bytes=4096,
    )


def live(found: CallPlan) -> list[tuple[str, int]]:
    return [(each.function, each.live_bytes) for each in memory_of_run(found).calls]


def test_a_tensor_counts_from_its_first_call_to_its_last() -> None:
    outside = PlannedTensor(Memory.INPUT, 0, (100,), "float32")
    found = plan(
        (outside, arena(0, 10), arena(64, 5), arena(128, 1)), {"a": (0, 1), "b": (1, 2), "c": (2, 3)}, 3
    )

    assert live(found) == [("a", 40), ("b", 60), ("c", 24)]


def test_outputs_count_to_the_end() -> None:
    found = plan((arena(0, 10), arena(64, 1), arena(128, 1)), {"a": (0,), "b": (1,), "c": (2,)}, 0, 2)

    assert live(found) == [("a", 40), ("b", 44), ("c", 44)]


def test_a_view_counts_once_and_reused_memory_anew() -> None:
    found = plan(
        (arena(0, 2, 5), arena(0, 10), arena(0, 20)), {"a": (0,), "b": (1,), "c": (1,), "d": (2,)}, 2
    )

    assert live(found) == [("a", 40), ("b", 40), ("c", 40), ("d", 80)]


def test_a_view_read_while_the_tensor_lives_counts_once() -> None:
    found = plan((arena(0, 2, 5), arena(0, 10)), {"a": (0,), "b": (0, 1), "c": (1,)}, 1)

    assert live(found) == [("a", 40), ("b", 40), ("c", 40)]


def test_a_model_without_calls_needs_no_memory() -> None:
    found = memory_of_run(plan((), {}))

    assert found.calls == () and found.arena_bytes == 4096
