"""What loading a bundle reads, maps and allocates."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from bundle_samples import NEEDS_COMPILER, execute
from elftools.elf.elffile import ELFFile
from platform_samples import bundle_of
from stage_samples import capture_module, make_context, untuned
from torch import nn

from bessemer.bundle import run
from bessemer.bundle.manifest import Manifest
from worker.candidates.server import fork_server
from worker.compiler.codegen.standalone.sources import PARAMETERS_SECTION
from worker.compiler.pipeline.build import build

FAILING_MREMAP = Path(__file__).with_name("failing_mremap.c")
COUNTER = Path(__file__).parents[1] / "count_memory.py"
SIZE = 3072
PARAMETER_BYTES = 4 * SIZE * SIZE


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a library with 36 MiB of parameters."""
    folder = tmp_path_factory.mktemp("large")
    with fork_server(folder) as candidates:
        context = make_context(folder, candidates)
        model = nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU())
        captured = capture_module(model, torch.randn(2, SIZE), static_library=True)
        return bundle_of(build(untuned(captured, context), context), context, folder / "bundle")


def counted(bundle: Path, *arguments: str) -> dict[str, Any]:
    done = execute([sys.executable, COUNTER, bundle, *arguments], bundle)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_parameters_are_mapped_at_load_in_pages_that_processes_share(large: Path) -> None:
    found = counted(large)

    assert found["matches"]
    assert found["Rss"] >= PARAMETER_BYTES
    assert found["Anonymous"] == 0


def test_a_library_for_static_linking_has_the_parameters(large: Path) -> None:
    with (large / "model.so").open("rb") as file:
        parameters = ELFFile(file).get_section_by_name(PARAMETERS_SECTION).data()

    assert parameters in (large / "libmodel.a").read_bytes()


def test_huge_pages_hold_a_copy_of_the_parameters_in_their_place(large: Path) -> None:
    found = counted(large, "huge")

    assert found["matches"]
    assert found["Rss"] < PARAMETER_BYTES


@NEEDS_COMPILER
@pytest.mark.parametrize("variables", [(), ("MREMAP_UNMAPS=1",)], ids=["in place", "unmapped"])
def test_parameters_that_cannot_be_moved_to_huge_pages_stay_readable(
    variables: tuple[str, ...], large: Path, tmp_path: Path
) -> None:
    preloaded = tmp_path / "failing_mremap.so"
    execute(["gcc", "-shared", "-fPIC", FAILING_MREMAP, "-o", preloaded], tmp_path).check_returncode()

    preload = ["env", f"LD_PRELOAD={preloaded}", *variables]
    done = execute([*preload, sys.executable, COUNTER, large, "huge"], large)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["matches"]


def test_a_run_allocates_its_outputs_and_touches_no_new_memory(large: Path) -> None:
    found = counted(large)

    assert found["allocations"] == 1
    assert found["faults"] < 10


def test_large_parameters_begin_at_a_huge_page_and_are_not_read_to_check_the_library(large: Path) -> None:
    manifest = Manifest.model_validate_json((large / "manifest.json").read_bytes())
    held = manifest.held_parameters
    assert held is not None
    assert held.offset % (2 << 20) == 0
    assert held.size_bytes >= PARAMETER_BYTES

    with (large / "model.so").open("r+b") as file:
        file.seek(held.offset + held.size_bytes + 100)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(run.BundleError, match=r"model\.so is damaged: its SHA-256 differs"):
        run.load(large)
