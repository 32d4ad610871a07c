"""One architecture through the stages, from a saved file to a library whose outputs are compared."""

from __future__ import annotations

import tempfile
import time
import warnings
from enum import StrEnum
from pathlib import Path

import torch
import tvm
from pydantic import BaseModel
from torch import fx, nn
from tvm import relax

from benchmarks.architectures.entry import Architecture, Inputs
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.target import LINUX_X86_64, PresetTarget, ResolvedTarget
from bessemer.contract.tensor import TensorSpec
from worker.errors import JobError
from worker.executable import compile_module
from worker.pipeline.capture import capture
from worker.pipeline.compare import compare
from worker.pipeline.optimize import optimize
from worker.pipeline.translate import translate
from worker.pipeline.types import Captured, Upload, Workshop
from worker.schedules.default import schedule_rest
from worker.targets import host_mcpu, tvm_target


class Form(StrEnum):
    """How a model is saved."""

    PT2 = "pt2"
    TRACED = "traced"
    SCRIPTED = "scripted"
    FX = "fx"


class Outcome(BaseModel):
    """How far one architecture got in one form.

    Attributes:
        reached: ``torch`` where torch itself cannot save it so; else the last of ``captured``,
        ``translated``,
            ``built`` and ``verified``.
        error: the largest difference, as a share of what is allowed, or what stopped it.
    """

    name: str
    form: Form
    reached: str
    error: str = ""
    largest_error: float | None = None
    seconds: float = 0.0


def survey(architecture: Architecture, form: Form, seed: int = 0) -> Outcome:
    """Take an architecture as far as it goes."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        outcome = Outcome(name=architecture.name, form=form, reached="torch")
        try:
            torch.manual_seed(seed)
            model, inputs = architecture.make()
            path = save(model, inputs, form, Path(folder))
        except Exception as error:
            outcome.error = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
            return outcome
        _advance(outcome, path, inputs)
    outcome.seconds = round(time.perf_counter() - start, 1)
    return outcome


def save(model: nn.Module, inputs: Inputs, form: Form, folder: Path) -> Path:
    """Save a model in a form."""
    path = folder / f"model.{'pt2' if form is Form.PT2 else 'pt'}"
    if form is Form.PT2:
        torch.export.save(torch.export.export(model, inputs, strict=False), path)
    elif form is Form.TRACED:
        torch.jit.save(torch.jit.trace(model, inputs, strict=False, check_trace=False), path)
    elif form is Form.SCRIPTED:
        torch.jit.save(torch.jit.script(model), path)
    else:
        torch.save(fx.symbolic_trace(model), path)
    return path


def _advance(outcome: Outcome, path: Path, inputs: Inputs) -> None:
    workshop = _workshop(path.parent)
    outcome.reached = "nothing"
    try:
        captured = capture(_upload(path, outcome.form, inputs), workshop)
        outcome.reached = "captured"
        translated = translate(captured, workshop)
        outcome.reached = "translated"
        module = optimize(translated, workshop).module
        target = tvm_target(captured.upload.target)
        executable = compile_module(schedule_rest(module, target), target)
        outcome.reached = "built"
        _verify(outcome, captured, executable)
    except JobError as error:
        outcome.error = f"{error.code.value}: {error.detail[:400]}"
    except Exception as error:
        outcome.error = f"{type(error).__name__}: {' '.join(str(error).split())[-400:]}"


def _verify(outcome: Outcome, captured: Captured, executable: relax.VMExecutable) -> None:
    machine = relax.VirtualMachine(executable, tvm.cpu())
    found = machine["main"](*map(tvm.runtime.tensor, captured.inputs))
    tolerances = captured.upload.request.verify
    comparisons = [
        compare(spec.name, output.numpy(), reference, tolerances.tolerance(spec.dtype))
        for spec, output, reference in zip(captured.output_specs, found, captured.references, strict=True)
    ]
    outcome.largest_error = max(one.max_absolute_error for one in comparisons)
    if all(one.mismatches == 0 for one in comparisons):
        outcome.reached = "verified"
    else:
        outcome.error = f"{sum(one.mismatches for one in comparisons)} elements differ"


def _upload(path: Path, form: Form, inputs: Inputs) -> Upload:
    specs = _specs(path, form, inputs)
    request = CompilationRequest(model="0" * 64, target=PresetTarget(preset="host"), inputs=specs)
    target = ResolvedTarget(
        name="host", kind="llvm", mcpu=host_mcpu(), triple=LINUX_X86_64, features=(), cores=1
    )
    return Upload(path=path, request=request, target=target)


def _specs(path: Path, form: Form, inputs: Inputs) -> tuple[TensorSpec, ...]:
    """Exported programs and traces know their inputs; the others are told."""
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


def _workshop(folder: Path) -> Workshop:
    return Workshop(
        scratch=folder,
        output=folder,
        candidates=None,  # type: ignore[arg-type]
        advance=lambda done, total, detail: None,
        sandbox=SandboxStatus(mode=SandboxMode.OFF, layers=()),
        finished_stages=lambda: (),
    )
