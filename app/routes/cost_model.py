"""The cost model that learned from a tenant's searches."""

from datetime import UTC, datetime

from fastapi import APIRouter

from app.http.problems import refuse
from app.openapi import document as documentation
from app.openapi.document import problems
from app.service import ServiceDep
from bessemer.contract.cost_model import MIN_FUNCTIONS, LearnedCostModel, RankedFamily
from bessemer.contract.problem import ErrorCode

router = APIRouter(prefix="/v1/tuning/cost-model", tags=["tuning records"])

COST_MODEL = LearnedCostModel(
    version="4ac12b90dd2e",
    trained_at=datetime(2026, 11, 1, tzinfo=UTC),
    functions=31,
    plans=402,
    families=(
        RankedFamily(
            family="convolution",
            kind="x86_64 256 parallel",
            functions=19,
            pairs=1311,
            accuracy=0.84,
            analytic_accuracy=0.71,
            regret=0.03,
            analytic_regret=0.05,
            used=True,
        ),
    ),
)
NONE_YET = (
    "No cost model has learned from your searches yet: it needs the measured plans of "
    f"{MIN_FUNCTIONS} functions. Until then, searches use the model that ships with Bessemer."
)


@router.get(
    "",
    summary="Show the cost model that learned from your tenant's searches",
    responses=documentation.answer(200, "The cost model.", COST_MODEL) | problems(ErrorCode.NOT_FOUND),
)
def show_cost_model(service: ServiceDep) -> LearnedCostModel:
    """Return what the model was trained on, and how well it ranks plans of functions that it had not seen.

    A worker trains it in the background: first when searches have measured plans of 8 functions, then
    whenever an eighth of the functions, and at least 4 of them, are new or measured again.
    """
    found = service.data.cost_model.get()
    if found is None:
        raise refuse(ErrorCode.NOT_FOUND, NONE_YET)
    return found
