"""Libraries with several entry points."""

import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bundle_samples import NEEDS_COMPILER, execute, paste_program
from capture_samples import TARGET, capture_file, exported, refusal, scripted
from package_samples import benchmark_result, compile_to_bundle
from stage_samples import compile_and_verify, compile_to_library, optimized
from torch import nn
from torch.export.pt2_archive._package import package_pt2
from tvm import relax

from bessemer.bundle.manifest import LIBRARY, PARAMETERS, Manifest
from bessemer.contract.base import now
from bessemer.contract.problem import ErrorCode
from bessemer.contract.request import CompilationRequest, Entry
from bessemer.contract.target import PresetTarget
from worker.compiler.frontend.load import inspect_model
from worker.compiler.pipeline.benchmark import with_tokens
from worker.compiler.pipeline.capture import capture
from worker.compiler.pipeline.verify import verify
from worker.compiler.target import compile_target
from worker.compiler.values import Benchmarked, StageContext, Upload, Verified
from worker.errors import JobError
from worker.package.document import make_report
from worker.parameters import PREPARE, write_parameters
from worker.report.render import render

LENGTH = 16
IN_PYTHON = """
import json
import numpy as np
from run import InputError, load

model = load(".")
def first_tokens(session):
    session.run({"tokens": np.arange(8), "position": np.arange(8)})
    return [
        session.run({"tokens": np.array([at]), "position": np.array([at])}, entry="decode")["output"].tolist()
        for at in range(8, 12)
    ]
session = model.session()
found = first_tokens(session)
session.reset()
again = first_tokens(session)
try:
    model.run({}, entry="other")
except InputError as error:
    refused = str(error)
print(json.dumps({"found": found, "again": again, "refused": refused, "names": list(model.entries),
                  "state": list(model.state)}))
"""


