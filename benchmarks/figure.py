"""A figure: samples of one quantity and their summary."""

from pydantic import BaseModel

from worker.measure.statistics import percentile


class Figure(BaseModel):
    """One quantity. ``aim`` is the largest acceptable value, in the same unit."""

    name: str
    unit: str
    samples: int
    best: float
    p10: float
    median: float
    p90: float
    aim: float | None = None


def summarize(name: str, unit: str, samples: list[float], aim: float | None = None) -> Figure:
    """Summarize at least one sample: best, median, 10th and 90th percentile."""
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
