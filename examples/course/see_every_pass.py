"""Show the CNN's module after every pass, the diffs, and the machine code."""

from __future__ import annotations

from pathlib import Path

from bessemer.client import Client, Job
from bessemer.contract.ir import IrStep
from bessemer.contract.job import JobState
from bessemer.contract.options import InspectOptions, VerifyOptions
from bessemer.errors import CompilationFailedError
from examples.course.session import run, trained


def show(client: Client, folder: Path) -> None:
    """Print what each pass does: operators become kernels, which are fused and scheduled."""
    options = InspectOptions(ir=True, assembly=True)
    job = client.submit(trained("cnn", folder), target="x86-64-v3", inspect=options).wait()
    steps = [step for step in job.ir().items if step.changed]
    for step in steps:
        print(f"{step.step:>3} {step.phase:<12} {step.name:<24} {_counts(step)}")
    translated, legalized, fused = (_named(steps, name) for name in ("translate", "LegalizeOps", "FuseTIR"))
    print(f"\nthe diff of {fused.name} begins:\n{_head(job.ir_diff(fused.step))}")
    assert translated.counts.kernels == 0 < translated.counts.operators
    assert legalized.counts.operators == 0 < legalized.counts.kernels
    assert fused.counts.kernels < legalized.counts.kernels
    assert "R.nn.conv2d" in job.ir_text(translated.step)
    _show_assembly(job, folder)
    _show_failure(client, job.document.request.model, len(job.ir().items))


def _named(steps: list[IrStep], name: str) -> IrStep:
    return next(step for step in steps if step.name == name)


def _counts(step: IrStep) -> str:
    counts = step.counts
    return f"{counts.operators:>3} operators {counts.kernels:>3} kernels {counts.loops:>4} loops"


def _head(text: str) -> str:
    return "\n".join(line[:100] for line in text.splitlines()[:8])


def _show_assembly(job: Job, folder: Path) -> None:
    assembly = job.download_artifact("model.s", folder / "model.s").read_text()
    multiplications = [line.strip() for line in assembly.splitlines() if "vfmadd" in line]
    print(f"\n{len(multiplications)} fused multiply-adds in the assembly, such as {multiplications[0]}")
    assert "define" in job.download_artifact("model.ll", folder / "model.ll").read_text()


def _show_failure(client: Client, model: str, steps: int) -> None:
    """Verify with zero tolerance: the job fails, and still has its snapshots."""
    exact = VerifyOptions(relative=0, absolute=0)
    job = client.submit(model, target="x86-64-v3", inspect=InspectOptions(ir=True), verify=exact)
    try:
        job.wait()
    except CompilationFailedError as failure:
        print(f"\n{failure.problem.code} in {failure.problem.stage}, {len(job.ir().items)} snapshots kept")
    assert job.state is JobState.FAILED
    assert len(job.ir().items) == steps


if __name__ == "__main__":
    run(show)
