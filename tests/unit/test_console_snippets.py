"""The console's code beside the form says the same request in each form."""

import json
import shlex
from typing import Any

import pytest

import bessemer
from app.console.form_texts import (
    place_errors,
    read_draft,
    texts_of,
    with_extensions,
    without_fields,
    wrong_targets,
)
from app.console.option_forms import known_names, option_groups
from app.console.snippets import Model, snippets
from app.console.words import prose
from bessemer.cli.arguments import read_draft as read_command
from bessemer.contract.offers import Offers
from bessemer.contract.problem import FieldError
from bessemer.contract.request import CompilationRequest, Submission

URL = "http://127.0.0.1:8000"
DIGEST, OTHER, THIRD = "0" * 64, "1" * 64, "2" * 64
GROUPS = option_groups()
REQUESTS: dict[str, dict[str, Any]] = {
    "a preset": {"target": "host"},
    "a search": {"target": "x86-64-v3", "tune": {"trials": 64, "seconds": 60.5, "search": "plans"}},
    "inputs": {
        "target": "host",
        "inputs": [{"name": "x", "shape": ["batch", 784], "dtype": "int64"}],
        "dimensions": {"batch": {"minimum": 2, "maximum": 64}},
        "constants": {"sr": 16000, "mode": "it's", "flag": True},
    },
    "labels": {"target": "host", "name": "a 'name' $HOME", "labels": {"team": "vision", "empty": ""}},
    "switches": {"target": "host", "cache": False, "inspect": {"ir": True}, "tune": {"from_records": False}},
    "kernels": {"target": "host", "kernels": {"linear": "auto"}, "optimize": {"disable": ["gelu", "norms"]}},
    "no baselines": {"target": "host", "benchmark": {"baselines": []}},
    "pictures": {"target": "host", "inspect": {"images": {"x": [28, 28]}}},
    "cores": {"target": {"preset": "host", "cores": 4}},
    "several targets": {"target": ["host", "x86-64-v3"]},
    "a triple": {"target": {"preset": "cortex-a72", "triple": "aarch64-unknown-linux-musl"}},
    "a processor": {"target": {"kind": "llvm", "mcpu": "generic", "triple": "aarch64-unknown-linux-musl"}},
    "a GPU": {"target": {"preset": "cuda-sm_90"}},
    "a GPU beside a processor": {"target": {"kind": "cuda", "arch": "sm_90", "mcpu": "znver4"}},
    "a fat binary": {"target": {"kind": "cuda"}},
    "cores of one of several targets": {"target": ["host", {"preset": "x86-64-v3", "cores": 2}]},
    "what submit has no argument for": {"target": "host", "static_library": True, "verification": "none"},
}


NO_COMMAND = ("no baselines", "several targets", "cores of one of several targets", "a fat binary")
"""What the command line of one compilation does not say, or says with another name."""


def in_full(document: dict[str, Any]) -> Submission:
    return Submission.model_validate({"model": DIGEST, **document})


@pytest.mark.parametrize("case", REQUESTS)
def test_a_form_shows_a_request_and_stands_for_it(case: str) -> None:
    request = in_full(REQUESTS[case])
    given = request.model_dump(mode="json", exclude_defaults=True)
    draft = read_draft(texts_of(given, GROUPS), GROUPS)
    assert draft.errors == ()
    assert in_full(draft.document) == request


def test_lines_without_a_value_are_refused_at_their_field() -> None:
    draft = read_draft({"labels": ["team=vision\nnothing"], "constants": ["sr"]}, GROUPS)
    assert [(each.field, each.message) for each in draft.errors] == [
        ("constants", "expected name=value, not 'sr'"),
        ("labels", "expected name=value, not 'nothing'"),
    ]


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        ("inputs", "no"),
        ("inputs[1]", "entry 2: no"),
        ("inputs[0].shape[1]", "entry 1, shape[1]: no"),
        ("inputs.x", "x: no"),
    ],
)
def test_errors_of_lists_name_entries_in_words(field: str, shown: str) -> None:
    placed, rest = place_errors((FieldError(field=field, message="no"),), ("inputs",))
    assert (placed, rest) == ({"inputs": [shown]}, ())


@pytest.mark.parametrize("field", ["target.cores", "target[0].cores", "target[1].cores"])
def test_what_all_targets_share_has_its_error_once(field: str) -> None:
    errors = [FieldError(field=each, message="no") for each in (field, "target[0].cores")]
    assert place_errors(errors, ("target", "target.cores")) == ({"target.cores": ["no"]}, ())


