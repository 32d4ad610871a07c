"""Uvicorn's HTTP/1.1 protocol, with a problem as the response to malformed HTTP."""

import sys
import uuid

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.http.problems import PROBLEM_MEDIA_TYPE
from app.http.request_ids import HEADER
from bessemer.contract.problem import ErrorCode, make_problem


class Protocol(H11Protocol):
    """One connection."""

    def send_400_response(self, msg: str) -> None:
        """Send a problem, unless a response has begun, and close the connection.

        Args:
            msg: what is wrong; h11's current exception is appended.
        """
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._answer(f"{msg} {_told(sys.exception())}".strip())
        self.transport.close()

    def _answer(self, detail: str) -> None:
        problem = make_problem(ErrorCode.HTTP_INVALID, detail)
        body = problem.model_dump_json().encode()
        headers = [
            ("Content-Type", PROBLEM_MEDIA_TYPE),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
            (HEADER, uuid.uuid4().hex),
        ]
        events = (
            h11.Response(status_code=problem.status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event) or b"")


def _told(error: BaseException | None) -> str:
    return f"({error})" if isinstance(error, h11.RemoteProtocolError) else ""
