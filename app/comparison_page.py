"""The page that compares the results of a group: no scripts, and nothing from other hosts."""

from collections.abc import Iterable, Iterator
from html import escape

from bessemer.contract.group import Comparison, TargetResult
from bessemer.contract.job import JobState
from bessemer.contract.problem import Problem
from bessemer.contract.report import Execution

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
REFRESH_SECONDS = 5
SHOWN_LETTERS = 200
"""The start of a problem's detail that the page shows; the compilation has all of it."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #f3f2ef; --panel: #fff; --ink: #1a1f25; --quiet: #56616c; --line: #dcdcd9; --track: #ecebe8;
  --ember: #bf3f08; --bar: #e0560f; --steel: #53687d; --good: #1b6a43; --bad: #a3211b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #111417; --panel: #191e23; --ink: #e8e5e0; --quiet: #9ba6b1; --line: #2c333a; --track: #242a30;
    --ember: #ff8a4c; --bar: #f2692a; --steel: #8299af; --good: #72d3a1; --bad: #ff8d85;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink); font-variant-numeric: tabular-nums;
  font: 400 15px/1.5 "Inter", "Segoe UI", system-ui, -apple-system, "Helvetica Neue", Arial, sans-serif;
}
.wrap { max-width: 1240px; margin: 0 auto; padding: 0 28px; }
header { background: #1a1f25; color: #f3f1ed; }
header::after {
  content: ""; display: block; height: 4px;
  background: linear-gradient(90deg, #6d1a04, #d6480a 35%, #ff9c45 65%, #ffd9a0);
}
header .wrap { padding-top: 30px; padding-bottom: 28px; }
h1 { margin: 0; font-size: 32px; line-height: 1.15; letter-spacing: -.02em; overflow-wrap: anywhere; }
header p { margin: 6px 0 0; color: #a9b3bd; overflow-wrap: anywhere; }
main.wrap { padding-top: 28px; padding-bottom: 64px; }
section {
  background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: 22px 26px;
  margin-bottom: 18px; overflow-x: auto;
}
h2 { margin: 0 0 12px; font-size: 17px; }
section > p { margin: 12px 0 0; color: var(--quiet); max-width: 80ch; }
a { color: var(--ember); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 9px 18px 9px 0; border-top: 1px solid var(--line); }
thead th { border-top: 0; color: var(--quiet); font-weight: 400; font-size: 13px; }
tbody th { min-width: 150px; } th + td { min-width: 170px; }
.num { text-align: right; white-space: nowrap; }
small { display: block; color: var(--quiet); font-size: 13px; font-weight: 400; }
.good { color: var(--good); } .bad { color: var(--bad); }
dl { display: grid; grid-template-columns: minmax(110px, max-content) 1fr; gap: 8px 18px; margin: 0; }
dt { font-weight: 600; } dd { margin: 0; }
.row { display: grid; grid-template-columns: 1fr 190px; gap: 14px; align-items: center; }
.track { background: var(--track); border-radius: 2px; }
.bar { display: block; height: 16px; min-width: 2px; border-radius: 2px; background: var(--bar); }
.peer .bar { background: var(--steel); height: 8px; }
.peer { color: var(--quiet); font-size: 13px; }
"""
HEADINGS = (
    ("Target", ""),
    ("Result", ""),
    ("Median latency", "num"),
    ("Fastest baseline", "num"),
    ("Library", "num"),
    ("Bundle", "num"),
    ("Largest error", "num"),
    ("Time", "num"),
    ("", ""),
)


def comparison_page(comparison: Comparison) -> str:
    """A comparison as HTML. Every text is escaped: users choose names, and models the texts of problems."""
    title = f"{comparison.name or f'Model {comparison.model[:8]}'} for {_count(comparison.items)}"
    refresh = "" if comparison.state.final else f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">'
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">{refresh}'
        f"<title>{escape(title)} · Bessemer</title><style>{STYLE}</style>"
    )
    return (
        f'<!doctype html><html lang="en"><head>{head}</head><body><header><div class="wrap">'
        f"<h1>{escape(title)}</h1><p>{escape(_summary(comparison))}</p>"
        f"<p>Model sha256:{escape(comparison.model)}</p></div></header>"
        f'<main class="wrap">{"".join(_sections(comparison))}</main></body></html>'
    )


def _sections(comparison: Comparison) -> Iterator[str]:
    head = "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in HEADINGS)
    rows = "".join(map(_row, comparison.items))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    yield f"<section>{table}{_reference_note(comparison)}</section>"
    measured = [(one, one.latency.p50_ms) for one in comparison.items if one.latency is not None]
    if measured:
        longest = max(max(ms, one.peer.latency.p50_ms if one.peer else 0.0) for one, ms in measured)
        bars = "".join(_latency_bars(one, ms, longest) for one, ms in measured)
        note = "Each as its own worker measured it, above the fastest baseline in the same rounds."
        yield f"<section><h2>Median latency of one run</h2><dl>{bars}</dl><p>{note}</p></section>"
    sizes = [(one, one.library_bytes) for one in comparison.items if one.library_bytes is not None]
    if sizes:
        largest = max(size for _, size in sizes)
        bars = "".join(
            f"<dt>{escape(one.target)}</dt><dd>{_bar(size, largest, _size(size))}</dd>" for one, size in sizes
        )
        yield f"<section><h2>Size of the library</h2><dl>{bars}</dl></section>"


