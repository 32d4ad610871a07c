"""Write a gate's outcome as Markdown for the pipeline's page and as JUnit for its list of tests."""

import re
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import quote
from xml.etree import ElementTree

from bessemer.contract.names import shown_labels
from bessemer.contract.problem import Problem
from bessemer.figures.words import search_note
from bessemer.gate.policy import Bound, Measure, Outcome, Verdict, shown_percent

PASSED_SIGN, WARNING_SIGN, OTHER_SIGN = "✅", "⚠️", "❌"
NO_BOUND = "no bound"
MAX_PLACES = 20
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def markdown(outcome: Outcome, console: str = "") -> str:
    """A section with a heading, the failures, the figures and the stages.

    Args:
        outcome: the outcome.
        console: the address of the server's console, which the section links to; empty for no links.
    """
    return "\n".join([*_lines(outcome, console), ""])


def markdown_refusal(model: str, reason: str, lines: Iterable[str]) -> str:
    """A section for a gate without a verdict: the reason in a few words, and lines that say what to do."""
    return "\n".join([f"## {OTHER_SIGN} {_escaped(model)}: {reason}", "", *_fenced(lines), ""])


def junit(outcome: Outcome) -> str:
    """A test suite with one case, which GitLab shows in the merge request."""
    seconds = sum(stage.seconds for stage in outcome.document.stages)
    if not _is_bad(outcome):
        return _suite(outcome.model, seconds, None, "", (), outcome.warnings)
    return _suite(
        outcome.model, seconds, "failure", outcome.verdict.value, complaints(outcome), outcome.warnings
    )


def junit_refusal(model: str, reason: str, lines: Iterable[str]) -> str:
    """A test suite for a gate without a verdict, with the arguments of ``markdown_refusal``."""
    return _suite(model, 0.0, "error", reason, lines)


def _suite(
    model: str,
    seconds: float,
    kind: str | None,
    message: str,
    lines: Iterable[str],
    warnings: Iterable[str] = (),
) -> str:
    """A test suite with one case; ``kind`` is ``failure``, ``error`` or None."""
    counts = {f"{name}s": str(int(name == kind)) for name in ("failure", "error")}
    suite = ElementTree.Element("testsuite", {"name": "bessemer", "tests": "1", **counts})
    case = ElementTree.SubElement(
        suite, "testcase", classname="bessemer", name=_in_xml(model), time=f"{seconds:.2f}"
    )
    if kind is not None:
        ElementTree.SubElement(case, kind, message=message).text = _in_xml("\n".join(lines))
    if output := "\n".join(f"warning: {text}" for text in warnings):
        ElementTree.SubElement(case, "system-out").text = _in_xml(output)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def annotation(level: str, model: str, text: str) -> str:
    """A line that GitHub shows as an annotation; ``level`` is ``warning`` or ``error``."""
    escaped = f"{model}: {text}".replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::{level} title=Bessemer gate::{escaped}"


def passed_line(outcome: Outcome) -> str:
    """The verdict of a gate that passes: how many bounds hold, and which had nothing to compare with."""
    given = outcome.given_bounds
    idle = [option for option, is_judged in given.items() if not is_judged]
    if not given:
        return "passed: no bound was given"
    held = len(given) - len(idle)
    holds = f"{held} bound{'' if held == 1 else 's'} hold{'s' if held == 1 else ''}"
    return f"passed: {holds}" + (f"; not judged: {', '.join(idle)}" if idle else "")


def complaints(outcome: Outcome) -> tuple[str, ...]:
    """The reasons why a gate does not pass."""
    problem = outcome.document.problem
    if problem is not None:
        return (f"{problem.title} [{problem.code}]: {problem.detail}",)
    if outcome.verdict is Verdict.FAILED:
        return (f"the compilation was {outcome.document.state}",)
    return tuple(f"{verdict}: {text}" for verdict, text in outcome.breaches)


