"""Models that a Python function makes."""

from pathlib import Path

import pytest

from bessemer.cli.entries import is_entry, make_model
from bessemer.errors import InvalidArgumentError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "beside_the_entry.py").write_text("CONTENT = b'a model'\n")
    path = tmp_path / "entry_of_a_test.py"
    path.write_text(
        "from beside_the_entry import CONTENT\n"
        "def content(): return CONTENT\n"
        f"def path(): return {str(tmp_path / 'model.pt2')!r}\n"
        "def nothing(): return None\n"
        "constant = 3\n"
    )
    return path


@pytest.mark.parametrize(
    ("model", "wanted"),
    [("net.py:export", True), ("net.pt2", False), ("net.py", False), ("a:b.pt2", False), ("net.py:", False)],
)
def test_a_function_is_told_from_a_file(model: str, wanted: bool) -> None:
    assert is_entry(model) is wanted


def test_a_function_may_return_bytes_or_a_path(file: Path, tmp_path: Path) -> None:
    assert make_model(f"{file}:content", tmp_path).path.read_bytes() == b"a model"
    assert make_model(f"{file}:path", tmp_path).path == tmp_path / "model.pt2"


@pytest.mark.parametrize(
    ("name", "words"),
    [("nothing", "returned NoneType, not a path"), ("constant", "has no function"), ("gone", "no function")],
)
def test_what_is_no_entry_is_named(file: Path, tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        make_model(f"{file}:{name}", tmp_path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="is no Python file"):
        make_model(f"{tmp_path}/none.py:export", tmp_path)