class Cached(nn.Module):
    """Attends to the rows that earlier runs wrote."""

    def __init__(self, first: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(64, 32)
        self.output = nn.Linear(32, 64)
        self.register_buffer("cache", torch.full((LENGTH, 32), first))

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        rows = self.embed(tokens)
        self.cache.index_copy_(0, position, rows)
        return self.output(torch.softmax(rows @ self.cache.T, -1) @ self.cache)


class Codec(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(8, 4)
        self.decoder = nn.Linear(4, 8)

    @torch.jit.export
    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.encoder(x))

    @torch.jit.export
    def decode(self, code: torch.Tensor, gain: int) -> torch.Tensor:
        return self.decoder(code) * gain


class Accumulator(nn.Module):
    """Methods that change a buffer, only read it, and only write it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.scale = nn.Linear(4, 4)

    @torch.jit.export
    def step(self, x: torch.Tensor) -> torch.Tensor:
        self.total = self.total * 0.5 + self.scale(x)
        return self.total

    @torch.jit.export
    def peek(self, x: torch.Tensor) -> torch.Tensor:
        return self.total * x

    @torch.jit.export
    def write(self, x: torch.Tensor) -> torch.Tensor:
        self.total = self.scale(x) * 3.0
        return x.sum()


def programs(path: Path, other: nn.Module | None = None) -> Path:
    """A file with the programs ``decode`` and ``prefill``."""
    model = Cached().eval()
    lengths = {"prefill": (model, 8), "decode": (other or model, 1)}
    exported = {
        name: torch.export.export(one, (torch.arange(count), torch.arange(count)))
        for name, (one, count) in lengths.items()
    }
    package_pt2(str(path), exported_programs=exported)
    return path


def shifted(path: Path) -> Path:
    """The programs, of which ``decode`` has another bias."""
    other = Cached().eval()
    with torch.no_grad():
        other.output.bias += 1
    return programs(path, other)


def codec(path: Path) -> Path:
    return scripted(Codec().eval(), path)


def perceptron(path: Path) -> Path:
    layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).eval()
    return scripted(layers, path)


def spec(name: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "shape": shape}


PREFILL_AND_DECODE: dict[str, Any] = {"prefill": {}, "decode": {}}
ENCODE_AND_DECODE: dict[str, Any] = {
    "encode": {"inputs": [spec("x", 2, 8)]},
    "back": {"method": "decode", "inputs": [spec("code", 2, 4)], "constants": {"gain": 3}},
}
TWO_SIZES: dict[str, Any] = {
    "large": {"inputs": [spec("input", 64, 256)]},
    "small": {"inputs": [spec("input", 1, 256)]},
}


@pytest.mark.sampled
@pytest.mark.parametrize("parameters", ["bound", "separate"])
def test_programs_of_one_file_share_their_state(
    parameters: str, context: StageContext, tmp_path: Path
) -> None:
    captured = capture_file(programs(tmp_path / "model"), entries=PREFILL_AND_DECODE, parameters=parameters)
    ran = execute([sys.executable, "-c", IN_PYTHON], compile_to_bundle(captured, context))
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    model = Cached().eval()
    with torch.no_grad():
        model(torch.arange(8), torch.arange(8))
        expected = [model(torch.tensor([at]), torch.tensor([at])).tolist() for at in range(8, 12)]
    np.testing.assert_allclose(found["found"], expected, rtol=1e-4, atol=1e-5)
    assert found["again"] == found["found"]
    assert found["refused"] == "unknown entry 'other': the library has prefill, decode"
    assert (found["names"], found["state"]) == (["prefill", "decode"], ["state.cache"])


class Cleared(nn.Module):
    """A cache and its copy, which methods fill, clear, and write in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(4, 2))
        self.register_buffer("saved", torch.ones(4, 2))

    @torch.jit.export
    def write(self, rows: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.cache.index_copy_(0, at, rows)
        return self.cache.sum(0), self.saved.sum(0)

    @torch.jit.export
    def fill(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.copy_(x)
        self.saved.copy_(x)
        return x.sum()

    @torch.jit.export
    def add(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.copy_(self.cache + x)
        self.saved.copy_(self.cache)
        return x.sum()

    @torch.jit.export
    def clear(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.zero_()
        self.saved.zero_()
        return x.sum()


IN_SESSIONS = """
import json
import numpy as np
from run import load

model = load(".")
x = np.ones((4, 2), np.float32)
sessions = [model.session(), model.session()]
for session in sessions:
    session.run({"x": x}, entry="FIRST")
written = sessions[0].run({"rows": x[:1] * 5, "at": np.array([1])}, entry="write")
print(json.dumps([written["output_0"].tolist(), written["output_1"].tolist(),
                  [sessions[1].state[name].sum(0).tolist() for name in ("state.cache", "state.saved")]]))
"""


@pytest.mark.sampled
@pytest.mark.parametrize("first", ["fill", "add", "clear"])
def test_a_write_in_place_changes_neither_another_state_nor_another_session(
    first: str, context: StageContext, tmp_path: Path
) -> None:
    scripted(Cleared(), tmp_path / "model")
    rows = {"inputs": [spec("rows", 1, 2), {"name": "at", "shape": (1,), "dtype": "int64"}]}
    captured = capture_file(tmp_path / "model", entries={"write": rows, first: {"inputs": [spec("x", 4, 2)]}})
    ran = execute(
        [sys.executable, "-c", IN_SESSIONS.replace("FIRST", first)], compile_to_bundle(captured, context)
    )
    assert ran.returncode == 0, ran.stderr
    model, x = Cleared(), torch.ones(4, 2)
    getattr(model, first)(x)
    before = [model.cache.sum(0).tolist(), model.saved.sum(0).tolist()]
    written = [each.tolist() for each in model.write(x[:1] * 5, torch.tensor([1]))]
    assert json.loads(ran.stdout) == [*written, before]


INTERLEAVED = """
import json
import numpy as np
from run import load

model = load(".")
x = np.arange(4, dtype=np.float32)
order = {order!r}
results = [model.run({{"x": x + at}}, entry=name)["output"] for at, name in enumerate(order)]
print(json.dumps([result.tolist() for result in results]))
"""


@pytest.mark.sampled
@pytest.mark.parametrize("parameters", ["bound", "separate"])
@pytest.mark.parametrize(
    "order",
    [
        ("step", "peek", "step", "peek"),
        ("step", "step", "write", "step"),
        ("write", "peek", "peek", "write", "peek"),
    ],
    ids=" ".join,
)
def test_entry_points_that_only_read_or_write_a_state_share_it(
    order: tuple[str, ...], parameters: str, context: StageContext, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    original = torch.jit.script(Accumulator().eval())
    torch.jit.save(original, tmp_path / "model")
    entries = {name: {"inputs": [spec("x", 4)]} for name in dict.fromkeys(order)}
    folder = compile_to_bundle(
        capture_file(tmp_path / "model", entries=entries, parameters=parameters), context
    )

    ran = execute([sys.executable, "-c", INTERLEAVED.format(order=order)], folder)

    assert ran.returncode == 0, ran.stderr
    with torch.no_grad():
        expected = [getattr(original, name)(torch.arange(4.0) + at) for at, name in enumerate(order)]
    for one, other in zip(json.loads(ran.stdout), expected, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-4, atol=1e-5)


def accumulator(path: Path) -> Path:
    torch.manual_seed(0)
    return scripted(Accumulator().eval(), path)


THREE_METHODS = {name: {"inputs": [spec("x", 4)]} for name in ("step", "peek", "write")}


@pytest.mark.parametrize(("make", "entries"), [(accumulator, THREE_METHODS), (programs, PREFILL_AND_DECODE)])
def test_originals_take_turns_with_their_shared_state(
    make: Callable[[Path], Path], entries: dict[str, Any], tmp_path: Path
) -> None:
    captured = capture_file(make(tmp_path / "model"), entries=entries)

    names = [turn.entry for turn in captured.turns]
    assert len(names) >= 8
    assert {*pairwise(names)} >= {*pairwise(entries), *pairwise(reversed(entries))}
    last: dict[str, np.ndarray] = {}
    for turn in captured.turns:
        (entry,) = (each for each in captured.entries if each.name == turn.entry)
        (state,) = entry.initial_state
        np.testing.assert_array_equal(turn.sample.inputs[-1], last.get(state, entry.initial_state[state]))
        last[state] = turn.sample.references[-1]


def test_an_entry_point_that_misses_a_shared_state_fails_the_verification(
    context: StageContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.compiler.pipeline.capture.shared_state", lambda uses: frozenset[str]())
    captured = capture_file(accumulator(tmp_path / "model"), entries=THREE_METHODS)
    built = compile_to_library(captured, context)

    with pytest.raises(JobError) as caught:
        verify(built, context)

    assert caught.value.code is ErrorCode.VERIFY_MISMATCH
    assert caught.value.detail.startswith(
        "in call 2 of entry points that take turns (step, peek): output 'output': 4 of 4 elements differ"
    )


@pytest.mark.parametrize("entries", [{}, TWO_SIZES])
def test_there_are_no_turns_without_state(entries: dict[str, Any], tmp_path: Path) -> None:
    inputs = () if entries else ("input=1x256",)
    assert not capture_file(perceptron(tmp_path / "model"), *inputs, entries=entries).turns


class Stepping(nn.Module):
    """A method that reads a number of a buffer, and one that changes it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))
        self.register_buffer("table", torch.randn(8, 4))

    @torch.jit.export
    def read(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table[int(self.place.item())]

    @torch.jit.export
    def advance(self, x: torch.Tensor) -> torch.Tensor:
        self.place.add_(1)
        return x * 2


def test_a_number_of_a_buffer_that_another_entry_point_changes_is_refused(
    context: StageContext, tmp_path: Path
) -> None:
    scripted(Stepping(), tmp_path / "model")
    inputs = {"inputs": [spec("x", 4)]}
    captured = capture_file(tmp_path / "model", entries={"read": inputs, "advance": inputs})

    with pytest.raises(JobError) as caught:
        compile_and_verify(captured, context)

    assert caught.value.code is ErrorCode.VERIFY_MISMATCH
    assert "takes from a buffer, by .item() or int(), is fixed" in caught.value.detail


def test_a_decoder_continues_a_prompt_as_torch_does(context: StageContext, tmp_path: Path) -> None:
    folder = compile_to_bundle(
        capture_file(programs(tmp_path / "model"), entries=PREFILL_AND_DECODE), context
    )
    prompt, steps = list(range(10)), 6
    command = ("generate", folder, "--tokens", ",".join(map(str, prompt)), "--steps", str(steps), "--json")
    ran = execute([sys.executable, "-m", "bessemer", *command], Path.cwd())
    assert ran.returncode == 0, ran.stderr
    model, expected = Cached().eval(), list(prompt)
    with torch.no_grad():
        for at in range(len(prompt) + steps - 1):
            logits = model(torch.tensor(expected[at : at + 1]), torch.tensor([at]))
            expected += [int(logits.argmax())] if at >= len(prompt) - 1 else []
    assert json.loads(ran.stdout)["tokens"] == expected[len(prompt) :]


class Padded(nn.Module):
    """Token 0 is padding, whose row in the cache is what the cache begins with."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(64, 32, padding_idx=0)
        self.register_buffer("cache", torch.zeros(LENGTH, 32))

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(0, position, self.embed(tokens))
        return self.cache.sum(0, keepdim=True) @ self.embed.weight.T


def test_the_length_of_a_cache_does_not_depend_on_the_first_token(
    context: StageContext, tmp_path: Path
) -> None:
    path = exported(Padded().eval(), tmp_path / "model", torch.arange(1), torch.arange(1))
    folder = compile_to_bundle(capture_file(path), context)
    command = (sys.executable, "-m", "bessemer", "generate", folder, "--tokens", "3,5", "--steps")
    full, beyond = (execute([*command, str(steps)], Path.cwd()) for steps in (LENGTH - 1, LENGTH))
    assert (full.returncode, beyond.returncode) == (0, 2), full.stderr
    assert f"the decoder's cache holds {LENGTH} tokens" in beyond.stderr


def test_a_bundle_that_takes_no_token_cannot_generate(context: StageContext, tmp_path: Path) -> None:
    captured = capture_file(perceptron(tmp_path / "model"), "input=1x256")
    folder = compile_to_bundle(captured, context)
    ran = execute([sys.executable, "-m", "bessemer", "generate", folder, "--tokens", "1"], Path.cwd())
    assert ran.returncode == 2
    assert "no entry point takes one token, alone or with its position (main: input=1x256" in ran.stderr


@pytest.mark.sampled
@NEEDS_COMPILER
@pytest.mark.parametrize("parameters", ["bound", "separate"])
def test_the_program_of_the_readme_runs_every_entry_point(
    parameters: str, context: StageContext, tmp_path: Path
) -> None:
    captured = capture_file(programs(tmp_path / "model"), entries=PREFILL_AND_DECODE, parameters=parameters)
    folder = compile_to_bundle(captured, context)
    ran = execute(["bash", "-e", "-c", paste_program(folder)], folder)
    assert ran.returncode == 0, ran.stderr
    shown = [[float(number) for number in line.split()[1:17]] for line in ran.stdout.splitlines()]
    for entry, found in zip(captured.entries, shown, strict=True):
        np.testing.assert_allclose(found, entry.references[0].ravel()[:16], rtol=1e-3, atol=1e-4)
    refused = execute([folder / "main", "decode"], tmp_path)
    assert refused.returncode == 1
    usage = "prefill tokens.npy position.npy | decode tokens.npy position.npy"
    assert f"usage: main {usage}" in refused.stderr


def test_methods_of_a_script_are_entry_points(context: StageContext, tmp_path: Path) -> None:
    path = codec(tmp_path / "model")
    assert inspect_model(path).method == "decode"
    captured = capture_file(path, entries=ENCODE_AND_DECODE)
    assert [entry.function for entry in captured.entries] == ["main", "entry_back"]
    folder = compile_to_bundle(captured, context)
    for entry in ENCODE_AND_DECODE:
        ran = execute([sys.executable, "run.py", "--entry", entry], folder)
        assert (ran.returncode, "matches the reference" in ran.stdout) == (0, True), ran.stderr


def test_entry_points_share_their_parameters(context: StageContext, tmp_path: Path) -> None:
    captured = capture_file(perceptron(tmp_path / "model"), entries=TWO_SIZES)
    folder = compile_to_bundle(captured, context)
    parameter_bytes = 4 * captured.parameters
    assert parameter_bytes < (folder / LIBRARY).stat().st_size < 1.5 * parameter_bytes
    manifest = Manifest.read_json((folder / "manifest.json").read_bytes())
    assert [entry.name for entry in (manifest, *manifest.entries)] == ["large", "small"]


def test_entry_points_prepare_a_separate_parameter_once(context: StageContext, tmp_path: Path) -> None:
    captured = capture_file(perceptron(tmp_path / "model"), entries=TWO_SIZES, parameters="separate")
    module = optimized(captured, context).module
    prepared = module[PREPARE].ret_ty.fields
    assert len(prepared) == 4
    for name in ("main", "entry_small"):
        assert [one.ty for one in module[name].params[1:]] == list(prepared)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(256, 256) / 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(nn.functional.linear(x, self.weight).relu(), self.weight)


def test_a_parameter_that_is_used_twice_is_prepared_once(context: StageContext, tmp_path: Path) -> None:
    path = scripted(Twice().eval(), tmp_path / "model")
    entries = {name: {"inputs": [spec("x", rows, 256)]} for name, rows in (("large", 64), ("small", 1))}
    module = optimized(capture_file(path, entries=entries, parameters="separate"), context).module
    prepared = list(module[PREPARE].ret_ty.fields)
    for name in ("main", "entry_small"):
        assert [one.ty for one in module[name].params[1:]] == prepared
        assert not relax.analysis.free_vars(module[name])


def test_every_entry_point_runs_with_other_parameters(context: StageContext, tmp_path: Path) -> None:
    captured = capture_file(perceptron(tmp_path / "model"), entries=TWO_SIZES, parameters="separate")
    folder = compile_to_bundle(captured, context)
    assert (folder / PARAMETERS).stat().st_size < 1.01 * 4 * captured.parameters
    torch.manual_seed(1)
    other = torch.jit.load(perceptron(tmp_path / "other"))
    swapped = write_parameters(tmp_path / "other.safetensors", other.state_dict()).path
    for entry in captured.entries:
        np.save(tmp_path / "input.npy", entry.inputs[0])
        given = ("--input", f"input={tmp_path / 'input.npy'}", "--output", tmp_path / "out.npz")
        run = [sys.executable, "run.py", "--entry", entry.name, "--parameters", swapped, *given]
        ran = execute(run, folder)
        assert ran.returncode == 0, ran.stderr
        expected = other(torch.from_numpy(entry.inputs[0])).detach().numpy()
        np.testing.assert_allclose(np.load(tmp_path / "out.npz")["output"], expected, rtol=1e-4, atol=1e-5)


def test_parameters_of_one_name_and_other_values_are_both_in_the_file(
    context: StageContext, tmp_path: Path
) -> None:
    captured = capture_file(shifted(tmp_path / "model"), entries=PREFILL_AND_DECODE, parameters="separate")
    verified = compile_and_verify(captured, context)
    assert verified.built.parameters is not None
    names = [tensor.name for tensor in verified.built.parameters.tensors]
    assert names == ["embed.weight", "output.weight", "output.bias", "decode.output.bias"]


def test_a_function_that_entry_points_share_is_compiled_once(context: StageContext, tmp_path: Path) -> None:
    same = {name: {"inputs": [spec("input", 4, 256)]} for name in ("one", "other")}
    module = optimized(capture_file(perceptron(tmp_path / "model"), entries=same), context).module
    kernels = [each for each in module.functions.values() if not isinstance(each, relax.Function)]
    assert len(kernels) == 2


@pytest.mark.sampled
@pytest.mark.parametrize("parameters", ["bound", "separate"])
def test_parameters_of_several_files_are_in_the_library_once(
    parameters: str, context: StageContext, tmp_path: Path
) -> None:
    layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).eval()
    paths = [tmp_path / "large.pt2", tmp_path / "small.pt2"]
    for path, rows in zip(paths, (64, 1), strict=True):
        exported(layers, path, torch.randn(rows, 256))
    request = CompilationRequest(
        model="0" * 64,
        target=PresetTarget(preset="host"),
        entries={"large": Entry(), "small": Entry(model="1" * 64)},
        parameters=parameters,
    )
    upload = Upload(paths[0], request, compile_target(TARGET), own_models={"1" * 64: paths[1]})
    captured = capture(upload, context)
    assert [entry.input_specs[0].shape for entry in captured.entries] == [(64, 256), (1, 256)]
    folder = compile_to_bundle(captured, context)
    size = (folder / (LIBRARY if parameters == "bound" else PARAMETERS)).stat().st_size
    assert 1 <= size / (4 * captured.parameters) < 1.5
    ran = execute([sys.executable, "run.py", "--entry", "small"], folder)
    assert (ran.returncode, "matches the reference" in ran.stdout) == (0, True), ran.stderr


def test_the_report_counts_the_parameters_of_all_entry_points(context: StageContext, tmp_path: Path) -> None:
    captured = capture_file(shifted(tmp_path / "model"), entries=PREFILL_AND_DECODE)
    verified = compile_and_verify(captured, context)
    result = benchmark_result(verified.built.library)
    report = make_report(Benchmarked(verified, result, (result,)), context, now())
    (decode,) = verified.captured.others
    assert report.model_parameters == decode.parameters + Cached().output.bias.numel()
    page = render(report)
    assert '<th scope="row">prefill: <code>output=8x64:float32' in page
    assert '<th scope="row">decode: <code>output=1x64:float32' in page
    assert "over 2 outputs of 2 entry points" in page


@pytest.mark.parametrize(
    ("make", "entries", "code", "message"),
    [
        (codec, {}, ErrorCode.MODEL_FORWARD_MISSING, "the model has 'decode', 'encode', but no 'forward'"),
        (
            codec,
            {"one": {"method": "other"}},
            ErrorCode.METHOD_MISSING,
            "entry 'one': the model has 'decode', 'encode', but no 'other'",
        ),
        (
            perceptron,
            {**TWO_SIZES, "third": {}},
            ErrorCode.INPUTS_MISSING,
            "entry 'third': ",
        ),
        (
            lambda path: programs(path, Cached(first=1.0).eval()),
            PREFILL_AND_DECODE,
            ErrorCode.MODEL_STATEFUL,
            "entry 'decode': the state 'cache' begins as float32[16, 32] with other values",
        ),
    ],
)
def test_an_invalid_entry_point_is_named(
    tmp_path: Path, make: Callable[[Path], Path], entries: dict[str, Any], code: ErrorCode, message: str
) -> None:
    error = refusal(make(tmp_path / "model"), entries=entries)
    assert error.code is code
    assert error.detail.startswith(message)


def test_the_report_of_a_decoder_has_tokens_per_second(context: StageContext, tmp_path: Path) -> None:
    captured = capture_file(programs(tmp_path / "model"), entries=PREFILL_AND_DECODE)
    built = compile_to_library(captured, context)
    results = with_tokens(captured.entries, (benchmark_result(built.library),) * 2)
    for result, tokens in zip(results, (8, 1), strict=True):
        assert result.tokens == tokens
        assert result.tokens_per_second == pytest.approx(1000 * tokens / result.latency.p50_ms)
        assert [peer.tokens_per_second for peer in result.baselines] == [
            pytest.approx(1000 * tokens / peer.latency.p50_ms) for peer in result.baselines
        ]
    measured = Benchmarked(Verified(built, captured, (), ((),)), results[0], results[1:])
    report = make_report(measured, context, now())
    assert report.model_parameters == captured.parameters
    page = render(report)
    for row in ("Input of prefill", "Input of decode", "State of prefill", "State of decode"):
        assert f'<th scope="row">{row}</th>' in page
    assert "<h2>Tokens per second</h2>" in page
    assert '<th scope="row">prefill</th><td>reads 8 tokens of a prompt</td>' in page
    assert '<th scope="row">decode</th><td>writes the next token</td>' in page
