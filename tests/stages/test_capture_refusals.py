"""Models that capture refuses, with its messages."""

import inspect
import json
import sys
import types
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from capture_samples import capture_file, exported, graph, refusal, scripted, traced
from torch import nn

from bessemer.contract.model_advice import advice_on_dtypes
from bessemer.contract.options import InspectOptions
from bessemer.contract.problem import ErrorCode
from examples.models import EXAMPLES
from examples.models.save import SavedAs, save
from worker.compiler.frontend.load import inspect_model
from worker.compiler.frontend.model_errors import at_sizes, model_raised
from worker.errors import JobError


class Indexing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.ones(10, 4))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = self.table[input]  # type: ignore[index]
        return rows


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.ReLU(), nn.Linear(3, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


class Raising(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.size(0) > 1:
            raise ValueError("one at a time")
        return x


class Quoted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_parameter('a"b', nn.Parameter(torch.ones(3)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.get_parameter('a"b')


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.calls


class Writing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2


class Counting(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x, x.size(0)


@pytest.mark.parametrize("write", [scripted, graph])
def test_a_model_without_shapes_needs_inputs(
    tmp_path: Path, write: Callable[[nn.Module, Path], Path]
) -> None:
    assert refusal(write(Nested(), tmp_path / "model")).code is ErrorCode.INPUTS_MISSING


@pytest.mark.parametrize("inputs", [("y=1x3",), ("x=1x3", "y=1x3")])
def test_inputs_with_wrong_names_or_count_are_refused(tmp_path: Path, inputs: tuple[str, ...]) -> None:
    error = refusal(scripted(Nested(), tmp_path / "model"), *inputs)
    assert error.code is ErrorCode.INPUTS_MISMATCH


def test_a_pt2_accepts_only_its_own_shape(tmp_path: Path) -> None:
    save(EXAMPLES["mlp"], SavedAs.PT2, tmp_path / "model")
    error = refusal(tmp_path / "model", "x=2x784")
    assert error.code is ErrorCode.INPUTS_MISMATCH
    assert "expected x=1x784:float32; given x=2x784:float32" in error.detail


class Listing(nn.Module):
    def forward(self, x: list[torch.Tensor]) -> torch.Tensor:
        return x[0]


@pytest.mark.parametrize(
    ("images", "said"),
    [
        ({"y": (28, 28)}, "'y' as 28 by 28 pixels, but the model has no such input; it has 'x'"),
        ({"x": (28, 27)}, "'x' as 28 by 27 pixels, but 1x784 is neither one image of 1 or 3 channels nor"),
    ],
)
def test_inputs_that_hold_no_images_cannot_be_shown(
    tmp_path: Path, images: dict[str, tuple[int, int]], said: str
) -> None:
    save(EXAMPLES["mlp"], SavedAs.PT2, tmp_path / "model")
    error = refusal(tmp_path / "model", inspect=InspectOptions(images=images))
    assert error.code is ErrorCode.INPUTS_MISMATCH
    assert said in error.detail


def test_a_container_needs_names_of_its_values(tmp_path: Path) -> None:
    error = refusal(scripted(Listing(), tmp_path / "model"), "x=3")
    assert error.code is ErrorCode.INPUTS_MISMATCH
    assert "the argument 'x' is a List[Tensor]: name its values x.0, x.1, and so on" in error.detail


def test_a_script_that_raises_names_message_and_line(tmp_path: Path) -> None:
    error = refusal(scripted(Raising(), tmp_path / "model"), "x=2x3")
    assert error.code is ErrorCode.MODEL_RAISED
    assert "one at a time" in error.detail
    assert error.places[0].file == __file__


def test_a_graph_that_raises_names_the_module(tmp_path: Path) -> None:
    error = refusal(graph(Nested(), tmp_path / "model"), "x=1x5")
    assert error.code is ErrorCode.MODEL_RAISED
    assert error.places[0].module_path == "inner.1"
    assert "cannot be multiplied" in error.detail


class Pairs(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, 2, 4) + y


@pytest.mark.parametrize("save", [graph, scripted])
def test_a_model_that_raises_names_its_inputs_and_dynamic_sizes(
    tmp_path: Path, save: Callable[..., Path]
) -> None:
    path = save(Pairs(), tmp_path / "model")
    fixed = refusal(path, "x=3x4", "y=scalar:int64")
    assert fixed.code is ErrorCode.MODEL_RAISED
    assert fixed.detail.endswith("; the inputs were x=3x4:float32, y=scalar:int64")
    dynamic = refusal(path, "x=rowsx4", "y=scalar:int64", dimensions=("rows=1..9@3",))
    assert "; the inputs were x=3x4:float32, y=scalar:int64; it ran at rows=3. If the " in dynamic.detail
    assert "narrow the range: `--dimension rows=MIN..MAX@SIZE`" in dynamic.detail
    assert dynamic.detail.endswith('export `4 * Dim("h")` to a `.pt2`')


@pytest.mark.parametrize("module", [nn.Embedding(10, 4), Indexing()], ids=["embedding", "index"])
def test_indices_without_a_dtype_are_explained(tmp_path: Path, module: nn.Module) -> None:
    error = refusal(graph(module, tmp_path / "model"), "input=4x6")
    assert error.code is ErrorCode.MODEL_RAISED
    assert "else the file's, else float32: name another, as in `ids=4x6:int64`" in error.detail


@pytest.mark.parametrize("save", [graph, scripted])
def test_floats_of_another_dtype_are_explained(tmp_path: Path, save: Callable[..., Path]) -> None:
    error = refusal(save(nn.Linear(6, 2).bfloat16(), tmp_path / "model"), "input=4x6")
    assert error.code is ErrorCode.MODEL_RAISED
    assert "the inputs were input=4x6:float32" in error.detail
    assert "else the file's, else float32: name another, as in `x=4x6:bfloat16`" in error.detail
    dynamic = refusal(tmp_path / "model", "input=rowsx6", dimensions=("rows=1..9@4",))
    assert dynamic.detail == error.detail


class Raises(nn.Module):
    """Raises torch's message whatever its inputs are."""

    def __init__(self, message: str) -> None:
        super().__init__()
        self.message = message

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        raise RuntimeError(self.message)


@pytest.mark.parametrize(
    ("message", "explained"),
    [
        ("shape '[2]' is invalid for input of size 3", False),
        ("Found no NVIDIA driver on your system.", True),
        ("Input type (float) and bias type (c10::BFloat16) should be the same", True),
    ],
    ids=["size", "device", "dtype"],
)
def test_sizes_are_not_blamed_for_another_known_cause(message: str, explained: bool) -> None:
    inputs = (torch.ones(2),)
    with pytest.raises(JobError) as caught, at_sizes({"rows": 2}):
        try:
            Raises(message)(*inputs)
        except RuntimeError as error:
            raise model_raised(error, None, ("x",), inputs) from error
    assert ("it ran at rows=2" in caught.value.detail) is not explained
    assert ("name another, as in" in caught.value.detail) is ("BFloat16" in message)


def test_a_weight_on_a_gpu_is_no_question_of_dtypes() -> None:
    message = "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same"
    assert advice_on_dtypes(message) is None


def test_a_model_without_inputs_that_raises_names_none() -> None:
    error = model_raised(RuntimeError("no table"), None, (), ())
    assert error.detail.endswith("no table")


@pytest.mark.parametrize(
    ("module", "code", "message"),
    [
        (Remembering(), ErrorCode.MODEL_STATEFUL, "two runs of the model on the same inputs differ"),
        (Writing(), ErrorCode.MODEL_STATEFUL, "modifies its input 'x'; clone it first"),
    ],
)
def test_stateful_models_are_refused(
    tmp_path: Path, module: nn.Module, code: ErrorCode, message: str
) -> None:
    error = refusal(scripted(module, tmp_path / "model"), "x=2x3")
    assert error.code is code
    assert message in error.detail


def test_a_program_that_modifies_an_input_names_the_input_and_the_line(tmp_path: Path) -> None:
    error = refusal(exported(Writing(), tmp_path / "model"))
    assert error.code is ErrorCode.MODEL_STATEFUL
    (place,) = error.places
    assert place.file == __file__
    assert error.detail == (
        f"the model modifies its input 'x'; clone it first: aten.add_.Tensor ({__file__}:{place.line})"
    )


def test_a_number_that_depends_on_a_dynamic_size_is_refused(tmp_path: Path) -> None:
    path = scripted(Counting(), tmp_path / "model")
    assert str(capture_file(path, "x=2x3").call) == "(x) -> (output, 2)"
    error = refusal(path, "x=batchx3", dimensions=("batch=1..64",))
    assert error.code is ErrorCode.MODEL_SIGNATURE_UNSUPPORTED
    assert "output 1 is not a tensor but SymInt" in error.detail


@pytest.fixture
def user_package(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A user's module with two leaf classes, until the test deletes it."""
    package = types.ModuleType("users_own_package")
    source = "from torch import nn\n" + "".join(
        f"class {name}(nn.Module):\n    def forward(self, x):\n        return x\n" for name in ("One", "Two")
    )
    exec(source, package.__dict__)
    monkeypatch.setitem(sys.modules, package.__name__, package)
    return package


def test_all_unavailable_leaves_are_listed(tmp_path: Path, user_package: types.ModuleType) -> None:
    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return m.__class__.__module__ == user_package.__name__

    model = nn.Sequential(user_package.One(), nn.Sequential(user_package.Two(), user_package.One()))
    graph_module = torch.fx.GraphModule(model, Tracer().trace(model))
    graph_module._tracer_cls = torch.fx.Tracer
    torch.save(graph_module, tmp_path / "model")
    assert inspect_model(tmp_path / "model").signature.input_names == ("input",)
    del sys.modules[user_package.__name__]
    error = refusal(tmp_path / "model", "input=1x3")
    assert error.code is ErrorCode.MODEL_LEAF_UNAVAILABLE
    assert "users_own_package.One (0, 1.1)" in error.detail
    assert "users_own_package.Two (1.0)" in error.detail
    assert [place.module_path for place in error.places] == ["0", "1.0", "1.1"]


def test_a_pt2_that_torch_cannot_turn_into_code_does_not_load(tmp_path: Path) -> None:
    exported(Quoted(), tmp_path / "model", torch.ones(3))

    with pytest.raises(JobError, match="SyntaxError") as caught:
        inspect_model(tmp_path / "model")

    assert caught.value.code is ErrorCode.MODEL_LOAD_FAILED


class Negating(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.refused.negate(x) + 1


@pytest.mark.parametrize(
    ("write", "names_line"), [(exported, True), (scripted, True), (traced, True), (graph, False)]
)
def test_an_unknown_custom_operator_is_named_with_its_line_if_the_file_holds_that(
    tmp_path: Path, write: Callable[[nn.Module, Path], Path], names_line: bool
) -> None:
    with torch.library._scoped_library("refused", "DEF") as library:
        library.define("negate(Tensor x) -> Tensor")
        library.impl("negate", torch.neg, "CompositeExplicitAutograd")
        write(Negating(), tmp_path / "model")

    error = refusal(tmp_path / "model")

    assert error.code is ErrorCode.MODEL_OPERATOR_UNAVAILABLE
    (place,) = error.places
    line = inspect.getsourcelines(Negating.forward)[1] + 1
    assert (place.operator, place.file, place.line) == (
        ("refused::negate", __file__, line) if names_line else ("refused::negate", None, None)
    )
    assert (f"refused::negate ({__file__}:{line})" if names_line else "refused::negate") in error.detail


def test_a_pt2_of_another_schema_names_both_versions(tmp_path: Path) -> None:
    written, path = tmp_path / "written", tmp_path / "model"
    save(EXAMPLES["mlp"], SavedAs.PT2, written)
    with zipfile.ZipFile(written) as old, zipfile.ZipFile(path, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename.endswith("models/model.json"):
                model = json.loads(content)
                model["schema_version"] = {"major": 99, "minor": 1}
                content = json.dumps(model).encode()
            new.writestr(entry.filename, content)
    error = refusal(path)
    assert error.code is ErrorCode.MODEL_LOAD_FAILED
    assert "schema 99.1" in error.detail
    assert f"torch {torch.__version__}" in error.detail
