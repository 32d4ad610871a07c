"""The app shows a job's snapshots or says that they cannot be read, for all bytes in their files."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from json_values import edited
from mutations import mutated

from app.http.problems import RefusalError
from app.routes.ir import named_step, read_listing, read_text
from app.service import TenantService
from bessemer.contract.base import now
from bessemer.contract.ir import IR_INDEX, IR_TEXTS
from bessemer.contract.job import Artifact, Compilation, JobState
from bessemer.contract.request import CompilationRequest

pytestmark = pytest.mark.fuzz

REQUEST = CompilationRequest.model_validate({"model": "0" * 64, "target": "host", "inspect": {"ir": True}})
TEXTS = [b"class Module:\n    pass\n", b"class Module:\n    done\n", b"--- before\n+++ after\n"]
FRAMES = [zstandard.compress(text) for text in TEXTS]
PARTS = [
    {"offset": sum(map(len, FRAMES[:number])), "packed_bytes": len(frame), "text_bytes": len(text)}
    for number, (frame, text) in enumerate(zip(FRAMES, TEXTS, strict=True))
]
COUNTS = dict.fromkeys(
    ("functions", "kernels", "operators", "calls", "blocks", "loops", "constants", "constant_bytes"), 1
)
STEP = {"stage": "optimize", "phase": "fold", "name": "FoldConstant", "seconds": 0.1, "changed": True}
LISTING = {
    "items": [
        STEP | {"step": number, "counts": COUNTS, "text": PARTS[number], "diff": PARTS[2], "truncated": False}
        for number in range(2)
    ]
}
BOMB = zstandard.compress(bytes(1 << 20))
FILES = st.fixed_dictionaries(
    {
        IR_INDEX: mutated(edited(st.just(LISTING)).map(lambda listing: json.dumps(listing).encode())),
        IR_TEXTS: mutated(st.sampled_from([b"".join(FRAMES), BOMB])),
    }
)


class Blobs:
    """The files of one job, by name instead of digest."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = [files[IR_INDEX], files[IR_TEXTS]]

    def stream(self, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        yield self.files[int(digest)][start:end]


@given(FILES)
def test_snapshots_are_shown_or_cannot_be_read(files: dict[str, bytes]) -> None:
    service = cast(TenantService, SimpleNamespace(data=SimpleNamespace(artifacts=Blobs(files))))
    artifacts = tuple(
        Artifact(name=name, digest=f"{number:064}", size_bytes=len(content), media_type="text/plain")
        for number, (name, content) in enumerate(files.items())
    )
    job = Compilation(
        id="job-0001", state=JobState.FAILED, request=REQUEST, created_at=now(), artifacts=artifacts
    )
    try:
        listing = read_listing(service, job)
    except RefusalError:
        return
    listing.model_dump_json().encode()
    for entry in listing.items:
        assert_shown(service, job, listing, entry.name)
        assert_shown(service, job, listing, str(entry.step))


def assert_shown(service: TenantService, job: Compilation, listing: Any, step: str) -> None:
    try:
        entry = named_step(job, listing, step)
        assert len(read_text(service, job, entry.text, IR_TEXTS)) == entry.text.text_bytes
        assert len(read_text(service, job, entry.diff, IR_TEXTS)) == entry.diff.text_bytes
    except RefusalError as refusal:
        refusal.problem.model_dump_json().encode()