@pytest.mark.parametrize(
    ("target", "paths", "indices", "left"),
    [
        ("host", ["target"], [], "host"),
        ("nonsense", ["target"], [], "host"),
        (["haswell", "nonsense"], ["target"], [1], "haswell"),
        (["haswell", "nonsense", "znver4"], ["target"], [1], ["haswell", "znver4"]),
        (["haswell", "znver4"], ["target"], [], "host"),
        ({"preset": "host", "cores": -1}, ["target.cores"], [], {"preset": "host"}),
        ([{"preset": "a", "cores": 0}, "b"], ["target.cores"], [0], [{"preset": "a"}, "b"]),
    ],
)
def test_the_code_keeps_the_targets_that_are_right(
    target: Any, paths: list[str], indices: list[int], left: Any
) -> None:
    document = {"target": target, "tune": {"trials": 2}, "optimize": {"fusion": "nope"}}
    assert without_fields(document, [*paths, "optimize.fusion"], indices) == {
        "target": left,
        "tune": {"trials": 2},
    }


def test_only_errors_of_single_targets_leave_these_out() -> None:
    fields = ("target[0].cores", "target[1].cores", "target[1]", "target[2].preset", "tune.trials", "target")
    assert wrong_targets(FieldError(field=each, message="no") for each in fields) == {1, 2}


def test_a_form_without_a_target_asks_for_one() -> None:
    assert read_draft({}, GROUPS).errors == ()
    assert [each.field for each in read_draft({"target": ["", " "]}, GROUPS).errors] == ["target"]


def test_uploaded_extensions_join_those_of_the_form() -> None:
    texts = {"extensions": [f"{DIGEST} {OTHER}"], "extension_names": [f"{OTHER}=typed.py"]}
    assert with_extensions(texts, {OTHER: "uploaded.py", THIRD: "mine.py"}) == {
        "extensions": [f"{DIGEST} {OTHER} {THIRD}"],
        "extension_names": [f"{OTHER}=typed.py\n{THIRD}=mine.py"],
    }
    assert with_extensions({}, {THIRD: None}) == {"extensions": [THIRD], "extension_names": [""]}


def test_a_field_lists_the_names_that_workers_know() -> None:
    known = known_names(Offers(rewrites=("gelu",), kernels={"linear": ("openblas", "mkl")}), ())
    assert known["optimize.enable"] == ("gelu",)
    assert known["kernels"] == ("linear=openblas", "linear=mkl")


def test_help_links_to_a_guide_that_is_built_and_is_never_markup() -> None:
    text = "See `a<b` <i> (docs/spaces.md)."
    assert prose(text, "/below", True) == (
        'See <code>a&lt;b</code> &lt;i&gt; (<a href="/below/guide/spaces/">docs/spaces.md</a>).'
    )
    assert prose(text, "/below", False) == "See <code>a&lt;b</code> &lt;i&gt; (docs/spaces.md)."


@pytest.mark.parametrize("case", REQUESTS)
def test_curl_sends_the_request(case: str) -> None:
    words = shlex.split(snippets(REQUESTS[case], Model("mlp.pt2", ""), URL, False).curl.replace("\\\n", ""))
    sent = words[words.index("--form-string") + 1].partition("=")[2]
    assert json.loads(sent) == REQUESTS[case]
    assert "model=@mlp.pt2" in words and words[-1] == f"{URL}/v1/compilations"


def test_the_code_has_the_files_of_extensions_that_the_form_uploads() -> None:
    model = Model("mlp.pt2", "", ("mine.py", "-x.py"))
    code = snippets({"target": "host"}, model, URL, False)
    assert "-F extension=@mine.py" in code.curl and "-F extension=@./-x.py" in code.curl
    assert "--extension mine.py" in code.command and "--extension ./-x.py" in code.command
    assert "extensions=['mine.py', '-x.py']" in code.python
    assert json.loads(code.json)["extensions"] == ["SHA-256 of mine.py", "SHA-256 of -x.py"]
    known = snippets({"target": "host"}, Model("", DIGEST, ("mine.py",)), URL, False)
    assert "-F extension=@mine.py" in known.curl and f'"model": "{DIGEST}"' in known.curl
    document = snippets({"target": {"preset": "host", "cores": 2}}, model, URL, False).python
    assert "client.upload_extension(file)" in document and "'extensions': extensions" in document


