"""Models returned by a Python function."""

from pathlib import Path

import pytest

from bessemer.cli.model_argument import call_entry_point, is_entry_point, is_plain_text, resolved_model
from bessemer.errors import ExportError, InvalidArgumentError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "beside_the_entry.py").write_text("CONTENT = b'a model'\n")
    path = tmp_path / "entry_of_a_test.py"
    path.write_text(
        "from beside_the_entry import CONTENT\n"
        "def content(): return CONTENT\n"
        f"def path(): return {str(tmp_path / 'model.pt2')!r}\n"
        "def named(): return b'a model', {'x': ('batch', 784)}, {'batch': (1, 64)}\n"
        "def nothing(): return None\n"
        "def numbers(): return b'a model', {'x': (1, 784)}, 3\n"
        "def bare(): return b'a model', {1, 784}\n"
        "def broken():\n    print('as far as here')\n    return CONTENT + 1\n"
        "constant = 3\n"
        "def leaving(): raise SystemExit(0)\n"
    )
    return path


@pytest.mark.parametrize(
    ("model", "wanted"),
    [("net.py:export", True), ("net.pt2", False), ("net.py", False), ("a:b.pt2", False), ("net.py:", True)],
)
def test_a_function_argument_is_told_apart_from_a_file(model: str, wanted: bool) -> None:
    assert is_entry_point(model) is wanted


def test_a_function_may_return_bytes_or_a_path(file: Path, tmp_path: Path) -> None:
    assert (tmp_path / call_entry_point(f"{file}:content", tmp_path).source).read_bytes() == b"a model"
    assert call_entry_point(f"{file}:path", tmp_path).source == tmp_path / "model.pt2"


def test_given_inputs_and_dimensions_override_the_functions(file: Path, tmp_path: Path) -> None:
    own = call_entry_point(f"{file}:named", tmp_path)
    narrowed = call_entry_point(f"{file}:named", tmp_path, dimensions={"batch": "1..8"})
    given = call_entry_point(f"{file}:named", tmp_path, {"y": (2, 3)})
    assert (list(map(str, own.inputs)), str(own.dimensions["batch"])) == (["x=batchx784"], "1..64")
    assert str(narrowed.dimensions["batch"]) == "1..8"
    assert (list(map(str, given.inputs)), given.dimensions) == (["y=2x3"], {})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "returned NoneType; expected a path"),
        ("numbers", "returned int as dimensions"),
        ("bare", "returned set as inputs"),
        ("constant", "has no function"),
        ("gone", "has no function 'gone'"),
        ("", "has no function ''"),
    ],
)
def test_an_invalid_function_argument_is_named(file: Path, tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        call_entry_point(f"{file}:{name}", tmp_path)


def test_a_missing_model_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="is not a Python file"):
        call_entry_point(f"{tmp_path}/none.py:export", tmp_path)


def test_an_error_in_a_function_names_its_line_and_its_prints_stay_out_of_the_result(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ExportError, match=r":broken raised TypeError: .* \(entry_of_a_test\.py:10\)$"):
        call_entry_point(f"{file}:broken", tmp_path)
    assert capsys.readouterr() == ("", "as far as here\n")


def test_a_function_that_exits_python_is_reported_like_one_that_raises(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r":leaving raised SystemExit: 0 \(entry_of_a_test\.py:12\)$"):
        call_entry_point(f"{file}:leaving", tmp_path)


def test_a_python_file_without_a_function_is_not_a_model(file: Path) -> None:
    words = r"name the function that returns the model: .*\.py:NAME"
    with pytest.raises(InvalidArgumentError, match=words), resolved_model(str(file)):
        pass


def test_a_generated_model_file_is_removed_and_a_users_file_stays(file: Path, tmp_path: Path) -> None:
    (tmp_path / "model.pt2").touch()
    with resolved_model(f"{file}:content") as made, resolved_model(f"{file}:path") as users:
        paths = Path(made.source), Path(users.source)
    assert [path.exists() for path in paths] == [False, True]


def test_a_digest_is_not_a_file() -> None:
    with resolved_model("0" * 64) as made:
        assert made.source == "0" * 64


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("README.md", b"# A model\n\nimport torch\n", True),
        ("notes.TXT", "größer".encode(), True),
        ("module.txt", b"# a script\nfrom tvm.script import ir as I\n", False),
        ("module.json", b' {"root_index": 0}', False),
        ("net.ckpt", b"version https://git-lfs.github.com/spec/v1\n", False),
        ("net.onnx", b"\x08\x07\x12\x00", False),
        ("net.ckpt", b"\x80\x02}q", False),
        ("net.pt2", b"no model", False),
        ("net", b"no model", False),
        ("empty.txt", b"", False),
    ],
)
def test_a_plain_text_is_told_apart_from_what_the_server_can_describe(
    name: str, content: bytes, wanted: bool, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    assert is_plain_text(tmp_path / name) is wanted


def test_a_plain_text_is_refused_before_the_upload(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("# A model\n\nimport torch\n")
    with (
        pytest.raises(InvalidArgumentError, match=r"README\.md has none of the known formats; give a \.pt2"),
        resolved_model(str(path)),
    ):
        pass
