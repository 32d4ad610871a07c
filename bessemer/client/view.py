"""What both kinds of job show without asking the server."""

from bessemer.contract.job import Compilation, JobState

__all__ = ["JobView"]


class JobView:
    """A job as it was last heard of."""

    def __init__(self, document: Compilation) -> None:
        self.document = document

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state}>"

    @property
    def id(self) -> str:
        """The identifier."""
        return self.document.id

    @property
    def state(self) -> JobState:
        """The state."""
        return self.document.state

    @property
    def verified(self) -> bool:
        """Whether the library was found to compute what the model computes."""
        return bool(self.document.verified)
