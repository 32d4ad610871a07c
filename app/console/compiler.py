"""The compiler's pages: the module after every pass, what changed, and each function down to its assembly."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from markupsafe import Markup
from pydantic import BaseModel, Field

from app.console import words
from app.console.code_diff import word_marks
from app.console.code_text import Comparison, Function, Life, Row, RowKind, Text, lives, matching
from app.console.code_tokens import Language, Linker, Mark, marked_up, visible
from app.console.compiler_graph import draw
from app.console.compiler_reading import Compiler, read_compiler
from app.console.rendering import page
from app.http.problems import refuse
from app.routes.code import named_function
from app.routes.lookup import CompilationDep
from app.service import ServiceDep
from bessemer.contract.code import CodeFunction, CodeKind, CodeOperator, listed_name
from bessemer.contract.ir import IrStep, IrText
from bessemer.contract.problem import ErrorCode

router = APIRouter(prefix="/console/compilations/{id}/compiler", include_in_schema=False)

WINDOW = 400
"""Lines of a text, or rows of a comparison, in one response."""

MAX_WINDOW = 1000
MAX_MATCHES = 100
MAX_FOUND = 10_000
"""The most lines that one search of a text finds; ``MOST_FOUND`` in ``compiler.js`` must be equal."""
MAX_FUNCTIONS_FOUND = 50
PANE_WINDOW = 150
TAB = 4
SCRIPT = "script"
"""The form of a function in TVMScript, beside those of ``CodeKind``."""
LANGUAGES = {
    CodeKind.LLVM_IR: Language.LLVM,
    CodeKind.ASSEMBLY: Language.ASSEMBLY,
    CodeKind.PTX: Language.ASSEMBLY,
}
TITLES = {CodeKind.LLVM_IR: "LLVM IR", CodeKind.ASSEMBLY: "Assembly", CodeKind.PTX: "PTX"}

Place = Annotated[int, Field(ge=0, le=1 << 31)]


class Asked(BaseModel):
    """What a page of the compiler shows.

    Attributes:
        step: the step.
        against: the step to compare it with; by default, the one before.
        view: its changes, or its whole text; by default, its changes if there are any.
        line: a line, from 1, to show and mark.
        kind: the form of a function's code that the line belongs to.
        row: the first row of the comparison.
        q: what to search for.
    """

    step: Place | None = None
    against: Place | None = None
    view: Annotated[str, Field(pattern="^(split|unified|text)?$")] = ""
    line: Place | None = None
    kind: Annotated[str, Field(max_length=20)] = ""
    row: Place = 0
    q: Annotated[str, Field(max_length=200)] = ""


class TextPlace(BaseModel):
    """A place in a text.

    Attributes:
        step: the step whose module contains it; None for a function's code.
        function: the function.
        kind: the form of its code.
        start: the first line, from 0.
    """

    step: Place | None = None
    function: Annotated[str, Field(max_length=200)] = ""
    kind: CodeKind = CodeKind.ASSEMBLY
    start: Place = 0


class Window(TextPlace):
    """``count`` lines of a text, beginning at a place."""

    count: Annotated[int, Field(ge=1, le=MAX_WINDOW)] = WINDOW


class FindQuery(TextPlace):
    """A search for ``q``, in any case, in a text, beginning at a place."""

    q: Annotated[str, Field(min_length=1, max_length=200)]


class Expanded(BaseModel):
    """Equal lines that a comparison folds away."""

    step: Place
    against: Place
    before: Place
    after: Place
    count: Annotated[int, Field(ge=1, le=MAX_WINDOW)]
    view: str = "split"


def _compiler(service: ServiceDep, job: CompilationDep) -> Compiler:
    return read_compiler(service, job)


CompilerDep = Annotated[Compiler, Depends(_compiler)]


@dataclass(frozen=True)
class Line:
    """A line as a page shows it, with its number from 1 and its width in columns."""

    number: int
    html: Markup
    columns: int = 0


@dataclass(frozen=True)
class Side:
    """One half of a row of a comparison: its line's number from 1, or 0 for none."""

    number: int
    html: Markup


