"""The queue that a job waits in."""

import pytest

from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget
from bessemer.store.queue_port import QUEUES, QueueName, job_kind


@pytest.mark.parametrize(
    ("last", "queue"),
    [
        (None, QueueName.COMPILE),
        (Stage.CAPTURE, QueueName.QUICK),
        (Stage.TRANSLATE, QueueName.QUICK),
        (Stage.OPTIMIZE, QueueName.COMPILE),
        (Stage.PACKAGE, QueueName.COMPILE),
    ],
)
def test_a_preflight_does_not_wait_for_searches(last: Stage | None, queue: QueueName) -> None:
    request = CompilationRequest(model="0" * 64, target=PresetTarget(preset="host"), stop_after=last)
    assert QUEUES[job_kind(request)] is queue
