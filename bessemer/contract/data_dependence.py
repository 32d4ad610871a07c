"""What ``torch.export`` cannot follow: a course through the model that the values of tensors decide."""

__all__ = ["dependence_on_values"]

KINDS = frozenset({"GuardOnDataDependentSymNode", "DataDependentOutputException"})
NUMBER = "Could not extract"


def dependence_on_values(error: BaseException) -> str | None:
    """What the model does where torch's error is of that kind; None where it is another.

    Args:
        error: what ``torch.export.export`` raised.
    """
    if type(error).__name__ not in KINDS:
        return None
    if str(error).startswith(NUMBER):
        return "the model takes a size or an index from a tensor's value"
    return "the model branches on a tensor's value"
