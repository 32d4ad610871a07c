import pytest

from app.console import words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (59.96, "1 min 0 s"), (119.7, "2 min 0 s"), (86400, "24 h 0 min")],
)
def test_a_time_is_rounded_before_it_is_divided(seconds: float, text: str) -> None:
    assert words.seconds(seconds) == text
