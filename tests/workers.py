"""A worker for tests of what looks at workers."""

from bessemer.contract.base import now
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.service import Worker


def some_worker(**fields: object) -> Worker:
    """A worker that was seen just now; ``fields`` replace its own."""
    own = {"id": "w1", "host": "h", "processor": "p", "mcpu": "znver4", "cores": 2, "versions": {}}
    sandbox = SandboxStatus(mode=SandboxMode.OFF, layers=())
    return Worker.model_validate({**own, "sandbox": sandbox, "seen_at": now(), **fields})
