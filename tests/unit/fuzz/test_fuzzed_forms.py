"""A body gives the same form, or the same refusal, however it is split into pieces."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutations import in_pieces, mutated

from app.http.multipart import Form, boundary_of
from app.http.problems import RefusalError

pytestmark = pytest.mark.fuzz

FORM = (
    b'--xyz\r\nContent-Disposition: form-data; name="request"\r\n\r\n{"target": "host"}\r\n'
    b"--xyz\r\nContent-Type: application/octet-stream\r\n"
    b'content-disposition: form-data; name="model"; filename="a b.pt2"\r\n\r\n--xy\r\n-z\r\n--xyz--\r\n'
)
PIECES = st.sampled_from(
    [
        *(b"--xyz", b"--xyz\r\n", b"--xyz--", b"--xy", b"a\r\n--xyz\r\n", b"-", b"--"),
        *(b"\r\n", b"\r", b"\n", b"\r\n\r\n", b"\0", b"\xff", b'"', b":", b"x" * 300),
        *(b'Content-Disposition: form-data; name="model"', b"; filename*=utf-8''%ff", b"Content-Disposition"),
        b"content-disposition: form-data; name=model; name=request; filename=",
    ]
)
BODIES = mutated(st.just(FORM), b"\r\n") | st.lists(PIECES | st.binary(max_size=8), max_size=20).map(b"".join)
NOTHING: AsyncIterator[bytes] = cast(AsyncIterator[bytes], None)
Outcome = list[tuple[str, str | None, bytes]] | str


def outcome(body: bytes, cuts: list[int]) -> Outcome:
    """The fields of a form, or the code and the reason of its refusal."""

    async def pieces() -> AsyncIterator[bytes]:
        for piece in in_pieces(body, cuts):
            yield piece

    async def read() -> Outcome:
        try:
            parts = Form(b"xyz", pieces()).parts()
            return [
                (part.name, part.file, b"".join([chunk async for chunk in part.chunks]))
                async for part in parts
            ]
        except RefusalError as refusal:
            return f"{refusal.problem.code} {refusal.problem.errors}"

    return asyncio.run(read())


@given(BODIES, st.lists(st.integers(0, 400), max_size=4))
def test_a_body_has_one_outcome_in_any_pieces(body: bytes, cuts: list[int]) -> None:
    whole = outcome(body, [])
    assert outcome(body, cuts) == whole
    assert outcome(body, list(range(len(body)))) == whole


@given(
    mutated(st.just(b'Multipart/Form-Data; charset=utf-8; boundary="x y"')).map(
        lambda text: text.decode("latin-1")
    )
)
def test_a_content_type_has_a_boundary_that_a_form_can_have_or_is_refused(content_type: str) -> None:
    try:
        boundary = boundary_of(content_type)
        if boundary is not None:
            Form(boundary, NOTHING)
    except RefusalError:
        pass