def _lines(outcome: Outcome, console: str) -> Iterator[str]:
    document = outcome.document
    target = f" for {_escaped(document.target.name)}" if document.target else ""
    yield f"## {_sign(outcome)} {_escaped(document.name or outcome.model)}{target}: {_shown_verdict(outcome)}"
    if document.problem is not None:
        yield from ("", *_problem_lines(document.problem))
    else:
        said = (
            *(f"{OTHER_SIGN} **{_escaped(text)}**" for text in complaints(outcome)),
            *(f"{WARNING_SIGN} {_escaped(text)}" for text in outcome.warnings),
        )
        yield from ("", *(f"- {text}" for text in said)) if said else ()
    if outcome.measures:
        yield from _table(outcome.measures)
    if document.stages:
        shown = ", ".join(
            f"{entry.stage} {entry.seconds:.2f} s{search_note(entry.stage, document.request.searches)}"
            for entry in document.stages
        )
        yield from ("", f"Stages: {shown}.")
    labels = "".join(f", {_escaped(label)}" for label in shown_labels(document.request.labels))
    model = f"model `{document.request.model[:12]}`"
    yield from ("", f"Compilation `{document.id}`, {model}{labels}.")
    if console:
        history = f"named?name={quote(document.name, safe='')}" if document.name else document.request.model
        yield from (
            "",
            f"In the console: [the compilation]({console}/compilations/{document.id}), [the history of its "
            f"model]({console}/models/{history}).",
        )


def _table(measures: tuple[Measure, ...]) -> Iterator[str]:
    yield from ("", "| | now | at most | base | change | change at most |", "|---|---|---|---|---|---|")
    for measure in measures:
        yield f"| {_escaped(measure.name)} | {_now(measure)} | {_before(measure)} |"


def _now(measure: Measure) -> str:
    """The cells of a figure and its bound."""
    if measure.now is None:
        return " | "
    if measure.bound is None:
        return f"{measure.shown(measure.now)} | within its tolerance (`verify`)"
    doubt = " (unsteady)" if measure.unsteady else ""
    mark = f" {OTHER_SIGN}" if measure.is_beyond or (doubt and measure.breaches) else ""
    return f"{measure.shown(measure.now)}{doubt}{mark} | {_allowed(measure.bound, measure.shown)}"


def _before(measure: Measure) -> str:
    """The cells of the base's figure, the change, and the bound on the change."""
    bound = measure.change_bound
    if bound is None:
        return " |  | "
    before = "" if measure.before is None else measure.shown(measure.before)
    if measure.change_percent is None:
        return f"{before} | not compared | {_allowed(bound, shown_percent)}"
    mark = f" {WARNING_SIGN if bound.most is None else OTHER_SIGN}" if measure.has_changed else ""
    return f"{before} | {shown_change(measure)}{mark} | {_allowed(bound, shown_percent)}"


def shown_change(measure: Measure) -> str:
    """Format the change of a compared measure."""
    percent = measure.change_percent or 0.0
    if measure.does_not_match:
        return "no match"
    if measure.now is not None and percent == 0:
        return "the same"
    sign = "+" if measure.now is not None and percent >= 0 else ""
    return f"{sign}{shown_percent(percent)}"


def _allowed(bound: Bound, shown: Callable[[float], str]) -> str:
    return NO_BOUND if bound.most is None else f"{shown(bound.most)} (`{bound.option}`)"


def _sign(outcome: Outcome) -> str:
    if _is_bad(outcome):
        return OTHER_SIGN
    return WARNING_SIGN if outcome.warnings else PASSED_SIGN


def _shown_verdict(outcome: Outcome) -> str:
    count = len(outcome.warnings)
    if _is_bad(outcome) or not count:
        return outcome.verdict
    return f"{outcome.verdict} with {count} warning{'s' if count > 1 else ''}"


def _problem_lines(problem: Problem) -> Iterator[str]:
    where = f" in stage `{problem.stage}`" if problem.stage else ""
    yield f"**{_escaped(problem.title)}**{where} (`{problem.code}`)"
    yield from ("", *_fenced(problem.detail.splitlines()))
    yield from (f"- {_escaped(str(place))}" for place in problem.places[:MAX_PLACES])
    if len(problem.places) > MAX_PLACES:
        yield f"- and {len(problem.places) - MAX_PLACES} more places"
    yield from ("", _escaped(problem.advice))


def _fenced(lines: Iterable[str]) -> Iterator[str]:
    """Lines as a code block."""
    yield from ("```text", *(line.replace("```", "'''") for line in lines), "```")


def _is_bad(outcome: Outcome) -> bool:
    return outcome.verdict is not Verdict.PASSED


def _in_xml(text: str) -> str:
    """Replace characters that XML 1.0 forbids, because the text can come from a job."""
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _escaped(text: str) -> str:
    """Escape Markdown in one line of untrusted text, such as the name of a model or operator."""
    marked = "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in text)
    return " ".join(marked.split())