@dataclass(frozen=True)
class ShownRow:
    """A row of a comparison as a page shows it."""

    kind: RowKind
    before: Side
    after: Side
    row: Row


def _one_column(rows: Iterator[ShownRow]) -> Iterator[ShownRow]:
    """The rows for one column: each run of changed lines as its removed lines, then its added lines."""
    for kind, run in groupby(rows, lambda row: row.kind):
        if kind is RowKind.CHANGED:
            changed = list(run)
            yield from (replace(row, kind=RowKind.REMOVED) for row in changed)
            yield from (replace(row, kind=RowKind.ADDED) for row in changed)
        else:
            yield from run


@dataclass(frozen=True)
class Pane:
    """A window on a text.

    Attributes:
        title: what the text is.
        source: the query that asks for its lines.
        total: how many lines it has.
        lines: some of them.
        permalink: the address of the page that shows it, without the number of a line.
        anchor: the prefix of the ids of its lines.
        marked: the number of a line to mark.
        cut: a note on how much of the text was cut; empty if it is whole.
        base: the index of its first line in the text of the source, from 0.
    """

    title: str
    source: str
    total: int
    lines: Sequence[Line]
    permalink: str
    anchor: str = "L"
    marked: int | None = None
    cut: str = ""
    base: int = 0

    @property
    def missing_line(self) -> int | None:
        """The line to mark, if it is outside the text; otherwise None."""
        is_here = self.marked is None or self.base < self.marked <= self.base + self.total
        return None if is_here else self.marked

    @property
    def columns(self) -> int:
        """The width of the widest line shown."""
        return max((line.columns for line in self.lines), default=0)

    @property
    def start(self) -> int:
        """The first line shown, from 0."""
        return self.lines[0].number - 1 if self.lines else 0

    @property
    def end(self) -> int:
        """The line after the last one shown, from 0."""
        return self.start + len(self.lines)


@dataclass(frozen=True)
class Places:
    """The addresses of a compilation's pages."""

    request: Request
    compiler: Compiler

    @property
    def base(self) -> str:
        """The address of the passes."""
        root = self.request.scope.get("root_path", "")
        return f"{root}/console/compilations/{self.compiler.job.id}/compiler"

    def function(self, name: str) -> str:
        """The page of a function."""
        return f"{self.base}/functions/{quote(name, safe='')}"

    def line(self, step: int, line: int) -> str:
        """A line, from 1, of a step's module."""
        return f"{self.base}?{urlencode({'step': step, 'view': 'text', 'line': line})}#L{line}"

    def linker(self, step: IrStep | None, text: Text | None) -> Linker:
        """Link names of functions to their definitions in the same text, or else to their own pages."""
        known = {function.name for function in self.compiler.code.functions} if self.compiler.code else set()

        def link(name: str) -> str | None:
            plain = listed_name(name.removeprefix("__tvm_ffi_"))
            if step is not None and text is not None and plain in text.functions:
                return self.line(step.step, text.functions[plain].start + 1)
            return self.function(plain) if plain in known else None

        return link


@router.get("")
def show_passes(request: Request, compiler: CompilerDep, asked: Annotated[Asked, Query()]) -> Response:
    """The passes, and one of them: its changes or its text."""
    if not compiler.steps:
        return show_functions(request, compiler)
    step = compiler.step(asked.step)
    against = compiler.step(max(step.step - 1, 0) if asked.against is None else asked.against)
    view = asked.view or ("split" if step.changed and step.step else "text")
    places = Places(request, compiler)
    comparison: Comparison | None = None
    rows: Sequence[ShownRow] = ()
    pane: Pane | None = None
    if view == "text":
        pane = _module_pane(places, step, asked.line)
    else:
        comparison = compiler.compare(against, step)
        rows = _shown(places, against, step, view, comparison.rows[asked.row : asked.row + WINDOW])
    changed = [each.step for each in compiler.steps if each.changed]
    return _page(
        request,
        compiler,
        "compiler.html.j2",
        step=step,
        against=against,
        view=view,
        asked=asked,
        phases=[(name, list(steps)) for name, steps in groupby(compiler.steps, lambda each: each.phase)],
        slowest=max(each.seconds for each in compiler.steps) or 1.0,
        previous=max((each for each in changed if each < step.step), default=None),
        next=min((each for each in changed if each > step.step), default=None),
        comparison=comparison,
        rows=rows,
        next_row=asked.row + WINDOW if comparison and asked.row + WINDOW < len(comparison.rows) else None,
        pane=pane,
        cuts=_cuts(compiler, (step,) if view == "text" else (against, step)),
        tab="passes",
    )


