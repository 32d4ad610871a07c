"""Has devices time candidates: the job asks its supervisor, which finds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from worker.protocol.answers import read_answer
from worker.protocol.messages import CandidatesBuilt
from worker.protocol.order import CandidatesTimed


class Devices(Protocol):
    """Times candidates on devices."""

    def time(self, built: CandidatesBuilt) -> CandidatesTimed:
        """Wait until devices have timed the candidates in the job's archive, or until none is left."""
        ...


class AskedDevices:
    """Devices that another process finds.

    Args:
        request: asks for the candidates to be timed.
        answers: a descriptor on which one line arrives for each request.
    """

    def __init__(self, request: Callable[[CandidatesBuilt], None], answers: int) -> None:
        self._request = request
        self._answers = answers

    def time(self, built: CandidatesBuilt) -> CandidatesTimed:
        """See ``Devices.time``."""
        self._request(built)
        return CandidatesTimed.model_validate_json(read_answer(self._answers))
