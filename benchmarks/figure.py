"""A figure: many samples of one quantity, and how they are summed up."""

from pydantic import BaseModel

from worker.measure.statistics import percentile


class Figure(BaseModel):
    """One quantity. ``aim`` is the largest value that is good enough, in the same unit."""

    name: str
    unit: str
    samples: int
    best: float
    p10: float
    median: float
    p90: float
    aim: float | None = None


def summarize(name: str, unit: str, samples: list[float], aim: float | None = None) -> Figure:
    """The best, the median, the 10th and the 90th percentile of at least one sample."""
    return Figure(
        name=name,
        unit=unit,
        samples=len(samples),
        best=round(min(samples), 4),
        p10=round(percentile(samples, 10), 4),
        median=round(percentile(samples, 50), 4),
        p90=round(percentile(samples, 90), 4),
        aim=aim,
    )
