"""Tasks that a worker reports as in flight."""

from bessemer.contract.stage import Stage
from bessemer.store.queue_port import Task, TaskKind
from worker.supervisor.in_flight import InFlight


def test_a_task_stays_in_flight_when_an_earlier_attempt_ends() -> None:
    in_flight, task = InFlight(), Task(TaskKind.COMPILE, "job-12345")
    earlier, later = in_flight.tracking(task), in_flight.tracking(task)
    earlier.__enter__()
    with later:
        earlier.__exit__(None, None, None)
        in_flight.begin(task.id, Stage.TUNE)
        assert [(running.id, running.stage) for running in in_flight.tasks()] == [(task.id, Stage.TUNE)]
    assert in_flight.tasks() == ()