@router.get("/rows")
def show_rows(request: Request, compiler: CompilerDep, asked: Annotated[Asked, Query()]) -> Response:
    """More rows of a comparison."""
    step = compiler.step(asked.step)
    against = compiler.step(max(step.step - 1, 0) if asked.against is None else asked.against)
    comparison = compiler.compare(against, step)
    places = Places(request, compiler)
    view = asked.view or "split"
    rows = _shown(places, against, step, view, comparison.rows[asked.row : asked.row + WINDOW])
    end = asked.row + WINDOW
    return _page(
        request,
        compiler,
        "compiler_rows.html.j2",
        step=step,
        against=against,
        view=view,
        comparison=comparison,
        rows=rows,
        next_row=end if end < len(comparison.rows) else None,
    )


@router.get("/fold")
def show_fold(request: Request, compiler: CompilerDep, asked: Annotated[Expanded, Query()]) -> Response:
    """The lines that a fold of a comparison hides."""
    step, against = compiler.step(asked.step), compiler.step(asked.against)
    rows = [
        Row(RowKind.SAME, asked.before + each, asked.after + each)
        for each in range(min(asked.count, len(compiler.module(step).lines) - asked.after))
    ]
    return _page(
        request,
        compiler,
        "compiler_rows.html.j2",
        step=step,
        against=against,
        view=asked.view,
        comparison=None,
        rows=_shown(Places(request, compiler), against, step, asked.view, rows),
        next_row=None,
    )


@router.get("/lines")
def show_lines(request: Request, compiler: CompilerDep, asked: Annotated[Window, Query()]) -> Response:
    """A part of a text, for a browser that scrolls."""
    places = Places(request, compiler)
    text = _text(compiler, asked)
    if asked.step is not None:
        language, link = Language.SCRIPT, places.linker(compiler.step(asked.step), text)
    else:
        language, link = LANGUAGES[asked.kind], places.linker(None, None)
    lines = _lines(text, language, asked.start, asked.count, link)
    return _page(request, compiler, "compiler_lines.html.j2", lines=lines)


@router.get("/find")
def find_lines(compiler: CompilerDep, asked: Annotated[FindQuery, Query()]) -> list[int]:
    """The numbers, from 1, of the lines that contain ``q``. The browser itself has only some of the lines."""
    found = matching(_text(compiler, asked), asked.q, MAX_FOUND, asked.start)
    return [number + 1 for number in found]


@router.get("/search")
def search(request: Request, compiler: CompilerDep, asked: Annotated[Asked, Query()]) -> Response:
    """Functions, operators, passes and lines that a text names."""
    wanted = asked.q.strip().casefold()
    found = _found(request, compiler, asked, wanted) if wanted else None
    template = "compiler_found.html.j2" if "hx-request" in request.headers else "compiler_search.html.j2"
    return _page(request, compiler, template, asked=asked, found=found, tab="search")


@router.get("/functions")
def show_functions(request: Request, compiler: CompilerDep) -> Response:
    """The library's functions, slowest first."""
    known = compiler.code.functions if compiler.code else ()
    order = {listed_name(time.name): number for number, time in enumerate(compiler.times)}
    functions = sorted(known, key=lambda function: order.get(function.name, len(order)))
    last = compiler.last_module()
    return _page(
        request,
        compiler,
        "compiler_functions.html.j2",
        functions=functions,
        text=last[1] if last else Text(""),
        tab="functions",
    )


