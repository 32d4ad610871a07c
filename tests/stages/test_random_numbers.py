"""Random operators are functions of a seed, with torch's distributions, in torch and in the library."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bundle_samples import NEEDS_COMPILER, execute, paste_program, printed
from capture_samples import capture_file, exported, scripted, traced
from package_samples import compile_to_bundle
from program_runs import run_program
from stage_samples import Function, make_context
from torch import Tensor, nn
from torch.nn import functional as F

from bessemer.bundle.manifest import Manifest
from worker.candidates.client import CandidateClient
from worker.compiler.frontend.outputs import flatten_outputs
from worker.compiler.frontend.seeds import SeededProgram, take_seed
from worker.compiler.pipeline.translate import translate
from worker.compiler.random_numbers import MULTIPLIERS, WORD, philox
from worker.compiler.values import StageContext
from worker.errors import OperatorsUnsupportedError

COUNT = 20_000
SEEDS = (1, 2**40 + 3)

Draw = Callable[[Tensor], Any]

pytestmark = pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")


def seeded(body: Draw, x: Tensor) -> SeededProgram:
    program = torch.export.export(Function(lambda _, x: body(x)), (x,))
    found = take_seed(program, ["x"])
    assert found is not None
    return found


def drawn(body: Draw, x: Tensor, seed: int) -> Tensor:
    return flatten_outputs(seeded(body, x).program.module(check_guards=False)(x, torch.tensor(seed)))[0]


def philox_in_python(seed: int, stream: int, index: int) -> int:
    """Philox-4x32-10 as the paper writes it."""
    counter = [index & WORD, index >> 32, stream & WORD, stream >> 32]
    key = [seed & WORD, seed >> 32]
    for _ in range(10):
        first, second = MULTIPLIERS[0] * counter[0], MULTIPLIERS[1] * counter[2]
        counter = [
            (second >> 32) ^ counter[1] ^ key[0],
            second & WORD,
            (first >> 32) ^ counter[3] ^ key[1],
            first & WORD,
        ]
        key = [(key[0] + 0x9E3779B9) & WORD, (key[1] + 0xBB67AE85) & WORD]
    return counter[0] | counter[1] << 32


def test_the_bits_are_those_of_philox() -> None:
    """The first value is that of Random123's known answers for zeros."""
    assert philox_in_python(0, 0, 0) == 0xE169C58D6627E8D5
    seed = 0x299F31D0A4093822
    found = philox(torch.tensor(seed), 7, (2, 3)).flatten().tolist()
    assert [value % 2**64 for value in found] == [philox_in_python(seed, 7, at) for at in range(6)]


def uniform(start: float = 0, end: float = 1) -> Callable[[Tensor], Tensor]:
    return lambda x: ((x - start) / (end - start)).clamp(0, 1)


def normal(mean: float = 0, std: float = 1) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.special.ndtr((x - mean) / std)