def test_the_command_names_the_files_of_schedules_and_not_as_extensions() -> None:
    request = {
        "target": "host",
        "extensions": [DIGEST, OTHER],
        "extension_names": {DIGEST: "mine.py", OTHER: "tiles.py"},
        "tune": {"schedules": {"fused_linear*": f"{OTHER}:tile"}},
    }
    command = snippets(request, Model("mlp.pt2", ""), URL, False).command
    assert "--schedule 'fused_linear*=tiles.py:tile'" in command
    assert "--extension mine.py" in command
    assert "--extension tiles.py" not in command
    assert "--option" not in command


def test_the_command_has_the_inputs_of_entry_points_or_says_that_it_cannot() -> None:
    x = {"name": "x", "shape": [1, 784]}
    entries = {"large": {"inputs": [{**x, "shape": [64, 784]}]}, "small": {"inputs": [x], "method": "step"}}
    request = {"target": "host", "entries": entries}
    command = snippets(request, Model("mlp.pt2", ""), URL, False).command
    assert "--entry large,x=64x784" in command
    assert "--entry small=step,x=1x784" in command
    constant = {"target": "host", "entries": {"small": {"constants": {"sr": 8000}}}}
    assert snippets(constant, Model("mlp.pt2", ""), URL, False).command.startswith("# the command line gives")


def test_the_code_of_a_preflight_downloads_nothing() -> None:
    code = snippets({"target": "host", "stop_after": "translate"}, Model("mlp.pt2", ""), URL, False)
    assert code.python.splitlines()[-1] == "job.wait()"


@pytest.mark.parametrize("case", [case for case in REQUESTS if case not in NO_COMMAND])
def test_the_command_line_makes_the_request(case: str) -> None:
    text = snippets(REQUESTS[case], Model("mlp.pt2", ""), URL, False).command
    words = shlex.split(text.replace("\\\n", ""))
    assert words[:3] == ["bessemer", "compile", "mlp.pt2"]
    given: dict[str, list[str]] = {}
    for flag, value in zip(words[3::2], words[4::2], strict=True):
        given.setdefault(flag.removeprefix("--"), []).append(value)
    draft = read_command(
        given.get("target"),
        given.get("input"),
        given.get("option"),
        given.get("label"),
        given.get("dimension"),
        given.get("name", [None])[0],
        given.get("constant"),
    )
    assert in_full(draft.request.model_dump(exclude={"model"}, exclude_unset=True)) == in_full(REQUESTS[case])


def test_targets_with_options_of_their_own_have_no_command() -> None:
    case = REQUESTS["cores of one of several targets"]
    assert snippets(case, Model("mlp.pt2", ""), URL, False).command.startswith("# the command line gives")
    plain = snippets(REQUESTS["several targets"], Model("mlp.pt2", ""), URL, False).command
    assert "--target host" in plain and "--target x86-64-v3" in plain


@pytest.mark.parametrize("case", REQUESTS)
def test_the_python_code_compiles_and_names_what_the_package_has(case: str) -> None:
    text = snippets(REQUESTS[case], Model("mlp.pt2", ""), URL, False).python
    compile(text, "snippet", "exec")
    names = text.partition("\n")[0].removeprefix("from bessemer import ").split(", ")
    assert all(hasattr(bessemer, name) for name in names)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        *((name, name) for name in ('a"b.pt2', "a;type=x,b.pt2", "a\\b.pt2", "$(reboot).pt2", "a b.pt2")),
        ("-x.pt2", "./-x.pt2"),
        ("--help", "./--help"),
        ("-", "./-"),
    ],
)
def test_a_files_name_is_one_word_of_a_shell_and_no_option(name: str, path: str) -> None:
    made = snippets({"target": "host"}, Model(name, ""), URL, True)
    words = shlex.split(made.curl.replace("\\\n", ""))
    form = words[words.index("-F") + 1].removeprefix("model=@")
    assert form.strip('"').replace('\\"', '"').replace("\\\\", "\\") == path
    assert shlex.split(made.command.replace("\\\n", ""))[2] == path


def test_every_option_of_a_request_has_a_field_with_help() -> None:
    fields = [field for group in GROUPS for field in group.fields]
    assert all(field.help for field in fields)
    assert {"tune.trials", "cache", "benchmark.compare", "labels"} <= {field.path for field in fields}
    assert CompilationRequest.model_fields.keys() - {
        "target",
        "model",
        "inputs",
        "dimensions",
        "constants",
    } <= {field.path.partition(".")[0] for field in fields}
