"""The pages generated from the service benchmark's results."""

from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import pages
from benchmarks.machine import describe
from benchmarks.service.chart import apart, axis_step, load_chart
from benchmarks.service.results import Backend, Load, ServiceResults, Spread


def spread(p50_ms: float, p99_ms: float, samples: int = 200) -> Spread:
    return Spread(samples=samples, p50_ms=p50_ms, p99_ms=p99_ms)


def load(queued: int, submit_per_second: float) -> Load:
    return Load(
        queued=queued,
        followers=100,
        submit_per_second=submit_per_second,
        submit=spread(9, 18, min(queued, 1_000)),
        get_one=spread(3, 6),
        list_page=spread(5, 10),
        scrape=spread(7, queued / 10),
        metrics_bytes=10_240,
        memory_mib=100,
        idle_cores=0,
        dispatch=spread(50, 80),
        event_at_work=spread(25, 50),
        event_after_silence=spread(500, 1_000),
    )


BACKENDS = [
    Backend(name="SQLite", dispatch_empty=spread(40, 60), loads=[load(100, 80), load(10_000, 60)]),
    Backend(name="PostgreSQL", dispatch_empty=spread(45, 61), loads=[load(100, 70), load(10_000, 70)]),
]


def write(folder: Path) -> None:
    results = ServiceResults(
        machine=describe(()),
        measured_at=datetime(2026, 1, 2, tzinfo=UTC),
        load_before=0.5,
        minutes=7.5,
        submissions=1_000,
        backends=BACKENDS,
    )
    (folder / "2026-01-02-load.json").write_text(results.model_dump_json())


def test_the_page_has_a_table_for_each_database_and_the_chart(tmp_path: Path) -> None:
    write(tmp_path)
    page = pages.figures_page(tmp_path).replace("\N{MULTIPLICATION SIGN}", "x")
    assert "PostgreSQL; with an empty queue and without event streams, 45 ms (p99 61 ms, 200 samples)" in page
    assert f"]({pages.LOAD_CHART})" in page


@pytest.mark.parametrize(
    "row",
    [
        "| submitted per second, 8 clients at once | 100 to 1,000 | 80 | 60 | x0.75 |",
        "| reading `/metrics`, p99, ms | 200 | 10 | 1000 | x1e+02 |",
        "| size of `/metrics`, KiB |  | 10 | 10 | x1 |",
        "| event delivery, silent job, p50, ms | 200 | 500 | 500 | x1 |",
        "| cores used while idle |  | 0 | 0 |  |",
    ],
)
def test_a_row_shows_its_sample_count_and_its_growth(tmp_path: Path, row: str) -> None:
    write(tmp_path)
    assert row in pages.figures_page(tmp_path).replace("\N{MULTIPLICATION SIGN}", "x")


def test_without_results_no_table_or_chart_is_written(tmp_path: Path) -> None:
    assert pages.load_chart_page(tmp_path) is None
    assert "under load" not in pages.figures_page(tmp_path)


def test_the_chart_shows_each_figures_growth_on_each_database(tmp_path: Path) -> None:
    write(tmp_path)
    root = ElementTree.fromstring(str(pages.load_chart_page(tmp_path)))
    titles = [str(title.text) for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[1] == (
        "Submitted per second: SQLite 80 at 100 queued, 60 at 10,000 queued; "
        "PostgreSQL 70 at 100 queued, 70 at 10,000 queued"
    )
    assert len(titles) == 7


def test_the_chart_of_a_single_size_is_a_chart() -> None:
    only = [backend.model_copy(update={"loads": backend.loads[:1]}) for backend in BACKENDS[:1]]
    ElementTree.fromstring(load_chart(only))


@pytest.mark.parametrize(("highest", "step"), [(0, 1), (4, 1), (7, 2), (35, 10), (99, 25), (1_505, 500)])
def test_an_axis_has_few_marks_at_round_numbers(highest: float, step: float) -> None:
    assert axis_step(highest) == step


@pytest.mark.parametrize(
    ("places", "moved"), [([10, 40], [10, 40]), ([30, 30], [25, 35]), ([34, 30], [37, 27]), ([], [])]
)
def test_overlapping_labels_move_apart(places: list[float], moved: list[float]) -> None:
    assert apart(places, 10) == moved
