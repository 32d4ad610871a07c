"""Objects of functions from a cache, in place of those that a compilation would make."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import torch
import tvm
from stage_samples import TARGET, capture_module, make_context, optimized
from torch import nn
from tvm import te, tirx

from bessemer.contract.base import Digest
from bessemer.contract.report import BuiltFunctions
from worker.candidates.requests import CompileBatch, CompileOutcome
from worker.compiler.codegen.compile_functions import Compiler, compile_here
from worker.compiler.codegen.executable import build_in_shares
from worker.compiler.codegen.function_text import key_of, text_of, write_object_of
from worker.compiler.schedules.default import schedule_rest
from worker.compiler.target import compile_target

Functions = dict[str, tirx.PrimFunc]
LLVM = compile_target(TARGET).llvm


class Cache:
    """Compiles what a job has offered when the next one asks for it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.offered: dict[Digest, bytes] = {}
        self.found: list[Digest] = []

    def find(self, keys: Sequence[Digest]) -> Mapping[Digest, Path]:
        paths = {key: self._folder / key for key in keys if key in self.offered}
        for key, path in paths.items():
            write_object_of(self.offered[key], path.with_suffix(".o"))
        self.found += paths
        return {key: path.with_suffix(".o") for key, path in paths.items()}

    def offer(self, key: Digest, text: bytes) -> None:
        assert key == key_of(text)
        self.offered[key] = text


def built(
    folder: Path, cache: Cache, seed: int, width: int = 24
) -> tuple[bytes, tuple[str, ...], BuiltFunctions]:
    """The library of a model with weights of ``seed``, the functions that it compiled, and the counts."""
    folder.mkdir()
    names: list[str] = []

    def compile_many(batch: CompileBatch, on_progress: Callable[..., None]) -> tuple[CompileOutcome, ...]:
        names.extend(name for group in batch.groups for name in group.names)
        return compile_here(batch, on_progress)

    torch.manual_seed(seed)
    layers = (nn.Linear(16, width), nn.ReLU(), nn.LayerNorm(width), nn.Linear(width, 8), nn.Softmax(-1))
    ready = optimized(capture_module(nn.Sequential(*layers), torch.ones(2, 16)), make_context(folder))
    compiler = Compiler(LLVM, folder / "objects", compile_many, cache)
    library = folder / "model.so"
    linked = build_in_shares(schedule_rest(ready.module, LLVM), ready.module, library, compiler)
    return library.read_bytes(), tuple(names), linked.built_functions


def test_a_model_with_other_weights_has_no_function_to_compile(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    _, first, before = built(tmp_path / "first", cache, seed=0)
    _, second, after = built(tmp_path / "second", cache, seed=1)

    assert len(first) >= 3
    assert second == ()
    assert set(cache.found) == set(cache.offered)
    assert before == BuiltFunctions(compiled=len(first), cached=0)
    assert after == BuiltFunctions(compiled=0, cached=len(first))


def test_a_library_is_the_same_with_cached_objects(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    compiled, *_ = built(tmp_path / "first", cache, seed=0)
    cached, names, _ = built(tmp_path / "second", cache, seed=0)

    assert names == ()
    assert cached == compiled


def test_functions_that_differ_are_compiled(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    built(tmp_path / "first", cache, seed=0)
    known = len(cache.offered)
    library, names, _ = built(tmp_path / "second", cache, seed=0, width=40)
    alone, *_ = built(tmp_path / "third", Cache(tmp_path / "other"), seed=0, width=40)

    assert names
    assert len(cache.offered) == known + len(names)
    assert library == alone


def added(value: float) -> tirx.PrimFunc:
    x = te.placeholder((8,), "float32", "x")
    return te.create_prim_func([x, te.compute((8,), lambda at: x[at] + value)])


def key(functions: Functions, processor: str) -> Digest:
    target = {"kind": "llvm", "mcpu": processor, "mtriple": "x86_64-linux-gnu"}
    return key_of(text_of(functions, tvm.target.Target(target)))


@pytest.mark.parametrize(
    ("functions", "processor"),
    [({"f": added(2.0)}, "znver4"), ({"g": added(1.0)}, "znver4"), ({"f": added(1.0)}, "znver3")],
    ids=["another number", "another name", "another processor"],
)
def test_a_key_depends_on_the_functions_their_names_and_the_processor(
    functions: Functions, processor: str
) -> None:
    assert key({"f": added(1.0)}, "znver4") == key({"f": added(1.0)}, "znver4")
    assert key(functions, processor) != key({"f": added(1.0)}, "znver4")