@router.get("/functions/{function}")
def show_function(
    request: Request,
    compiler: CompilerDep,
    function: Annotated[str, Path(max_length=200)],
    asked: Annotated[Asked, Query()],
) -> Response:
    """A function: what it computes, its TensorIR, LLVM IR and assembly, and the passes that changed it."""
    places = Places(request, compiler)
    modules = [compiler.module(step).functions for step in compiler.steps]
    life = lives(modules).get(function)
    code = compiler.code.named(function) if compiler.code else None
    if life is None and code is None:
        hint = compiler.code.hint(function) if compiler.code else "."
        raise refuse(ErrorCode.NOT_FOUND, f"Compilation {compiler.job.id} has no function '{function}'{hint}")
    step = None
    if life is not None:
        step = compiler.step(life.last if asked.step is None else asked.step)
    return _page(
        request,
        compiler,
        "compiler_function.html.j2",
        name=function,
        code=code,
        step=step,
        life=life,
        panes=list(_panes(places, function, step, code, asked)),
        operators=_operators(compiler, code),
        readers=_neighbors(compiler, function),
        tab="functions",
    )


@router.get("/graph")
def show_graph(request: Request, compiler: CompilerDep) -> Response:
    """The model's graph: a box for each call, with the operators that it computes."""
    places = Places(request, compiler)
    picture = draw(compiler.code, compiler.times, places.function) if compiler.code else None
    return _page(request, compiler, "compiler_graph.html.j2", picture=picture, tab="graph")


@router.get("/model")
def show_model(request: Request, compiler: CompilerDep, asked: Annotated[Asked, Query()]) -> Response:
    """The model's operators, with the function that computes each."""
    code = compiler.code
    operators = list(enumerate(code.operators)) if code else []
    wanted = asked.q.strip().casefold()
    if wanted:
        operators = [each for each in operators if wanted in _searched(each[1])]
    shown = operators[asked.row : asked.row + WINDOW]
    return _page(
        request,
        compiler,
        "compiler_model.html.j2",
        asked=asked,
        total=len(operators),
        operators=[
            (path, list(each))
            for path, each in groupby(shown, lambda entry: entry[1].place.module_path or "")
        ],
        computed_by=_computed_by(compiler),
        forms={function.name: _forms(compiler, function) for function in code.functions} if code else {},
        next_row=asked.row + WINDOW if asked.row + WINDOW < len(operators) else None,
        tab="model",
    )


def _page(request: Request, compiler: Compiler, template: str, **values: object) -> Response:
    places = Places(request, compiler)
    return page(
        request,
        template,
        200,
        job=compiler.job,
        compiler=compiler,
        places=places,
        base=places.base,
        plural=_plural,
        **values,
    )


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _text(compiler: Compiler, asked: TextPlace) -> Text:
    if asked.step is not None:
        return compiler.module(compiler.step(asked.step))
    return compiler.code_of(_function(compiler, asked.function), asked.kind)


def _function(compiler: Compiler, name: str) -> CodeFunction:
    if compiler.code is None:
        raise refuse(ErrorCode.NOT_FOUND, f"Compilation {compiler.job.id} kept no code.")
    return named_function(compiler.job, compiler.code, name)


def _module_pane(places: Places, step: IrStep, line: int | None) -> Pane:
    text = places.compiler.module(step)
    start = _window_start(len(text.lines), line, WINDOW)
    return Pane(
        title="TVMScript",
        source=urlencode({"step": step.step}),
        total=len(text.lines),
        lines=_lines(text, Language.SCRIPT, start, WINDOW, places.linker(step, text)),
        permalink=f"{places.base}?{urlencode({'step': step.step, 'view': 'text'})}",
        marked=line,
        cut=_cut_module(places.compiler, step),
    )


