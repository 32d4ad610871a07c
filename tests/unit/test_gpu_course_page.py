"""The course's table of products on a GPU."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.gpu.course_page import section


def product(size: int, dtype: str, milliseconds: dict[str, float]) -> dict[str, object]:
    """The results of one size, of which cuBLAS takes one millisecond."""
    shape = {"rows": size, "columns": size, "depth": size, "dtype": dtype}
    plans = {name: {"ms": time, "error": 0.0} for name, time in milliseconds.items()}
    return {"shape": shape, "cublas_ms": 1.0, "plans": plans}


def test_without_results_there_is_no_table(tmp_path: Path) -> None:
    assert section(tmp_path) == ""


def test_the_table_has_a_row_for_each_step_and_a_column_for_each_size(tmp_path: Path) -> None:
    found = [
        product(size, dtype, times)
        for size in (2048, 1024)
        for dtype, times in (("float32", {"bound": 10.0, "shared": 2.0}), ("float16", {"tensor_cores": 0.5}))
    ]
    (tmp_path / "2026-01-01-gpu-course.json").write_text(json.dumps(found))
    assert section(tmp_path).splitlines()[2:] == [
        "| step | 1024 | 2048 |",
        "|---|---|---|",
        "| `bound` | 0.215; 0%; 10% | 1.72; 3%; 10% |",
        "| `shared` | 1.07; 2%; 50% | 8.59; 13%; 50% |",
        "| `tensor_cores` | 4.29; 0%; 200% | 34.4; 3%; 200% |",
    ]
