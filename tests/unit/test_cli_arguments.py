"""Options of the command line as fields of a request."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer import BadParameter
from typer.testing import CliRunner

from bessemer.cli.application import application
from bessemer.cli.arguments import option_paths, read_bytes, read_draft, read_time
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.contract.tensor import parse_input_spec
from bessemer.errors import InvalidArgumentError

MODEL = "0" * 64


def request(target: str | None = None, *options: str) -> CompilationRequest:
    return read_draft(target, (), options).request


@pytest.mark.parametrize(
    ("options", "dumped"),
    [
        (["tune.trials=64"], {"tune": {"trials": 64}}),
        (["trials=64"], {"tune": {"trials": 64}}),
        (["verify.relative=1e-3"], {"verify": {"relative": 1e-3}}),
        (["timeout_seconds=5"], {"timeout_seconds": 5.0}),
        (["baselines=torch-eager"], {"benchmark": {"baselines": ["torch-eager"]}}),
        (["benchmark.baselines="], {"benchmark": {"baselines": []}}),
        (["parameters=separate"], {"parameters": "separate"}),
        (["kernels.linear=auto"], {"kernels": {"linear": "auto"}}),
        (["kernels.linear[1x8,8x4]=openblas"], {"kernels": {"linear[1x8,8x4]": "openblas"}}),
        (["inspect.images.x=28x28"], {"inspect": {"images": {"x": [28, 28]}}}),
        (["cores=2"], {"target": {"preset": "host", "cores": 2}}),
        (["trials=1", "tune.seconds=2"], {"tune": {"trials": 1, "seconds": 2.0}}),
    ],
)
def test_a_path_or_its_unique_last_part_sets_a_field(options: list[str], dumped: dict[str, object]) -> None:
    found = request(None, *options).model_dump(mode="json", exclude_unset=True)
    assert found == {"model": MODEL, "target": {"preset": "host"}} | dumped


@pytest.mark.parametrize("command", ["compile", "check", "gate"])
@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--trials", "--option tune.trials=…"),
        ("--stop-after", "--option stop_after=…"),
        ("--targets", "--target"),
    ],
)
def test_a_field_with_its_own_option_is_refused_with_that_option(
    command: str, option: str, meant: str
) -> None:
    ran = CliRunner().invoke(application, [command, "mlp.pt2", option, "3"], env={"COLUMNS": "200"})
    assert ran.exit_code == 2
    assert f"No such option: {option} (Possible options: {meant})" in ran.output


def test_a_processor_makes_an_explicit_target() -> None:
    target = request(None, "mcpu=znver4", "features=+avx512vnni,-avx512fp16").target
    assert target.model_dump(exclude_unset=True) == {
        "mcpu": "znver4",
        "features": ("+avx512vnni", "-avx512fp16"),
    }


@pytest.mark.parametrize(
    ("target", "option", "says"),
    [
        (None, "trails=3", "did you mean 'tune.trials'"),
        (None, "tune.trial=3", "did you mean 'tune.trials'"),
        (None, "zzzzzz=3", "Known: target.preset"),
        (None, "seconds=3", "tune.seconds, benchmark.seconds"),
        (None, "trials", "not of the form KEY=VALUE"),
        (None, "trials=many", "expected a whole number"),
        (None, "trials=-1", "expected at least 0"),
        (None, "baselines=onnx", "torch-eager"),
        (None, "model=x", "unknown option 'model'"),
        (None, "kernels.linear=No such", "expected a name of lower-case letters"),
        (None, "kernels=linear", "expected fields with values"),
        ("znver55", "trials=1", "did you mean 'znver5'"),
        ("host", "mcpu=znver4", "target"),
    ],
)
def test_an_unknown_field_is_refused_with_the_known_ones(target: str | None, option: str, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        request(target, option)


def test_a_suggestion_replaces_the_list_of_options() -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        request(None, "tune.trails=16")
    assert str(refused.value) == "unknown option 'tune.trails'; did you mean 'tune.trials'?"


def test_a_label_and_a_schedule_are_given_once() -> None:
    with pytest.raises(InvalidArgumentError, match="--label team is given twice"):
        read_draft(None, None, None, labels=("team=a", "team=b"))
    with pytest.raises(InvalidArgumentError, match="--schedule f is given twice"):
        read_draft(None, None, None, schedules=("f=a.py", "f=b.py"))


def test_an_option_is_given_once() -> None:
    with pytest.raises(InvalidArgumentError, match="twice"):
        request(None, "trials=1", "tune.trials=2")


def test_every_field_of_a_request_can_be_set() -> None:
    top = {path.partition(".")[0] for path in option_paths()}
    assert top == set(CompilationRequest.model_fields) - {
        "model",
        "name",
        "inputs",
        "dimensions",
        "constants",
        "entries",
        "extensions",
    }


@pytest.mark.parametrize(
    ("texts", "entries"),
    [
        (("prefill", "decode"), {"prefill": {}, "decode": {}}),
        (("back=decode",), {"back": {"method": "decode"}}),
        (
            ("small,x=1x4,y=2:int64",),
            {
                "small": {
                    "inputs": (
                        {"name": "x", "shape": (1, 4)},
                        {"name": "y", "shape": (2,), "dtype": "int64"},
                    )
                }
            },
        ),
    ],
)
def test_an_entry_has_a_name_a_method_and_inputs(texts: tuple[str, ...], entries: dict[str, object]) -> None:
    found = read_draft("host", (), (), entries=texts).request.entries
    assert {name: entry.model_dump(exclude_unset=True) for name, entry in found.items()} == entries


def test_an_entry_may_name_a_file_and_inputs() -> None:
    draft = read_draft("host", (), (), entries=("prefill", "decode=build/decode.pt2,x=1x4"))
    assert draft.files == {"decode": Path("build/decode.pt2")}
    assert draft.request.entries["decode"].method is None
    assert [spec.name for spec in draft.request.entries["decode"].inputs] == ["x"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("a", "a"), "--entry a is given twice"),
        (("a,x",), "--entry a,x: 'x' is not of the form"),
        (("Peek",), "begin with a letter; pass --entry peek=Peek to run Peek"),
        (("_peek",), "--entry '_peek': names have lower-case letters, digits and underscores"),
        (("a=b-c",), "entries.a.method"),
    ],
)
def test_an_invalid_entry_is_refused(texts: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        read_draft("host", (), (), entries=texts)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("sr=16000", 16000),
        ("sr=0.5", 0.5),
        ("sr=true", True),
        ("sr=null", None),
        ("sr=fast", "fast"),
        ("sr=", ""),
    ],
)
def test_a_constant_is_json_or_plain_text(text: str, value: object) -> None:
    assert read_draft("host", (), (), constants=(text,)).request.constants == {"sr": value}


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        (("sr",), "--constant sr is not of the form NAME=VALUE"),
        (("sr=1", "sr=2"), "--constant sr is given twice"),
        (("sr=[1]",), "constants.sr"),
        (("a-b=1",), "constants"),
    ],
)
def test_an_invalid_constant_is_refused(constants: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        read_draft("host", (), (), constants=constants)


def test_a_dimension_has_its_range_beside_the_input_that_names_it() -> None:
    found = read_draft("host", ("x=batchx784",), (), dimensions=("batch=1..64@8",)).request
    assert found.inputs[0].shape == ("batch", 784)
    assert found.dimensions["batch"].example == 8


@pytest.mark.parametrize(
    ("dimensions", "message"),
    [
        ((), "names 'batch', which has no range"),
        ((), "\n→ Add `--dimension batch=1..64`"),
        (("bacth=1..64",), "did you mean 'batch'.\n→ Write the same name in both"),
        (("rows=1..64",), "no range; no --input names 'rows'"),
        (("batch=1..64", "length=1..2"), "no shape in `inputs` names 'length'"),
        (("batch=64",), "'batch=64' is one size, not a range of the form NAME=1..64; give a fixed size"),
        (("batch=1-64",), "not of the form"),
        (("batch=64..64",), "must be greater than `minimum`"),
        (("batch=64..1",), "--dimension batch=64..1: 64 is larger than 1"),
        (("batch=8",), "'batch=8' is one size, not a range of the form NAME=1..64; give a fixed size in the"),
        (("batch=1..4", "batch=1..8"), "is given twice"),
    ],
)
def test_an_invalid_dimension_is_refused(dimensions: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        read_draft("host", ("x=batchx784",), (), dimensions=dimensions)


def test_dimensions_alone_wait_for_the_inputs_of_a_module_or_are_those_of_the_file() -> None:
    draft = read_draft("host", (), (), dimensions=("batch=1..64",))
    assert draft.request.dimensions == {}
    assert (
        draft.with_inputs((parse_input_spec("x=batchx784"),), draft.dimensions).dimensions == draft.dimensions
    )
    assert draft.with_inputs((), draft.dimensions).dimensions == draft.dimensions


def test_a_draft_keeps_only_given_fields() -> None:
    draft = read_draft("host", (), ("trials=64", "kernels.linear=auto", "priority=-3"), ("team=vision",))
    dumped = draft.until(Stage.TRANSLATE).with_inputs((), {}).model_dump(mode="json", exclude_unset=True)
    assert dumped == {
        "model": MODEL,
        "target": {"preset": "host"},
        "inputs": [],
        "dimensions": {},
        "kernels": {"linear": "auto"},
        "tune": {"trials": 64},
        "stop_after": "translate",
        "labels": {"team": "vision"},
        "priority": -3,
    }


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("2000000", 2_000_000),
        ("0", 0),
        ("7B", 7),
        ("1kB", 1000),
        ("64MB", 64_000_000),
        ("64 MiB", 64 << 20),
        ("1.5gib", 3 << 29),
        ("2TB", 2 * 10**12),
    ],
)
def test_a_size_is_bytes_or_has_a_unit(text: str, size_bytes: int) -> None:
    assert read_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "lots", "-1", "1 M", "1iB", "MB", "1e6", "٣MB"])
def test_a_text_that_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(BadParameter, match="is not a size such as 64MiB"):
        read_bytes(text)


def test_a_schedule_names_a_function_and_a_file() -> None:
    texts = ["fused_linear*=my_schedule.py", "matmul=schedules/my.py:tile"]
    assert read_draft("host", (), (), schedules=texts).schedules == {
        "fused_linear*": "my_schedule.py",
        "matmul": "schedules/my.py:tile",
    }


@pytest.mark.parametrize("text", ["my_schedule.py", "=my_schedule.py", "matmul="])
def test_a_schedule_without_a_function_or_a_file_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not of the form FUNCTION="):
        read_draft("host", (), (), schedules=[text])


@pytest.mark.parametrize("command", [("jobs", "--after"), ("records", "list", "--since")])
@pytest.mark.parametrize("text", ["yesterday", "2026-11-31", "0001-01-01T00:00:00+14:00"])
def test_a_refused_time_comes_with_the_valid_forms(command: tuple[str, ...], text: str) -> None:
    ran = CliRunner().invoke(application, [*command, text], env={"COLUMNS": "200"})
    assert ran.exit_code == 2
    assert "expected a time, such as 2026-11-01 or 2026-11-01T12:00:00Z" in ran.stderr


@pytest.mark.parametrize("text", ["2026-11-01", "2026-11-01T00:00:00", " 2026-11-01 00:00 "])
def test_a_time_without_a_time_zone_is_local(text: str) -> None:
    assert read_time(text) == datetime(2026, 11, 1).astimezone()


def test_a_time_may_have_a_time_zone() -> None:
    assert read_time("2026-11-01T12:00:00Z") == datetime(2026, 11, 1, 12, tzinfo=UTC)
