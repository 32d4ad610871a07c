"""Imports as the zygote has them, the candidate server, a driver, and a fake package of extensions."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from gpu_driver import build_driver
from stage_samples import make_context

from worker.candidates.client import CandidateClient
from worker.candidates.server import fork_server
from worker.compiler.values import StageContext
from worker.job.warmup import import_everything

SEED = 0

pytest.register_assert_rewrite("ir_text")


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Seed the random numbers that modules draw on import."""
    if isinstance(collector, pytest.Module):
        torch.manual_seed(SEED)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seed the random numbers of every test."""
    torch.manual_seed(SEED)


@pytest.fixture(scope="module")
def warm() -> None:
    """As the zygote does: TVM alone would parse the tensor intrinsics of every processor."""
    import_everything()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CandidateClient]:
    with fork_server(tmp_path_factory.mktemp("server")) as client:
        yield client


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a driver for GPUs that computes nothing."""
    return build_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def context(tmp_path: Path) -> Iterator[StageContext]:
    with fork_server(tmp_path) as candidates:
        yield make_context(tmp_path, candidates)


@pytest.fixture
def package() -> Iterator[ModuleType]:
    """The module ``sample_extension`` of an installed package."""
    module = ModuleType("sample_extension")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]
