"""The layer ``process-group``: one group for everything that a job forks, and it dies with the zygote."""

import os
import signal

from bessemer.contract.sandbox import Layer, LayerStatus
from worker.sandbox.kernel import Prctl, parent_death_signal, prctl


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends.

    A change of user clears this, and descendants do not inherit it.

    Raises:
        ProcessLookupError: the parent has ended already.
    """
    prctl(Prctl.SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise ProcessLookupError("the zygote ended before its child was confined")


def probe_process_group() -> LayerStatus:
    """Whether this process leads a session of its own and dies with its parent."""
    pid = os.getpid()
    alone = os.getsid(0) == pid and os.getpgid(0) == pid
    mortal = parent_death_signal() == signal.SIGKILL
    note = "" if alone and mortal else f"own session: {alone}; dies with the zygote: {mortal}"
    return LayerStatus(layer=Layer.PROCESS_GROUP, holds=alone and mortal, required=True, note=note)
