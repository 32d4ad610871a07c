"""The pages generated from the model benchmark's results."""

from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchmark_samples import model, suite, write

from benchmarks import pages
from benchmarks.machine import ProcessorKind
from benchmarks.models.chart import models_chart
from benchmarks.models.results import larger_batches, mean_ratio, mean_ratio_to_best
from bessemer.figures.words import TIMES

MODELS = [
    model("mlp", 1.0, torch_eager=2.0, ONNX_Runtime=0.5),
    model("bert", 8.0, torch_eager=4.0, ONNX_Runtime=8.0),
]


def test_means_are_geometric() -> None:
    assert mean_ratio(MODELS, "torch eager") == pytest.approx(1.0)
    assert mean_ratio(MODELS, "OpenVINO") is None


def test_each_model_is_compared_with_its_own_best_peer_and_never_with_untuned_tvm() -> None:
    assert [found.name for one in MODELS if (found := one.best_peer)] == ["ONNX Runtime", "torch eager"]
    assert mean_ratio_to_best(MODELS) == pytest.approx(2.0)


def test_the_page_has_ratios_shares_seconds_and_missing_peers(tmp_path: Path) -> None:
    write(tmp_path, "2026-01-02", suite(*MODELS))

    page = pages.figures_page(tmp_path)

    assert "| mlp | 0.50 (0.45 to 0.55) | 2.00 (1.80 to 2.20) | 0.010 |  | 2.00 (ONNX Runtime) |" in page
    assert (
        "| mlp | `fused_linear_add` | 8x16 · 16x4 → 8x4 | 2 | 1.00 ms | 900 µs | 90.0 % | 80.0 | 80% |"
        in page
    )
    assert "`softmax`" not in page
    assert "| mlp | 1.00 | 1.00 | 1.00 | 1.00 | 4.00 |" in page
    assert "| 10 layers | 0.50 | 0.50 | 0.50 | 0.50 | 2.00 |" in page
    assert "- OpenVINO on mlp: missing: No module named 'openvino'" in page


def test_the_newest_results_count(tmp_path: Path) -> None:
    write(tmp_path, "2026-01-02", suite(*MODELS))
    write(tmp_path, "2026-03-01", suite(MODELS[0]))
    assert "GiB, Linux 6.1 | 1 | 1 | 2.00 | 0.50 |" in pages.readme_section(tmp_path)


def test_each_kind_of_processor_has_its_newest_results(tmp_path: Path) -> None:
    write(tmp_path, "2026-01-02", suite(*MODELS), ProcessorKind.INTEL_AVX512)
    write(tmp_path, "2026-03-01", suite(MODELS[0]), ProcessorKind.AMD_AVX2)
    section = pages.readme_section(tmp_path)
    assert "| Intel with AVX-512: 2 cores of an A9, 4 GiB, Linux 6.1 | 1 | 2 | 2.00 | 1.00 |" in section
    assert "| AMD with AVX2: 2 cores of an A9, 4 GiB, Linux 6.1 | 1 | 1 | 2.00 | 0.50 |" in section
    assert "docs/models-intel-avx512.svg" in section


def test_a_run_with_larger_batches_stands_beside_the_one_with_single_samples(tmp_path: Path) -> None:
    kind = ProcessorKind.AMD_AVX2
    write(tmp_path, "2026-01-02", suite(*MODELS), kind)
    large = suite(model("mlp x 8", 1.0, torch_eager=4.0))
    (tmp_path / f"2026-01-03-{larger_batches(kind)}.json").write_text(large.model_dump_json())
    page = pages.figures_page(tmp_path)
    assert 'Run `make bench-models BATCHES="1"`' in page
    assert page.count("### Compile time") == 1
    assert "## The example models, on AMD with AVX2, with larger batches" in page
    section = pages.readme_section(tmp_path)
    assert "Linux 6.1 | 1 | 2 | 2.00 | 1.00 |" in section
    assert "Linux 6.1 | 8 | 1 | 0.25 | 0.25 |" in section


def test_a_batch_that_was_measured_later_takes_the_place_of_the_one_in_an_older_run(tmp_path: Path) -> None:
    kind = ProcessorKind.AMD_AVX2
    older = suite(*MODELS, model("mlp x 8", 1.0, torch_eager=2.0))
    later = suite(model("mlp x 8", 1.0, torch_eager=4.0))
    later.measured_at = older.measured_at + timedelta(days=1)
    write(tmp_path, "2026-01-02", older, kind)
    (tmp_path / f"2026-01-03-{larger_batches(kind)}.json").write_text(later.model_dump_json())
    section = pages.readme_section(tmp_path)
    assert "Linux 6.1 | 1 | 2 | 2.00 | 1.00 |" in section
    assert "Linux 6.1 | 8 | 1 | 0.25 | 0.25 |" in section
    assert section.count("| 8 | 1 |") == 1


def test_without_results_nothing_is_shown(tmp_path: Path) -> None:
    assert pages.readme_section(tmp_path) == ""
    assert pages.chart_page(ProcessorKind.AMD_AVX2, tmp_path) is None
    assert "example models" not in pages.figures_page(tmp_path)


def test_the_chart_places_every_runtime_beside_torch_eager() -> None:
    root = ElementTree.fromstring(models_chart(MODELS))
    titles = [str(title.text).replace(TIMES, "x") for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[1:] == [
        "mlp: Bessemer 0.50x; ONNX Runtime 0.25x",
        "bert: Bessemer 2.00x; ONNX Runtime 2.00x",
        "geometric mean: Bessemer 1.00x; ONNX Runtime 0.71x",
    ]
