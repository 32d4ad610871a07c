"""The worker's errors.

```
JobError                 one job ends, with a stable code
└─ OperatorsUnsupportedError  every operator that the importer lacks, with its places
```
Foreign exceptions are turned into these where they are caught: in the stage that knows what it was doing.
"""

from bessemer.contract.problem import ErrorCode, Problem, SourcePlace, make_problem


class JobError(Exception):
    """Ends one job with a problem that its user can act upon."""

    def __init__(self, code: ErrorCode, detail: str, places: tuple[SourcePlace, ...] = ()) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.places = places

    def problem(self, stage: str | None) -> Problem:
        """The problem document of this error."""
        return make_problem(self.code, self.detail, stage=stage, places=self.places)


class OperatorsUnsupportedError(JobError):
    """The importer lacks operators; ``places`` lists all of them."""

    def __init__(self, places: tuple[SourcePlace, ...]) -> None:
        names = sorted({place.operator for place in places if place.operator})
        super().__init__(ErrorCode.OPERATOR_UNSUPPORTED, f"unsupported: {', '.join(names)}", places)


MAX_DETAIL_CHARACTERS = 600


def first_line(error: BaseException) -> str:
    """The type of a foreign exception and the first line of its message, cut to a fair length."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text[:MAX_DETAIL_CHARACTERS]
