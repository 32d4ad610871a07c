"""The dashboard and the alerts query existing metrics and labels, in valid PromQL."""

import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from app.observability.tracing import UNTRACED
from bessemer.contract.problem import ERRORS, ErrorCode
from bessemer.store.queue_port import TaskKind
from bessemer.telemetry import metrics
from bessemer.telemetry.metrics import Kind, Metric
from worker.supervisor.metrics import OWN_FAULTS, WorkerMetrics

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "bessemer.json").read_text())
ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
BY_NAME = {metric.name: metric for metric in (*metrics.APP, *metrics.WORKER)}
HISTOGRAM_LABELS = ("le",)
TARGET_LABELS = {"job", "instance"}
PROBES = "/readyz|/healthz|/metrics"


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def rules() -> list[dict[str, Any]]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


def queries() -> Iterator[str]:
    for panel in panels():
        yield from (target["expr"].replace("$__rate_interval", "5m") for target in panel["targets"])
    yield from (rule["expr"] for rule in rules())


def series(name: str) -> tuple[Metric | None, tuple[str, ...]]:
    """The metric of a series, and its labels."""
    if name in BY_NAME and BY_NAME[name].kind is not Kind.HISTOGRAM:
        return BY_NAME[name], BY_NAME[name].labels
    base, _, suffix = name.rpartition("_")
    found = BY_NAME.get(base)
    if found is None or found.kind is not Kind.HISTOGRAM or suffix not in ("bucket", "sum", "count"):
        return None, ()
    return found, (*found.labels, *(HISTOGRAM_LABELS if suffix == "bucket" else ()))


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_every_query_parses_and_uses_existing_metrics_and_labels(query: str) -> None:
    promql_parser.parse(query)
    names = re.findall(r"bessemer_\w+", query)
    assert names or re.search(r"\bup\{", query)
    assert [name for name in names if series(name)[0] is None] == []
    known = TARGET_LABELS | {label for name in names for label in series(name)[1]}
    grouped = {label for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(", ")}
    selected = set(re.findall(r"(\w+)(?:=|=~|!~)\"", query))
    assert grouped | selected <= known


def test_every_metric_but_the_builds_version_is_on_the_dashboard() -> None:
    asked = {series(name)[0] for query in queries() for name in re.findall(r"bessemer_\w+", query)}
    assert {metric.name for metric in BY_NAME.values()} - {metric.name for metric in asked if metric} == {
        metrics.BUILD.name
    }


def test_every_panel_has_a_title_a_place_and_an_id_of_its_own() -> None:
    placed = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(placed)
    assert all(place["x"] + place["w"] <= 24 for place in placed)
    assert all(panel["title"] and panel["targets"] for panel in panels())


def cells(place: dict[str, int]) -> set[tuple[int, int]]:
    columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
    return set(product(columns, rows))


def test_no_panel_covers_another() -> None:
    covered = [cells(panel["gridPos"]) for panel in DASHBOARD["panels"]]
    assert len(set().union(*covered)) == sum(map(len, covered))


def test_every_dashboard_query_filters_by_the_chosen_jobs_and_instances() -> None:
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    chosen = 'bessemer_\\w+\\{job=~"\\$job", instance=~"\\$instance"[,}]'
    assert [text for text in asked if re.sub(chosen, "", text).count("bessemer_")] == []
    offered = {variable["name"]: variable["query"] for variable in DASHBOARD["templating"]["list"]}
    assert set(offered) == {"datasource", *TARGET_LABELS}
    assert all(f"label_values({metrics.BUILD.name}" in offered[label]["query"] for label in TARGET_LABELS)


@pytest.mark.parametrize("code", OWN_FAULTS)
def test_no_alert_fires_for_a_models_fault(code: ErrorCode) -> None:
    assert ERRORS[code].status >= 500


@pytest.mark.parametrize("job", [job["job_name"] for job in PROMETHEUS["scrape_configs"]])
def test_an_alert_covers_every_program_being_down_or_unknown(job: str) -> None:
    down = [
        text for rule in rules() for text in re.findall(r'^up\{job=~"([^"]+)"\} == 0 or absent', rule["expr"])
    ]
    assert [text for text in down if re.fullmatch(text, job)]


def test_answers_to_probes_and_scrapes_neither_raise_an_alert_nor_dilute_one() -> None:
    (expr,) = (rule["expr"] for rule in rules() if rule["alert"] == "BessemerAnswersErrors")
    assert expr.count("bessemer_http_requests_total{") == expr.count(f'{{route!~"{PROBES}"') == 2
    assert set(PROBES.split("|")) == UNTRACED


def test_every_alert_on_metrics_distinguishes_installations() -> None:
    together = [
        rule["alert"] for rule in rules() if re.search(r"\b(sum|min|max)\b(?! by \(job)", rule["expr"])
    ]
    assert together == []


def test_alerts_cover_every_code_that_a_request_did_not_cause() -> None:
    named = [code for rule in rules() for code in re.findall(r'code=~"([^"]+)"', rule["expr"])]
    assert {code for text in named for code in text.split("|")} == set(OWN_FAULTS)


@pytest.mark.parametrize("kind", TaskKind)
@pytest.mark.parametrize("code", OWN_FAULTS)
def test_counters_that_alerts_use_start_at_zero(kind: TaskKind, code: ErrorCode) -> None:
    labels = {"kind": kind, "outcome": "failed", "code": code}
    assert WorkerMetrics().registry.get_sample_value("bessemer_tasks_total", labels) == 0


def test_the_example_of_prometheus_has_the_rules_and_both_programs() -> None:
    assert all((DEPLOY / "prometheus" / name).is_file() for name in PROMETHEUS["rule_files"])
    assert {job["job_name"] for job in PROMETHEUS["scrape_configs"]} == {"bessemer-app", "bessemer-worker"}


@pytest.mark.parametrize("name", ["bessemer.json", "prometheus.yml", "alerts.yml"])
def test_the_documentation_names_the_files(name: str) -> None:
    assert name in (DEPLOY.parent / "docs" / "observability.md").read_text()


@pytest.mark.parametrize("alert", [rule["alert"] for rule in rules()])
def test_every_alert_is_documented(alert: str) -> None:
    assert f"`{alert}`" in (DEPLOY.parent / "docs" / "observability.md").read_text()