ZEROS = torch.zeros(COUNT)
CONTINUOUS: dict[str, tuple[Draw, Callable[[Tensor], Tensor]]] = {
    "rand": (lambda x: torch.rand(COUNT), uniform()),
    "rand in float64": (lambda x: torch.rand(COUNT, dtype=torch.float64), uniform()),
    "rand_like": (torch.rand_like, uniform()),
    "uniform_": (lambda x: x.clone().uniform_(-2, 5), uniform(-2, 5)),
    "randn": (lambda x: torch.randn(COUNT), normal()),
    "randn in float64": (lambda x: torch.randn(COUNT, dtype=torch.float64), normal()),
    "randn_like": (torch.randn_like, normal()),
    "normal_": (lambda x: x.clone().normal_(3, 2), normal(3, 2)),
    "normal of a tensor": (lambda x: torch.normal(x, 2.0), normal(0, 2)),
    "normal of two tensors": (lambda x: torch.normal(x + 1, torch.ones(COUNT)), normal(1, 1)),
    "normal with a tensor of deviations": (lambda x: torch.normal(1.0, x + 3), normal(1, 3)),
    "normal of a size": (lambda x: torch.normal(1.0, 3.0, (COUNT,)), normal(1, 3)),
    "log_normal_": (lambda x: x.clone().log_normal_(0.5, 0.25).log(), normal(0.5, 0.25)),
    "exponential_": (lambda x: x.clone().exponential_(2), lambda x: 1 - torch.exp(-2 * x)),
    "cauchy_": (lambda x: x.clone().cauchy_(1, 2), lambda x: 0.5 + torch.atan((x - 1) / 2) / math.pi),
    "rrelu": (lambda x: F.rrelu(x - 1, 0.2, 0.6, training=True), uniform(-0.6, -0.2)),
    "the bits of one element after another": (
        lambda x: torch.stack([torch.rand(COUNT // 2), torch.rand(COUNT // 2)]).flatten(),
        uniform(),
    ),
}


@pytest.mark.parametrize(("body", "distribution"), CONTINUOUS.values(), ids=CONTINUOUS)
def test_continuous_numbers_have_their_distribution(
    body: Draw, distribution: Callable[[Tensor], Tensor]
) -> None:
    """Kolmogorov and Smirnov's test at a level of 1 %; neighbors do not correlate. The seed is fixed."""
    shares = distribution(drawn(body, ZEROS, 1).double())
    assert torch.corrcoef(torch.stack([shares, shares.roll(1)]))[0, 1].abs() < 3 / math.sqrt(COUNT)
    expected, share = shares.sort().values, torch.arange(COUNT + 1) / COUNT
    distance = max((expected - share[:-1]).abs().max(), (share[1:] - expected).abs().max())
    assert distance < 1.63 / math.sqrt(COUNT)


WEIGHTS = torch.tensor([0.1, 0.0, 0.3, 0.6])
DISCRETE: dict[str, tuple[Draw, dict[float, float]]] = {
    "bernoulli": (lambda x: torch.bernoulli(x + 0.3), {0: 0.7, 1: 0.3}),
    "bernoulli with a number": (lambda x: torch.bernoulli(x, 0.2), {0: 0.8, 1: 0.2}),
    "bernoulli_ with a tensor": (lambda x: x.clone().bernoulli_(x + 0.2), {0: 0.8, 1: 0.2}),
    "randint": (lambda x: torch.randint(3, (COUNT,)), dict.fromkeys((0, 1, 2), 1 / 3)),
    "randint between": (lambda x: torch.randint(-1, 2, (COUNT,)), dict.fromkeys((-1, 0, 1), 1 / 3)),
    "randint_like": (lambda x: torch.randint_like(x, 2, 4), {2: 0.5, 3: 0.5}),
    "random_": (lambda x: x.clone().random_(4), dict.fromkeys(range(4), 1 / 4)),
    "random_ of booleans": (lambda x: x.bool().random_(), {0: 0.5, 1: 0.5}),
    "random_ of the largest bytes": (
        lambda x: x.to(torch.uint8).random_() == 255,
        {0: 255 / 256, 1: 1 / 256},
    ),
    "geometric_": (lambda x: x.clone().geometric_(0.6), {1: 0.6, 2: 0.24, 3: 0.096}),
    "dropout": (lambda x: F.dropout(x + 1, 0.2), {0: 0.2, 1.25: 0.8}),
    "dropout in bfloat16": (lambda x: F.dropout(x.bfloat16() + 1, 0.1), {0: 0.1, 1.109375: 0.9}),
    "native_dropout": (lambda x: torch.native_dropout(x + 1, 0.2, True)[0], {0: 0.2, 1.25: 0.8}),
    "dropout of channels": (
        lambda x: F.dropout1d(x.reshape(-1, 1, 1) + 1, 0.2).flatten(),
        {0: 0.2, 1.25: 0.8},
    ),
    "multinomial": (lambda x: torch.multinomial(WEIGHTS.expand(COUNT, 4), 1), {0: 0.1, 2: 0.3, 3: 0.6}),
    "multinomial with replacement": (
        lambda x: torch.multinomial(WEIGHTS, COUNT, replacement=True),
        {0: 0.1, 1: 0, 2: 0.3, 3: 0.6},
    ),
    "the second of multinomial": (
        lambda x: torch.multinomial(WEIGHTS.expand(COUNT, 4), 2)[:, 1],
        {0: 0.3 / 7 + 0.6 / 4, 2: 0.1 / 3 + 0.45, 3: 0.1 * 2 / 3 + 0.3 * 6 / 7},
    ),
    "the first of randperm": (
        lambda x: torch.stack([torch.randperm(3) for _ in range(100)])[:, 0],
        dict.fromkeys(range(3), 1 / 3),
    ),
    "gumbel_softmax": (
        lambda x: F.gumbel_softmax(WEIGHTS.log().expand(COUNT, 4), hard=True).argmax(-1),
        {0: 0.1, 1: 0, 2: 0.3, 3: 0.6},
    ),
}


@pytest.mark.parametrize(("body", "expected"), DISCRETE.values(), ids=DISCRETE)
def test_discrete_numbers_have_their_probabilities(body: Draw, expected: dict[float, float]) -> None:
    """Each share lies within four standard deviations; the seed is fixed."""
    found = drawn(body, ZEROS, 1).double().flatten()
    for value, probability in expected.items():
        deviation = math.sqrt(probability * (1 - probability) / len(found))
        assert (found == value).double().mean() == pytest.approx(probability, abs=4 * deviation + 1e-12)


@pytest.mark.parametrize("drop", [F.alpha_dropout, F.feature_alpha_dropout])
def test_alpha_dropout_keeps_mean_and_variance(drop: Callable[..., Tensor]) -> None:
    found = drawn(lambda x: drop(x, 0.3, True), torch.randn(COUNT, 1, 1), 1)
    torch.testing.assert_close(found.mean(), torch.tensor(0.0), atol=0.05, rtol=0)
    torch.testing.assert_close(found.var(), torch.tensor(1.0), atol=0.05, rtol=0)


X = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))


def attend(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, x, x, dropout_p=0.4, is_causal=True)


LIBRARY: dict[str, Draw] = {
    "uniform": lambda x: (torch.rand_like(x), torch.rand(7, dtype=torch.float64), x.clone().uniform_(1, 2)),
    "normal": lambda x: (x + torch.randn_like(x), torch.randn(5, dtype=torch.float64), torch.normal(x, 2.0)),
    "halves": lambda x: (torch.rand(9, dtype=torch.float16), torch.randn(9, dtype=torch.float16)),
    "integers": lambda x: (torch.randint(2, 1000, (3, 5)), torch.randint_like(x, 7), torch.randperm(31)),
    "many integers": lambda x: torch.randint(-(2**61), 2**62, (9,)),
    "choices": lambda x: (
        torch.bernoulli(x.sigmoid()),
        torch.multinomial(x.softmax(-1)[0], 2),
        torch.multinomial(x[0].exp(), 9, True),
    ),
    "waiting": lambda x: (x.clone().exponential_(3), x.clone().geometric_(0.3), x.clone().cauchy_()),
    "drops": lambda x: (
        F.dropout(x),
        F.dropout1d(x),
        F.alpha_dropout(x, 0.3, True),
        F.rrelu(x, training=True),
    ),
    "gumbel": lambda x: F.gumbel_softmax(x, tau=0.5),
    "attention": attend,
}


@pytest.mark.sampled
@pytest.mark.parametrize("body", LIBRARY.values(), ids=LIBRARY)
def test_the_library_draws_what_torch_draws_from_the_same_seed(body: Draw) -> None:
    program = seeded(body, X).program
    run = program.module(check_guards=False)
    calls = [(X, torch.tensor(seed)) for seed in (*SEEDS, SEEDS[0])]
    found = run_program(program, *calls)
    for outputs, call in zip(found, calls, strict=True):
        expected = run(*call)
        for output, reference in zip(
            outputs, expected if isinstance(expected, tuple) else [expected], strict=True
        ):
            np.testing.assert_allclose(output, reference.numpy(), rtol=1e-4, atol=1e-5)
    assert all(map(np.array_equal, found[0], found[2]))
    assert not all(map(np.array_equal, found[0], found[1]))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_drop_between_layers_only(kind: type[nn.RNNBase]) -> None:
    module = kind(4, 5, num_layers=2, dropout=0.5, bidirectional=True)
    found = take_seed(torch.export.export(module, (X,), strict=False), ["x"])
    assert found is not None
    outputs = run_program(found.program, (X, torch.tensor(1)), (X, torch.tensor(2)))
    expected = found.program.module(check_guards=False)(X, torch.tensor(1))
    np.testing.assert_allclose(outputs[0][0], expected[0].detach().numpy(), rtol=1e-4, atol=1e-5)
    assert not np.allclose(outputs[0][0], outputs[1][0])
    first = torch.from_numpy(outputs[0][1][:2])
    torch.testing.assert_close(
        first, (module(X)[1][0] if kind is nn.LSTM else module(X)[1])[:2], atol=1e-5, rtol=1e-4
    )


AT_INFERENCE: dict[str, nn.Module] = {
    "dropout": nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.AlphaDropout()),
    "in place": nn.Sequential(nn.ReLU(), nn.Dropout(inplace=True)),
    "rrelu": nn.RReLU(),
    "recurrent layers": nn.LSTM(4, 4, num_layers=2, dropout=0.5),
    "attention": nn.TransformerEncoderLayer(4, 2, batch_first=True),
}


