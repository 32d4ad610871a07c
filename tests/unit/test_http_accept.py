"""Whether a client prefers HTML."""

import pytest

from app.http.accept import prefers_html


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        (None, False),
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("text/html", True),
        ("text/*", True),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
        ("text/html, application/json", False),
        ("text/html;q=0.5, application/json;q=0.4", True),
        ("TEXT/HTML; Q=0.5, */*; q=0.1", True),
        ("text/html;q=0, */*", False),
        ("text/html;q=x", False),
        (",;,=", False),
    ],
)
def test_html_is_preferred_only_where_it_ranks_above_json(accept: str | None, html: bool) -> None:
    assert prefers_html(accept) is html
