"""The survey of architectures: remaining models, counted outcomes, and the page."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.architectures.differences import share_of_scale
from benchmarks.architectures.explanations import UNKNOWN, explain
from benchmarks.architectures.outcomes import (
    Form,
    Outcome,
    Reached,
    Survey,
    append_outcome,
    read_outcomes,
    sort_outcomes,
)
from benchmarks.architectures.page import architectures_page, count_row, exceptions, readme_line, unfinished
from benchmarks.machine import Machine

MACHINE = Machine(processor="AMD", cores=2, memory_gib=24.0, kernel="6.1", versions={"timm": "1.0"})


def outcome(name: str, reached: Reached, form: Form = Form.PT2, error: str = "") -> Outcome:
    return Outcome(name=name, form=form, reached=reached, error=error)


FINE = outcome("timm/resnet18", Reached.VERIFIED).model_copy(
    update={"strict": True, "relative_error": 2e-7, "seconds": 8.5}
)
LACKING = outcome("timm/odd", Reached.CAPTURED, error="operator-unsupported: unsupported: aten.a | aten.b")
UNMADE = outcome("plain/branch", Reached.NOT_MADE, Form.TRACED, "RuntimeError: no trace")


@pytest.mark.parametrize(
    ("found", "until", "done"),
    [
        (FINE, Reached.VERIFIED, True),
        (outcome("a/b", Reached.TRANSLATED), Reached.TRANSLATED, True),
        (outcome("a/b", Reached.TRANSLATED), Reached.VERIFIED, False),
        (LACKING, Reached.VERIFIED, True),
    ],
)
def test_failed_and_finished_models_are_not_surveyed_again(
    found: Outcome, until: Reached, done: bool
) -> None:
    assert found.is_done(until) is done


def test_the_last_line_of_a_model_and_form_counts(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    for one in (outcome("timm/resnet18", Reached.BUILT), UNMADE, FINE):
        append_outcome(path, one)
    assert list(read_outcomes(path).values()) == [FINE, UNMADE]
    assert read_outcomes(tmp_path / "none") == {}


def test_outcomes_are_sorted_by_name_then_form() -> None:
    traced, exported = (outcome("a/b", Reached.BUILT, form) for form in (Form.TRACED, Form.PT2))
    assert sort_outcomes([FINE, traced, exported]) == [exported, traced, FINE]


def test_models_that_torch_cannot_save_are_neither_exceptions_nor_counted() -> None:
    assert count_row("all", [FINE, LACKING, UNMADE]) == ("all", "2", "1", "1", "1", "1", "0")
    assert exceptions([FINE, LACKING, UNMADE]) == [LACKING]


def test_models_only_translated_are_counted_apart_and_not_exceptions() -> None:
    waiting = outcome("timm/later", Reached.TRANSLATED)
    assert count_row("all", [FINE, waiting]) == ("all", "2", "2", "1", "1", "1", "1")
    assert exceptions([FINE, waiting]) == []
    assert unfinished([FINE, LACKING, UNMADE, waiting]) == [waiting]


def test_differences_count_in_units_of_the_largest_element() -> None:
    reference = np.array([1000.0, 0.0, np.inf], np.float32)
    assert share_of_scale(np.array([1000.0, 1.0, np.inf], np.float32), reference) == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("exact", "own", "explained"),
    [(2e-3, 1e-3, True), (2e-3, 1e-6, False), (2e-3, None, False)],
)
def test_a_result_as_accurate_as_torchs_differs_only_by_rounding(
    exact: float, own: float | None, explained: bool
) -> None:
    differing = outcome("timm/deep", Reached.BUILT, error="3 elements differ").model_copy(
        update={"exact_error": exact, "own_error": own}
    )
    assert (explain(differing) != UNKNOWN) is explained


def test_the_page_has_counts_every_exception_and_every_model(tmp_path: Path) -> None:
    survey = Survey(machine=MACHINE, outcomes=[FINE, LACKING, UNMADE], not_run=["timm/late"])
    (tmp_path / "2026-01-02-architectures.json").write_text(survey.model_dump_json())

    page = str(architectures_page(tmp_path))

    assert "| timm | 2 | 1 | 1 | 1 | 1 | 0 |" in page
    assert "| timm/odd | pt2 | captured | operator-unsupported: unsupported: aten.a \\| aten.b |" in page
    assert "1 of the survey's models were not run in every form: 1 of timm." in page
    assert "| 1 | traced | RuntimeError: no trace | plain/branch |" in page
    assert "| timm/resnet18 | 2.0e-07 |  |  |  | 8 |" in page
    assert "| timm/odd | **captured** |  |  |  | 0 |" in page


def test_the_sentence_of_the_readme_counts_saved_files_models_and_packages(tmp_path: Path) -> None:
    traced = outcome("timm/resnet18", Reached.VERIFIED, Form.TRACED)
    survey = Survey(machine=MACHINE, outcomes=[FINE, traced, LACKING, UNMADE])
    (tmp_path / "2026-01-02-architectures.json").write_text(survey.model_dump_json())

    line = readme_line(tmp_path)

    assert line.startswith("Of 3 files of 2 models from 1 packages ") and ", 2 are verified: " in line


def test_reasons_that_differ_in_numbers_alone_are_one_row(tmp_path: Path) -> None:
    refused = [
        outcome(name, Reached.NOT_MADE, Form.FX, f"RuntimeError: no Proxy at 0x{at}f for {at}")
        for at, name in enumerate(("a/one", "a/two"), 1)
    ]
    survey = Survey(machine=MACHINE, outcomes=refused)
    (tmp_path / "2026-01-02-architectures.json").write_text(survey.model_dump_json())
    assert "| 2 | fx | RuntimeError: no Proxy at … for … | a/one, a/two |" in str(
        architectures_page(tmp_path)
    )


def test_without_a_survey_no_page_is_made(tmp_path: Path) -> None:
    assert architectures_page(tmp_path) is None


def test_the_page_counts_what_was_verified_under_emulation(tmp_path: Path) -> None:
    for topic in ("architectures", "architectures-aarch64"):
        survey = Survey(machine=MACHINE, outcomes=[FINE, LACKING, UNMADE])
        (tmp_path / f"2026-01-02-{topic}.json").write_text(survey.model_dump_json())
    page = str(architectures_page(tmp_path)).partition("## aarch64, under emulation")[2].partition("## ")[0]
    assert "Of 2 exported programs compiled for `aarch64`, the libraries of 1 are verified" in page
    assert "| timm | 2 | 1 | resnet18 |" in page
    assert "| timm/odd | captured | operator-unsupported: unsupported: aten.a \\| aten.b |" in page
