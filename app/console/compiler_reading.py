"""Reads what a compilation kept of the compiler's work: modules, their changes, code and functions' times."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from threading import Lock

from app.console.code_text import Comparison, Text, compare
from app.http.problems import RefusalError, refuse
from app.reports import read_report
from app.routes.code import read_code
from app.routes.ir import read_listing, read_text
from app.routes.lookup import named_artifact
from app.service import TenantService
from bessemer.contract.code import (
    CODE_TEXTS,
    CodeFunction,
    CodeKind,
    CodeListing,
    CodeOperator,
    listed_name,
)
from bessemer.contract.ir import IR_TEXTS, IrListing, IrStep, IrText
from bessemer.contract.job import Compilation
from bessemer.contract.problem import ErrorCode, SourcePlace
from bessemer.contract.report import FunctionTime

MAX_TEXTS_BYTES = 1 << 26
"""The limit of a compilation's modules together; jobs have the same limit."""
MAX_PLACE_CHARACTERS = 200
MAX_COUNT = 1 << 62
MAX_HELD_CHARACTERS = 1 << 26
"""The limit of the unpacked texts in memory together."""


class TextCache:
    """A cache of the texts that were read last. Callers check access before they ask it."""

    def __init__(self, max_characters: int) -> None:
        self._max_characters = max_characters
        self._held: OrderedDict[tuple[str, int, int], Text] = OrderedDict()
        self._characters = 0
        self._lock = Lock()

    def get(self, key: tuple[str, int, int], read: Callable[[], bytes]) -> Text:
        """The text of a frame of an artifact: digest, offset and size identify it."""
        with self._lock:
            text = self._held.get(key)
            if text is not None:
                self._held.move_to_end(key)
                return text
        text = Text(read().decode("utf-8", "replace"))
        with self._lock:
            if key not in self._held:
                self._held[key] = text
                self._characters += len(text.data)
            while self._characters > self._max_characters:
                _, dropped = self._held.popitem(last=False)
                self._characters -= len(dropped.data)
        return text


_TEXTS = TextCache(MAX_HELD_CHARACTERS)
compared_texts = lru_cache(maxsize=2)(compare)
"""Holds the texts of two comparisons beyond the cache's limit."""


@dataclass(frozen=True)
class Compiler:
    """What one compilation kept.

    Attributes:
        service: the service as the compilation's owner sees it.
        job: the compilation.
        steps: the module after each pass; empty if none was kept.
        code: what each function computes; None if it was not kept, or if the build was not reached.
        times: the functions' times, slowest first; empty if they were not measured.
    """

    service: TenantService
    job: Compilation
    steps: Sequence[IrStep]
    code: CodeListing | None
    times: Sequence[FunctionTime]

    def step(self, number: int | None) -> IrStep:
        """A step by its number; by default, the first.

        Raises:
            RefusalError: 404, the job wrote no such step.
        """
        place = 0 if number is None else number
        if not 0 <= place < len(self.steps):
            detail = f"Compilation {self.job.id} has no step {place}: it has {len(self.steps)}, from 0."
            raise refuse(ErrorCode.NOT_FOUND, detail)
        return self.steps[place]

    def module(self, step: IrStep) -> Text:
        """The module after a step."""
        return self._text(IR_TEXTS, self.kept(step).text)

    def kept(self, step: IrStep) -> IrStep:
        """The step that stores a step's text. A step that changed nothing shares the text before it."""
        while not step.changed and step.step in range(1, len(self.steps)):
            step = self.steps[step.step - 1]
        return step

    def code_of(self, function: CodeFunction, kind: CodeKind) -> Text:
        """A function's code in one form."""
        return self._text(CODE_TEXTS, function.text(kind))

    def compare(self, before: IrStep, after: IrStep) -> Comparison:
        """What changed between two steps."""
        return compared_texts(self.module(before), self.module(after))

    def time_of(self, function: str) -> FunctionTime | None:
        """The time of a function; None if it was not measured."""
        return self._times_by_name.get(function)

    def calls_of(self, function: str) -> int:
        """How often a run of the model calls a function."""
        return self._calls_by_name[function]

    def last_module(self) -> tuple[IrStep, Text] | None:
        """The last step with a text; None if no step has one."""
        for step in reversed(self.steps):
            if step.text.packed_bytes:
                return step, self.module(step)
        return None

    @cached_property
    def _times_by_name(self) -> Mapping[str, FunctionTime]:
        return {listed_name(time.name): time for time in reversed(self.times)}

    @cached_property
    def _calls_by_name(self) -> Counter[str]:
        return Counter(call.function for call in self.code.calls) if self.code else Counter()

    def _text(self, name: str, text: IrText) -> Text:
        if not text.packed_bytes:
            return Text("")
        digest = named_artifact(self.job, name).digest
        key = (digest, text.offset, text.text_bytes)
        return _TEXTS.get(key, lambda: read_text(self.service, self.job, text, name))


def read_compiler(service: TenantService, job: Compilation) -> Compiler:
    """Read what a compilation kept of the compiler's work. Blocks.

    Raises:
        RefusalError: 404, it kept nothing, or nothing yet.
    """
    if not job.state.final and (job.request.inspect.ir or job.request.inspect.assembly):
        detail = f"Compilation {job.id} is {job.state}. What the compiler did can be read when it ends."
        raise refuse(ErrorCode.NOT_FOUND, detail)
    listing: IrListing | None = None
    refusal: RefusalError | None = None
    try:
        listing = read_listing(service, job)
    except RefusalError as error:
        refusal = error
    if listing is not None and not _is_sound(listing.items):
        listing, refusal = (
            None,
            refuse(ErrorCode.NOT_FOUND, f"The modules of compilation {job.id} cannot be read."),
        )
    code: CodeListing | None = None
    with suppress(RefusalError):
        code = read_code(service, job)
        code = code.model_copy(update={"operators": tuple(map(_clipped, code.operators))})
    if refusal is not None and code is None:
        raise refusal
    return Compiler(service, job, listing.items if listing else (), code, _times(service, job))


def _is_sound(steps: Sequence[IrStep]) -> bool:
    """Whether the steps are valid: each step's number is its index, and their texts are within the limit."""
    texts = sum(step.text.text_bytes for step in steps if step.changed)
    return texts <= MAX_TEXTS_BYTES and all(step.step == place for place, step in enumerate(steps))


def _clipped(operator: CodeOperator) -> CodeOperator:
    """An operator without long texts: pages show the same operator many times."""
    place = operator.place
    texts = (place.operator, place.module_path, place.file)
    if all(text is None or len(text) <= MAX_PLACE_CHARACTERS for text in texts):
        return operator
    name, module, file = (text and text[:MAX_PLACE_CHARACTERS] for text in texts)
    place = SourcePlace(operator=name, module_path=module, file=file, line=place.line)
    return operator.model_copy(update={"place": place})


def _times(service: TenantService, job: Compilation) -> Sequence[FunctionTime]:
    report = read_report(service, job).report
    times = () if report is None or report.benchmark is None else report.benchmark.functions
    known = (time for time in times if max(time.calls, time.flops) < MAX_COUNT)  # hostile reports
    return sorted(known, key=lambda time: time.milliseconds, reverse=True)
