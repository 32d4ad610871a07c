"""Compiles published models through a service: ``python -m benchmarks.compile_time.published [MODEL …]``.

For each model: the upload, the time from ``POST`` to the unpacked bundle, every stage, and what is left
between and after the stages; then the time to the bundle that another compilation publishes before it is
measured; both without a cache of functions. Last, another service compiles the model, and the same with
other weights, whose functions are in the worker's cache then. The figures are saved in
``benchmarks/results/<date>-published.json``. BERT-base needs transformers, and Swin-T and ResNet-50 need
torchvision; the weights are random.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import torch
from torch import nn

from benchmarks.architectures.torchvision_models import declare_operators
from benchmarks.compile_time.page import TOPIC
from benchmarks.compile_time.results import Published, PublishedResults
from benchmarks.machine import describe
from bessemer.client import Client
from bessemer.contract.job import Event, EventType
from bessemer.contract.options import TuneOptions
from examples.local_service import local_service
from examples.models import EXAMPLES

RESULTS = Path(__file__).parents[1] / "results"
NO_CACHE = {"BESSEMER_OBJECT_CACHE_BYTES": "0"}
FILLING_SECONDS = 15.0
"""How long the worker may compile a model's functions for its cache."""

TOKENS = 128
IMAGE = (1, 3, 224, 224)


def _bert_base() -> tuple[nn.Module, torch.Tensor]:
    declare_operators()
    from transformers import BertConfig, BertModel

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = BertModel(BertConfig(attn_implementation="eager"))

        def forward(self, tokens: torch.Tensor) -> Any:
            return self.model(input_ids=tokens, return_dict=False)[0]

    return Encoder(), torch.zeros(1, TOKENS, dtype=torch.int64)


def _torchvision(name: str) -> tuple[nn.Module, torch.Tensor]:
    declare_operators()
    from torchvision import models

    return getattr(models, name)(weights=None), torch.zeros(IMAGE)


def _mlp() -> tuple[nn.Module, torch.Tensor]:
    example = EXAMPLES["mlp"]
    return example.build(), example.example_inputs()[0]


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "MLP": _mlp,
    "ResNet-50": lambda: _torchvision("resnet50"),
    "Swin-T": lambda: _torchvision("swin_t"),
    "BERT-base": _bert_base,
}


def main() -> int:
    """Compile the models, print a line for each, and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    names = parser.parse_args().models or list(MODELS)
    run = PublishedResults(
        machine=describe(("torch",)), load_before=os.getloadavg()[0], load_after=0.0, models=[]
    )
    with tempfile.TemporaryDirectory(prefix="bessemer-published-") as folder:
        files = {name: _save(name, Path(folder), seed=0) for name in names}
        others = {name: _save(name, Path(folder), seed=1)[0] for name in names}
        with local_service(Path(folder) / "data", NO_CACHE) as url, Client(url) as client:
            for name, (path, parameters) in files.items():
                bundle = Path(folder) / f"{name}-bundle"
                run.models.append(measure(client, name, path, parameters, bundle))
                print(shown(run.models[-1]), flush=True)
        with local_service(Path(folder) / "again") as url, Client(url) as client:
            for found in run.models:
                found.again_seconds = measure_again(
                    client, files[found.model][0], others[found.model], Path(folder) / f"{found.model}-again"
                )
                print(f"{found.model:10} early again {found.again_seconds:6.1f}", flush=True)
    run.load_after = os.getloadavg()[0]
    path = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{TOPIC}.json"
    path.write_text(run.model_dump_json(indent=1) + "\n")
    return 0


def measure(client: Client, name: str, path: Path, parameters: int, bundle: Path) -> Published:
    """Upload a model, and compile it for this machine twice: for the last bundle and for the early one."""
    began = perf_counter()
    digest = client.upload(path).digest
    uploaded = perf_counter()
    job = client.submit(digest, target="host", cache=False).wait()
    ended = perf_counter()
    job.download(bundle)
    unpacked = perf_counter()
    return Published(
        model=name,
        parameters=parameters,
        upload_seconds=round(uploaded - began, 2),
        job_seconds=round(ended - uploaded, 2),
        bundle_seconds=round(unpacked - uploaded, 2),
        early_seconds=_early_seconds(client, digest, bundle.with_name(f"{bundle.name}-early")),
        stages=list(job.document.stages),
    )


def measure_again(client: Client, path: Path, other: Path, bundle: Path) -> float:
    """Compile a model, wait until the cache has its functions, and compile it with other weights.

    Returns:
        The seconds from the second ``POST`` to the unpacked early bundle.
    """
    client.submit(path, target="host", cache=False).wait()
    digest = client.upload(other).digest
    sleep(FILLING_SECONDS)
    return _early_seconds(client, digest, bundle)


def _early_seconds(client: Client, digest: str, bundle: Path) -> float:
    """The seconds from ``POST`` to the unpacked bundle, which is published before it is measured."""
    began, unpacked = perf_counter(), 0.0

    def download(event: Event) -> None:
        nonlocal unpacked
        if event.type is EventType.PUBLISHED:
            job.refresh().download(bundle)
            unpacked = perf_counter()

    job = client.submit(digest, target="host", cache=False, tune=TuneOptions(publish_early=True))
    job.wait(on_event=download)
    if not unpacked:
        raise RuntimeError("no bundle was published before the end")
    return round(unpacked - began, 2)


def shown(found: Published) -> str:
    """The model in one line."""
    stages = "  ".join(f"{time.stage.value} {time.seconds:.1f}" for time in found.stages)
    bundles = f"bundle {found.bundle_seconds:6.1f}  early {found.early_seconds:6.1f}"
    return f"{found.model:10} {bundles}  {stages}  rest {found.rest_seconds:.1f}"


def _save(name: str, folder: Path, seed: int) -> tuple[Path, int]:
    torch.manual_seed(seed)
    model, example = MODELS[name]()
    path = folder / f"{name}-{seed}.pt2"
    torch.export.save(torch.export.export(model.eval().requires_grad_(False), (example,), strict=False), path)
    return path, sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    sys.exit(main())