def test_dropping_everything_takes_no_seed() -> None:
    program = torch.export.export(Function(lambda _, x: F.dropout(x, 1.0)), (X,))
    assert take_seed(program, ["x"]) is None
    assert not run_program(program, (X,))[0][0].any()


@pytest.mark.parametrize("module", AT_INFERENCE.values(), ids=AT_INFERENCE)
def test_a_model_in_eval_mode_takes_no_seed(module: nn.Module) -> None:
    with torch.no_grad():
        assert take_seed(torch.export.export(module.eval(), (X,), strict=False), ["x"]) is None


class Sampler(nn.Module):
    """A decoder of random codes, with dropout at inference."""

    def __init__(self) -> None:
        super().__init__()
        self.decode = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        code = x + torch.randn_like(x)  # draws
        return F.dropout(self.decode(code), 0.25)


class Walk(nn.Module):
    """A random walk."""

    place: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("place", torch.zeros(2, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.place += x * torch.randn_like(x)
        return self.place * 1.0


class Taking(nn.Module):
    """A model whose own input is called as the seed would be."""

    def forward(self, seed: Tensor) -> Tensor:
        return seed + torch.rand_like(seed)


Save = Callable[[nn.Module, Path], Path]


@pytest.fixture
def bundled(context: StageContext, tmp_path: Path) -> Callable[..., Path]:
    """Compiles a model whose input is x=2x4."""

    def compiled(module: nn.Module, save: Save, *inputs: str) -> Path:
        path = save(module.eval(), tmp_path / "model")
        return compile_to_bundle(capture_file(path, *inputs), context)

    return compiled


@pytest.fixture(scope="module")
def sampler_made(server: CandidateClient, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of an exported sampler."""
    folder = tmp_path_factory.mktemp("sampler")
    captured = capture_file(exported(Sampler().eval(), folder / "model"))
    return compile_to_bundle(captured, make_context(folder, server))


@pytest.fixture
def sampler(sampler_made: Path, tmp_path: Path) -> Path:
    """A copy of that bundle, for a test to write to."""
    return shutil.copytree(sampler_made, tmp_path / "sampler", symlinks=True)


IN_PYTHON = """
import json
import numpy as np
from run import load

model = load(".")
inputs = {"x": np.ones((2, 4), np.float32)}
run = lambda **given: model.run({**inputs, **given})["output"].tolist()
print(json.dumps({"seven": run(seed=7), "again": run(seed=7), "eight": run(seed=np.int64(8)),
                  "drawn": run(), "seeds": [model.seed, run() and model.seed],
                  "repeated": run(seed=model.seed), "last": model.seed}))
"""


@pytest.mark.sampled
@pytest.mark.parametrize(("save", "inputs"), [(exported, ()), (scripted, ("x=2x4",)), (traced, ())])
def test_a_bundle_draws_a_seed_unless_it_gets_one(
    bundled: Callable[..., Path], save: Save, inputs: tuple[str, ...]
) -> None:
    folder = bundled(Sampler(), save, *inputs)
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_text())
    assert manifest.seed == "seed"
    assert [str(spec) for spec in manifest.inputs] == ["x=2x4:float32", "seed=scalar:int64"]
    ran = execute([sys.executable, "-c", IN_PYTHON], folder)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["seven"] == found["again"] != found["eight"]
    assert found["seeds"][0] != found["seeds"][1] == found["last"]
    assert found["drawn"] != found["repeated"]
    assert "`seed`: equal seeds give equal results" in (folder / "README.md").read_text()


def test_the_command_line_repeats_a_run_by_the_seed_in_its_result(sampler: Path) -> None:
    folder = sampler
    reference = execute([sys.executable, "run.py"], folder)
    assert reference.returncode == 0, reference.stderr
    np.save(folder / "x.npy", np.ones((2, 4), np.float32))
    command = [sys.executable, "run.py", "--input", "x=x.npy", "--output", "first.npz", "--json"]
    first = execute(command, folder)
    assert first.returncode == 0, first.stderr
    with np.load(folder / "first.npz") as arrays:
        seed, expected = int(arrays["seed"]), arrays["output"]
    assert json.loads(first.stdout)["seed"] == seed
    again = [
        sys.executable,
        "run.py",
        "--input",
        "x=x.npy",
        "--input",
        f"seed={seed}",
        "--output",
        "again.npz",
    ]
    second = execute(again, folder)
    assert second.returncode == 0, second.stderr
    with np.load(folder / "again.npz") as arrays:
        assert arrays.files == ["output"]
        np.testing.assert_array_equal(arrays["output"], expected)


@NEEDS_COMPILER
def test_the_program_in_cpp_takes_the_seed_as_an_input(sampler: Path) -> None:
    ran = execute(["sh", "-e", "-c", paste_program(sampler)], sampler)
    assert ran.returncode == 0, ran.stderr
    with np.load(sampler / "reference/outputs.npz") as arrays:
        np.testing.assert_allclose(
            printed(ran.stdout)["output"], arrays["output"].ravel(), rtol=1e-3, atol=1e-4
        )


def test_a_model_that_keeps_state_draws_anew_in_each_run(bundled: Callable[..., Path]) -> None:
    folder = bundled(Walk(), exported)
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_text())
    assert [spec.name for spec in manifest.inputs] == ["x", "seed"]
    assert [spec.name for spec in manifest.state] == ["state.place"]
    ran = execute([sys.executable, "run.py"], folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_seed_gets_a_name_that_the_model_does_not_use(tmp_path: Path) -> None:
    captured = capture_file(exported(Taking(), tmp_path / "model"))
    assert [spec.name for spec in captured.input_specs] == ["seed", "seed_2"]
    assert captured.seed == "seed_2"


def test_sizes_stay_dynamic(tmp_path: Path) -> None:
    path = scripted(Sampler().eval(), tmp_path / "model")
    captured = capture_file(path, "x=batchx4", dimensions=("batch=1..64",))
    assert [spec.name for spec in captured.input_specs] == ["x", "seed"]
    assert len(captured.samples) > 1
    found = run_program(
        captured.program, *(tuple(map(torch.from_numpy, one.inputs)) for one in captured.samples)
    )
    for outputs, sample in zip(found, captured.samples, strict=True):
        np.testing.assert_allclose(outputs[0], sample.references[0], rtol=1e-4, atol=1e-5)


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + torch.rand_like(x), lambda x: x * 1.0, (x,))


def test_numbers_drawn_in_a_branch_are_refused_with_their_line(tmp_path: Path, context: StageContext) -> None:
    captured = capture_file(exported(Branching(), tmp_path / "model"))
    with pytest.raises(OperatorsUnsupportedError, match="draws random numbers in a branch") as caught:
        translate(captured, context)
    assert caught.value.places[0].operator == "aten.rand_like.default"


class Scaled(nn.Module):
    def forward(self, x: Tensor, seed: int) -> Tensor:
        return torch.rand_like(x) * seed


def test_the_seed_has_another_name_than_an_argument(tmp_path: Path) -> None:
    captured = capture_file(scripted(Scaled(), tmp_path / "model"), "x=2x4", constants={"seed": 3})
    assert (captured.seed, str(captured.call)) == ("seed_2", "(x, seed: 3) -> output")