def _window_start(total: int, line: int | None, size: int) -> int:
    """The first line (from 0) of a window that shows a line (from 1)."""
    return max(min((line or 1) - 1 - size // 4, total - size), 0)


def _cuts(compiler: Compiler, steps: Sequence[IrStep]) -> Sequence[str]:
    """A note for each module of a page that was cut."""
    kept = dict.fromkeys(compiler.kept(step).step for step in steps)
    notes = ((compiler.step(number), _cut_module(compiler, compiler.step(number))) for number in kept)
    return [f"Step {step.step}, {step.name}: {note}" for step, note in notes if note]


def _cut_module(compiler: Compiler, step: IrStep) -> str:
    return cut_note(compiler.kept(step).text, len(compiler.module(step).lines))


def cut_note(text: IrText, lines: int) -> str:
    """A note that a job kept only the start of a text, or nothing of it; empty if it kept all."""
    if text.whole_bytes is None:
        return ""
    whole = words.size(text.whole_bytes)
    if not lines:
        return f"This text of {whole} was not kept: it exceeds a limit."
    kept = words.size(text.text_bytes)
    return f"Cut after line {lines:,}: {kept} of {whole} were kept. The rest is not stored."


def _panes(
    places: Places, function: str, step: IrStep | None, code: CodeFunction | None, asked: Asked
) -> Iterator[tuple[str, Pane]]:
    """The forms of a function, each with its key."""
    if step is not None:
        text = places.compiler.module(step)
        part = text.functions.get(function)
        if part is not None:
            yield SCRIPT, _script_pane(places, step, text, part, asked)
    for kind, title in TITLES.items():
        if code is not None and (code.text(kind).packed_bytes or code.text(kind).whole_bytes):
            text = places.compiler.code_of(code, kind)
            line = asked.line if asked.kind == kind else None
            start = _window_start(len(text.lines), line, PANE_WINDOW)
            yield (
                kind.value,
                Pane(
                    title=title,
                    source=urlencode({"function": function, "kind": kind.value}),
                    total=len(text.lines),
                    lines=_lines(text, LANGUAGES[kind], start, PANE_WINDOW, places.linker(None, None)),
                    permalink=f"{places.function(function)}?{urlencode({'kind': kind.value})}",
                    anchor=f"{kind.value}-L",
                    marked=line,
                    cut=cut_note(code.text(kind), len(text.lines)),
                ),
            )


def _script_pane(places: Places, step: IrStep, text: Text, part: Function, asked: Asked) -> Pane:
    """The pane of a function in a module; its lines have their numbers in the module."""
    line = asked.line if asked.kind == SCRIPT else None
    within = None if line is None else line - part.start
    start = part.start + _window_start(part.lines, within, PANE_WINDOW)
    count = min(part.end - start, PANE_WINDOW)
    query = urlencode({"step": step.step, "kind": SCRIPT})
    return Pane(
        title="TensorIR" if part.is_kernel else "Relax",
        source=urlencode({"step": step.step}),
        total=part.lines,
        lines=_lines(text, Language.SCRIPT, start, count, places.linker(step, text)),
        permalink=f"{places.function(part.name)}?{query}",
        anchor=f"{SCRIPT}-L",
        marked=line,
        cut=_cut_module(places.compiler, step) if part.end == len(text.lines) else "",
        base=part.start,
    )


def _lines(text: Text, language: Language, start: int, count: int, link: Linker | None) -> Sequence[Line]:
    return [
        Line(start + number + 1, marked_up(line, language, (), link), len(line.expandtabs(TAB)))
        for number, line in enumerate(map(visible, text.window(start, count)))
    ]


def _shown(
    places: Places, before: IrStep, after: IrStep, view: str, rows: Sequence[Row]
) -> Sequence[ShownRow]:
    shown = _shown_rows(places, before, after, rows)
    return tuple(_one_column(shown) if view == "unified" else shown)


def _shown_rows(places: Places, before: IrStep, after: IrStep, rows: Sequence[Row]) -> Iterator[ShownRow]:
    old, new = places.compiler.module(before), places.compiler.module(after)
    old_link, new_link = places.linker(before, old), places.linker(after, new)
    for row in rows:
        old_marks: Sequence[Mark] = ()
        new_marks: Sequence[Mark] = ()
        old_line, new_line = _line_at(old, row.before), _line_at(new, row.after)
        if row.kind is RowKind.CHANGED:
            old_marks, new_marks = word_marks(old_line, new_line)
        yield ShownRow(
            row.kind,
            Side(row.before + 1, marked_up(old_line, Language.SCRIPT, old_marks, old_link)),
            Side(row.after + 1, marked_up(new_line, Language.SCRIPT, new_marks, new_link)),
            row,
        )


def _line_at(text: Text, number: int) -> str:
    return visible(text.lines[number]) if 0 <= number < len(text.lines) else ""


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        steps: passes by name.
        functions: functions by name, each with its life in the steps.
        more_functions: how many more functions match.
        operators: operators, each with its number.
        lines: lines of the step's module.
    """

    steps: Sequence[IrStep]
    functions: Sequence[tuple[str, Life]]
    more_functions: int
    operators: Sequence[tuple[int, CodeOperator]]
    lines: Sequence[Line]


def _found(request: Request, compiler: Compiler, asked: Asked, wanted: str) -> Found:
    places = Places(request, compiler)
    known = lives([compiler.module(step).functions for step in compiler.steps])
    functions = [(name, life) for name, life in known.items() if wanted in name.casefold()]
    operators = compiler.code.operators if compiler.code else ()
    lines: list[Line] = []
    if compiler.steps:
        step = compiler.step(asked.step)
        text = compiler.module(step)
        for number in matching(text, wanted, MAX_MATCHES):
            line = visible(text.lines[number])
            lines.append(
                Line(
                    number + 1,
                    marked_up(line, Language.SCRIPT, _occurrences(line, wanted), places.linker(step, text)),
                )
            )
    return Found(
        [step for step in compiler.steps if wanted in f"{step.phase} {step.name}".casefold()],
        functions[:MAX_FUNCTIONS_FOUND],
        max(len(functions) - MAX_FUNCTIONS_FOUND, 0),
        [each for each in enumerate(operators) if wanted in _searched(each[1])][:MAX_MATCHES],
        lines,
    )


def _occurrences(line: str, wanted: str) -> Sequence[Mark]:
    folded = line.casefold()
    if len(folded) != len(line):
        return ()
    found: list[Mark] = []
    at = folded.find(wanted)
    while at >= 0:
        found.append((at, at + len(wanted)))
        at = folded.find(wanted, at + len(wanted))
    return found


def _searched(operator: CodeOperator) -> str:
    place = operator.place
    parts = (operator.name, place.operator, place.module_path, place.file, place.line)
    return " ".join(str(part) for part in parts if part is not None).casefold()


def _operators(compiler: Compiler, code: CodeFunction | None) -> Sequence[tuple[int, CodeOperator]]:
    if compiler.code is None or code is None:
        return ()
    return [(number, compiler.code.operators[number]) for number in dict.fromkeys(code.operators)]


def _computed_by(compiler: Compiler) -> dict[int, str]:
    """The function that computes each operator."""
    if compiler.code is None:
        return {}
    return {number: call.function for call in compiler.code.calls for number in call.operators}


def _forms(compiler: Compiler, function: CodeFunction) -> Sequence[tuple[str, str]]:
    """The forms of a function that are kept, each with its title."""
    script = [(SCRIPT, "TensorIR")] if compiler.steps else []
    code = ((kind.value, title) for kind, title in TITLES.items() if function.text(kind).text_bytes)
    return [*script, *code]


def _neighbors(compiler: Compiler, function: str) -> tuple[Sequence[str], Sequence[str]]:
    """The functions whose results a function reads, and those that read its results."""
    if compiler.code is None:
        return (), ()
    calls = compiler.code.calls
    read = [calls[place].function for call in calls if call.function == function for place in call.inputs]
    readers = [
        call.function for call in calls if any(calls[place].function == function for place in call.inputs)
    ]
    return tuple(dict.fromkeys(read)), tuple(dict.fromkeys(readers))
