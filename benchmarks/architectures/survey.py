"""Takes one architecture through the stages, from a saved file to compared outputs."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
import tvm
from torch import fx, nn
from torch.utils._pytree import tree_leaves
from tvm import relax

from benchmarks.architectures.differences import distance, share_of_scale
from benchmarks.architectures.entry import Architecture, Inputs
from benchmarks.architectures.outcomes import Form, Outcome, Reached
from benchmarks.architectures.weights import calibrate, enliven
from bessemer.contract.request import CompilationRequest, Constant
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import HOST, PresetTarget, ResolvedTarget, resolve_target
from bessemer.contract.tensor import TensorSpec
from bessemer.contract.triple import LINUX_X86_64
from worker.candidates.server import fork_server
from worker.compiler.checking.compare import Array
from worker.compiler.checking.exact import exact_outputs
from worker.compiler.codegen.executable import compile_module
from worker.compiler.pipeline.capture import capture
from worker.compiler.pipeline.optimize import optimize
from worker.compiler.pipeline.pipeline import run_pipeline
from worker.compiler.pipeline.translate import translate
from worker.compiler.pipeline.verify import compare_outputs
from worker.compiler.schedules.default import schedule_rest
from worker.compiler.target import compile_target, host_mcpu
from worker.compiler.values import Captured, StageContext, Translated, Upload
from worker.errors import JobError

if TYPE_CHECKING:
    from worker.compiler.values import Arrays

Constants = Mapping[str, Constant]
NO_CONSTANTS: Constants = MappingProxyType({})

MAX_CHARACTERS = 400
FAITHFUL = 1e-3
"""The largest difference of a file's outputs from its model's, in units of the largest element."""


class UnfaithfulFileError(Exception):
    """A file that torch wrote computes something else than its model."""


def survey(
    architecture: Architecture, form: Form, until: Reached, seed: int = 0, preset: str = HOST
) -> Outcome:
    """Run the stages until one fails or ``until`` is reached; for a preset other than this machine, all."""
    start = time.perf_counter()
    outcome = Outcome(name=architecture.name, form=form, reached=Reached.NOT_MADE)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            model, inputs = _make(architecture, seed)
            path = save(model, inputs, form, Path(folder), architecture.constants)
            check_file(path, form, model, inputs, architecture.constants)
            if preset == HOST:
                _advance(outcome, path, inputs, until, architecture.constants)
            else:
                _run_elsewhere(outcome, path, inputs, preset, architecture.constants)
        except JobError as error:
            outcome.error = f"{error.code.value}: {error.detail.splitlines()[0][:MAX_CHARACTERS]}"
        except Exception as error:
            outcome.error = f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_CHARACTERS]}"
    outcome.seconds = round(time.perf_counter() - start, 1)
    return outcome


def _make(architecture: Architecture, seed: int) -> tuple[nn.Module, Inputs]:
    torch.manual_seed(seed)
    model, inputs = architecture.make()
    if not architecture.is_alive:
        enliven(model)
        calibrate(model, inputs)
    return model.requires_grad_(False), inputs


def save(
    model: nn.Module, inputs: Inputs, form: Form, folder: Path, constants: Constants = NO_CONSTANTS
) -> Path:
    """Save a model in one format."""
    path = folder / f"model.{'pt2' if form is Form.PT2 else 'pt'}"
    if form is Form.PT2:
        torch.export.save(torch.export.export(model, inputs, dict(constants), strict=False), path)
    elif form is Form.TRACED:
        torch.jit.save(torch.jit.trace(model, inputs, strict=False, check_trace=False), path)
    elif form is Form.SCRIPTED:
        torch.jit.save(torch.jit.script(model), path)
    else:
        torch.save(fx.symbolic_trace(model), path)
    return path


def check_file(
    path: Path, form: Form, model: nn.Module, inputs: Inputs, constants: Constants = NO_CONSTANTS
) -> None:
    """Check that torch itself computes the model's outputs from the file.

    Raises:
        UnfaithfulFileError: it does not.
    """
    outputs = _tensors(_load(path, form)(*inputs, **constants))
    references = _tensors(model(*inputs, **constants))
    if [one.shape for one in outputs] != [one.shape for one in references]:
        raise UnfaithfulFileError("torch loads the file, and its outputs have other shapes than the model's")
    far = max(
        (share_of_scale(ours, theirs) for ours, theirs in zip(outputs, references, strict=True)), default=0.0
    )
    if not far <= FAITHFUL:
        raise UnfaithfulFileError(
            f"torch loads the file, and its outputs are {far:.1e} of their scale from the model's"
        )


def _load(path: Path, form: Form) -> Callable[..., object]:
    if form is Form.PT2:
        return torch.export.load(path).module()
    return torch.load(path, weights_only=False) if form is Form.FX else torch.jit.load(path)


def _tensors(outputs: object) -> list[Array]:
    leaves = tree_leaves(tuple(outputs.values()) if isinstance(outputs, Mapping) else outputs)
    return [one.detach().resolve_conj().numpy() for one in leaves if isinstance(one, torch.Tensor)]


def _advance(outcome: Outcome, path: Path, inputs: Inputs, until: Reached, constants: Constants) -> None:
    context = stage_context(path.parent)
    outcome.reached = Reached.SAVED
    captured = capture(upload(path, outcome.form, inputs, constants), context)
    outcome.reached = Reached.CAPTURED
    start = time.process_time()
    translated = translate(captured, context)
    outcome.reached = Reached.TRANSLATED
    outcome.operators = _operators(translated.module)
    if until is Reached.TRANSLATED:
        return
    executable = _compile(translated, context)
    outcome.reached = Reached.BUILT
    outcome.compile_seconds = round(time.process_time() - start, 2)
    if until is Reached.BUILT:
        return
    _verify(outcome, captured, _run(executable, captured))


def _run_elsewhere(outcome: Outcome, path: Path, inputs: Inputs, preset: str, constants: Constants) -> None:
    """Verify by the library's own program, under emulation."""
    outcome.reached = Reached.SAVED
    given = upload(path, outcome.form, inputs, constants)
    target = compile_target(resolve_target(PresetTarget(preset=preset), host_mcpu(), 1))
    request = given.request.model_copy(
        update={"target": PresetTarget(preset=preset), "stop_after": Stage.VERIFY}
    )
    with fork_server(path.parent) as candidates:
        context = replace(stage_context(path.parent), candidates=candidates)
        run_pipeline(replace(given, request=request, target=target), context)
    outcome.reached = Reached.VERIFIED


