"""What jobs print, before and after their end."""

import httpx
from app_samples import PlayedWorker

from app.service import Service
from bessemer.contract.job import LOG


async def test_a_log_is_there_from_the_start_to_the_end(
    api: httpx.AsyncClient, front: Service, played: PlayedWorker, job: str
) -> None:
    path = f"/v1/compilations/{job}/logs"
    assert ((await api.get(path)).status_code, (await api.get(path)).text) == (200, "")
    attempt = played.start(job)
    front.store.logs.write(job, attempt, "<script>half</script>\n")
    running = await api.get(path)
    assert (running.text, running.headers["Content-Type"]) == (
        "<script>half</script>\n",
        "text/plain; charset=utf-8",
    )
    played.fail_with(job, attempt, {LOG: b"half\nwhole\n"})
    ended = await api.get(path)
    assert ended.text == "half\nwhole\n"
    assert "ETag" in ended.headers


async def test_a_cancelled_compilation_keeps_the_end_of_its_log(
    api: httpx.AsyncClient, front: Service, played: PlayedWorker, job: str
) -> None:
    attempt = played.start(job)
    front.store.logs.write(job, attempt, "so far")
    front.store.jobs.cancel_finished(job, attempt)
    assert (await api.get(f"/v1/compilations/{job}/logs")).text == "so far"
