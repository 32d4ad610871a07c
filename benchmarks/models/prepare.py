"""Writes a model in every format that a side reads, in a separate process for torch."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.models.runtimes import Subject, tensors_to_arrays
from benchmarks.models.side import LOAD_SECONDS, Arrays, SideFailedError, print_to, receive
from examples.models.save import SavedAs, save
from worker.candidates.process import fork_process, send_value

_GIGA = 1e9


@dataclass(frozen=True)
class Prepared:
    """Torch eager's outputs, and the floating-point operations of its products."""

    references: Arrays
    gflop: float


def prepare(subject: Subject, log: Path, with_onnx: bool) -> Prepared:
    """Export a model and run it once.

    Args:
        subject: the model; its folder is created.
        log: the file for torch's output.
        with_onnx: whether to export to ONNX too, if possible.

    Raises:
        SideFailedError: the model failed.
    """
    subject.folder.mkdir(parents=True)

    def work(_reader: int, writer: int) -> None:
        print_to(log)
        torch.set_num_threads(subject.threads)
        save(subject.example, SavedAs.PT2, subject.exported)
        if with_onnx:
            _export_onnx(subject)
        send_value(writer, _run(subject))

    process = fork_process(work)
    try:
        prepared: Prepared = receive(process, LOAD_SECONDS)
    except SideFailedError as error:
        raise SideFailedError(f"{subject.example.name} could not be prepared, see {log}: {error}") from None
    finally:
        process.kill()
    return prepared


def _run(subject: Subject) -> Prepared:
    model, inputs = subject.example.build(), subject.inputs()
    with torch.inference_mode():
        references = tensors_to_arrays(model(*inputs))
    # FlopCounterMode does not count fused attention.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(*inputs)
    return Prepared(references, counter.get_total_flops() / _GIGA)


def _export_onnx(subject: Subject) -> None:
    """Export by tracing: ONNX Runtime runs BERT three times slower from torch's newer exporter."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(subject.example.build(), subject.inputs(), str(subject.onnx), dynamo=False)
    except Exception as error:
        print(f"no ONNX: {error}", flush=True)
        subject.onnx.unlink(missing_ok=True)
