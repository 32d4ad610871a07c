"""A device of this machine that times the batches of a search with the device's own code."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

from bessemer.contract.device import DeviceResult
from bessemer.contract.report import SearchDevice
from worker.protocol.messages import CandidatesBuilt
from worker.protocol.order import CandidatesTimed
from worker.supervisor.search_step import as_timed

DEVICE = """
import json, os, sys
from pathlib import Path
from worker import device

class HeldLease(device.Lease):
    def renew(self): pass

folder, task, launcher = Path(sys.argv[1]), json.loads(sys.argv[2]), tuple(json.loads(sys.argv[3]))
limits = {"cores": 2, "memory_bytes": 1 << 32, "disk_bytes": 1 << 30, "uid": os.geteuid()}
settings = device.Settings(
    url="", key=None, name="board", platform="", launcher=launcher, emulated=bool(launcher),
    folder=folder.parent, once=True, **limits
)
lease = HeldLease(device.Service("http://127.0.0.1:9", None), "/", 60.0)
with folder.with_suffix(".tar").open("rb") as archive:
    device.unpack(archive, folder, 1 << 30, lease)
print(json.dumps(device.run_candidates(folder, task, settings, lease)))
"""
"""In a process of its own: a device ends all children of its process, such as the candidate server."""


@dataclass
class OwnDevice:
    """Times batches as a device does, until it is lost.

    Attributes:
        folder: where batches are unpacked.
        archive: the job's archive.
        launcher: the words before programs.
        lost_after: the number of batches after which it is lost.
        batches: what was asked for.
    """

    folder: Path
    archive: Path
    launcher: tuple[str, ...] = ()
    lost_after: int = 1000
    batches: list[CandidatesBuilt] = field(default_factory=list)

    def time(self, built: CandidatesBuilt) -> CandidatesTimed:
        if len(self.batches) >= self.lost_after:
            return CandidatesTimed(reason="3 attempts were lost with their devices (a, a, a)")
        self.batches.append(built)
        folder = self.folder / str(len(self.batches))
        folder.mkdir(parents=True)
        folder.with_suffix(".tar").write_bytes(unpacked(self.archive))
        task = {**built.model_dump(), "threads": 2, "memory_bytes": 1 << 32}
        command = [sys.executable, "-c", DEVICE, str(folder), json.dumps(task), json.dumps(self.launcher)]
        found = DeviceResult.model_validate_json(subprocess.check_output(command))
        board = SearchDevice(
            name="board", platform=built.platform, processor="", emulated=bool(self.launcher)
        )
        timed = tuple(as_timed(candidate, built.rounds) for candidate in found.candidates)
        return CandidatesTimed(devices=(board,), candidates=timed)


def unpacked(archive: Path) -> bytes:
    with archive.open("rb") as packed:
        return zstandard.ZstdDecompressor().stream_reader(packed).read()