def _row(one: TargetResult) -> str:
    peer = one.peer
    error = "" if one.max_absolute_error is None else f"{one.max_absolute_error:.3g}{_share(one)}"
    threads = "" if one.threads is None else f"<small>{_plural(one.threads, 'thread')}</small>"
    latency = _estimate(one) if one.latency is None else f"{_duration(one.latency.p50_ms)}{threads}"
    unsteady = f"<small>unsteady: {escape(one.unsteady)}</small>" if one.unsteady else ""
    cached = "<small>an earlier result of an identical request</small>" if one.cached else ""
    cells = (
        ("num", latency),
        ("num", "" if peer is None else f"{_duration(peer.latency.p50_ms)}<small>{_against(one)}</small>"),
        ("num", "" if one.library_bytes is None else _size(one.library_bytes)),
        ("num", "" if one.bundle_bytes is None else _size(one.bundle_bytes)),
        ("num", error),
        ("num", "" if one.seconds is None else f"{one.seconds:.0f} s"),
        ("", _links(one)),
    )
    where = "emulated on" if one.execution is Execution.EMULATED else "on"
    processor = f"<small>{where} {escape(one.processor)}</small>" if one.processor else ""
    kind = {JobState.SUCCEEDED: "good", JobState.FAILED: "bad"}.get(one.state, "")
    detail = "" if one.problem is None else f"<small>{escape(_reason(one.problem))}</small>"
    return (
        f'<tr><th scope="row">{escape(one.target)}{processor}</th>'
        f'<td><span class="{kind}">{escape(one.outcome)}</span>{detail}{unsteady}{cached}</td>'
        + "".join(f'<td class="{kind}">{cell}</td>' for kind, cell in cells)
        + "</tr>"
    )


def _estimate(one: TargetResult) -> str:
    """The estimate for a library that was not measured."""
    if one.estimate is None or one.state is not JobState.SUCCEEDED:
        return ""
    threads = "" if one.estimate.threads == 1 else f"<br>on each of {one.estimate.threads} threads"
    return f"<small>estimate: about<br>{one.estimate.cycles:,} cycles{threads}</small>"


def _reason(problem: Problem) -> str:
    detail = problem.detail if len(problem.detail) <= SHOWN_LETTERS else f"{problem.detail[:SHOWN_LETTERS]}…"
    return f"{problem.title}: {detail}"


def _share(one: TargetResult) -> str:
    """The error as a share of its bound, and the bound."""
    if one.error_share is None or one.tolerance is None:
        return ""
    bound = f"{one.tolerance.absolute:g} + {one.tolerance.relative:g}·|y|"
    return f"<small>{100 * one.error_share:.2g} % of its bound<br>{bound}</small>"


def _links(one: TargetResult) -> str:
    """Relative to the page's address, so that a proxy may move the service below a path."""
    address = f"../../compilations/{escape(one.id)}"
    if one.bundle_bytes is None:
        return f'<a href="{address}">status</a>'
    return f'<a href="{address}/report">report</a> <a href="{address}/artifacts/bundle.tar.zst">bundle</a>'


def _latency_bars(one: TargetResult, milliseconds: float, longest: float) -> str:
    ours = _bar(milliseconds, longest, _duration(milliseconds))
    peer = one.peer
    if peer is not None:
        shown = f"{_duration(peer.latency.p50_ms)} {escape(peer.name)}"
        ours += f'<div class="peer">{_bar(peer.latency.p50_ms, longest, shown)}</div>'
    return f"<dt>{escape(one.target)}</dt><dd>{ours}</dd>"


def _bar(value: float, longest: float, label: str) -> str:
    """A bar with its label, which is HTML."""
    width = 100 * value / longest if longest > 0 else 0
    bar = f'<span class="bar" style="width: {width:.2f}%"></span>'
    return f'<div class="row"><span class="track">{bar}</span><span>{label}</span></div>'


def _against(one: TargetResult) -> str:
    """The library's ratio to the baseline, unless it is unreliable."""
    assert one.peer is not None
    if one.peer.doubt or one.unsteady:
        return f"{escape(one.peer.name)}, unsteady"
    return f"library / {escape(one.peer.name)}: {one.peer.ratio:.2g}"


def _reference_note(comparison: Comparison) -> str:
    if comparison.same_reference is None:
        return ""
    if comparison.same_reference:
        return "<p>All libraries were verified with the same inputs and outputs of the model, bit by bit.</p>"
    return (
        "<p>The libraries were not verified with the same outputs of the model, bit by bit: their workers' "
        "processors round differently.</p>"
    )


def _summary(comparison: Comparison) -> str:
    """How many compilations are in each state."""
    states = [one.state for one in comparison.items]
    counts = ", ".join(f"{states.count(state)} {state}" for state in JobState if state in states)
    return f"Group {comparison.group}: {counts}. Submitted {comparison.created_at:%Y-%m-%d %H:%M:%S} UTC."


def _count(items: Iterable[TargetResult]) -> str:
    targets = [one.target for one in items]
    return targets[0] if len(targets) == 1 else f"{len(targets)} targets"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _duration(milliseconds: float) -> str:
    return f"{milliseconds * 1000:.3g} µs" if milliseconds < 1 else f"{milliseconds:.4g} ms"


def _size(count: int) -> str:
    return f"{count / 1024:.1f} KiB" if count < 1 << 20 else f"{count / (1 << 20):.2f} MiB"
