"""Finding a snapshot by what it is called, and saying why it has no text."""

import pytest

from bessemer.cli.jobs import why_empty
from bessemer.contract.ir import IrCounts, IrListing, IrStep, IrText
from bessemer.contract.names import did_you_mean
from bessemer.contract.stage import Stage

NOTHING = IrText(offset=0, packed_bytes=0, text_bytes=0)
COUNTS = IrCounts.model_validate(dict.fromkeys(IrCounts.model_fields, 0))
PASSES = (
    (Stage.TRANSLATE, "translate", "translate"),
    (Stage.OPTIMIZE, "fold", "FoldConstant"),
    (Stage.OPTIMIZE, "fold", "7"),
    (Stage.OPTIMIZE, "fuse", "FuseTIR"),
    (Stage.OPTIMIZE, "clean", "FoldConstant"),
    (Stage.TUNE, "schedule", "tune"),
)


def step(number: int, stage: Stage, phase: str, name: str, **fields: object) -> IrStep:
    plain = {"seconds": 0.1, "changed": True, "counts": COUNTS, "text": NOTHING, "diff": NOTHING}
    return IrStep.model_validate(
        {"step": number, "stage": stage, "phase": phase, "name": name} | plain | fields
    )


LISTING = IrListing(items=tuple(step(number, *each) for number, each in enumerate(PASSES)))


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ("3", [3]),
        ("FuseTIR", [3]),
        ("fusetir", [3]),
        ("fuse", [3]),
        ("FUSE", [3]),
        ("foldconstant", [1, 4]),
        ("fold", [1, 2]),
        ("optimize", [1, 2, 3, 4]),
        ("tune", [5]),
        ("7", [2]),
        ("nothing", []),
    ],
)
def test_a_step_is_found_by_number_pass_phase_or_stage(given: str, numbers: list[int]) -> None:
    assert [each.step for each in LISTING.named(given)] == numbers


@pytest.mark.parametrize(
    ("name", "known", "count", "hint"),
    [
        ("fuestir", LISTING.names, 1, "; did you mean 'FuseTIR'?"),
        ("fold_constant", LISTING.names, 2, "; did you mean 'FoldConstant' or 'fold'?"),
        ("xyz", LISTING.names, 3, ""),
        ("ab", ("abc", "abd", "abe"), 3, "; did you mean 'abe', 'abd' or 'abc'?"),
    ],
)
def test_the_nearest_names_are_suggested(name: str, known: tuple[str, ...], count: int, hint: str) -> None:
    assert did_you_mean(name, known, count=count) == hint


@pytest.mark.parametrize(
    ("given", "diff", "reason"),
    [
        (step(3, *PASSES[3], changed=False), True, "unchanged: step 3, FuseTIR, left the module as it was"),
        (step(0, *PASSES[0]), True, "translate is the first step: there is nothing to compare it with"),
        (
            step(3, *PASSES[3], truncated=True),
            True,
            "step 3, FuseTIR: omitted, because the snapshots are too large together",
        ),
    ],
)
def test_an_empty_diff_says_why(given: IrStep, diff: bool, reason: str) -> None:
    assert why_empty(given, diff) == reason