def _operators(module: tvm.IRModule) -> int:
    bodies = (function.body for function in module.functions.values() if isinstance(function, relax.Function))
    return sum(len(block.bindings) for body in bodies for block in body.blocks)


def _compile(translated: Translated, context: StageContext) -> relax.VMExecutable:
    module = optimize(translated, context).module
    target = translated.captured.upload.target.llvm
    return compile_module(schedule_rest(module, target), target)


def _run(executable: relax.VMExecutable, captured: Captured) -> Arrays:
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return tuple(one.numpy() for one in machine["main"](*map(tvm.runtime.tensor, captured.inputs)))


def _verify(outcome: Outcome, captured: Captured, found: Arrays) -> None:
    outcome.relative_error = distance(found, captured.references)
    try:
        comparisons = compare_outputs(found, captured, captured.example)
    except JobError:
        _weigh(outcome, captured, found)
        raise
    outcome.strict = all(one.rounding is None for one in comparisons)
    outcome.reached = Reached.VERIFIED


def _weigh(outcome: Outcome, captured: Captured, found: Arrays) -> None:
    """The distances of torch's and our result from float64."""
    exact = exact_outputs(captured.program, captured.example)
    if exact is not None:
        outcome.own_error = distance(captured.references, exact)
        outcome.exact_error = distance(found, exact)


def upload(path: Path, form: Form, inputs: Inputs, constants: Constants = NO_CONSTANTS) -> Upload:
    """A saved model with the request to compile it for this machine, with one core."""
    specs = _specs(path, form, inputs)
    fixed = {} if form in (Form.PT2, Form.TRACED) else dict(constants)
    request = CompilationRequest(
        model="0" * 64, target=PresetTarget(preset="host"), inputs=specs, constants=fixed
    )
    target = ResolvedTarget(
        name="host", kind="llvm", mcpu=host_mcpu(), triple=LINUX_X86_64, features=(), cores=1
    )
    return Upload(path=path, request=request, target=compile_target(target))


def _specs(path: Path, form: Form, inputs: Inputs) -> tuple[TensorSpec, ...]:
    """Input specs for formats that don't record them."""
    if form in (Form.PT2, Form.TRACED):
        return ()
    if form is Form.SCRIPTED:
        names = [one.name for one in torch.jit.load(path).forward.schema.arguments[1:]]
    else:
        graph = torch.load(path, weights_only=False).graph
        names = [str(node.target) for node in graph.nodes if node.op == "placeholder"]
    return tuple(
        TensorSpec.model_validate(
            {
                "name": name,
                "shape": tuple(tensor.shape),
                "dtype": str(tensor.dtype).removeprefix("torch."),
            }
        )
        for name, tensor in zip(names, inputs, strict=False)
    )


def stage_context(folder: Path) -> StageContext:
    """A context without candidates, in a folder."""
    return StageContext(
        scratch=folder,
        output=folder,
        candidates=None,  # type: ignore[arg-type]
        sandbox=SandboxStatus(mode=SandboxMode.OFF, layers=()),
        finished_stages=lambda: (),
        left_seconds=lambda: 1800.0,
    )
