"""Models that keep state, and arguments that are not tensors."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from capture_samples import Within, X, capture_file, exported, graph, refusal, scripted, traced
from torch import nn

from bessemer.contract.problem import ErrorCode
from worker.compiler.frontend.load import inspect_model, load_model
from worker.compiler.frontend.outputs import flatten_outputs
from worker.compiler.frontend.state import expose_state
from worker.compiler.pipeline.capture import CALLS
from worker.compiler.torch_views import NEVER_VIEWS
from worker.package.document import call_of
from worker.tensors import as_tensor


class Assigning(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state = self.state * 0.9 + x.mean(0)
        return x + self.state


class Accumulating(nn.Module):
    state: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(2, 4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)  # type: ignore[operator]
        self.state[:1].add_(x[:1])
        return x * self.state


class Adding(nn.Module):
    state: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.state.add_(x)


class Aliasing(nn.Module):
    """Writes to its buffer by another name, which an export records as a constant."""

    persistent = False

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(2, 4), persistent=self.persistent)
        self.others = [self.state]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.others[0].add_(x)


class Holding(nn.Module):
    """Keeps state of one name itself and in a module that it calls ``module``."""

    state: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.module = Adding()
        self.register_buffer("state", torch.zeros(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x) - self.state.add_(2 * x)


class ReturningOld(nn.Module):
    """Returns the state before the run, and exchanges two buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("new", torch.ones(2, 4))
        self.register_buffer("old", torch.zeros(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last = self.old
        self.old = self.new
        self.new = x
        return last


class Late(nn.Module):
    """Makes its state in its first run, as streaming models do."""

    state: torch.Tensor | None
    size: int

    def __init__(self) -> None:
        super().__init__()
        self.state = None
        self.size = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.size != x.size(0):
            self.state = None
        self.size = x.size(0)
        state = self.state
        if state is None:
            state = torch.zeros(x.size(0), 4)
        state = torch.tanh(state + x)
        self.state = state
        return state * 2


class Growing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(0, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = torch.cat([self.seen, x])
        return self.seen.mean(0)  # the same for the same x


class Switching(nn.Module):
    """Computes something else after a number of runs that no check reaches."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("state", torch.zeros(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.state if int(self.calls) < 100 else x * 2
        self.calls = self.calls + 1
        self.state = self.state * 0.5 + x
        return y


class SwitchingInPlace(Switching):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.state if int(self.calls) < 100 else x * 2
        self.calls.view(1).add_(1)
        self.state = self.state * 0.5 + x
        return y


class Resampling(nn.Module):
    def forward(self, x: torch.Tensor, rate: int, gain: float = 1.0, mode: str | None = None) -> torch.Tensor:
        if rate == 8000:
            x = x[:, ::2]
        return x.abs() * gain if mode is None else x * gain


Save = Callable[[nn.Module, Path], Path]
KEEPING: dict[str, tuple[type[nn.Module], Save, tuple[str, ...]]] = {
    "a script that assigns a buffer": (Assigning, scripted, ("state.inner.state",)),
    "a script that writes a part of a buffer": (Accumulating, scripted, ("state.inner.state",)),
    "a script that exchanges buffers": (ReturningOld, scripted, ("state.inner.old", "state.inner.new")),
    "a script that makes its state late": (Late, scripted, ("state.inner.state",)),
    "a trace that writes a part of a buffer": (Accumulating, traced, ("state.inner.state",)),
    "a program that writes a part of a buffer": (Accumulating, exported, ("state.inner.state",)),
    "a program that writes a buffer by another name": (Aliasing, exported, ("state.inner.state",)),
    "a graph that writes a buffer in place": (Adding, graph, ("state.inner.state",)),
}


@pytest.mark.parametrize(("kind", "save", "names"), KEEPING.values(), ids=KEEPING)
def test_state_becomes_inputs_and_outputs_that_follow_the_original(
    tmp_path: Path, kind: type[nn.Module], save: Save, names: tuple[str, ...]
) -> None:
    path = save(Within(kind().eval()).eval(), tmp_path / "model")
    captured = capture_file(path, "x=2x4")
    states = [spec.name for spec in captured.input_specs[captured.own_inputs :]]
    assert sorted(states) == sorted(names)
    assert states == [spec.name for spec in captured.output_specs[captured.own_outputs :]]

    calls = (captured.example, *captured.samples)
    assert [call.follows for call in calls] == [False, *[True] * (CALLS - 1)]
    original = load_model(path).eager
    for before, call in zip((None, *calls), calls, strict=False):
        with torch.no_grad():
            own = flatten_outputs(original(torch.from_numpy(call.inputs[0])))
        np.testing.assert_allclose(call.references[0], own[0].numpy(), rtol=1e-5)
        if before is not None:
            assert all(map(np.array_equal, call.inputs[1:], before.references[1:]))


@pytest.mark.parametrize("save", [scripted, exported, graph])
def test_states_of_one_name_in_nested_modules_stay_apart(tmp_path: Path, save: Save) -> None:
    captured = capture_file(save(Holding().eval(), tmp_path / "model"), "x=2x4")
    initial = dict(zip((spec.name for spec in captured.input_specs), captured.inputs, strict=True))
    own, held = sorted(initial.keys() - {captured.input_specs[0].name}, key=len)
    assert (initial[own].max(), initial[held].max()) == (0, 1)


class Twins(nn.Module):
    """A weight and a buffer of two names each; a run changes the buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("state", torch.ones(4))
        self.register_buffer("again", self.state)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state.add_(x.mean(0))
        return self.second(x) * self.again


def test_a_buffer_of_two_names_is_one_state(tmp_path: Path) -> None:
    captured = capture_file(scripted(Twins().eval(), tmp_path / "model"), "x=2x4")
    assert list(captured.initial_state) == ["state.state"]


class Keyed(nn.Module):
    """Sums that are kept by keys which are no names of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = nn.ModuleDict({key: Adding() for key in ("conv-1", "conv_1", "x" * 200)})

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {f"y{number}": kept(x + number) for number, kept in enumerate(self.kept.values())}


def test_a_state_has_a_name_whatever_the_key_of_its_module(tmp_path: Path) -> None:
    captured = capture_file(exported(Keyed(), tmp_path / "model"), "x=2x4")
    assert captured.state_buffers == ("kept.conv-1.state", "kept.conv_1.state", f"kept.{'x' * 200}.state")
    dashed, plain, long = captured.initial_state
    assert plain == "state.kept.conv_1.state"
    assert re.fullmatch(r"state\.kept\.conv_1\.state_[0-9a-f]{8}", dashed)
    assert re.fullmatch(r"state\.kept\.x{108}_[0-9a-f]{8}", long)


class TakesItsState(nn.Module):
    """Has an argument whose tensor is named as its state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(2, 4))

    def forward(self, x: torch.Tensor, state: dict[str, torch.Tensor]) -> torch.Tensor:
        self.kept.add_(x)
        return self.kept + state["kept"]


def test_an_input_with_the_name_of_a_state_is_refused(tmp_path: Path) -> None:
    error = refusal(exported(TakesItsState(), tmp_path / "model", X, {"kept": X}))
    assert error.code is ErrorCode.MODEL_STATEFUL
    assert "named 'state.kept', as is the state that the model keeps in 'kept'" in error.detail


def test_a_file_that_stores_a_state_twice_is_refused(tmp_path: Path) -> None:
    class StoredTwice(Aliasing):
        persistent = True

    error = refusal(exported(StoredTwice(), tmp_path / "model"))
    assert error.code is ErrorCode.CAPTURE_FAILED
    assert "lifted_tensor_0 is mutated" in error.detail


def test_state_that_changes_its_size_is_refused(tmp_path: Path) -> None:
    error = refusal(scripted(Growing().eval(), tmp_path / "model"), "x=2x4")
    assert error.code is ErrorCode.MODEL_STATEFUL
    assert "forward changes" in error.detail


@pytest.mark.parametrize("kind", [Switching, SwitchingInPlace])
@pytest.mark.parametrize("calls", [0, 99, 100])
def test_a_branch_on_a_buffer_that_runs_change_stays_a_branch(
    tmp_path: Path, kind: type[nn.Module], calls: int
) -> None:
    captured = capture_file(scripted(kind().eval(), tmp_path / "model"), "x=2x4")
    state = {**captured.initial_state, "state.calls": np.asarray(calls)}
    state["state.state"] = np.ones((2, 4), np.float32)

    result = captured.program.module(check_guards=False)(X, *map(as_tensor, state.values()))

    assert torch.equal(result[0], X + 1 if calls < 100 else X * 2)


def test_a_buffer_without_effect_on_outputs_is_no_state() -> None:
    class CountingOnly(Accumulating):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls.add_(1)  # type: ignore[operator]
            return x * self.state

    assert expose_state(torch.export.export(CountingOnly(), (X,))).buffers == ()


FIXED: dict[str, tuple[dict[str, object], Callable[[torch.Tensor], torch.Tensor]]] = {
    "an int": ({"rate": 8000}, lambda x: x[:, ::2].abs()),
    "an int and a float": ({"rate": 16000, "gain": 0.5}, lambda x: x.abs() * 0.5),
    "an int for a float": ({"rate": 16000, "gain": 3}, lambda x: x.abs() * 3),
    "a text": ({"rate": 16000, "mode": "plain"}, lambda x: x),
    "null": ({"rate": 16000, "mode": None}, lambda x: x.abs()),
}


@pytest.mark.parametrize(("constants", "expected"), FIXED.values(), ids=FIXED)
def test_constants_fix_arguments_of_a_script(
    tmp_path: Path, constants: dict[str, object], expected: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    captured = capture_file(scripted(Resampling(), tmp_path / "model"), "x=2x4", constants=constants)
    (x,) = captured.inputs
    np.testing.assert_array_equal(captured.references[0], expected(torch.from_numpy(x)).numpy())
    found = captured.program.module()(torch.from_numpy(x))
    np.testing.assert_array_equal(flatten_outputs(found)[0].numpy(), captured.references[0])


REFUSED: dict[str, tuple[dict[str, object], ErrorCode, str]] = {
    "missing": ({}, ErrorCode.CONSTANTS_MISSING, "'rate' has the type int and no default"),
    "of another type": (
        {"rate": "fast"},
        ErrorCode.INPUTS_MISMATCH,
        "'rate' has the type int; it cannot be 'fast'",
    ),
    "a bool for an int": ({"rate": True}, ErrorCode.INPUTS_MISMATCH, "it cannot be True (bool)"),
    "null for an int": ({"rate": None}, ErrorCode.INPUTS_MISMATCH, "it cannot be null"),
    "unknown": ({"rate": 1, "speed": 2}, ErrorCode.INPUTS_MISMATCH, "the model has no argument 'speed'"),
}


@pytest.mark.parametrize(("constants", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_a_constant_that_does_not_fit_is_refused(
    tmp_path: Path, constants: dict[str, object], code: ErrorCode, words: str
) -> None:
    error = refusal(scripted(Resampling(), tmp_path / "model"), "x=2x4", constants=constants)
    assert error.code is code
    assert words in error.detail


def test_an_inspection_lists_arguments_that_are_not_tensors(tmp_path: Path) -> None:
    signature = inspect_model(scripted(Resampling(), tmp_path / "model")).signature
    assert signature.input_names == ("x",)
    found = [(each.name, each.type, each.required) for each in signature.constants]
    assert found == [("rate", "int", True), ("gain", "float", False), ("mode", "Optional[str]", False)]


def test_a_program_accepts_only_the_constants_of_its_file(tmp_path: Path) -> None:
    exported(Resampling(), tmp_path / "model", X, 8000)
    assert capture_file(tmp_path / "model", constants={"rate": 8000}).references[0].shape == (2, 2)
    error = refusal(tmp_path / "model", constants={"rate": 16000})
    assert error.code is ErrorCode.INPUTS_MISMATCH
    assert "the file fixes the argument 'rate' at 8000" in error.detail


def test_constants_fix_placeholders_of_a_graph(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, factor: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
            return x * factor + shift

    path = graph(Scaled(), tmp_path / "model")
    captured = capture_file(path, "x=2x4", "shift=2x4", constants={"factor": 3.0})
    x, shift = captured.inputs
    np.testing.assert_allclose(captured.references[0], x * 3 + shift, rtol=1e-6)


class Remembering(nn.Module):
    """Its argument has the name of the argument for the state, and its state begins without values."""

    last: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.full((2, 4), torch.nan))

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        before = self.last.clone()
        self.last.copy_(state)
        return before


def test_entry_points_share_a_state_that_begins_with_nan(tmp_path: Path) -> None:
    path = exported(Remembering().eval(), tmp_path / "model")
    captured = capture_file(path, entries={"one": {}, "two": {}})
    assert [list(entry.initial_state) for entry in captured.entries] == [["state.last"]] * 2


def test_the_argument_for_the_state_has_a_name_of_its_own(tmp_path: Path) -> None:
    captured = capture_file(exported(Remembering().eval(), tmp_path / "model"), stateless=True)
    assert str(call_of(captured)) == (
        "(state, *, state_2: {'last': state.last}) -> (output, {'last': state.last})"
    )


class Masking(nn.Module):
    """Fills a tensor of its own in place, as Swin Transformers do for each of their masks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x.new_zeros(x.shape)
        mask[:1, 1:].fill_(1.0)
        mask[1:].view(-1)[0] = 2.0
        return x * mask


class Rectifying(nn.Module):
    """Writes to the result of a layer in place, as ResNets do."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(2, 2, 1)
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.convolution(x[None])).relu_()[0]


@pytest.mark.parametrize("model", [Masking, Rectifying])
def test_a_program_is_made_functional_only_if_it_may_write_to_its_inputs(
    monkeypatch: pytest.MonkeyPatch, model: type[nn.Module]
) -> None:
    made: list[object] = []
    own = torch.export.ExportedProgram.run_decompositions

    def counted(program: torch.export.ExportedProgram, *arguments: object) -> torch.export.ExportedProgram:
        made.append(program)
        return own(program, *arguments)

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", counted)
    own_memory, adding = (
        torch.export.export(one().eval(), (X[:2, :4],), strict=False) for one in (model, Adding)
    )

    assert expose_state(own_memory).program is own_memory
    assert not made
    assert expose_state(adding).buffers == ("state",)
    assert len(made) == 1


def test_operators_that_never_return_a_view_return_memory_of_their_own() -> None:
    x, ones = torch.ones(1, 2, 2), torch.ones(2)
    calls: dict[str, tuple[object, ...]] = {
        "aten.batch_norm.default": (x, None, None, ones * 0, ones, False, 0.1, 0.0, False),
        "aten.conv1d.default": (x, torch.eye(2)[..., None]),
        "aten.conv2d.default": (x, torch.ones(1, 1, 1, 1)),
        "aten.conv3d.default": (x[None], torch.ones(1, 1, 1, 1, 1)),
        "aten.group_norm.default": (x, 1),
        "aten.layer_norm.default": (x, (2,)),
        "aten.linear.default": (x, torch.eye(2)),
    }
    assert {str(operator) for operator in NEVER_VIEWS} == calls.keys()
    for operator in NEVER_VIEWS:
        result = operator(*calls[str(operator)])
        assert result.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
