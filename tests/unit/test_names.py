"""Names of models and compilations: valid names, defaults, and file names."""

import pytest
from pydantic import TypeAdapter, ValidationError

from bessemer.client.submission import name_of_model
from bessemer.contract.names import MAX_COMPARED_CHARACTERS, Name, file_stem, name_of_file, nearest

NAME: TypeAdapter[str] = TypeAdapter(Name)


@pytest.mark.parametrize("name", ["mlp", "résnet 50", "模型", "org/model:v2", "<b>", "n" * 128])
def test_any_printable_text_is_a_name(name: str) -> None:
    assert NAME.validate_python(name) == name


@pytest.mark.parametrize(
    "name", ["", " mlp", "mlp ", "a\nb", "a\x00b", "\x1b[2J", "a\u202eb", "\ud800", "n" * 129]
)
def test_control_and_invisible_characters_are_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        NAME.validate_python(name)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("mlp.pt2", "mlp"),
        ("models/net.v1.pt", "net.v1"),
        ("C:\\models\\Net.PTH", "Net"),
        ("resnet50", "resnet50"),
        ("résnet 50.pt2", "résnet 50"),
        ("../../etc/passwd", "passwd"),
        ("a\x00b\x1b[2J\u202e.pt2", "a b [2J"),
        ("n" * 300 + ".pt2", "n" * 128),
        (".pt2", None),
        ("", None),
        ("folder/", None),
    ],
)
def test_a_model_is_named_after_its_file(file: str, name: str | None) -> None:
    assert name_of_file(file) == name
    assert name is None or NAME.validate_python(name) == name


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("mlp", "mlp-host"),
        ("résnet 50", "résnet-50-host"),
        ("../../etc/passwd", "etc-passwd-host"),
        ('a"b<c>|d*', "a-b-c-d-host"),
        (".hidden", "hidden-host"),
        ("..", "host"),
        ("模" * 128, "模" * 40 + "-host"),
    ],
)
def test_a_download_is_named_after_model_and_target(name: str, stem: str) -> None:
    assert file_stem(name, "host") == stem


def test_bytes_and_digests_have_no_name() -> None:
    assert [name_of_model(model) for model in (b"bytes", "0" * 64, "models/mlp.pt2")] == [None, None, "mlp"]


def test_only_the_first_names_of_a_long_list_are_compared() -> None:
    others = ["b" * 100] * (MAX_COMPARED_CHARACTERS // 100 - 1)
    assert nearest("a", ["a", *others], cutoff=0.9) == ["a"]
    assert nearest("a", [*others, "c" * 100, "a"], cutoff=0.9) == []
