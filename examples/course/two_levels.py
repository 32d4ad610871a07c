"""Translate the MLP twice: to Relax operators, and to tensor expressions composed into TensorIR."""

from __future__ import annotations

from pathlib import Path

from bessemer.client import Client, Job
from bessemer.contract.options import InspectOptions, TranslateOptions, TranslationLevel
from bessemer.contract.stage import Stage
from examples.course.session import run, trained
from examples.models.save import SavedAs


def show(client: Client, folder: Path) -> None:
    """Compile at both levels, from an exported program and from an FX graph."""
    for saved_as in (SavedAs.PT2, SavedAs.FX):
        model = trained("mlp", folder, saved_as)
        jobs = {level: _compile(client, model, level) for level in TranslationLevel}
        for level, job in jobs.items():
            assert job.document.verified
            print(f"{saved_as} as {level}: {_main(job)}\n")
        operators, expressions = jobs.values()
        assert "R.matmul" in operators.ir_text(0)
        assert "T.prim_func" not in operators.ir_text(0)
        assert "R.call_tir(cls.matmul" in expressions.ir_text(0)
        assert 'with T.sblock("matmul")' in expressions.ir_text(0)
        assert expressions.report().operators.keys() == {"call_tir"}


def _compile(client: Client, model: Path, level: TranslationLevel) -> Job:
    return client.submit(
        model,
        inputs={"x": (1, 784)},
        target="host",
        translate=TranslateOptions(level=level),
        inspect=InspectOptions(ir=True),
        stop_after=Stage.VERIFY,
    ).wait()


def _main(job: Job) -> str:
    """The Relax function after the stage ``translate``."""
    return job.ir_text(0).partition("@R.function")[2]


if __name__ == "__main__":
    run(show)
