"""Decoders of transformers, exported by the recipe of the documentation, write what transformers writes."""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from bundle_samples import execute, unpacked
from capture_samples import capture_file
from package_samples import benchmark_result
from stage_samples import optimized
from torch.export.pt2_archive._package import package_pt2

from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.package import package
from worker.compiler.pipeline.tune import tune
from worker.compiler.pipeline.verify import verify
from worker.compiler.schedules.default import unclaimed_functions
from worker.compiler.values import Benchmarked, StageContext

transformers = pytest.importorskip("transformers", reason="needs: pip install -e '.[survey]'")

USAGE = Path(__file__).parents[2] / "docs" / "usage.md"
LENGTH = 256
PROMPT = [1 + 37 * at % 120 for at in range(70)]
STEPS = 40
LAYERS = 2

SIZES: dict[str, Any] = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96}
HEADS: dict[str, Any] = {"num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2}
NO_SPECIAL: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
WINDOW = 24
"""Smaller than the prompt with the tokens after it."""

MODELS = {
    "grouped queries": ("Llama", {**SIZES, **HEADS}),
    "learned positions": ("GPT2", {"vocab_size": 128, "n_embd": 64, "n_layer": LAYERS, "n_head": 4}),
    "a sliding window": ("Mistral", {**SIZES, **HEADS, "sliding_window": WINDOW}),
    "windows in every other layer": (
        "Gemma2",
        {**SIZES, **HEADS, "head_dim": 16, "sliding_window": WINDOW, "tie_word_embeddings": False},
    ),
}


def saved(kind: str, config: dict[str, Any], folder: Path) -> Any:
    """A model with seeded weights that are large enough for its tokens to differ, and its folder."""
    torch.manual_seed(0)
    settings = getattr(transformers, f"{kind}Config")(**config, **NO_SPECIAL)
    model = transformers.AutoModelForCausalLM.from_config(settings).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
    model.save_pretrained(folder)
    return model


def recipe(model: Path) -> dict[str, Any]:
    """The programs that the documentation's code exports."""
    chapter = USAGE.read_text().partition("### Decoders")[2]
    code = chapter.partition("```python\n")[2].partition("```")[0]
    assert "path/of/the/model" in code
    names: dict[str, Any] = {}
    exec(code.replace("path/of/the/model", str(model)), names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's and transformers' own
        programs: dict[str, Any] = names["programs"]()
    return programs


def generate(folder: Path, *options: str) -> Any:
    command = (sys.executable, "-m", "bessemer", "generate", folder, "--tokens", ",".join(map(str, PROMPT)))
    return execute((*command, *options), Path.cwd())


@pytest.mark.parametrize(("kind", "config"), MODELS.values(), ids=MODELS)
def test_a_decoder_writes_the_tokens_of_transformers(
    context: StageContext, tmp_path: Path, kind: str, config: dict[str, Any]
) -> None:
    model = saved(kind, config, tmp_path / "weights")
    package_pt2(str(tmp_path / "model"), exported_programs=recipe(tmp_path / "weights"))
    captured = capture_file(tmp_path / "model", entries={"prefill": {}, "decode": {}})
    found = optimized(captured, context)
    tuned = tune(found, context)

    text = found.module["entry_decode"].script()
    assert text.count("call_tir_inplace(") == 2 * LAYERS, "each layer writes its keys and values in place"
    calls = re.findall(r"call_tir\((?:cls\.)?(\w+)", text)
    assert sum(name.startswith("attention") for name in calls) == LAYERS, calls
    assert not [name for name in unclaimed_functions(tuned.module) if name.startswith("attention")]

    verified = verify(build(tuned, context), context)
    result = benchmark_result(verified.built.library)
    package(Benchmarked(verified, result, (result,)), context)
    folder = unpacked(context.output / "bundle.tar.zst", tmp_path / "bundle")
    ran = generate(folder, "--steps", str(STEPS), "--json")
    assert ran.returncode == 0, ran.stderr

    prompt = torch.tensor([PROMPT])
    with torch.no_grad():
        written = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=STEPS, do_sample=False
        )
    expected = written[0, len(PROMPT) :].tolist()
    assert len(set(expected)) > 4
    assert json.loads(ran.stdout)["tokens"] == expected

    most = LENGTH - len(PROMPT) + 1
    assert generate(folder, "--steps", str(most)).returncode == 0
    refused = generate(folder, "--steps", str(most + 1))
    assert refused.returncode == 2
    assert f"holds {LENGTH} tokens, so --steps can be at most {most}" in refused.stderr
