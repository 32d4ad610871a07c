"""The app dies at the worst moment: the job goes on, and its followers reconnect."""

import signal
import threading
from contextlib import ExitStack
from typing import Any

import pytest
from worker_samples import submit, upload, wait_until

from benchmarks.soak.audit import event_faults
from bessemer.client import Client, outages
from bessemer.contract.job import Event, EventType, JobState
from bessemer.contract.stage import Stage
from examples.local_service import local_app
from examples.ports import free_port
from tests.tenant_data import own

Rig = Any
WAIT_FOR_A_WORD = """
    import time
    while not os.path.exists("go"):
        time.sleep(0.02)
"""


def test_a_job_goes_on_while_the_app_is_dead_and_its_follower_misses_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "GIVE_UP_SECONDS", 600.0)
    address = {"BESSEMER_PORT": str(free_port())}
    task = submit(rig.store, "followed-job", upload(rig.store, rig.folder, WAIT_FOR_A_WORD))
    seen: list[Event] = []

    def follow(url: str) -> None:
        with Client(url) as client:
            for event in client.job(task.id).events():
                seen.append(event)  # as it comes

    def kill_the_app() -> None:
        wait_until(lambda: any(event.type is EventType.STAGE_STARTED for event in seen))
        app.process.send_signal(signal.SIGKILL)
        app.process.wait()
        (rig.place.jobs / task.id / "scratch" / "go").touch()
        wait_until(lambda: rig.row(task).stage not in (None, Stage.CAPTURE))

    with ExitStack() as stack:
        app = stack.enter_context(local_app(rig.folder / "data", address))
        follower = threading.Thread(target=follow, args=(app.url,))
        follower.start()
        row = rig.handle_while(task, kill_the_app)
        stack.enter_context(local_app(rig.folder / "data", address))
        follower.join()
    assert (row.state, row.attempt) == (JobState.SUCCEEDED, 1)
    assert event_faults(seen, row.state) == []
    assert tuple(seen) == own(rig.store).jobs.events_after(task.id, 0)
