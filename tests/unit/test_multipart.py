"""Forms are read to their end in pieces of any size."""

from collections.abc import AsyncIterator

import pytest

from app.http.multipart import MISFORMED_PART, WITHOUT_BOUNDARY, Form, boundary_of
from app.http.problems import RefusalError

BOUNDARY = b"xyz"
BODY = (
    b'--xyz\r\nContent-Disposition: form-data; name="request"\r\n\r\n{"target": "host"}\r\n'
    b"--xyz\r\nContent-Type: application/octet-stream\r\n"
    b'content-disposition: form-data; name="model"; filename="a b.pt2"\r\n\r\n--xy\r\n-z\r\n--xyz--\r\n'
)
READ = [("request", b'{"target": "host"}'), ("model", b"--xy\r\n-z")]


async def pieces(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def read(body: bytes, size: int = 1 << 16) -> list[tuple[str, bytes]]:
    form = Form(BOUNDARY, pieces(body, size))
    return [(part.name, b"".join([chunk async for chunk in part.chunks])) async for part in form.parts()]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 1000])
async def test_a_form_is_the_same_in_pieces_of_any_size(size: int) -> None:
    assert await read(BODY, size) == READ


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_newlines_before_a_form_are_skipped_and_nothing_else(size: int) -> None:
    assert await read(b"\r\n\n" + BODY, size) == READ
    with pytest.raises(RefusalError) as caught:
        await read(b"\r\npreamble" + BODY, size)
    assert caught.value.problem.code == "request-invalid"


async def test_unread_bytes_of_a_part_are_skipped() -> None:
    assert [part.name async for part in Form(BOUNDARY, pieces(BODY, 5)).parts()] == ["request", "model"]


@pytest.mark.parametrize("end", range(0, len(BODY) - 3, 9))
async def test_a_form_that_is_cut_off_is_incomplete_wherever_it_ends(end: int) -> None:
    with pytest.raises(RefusalError) as caught:
        await read(BODY[:end])
    assert caught.value.problem.code == "upload-incomplete"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"not a form at all", WITHOUT_BOUNDARY),
        (b"--other\r\n\r\n", WITHOUT_BOUNDARY),
        (b"--xyz\r\nno header\r\n\r\n", MISFORMED_PART),
    ],
)
async def test_a_malformed_form_is_refused_with_our_own_message(body: bytes, message: str) -> None:
    with pytest.raises(RefusalError) as caught:
        await read(body)
    problem = caught.value.problem
    assert (problem.code, problem.errors[0].message) == ("request-invalid", f"malformed form: {message}")


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/form-data; boundary=xyz", b"xyz"),
        ('Multipart/Form-Data; charset=utf-8; boundary="x y"', b"x y"),
        ("application/json", None),
        ("", None),
    ],
)
def test_a_boundary_is_found_only_in_multipart_forms(content_type: str, boundary: bytes | None) -> None:
    assert boundary_of(content_type) == boundary


def test_a_form_without_a_boundary_is_refused() -> None:
    with pytest.raises(RefusalError):
        boundary_of("multipart/form-data")
