"""All rewrites: the built-in ones, then those that installed packages add, in the order in which they run.

Both are entry points of ``GROUP`` whose objects are tuples of rewrites.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from bessemer.contract.names import did_you_mean
from bessemer.contract.options import OptimizeOptions
from bessemer.contract.problem import ErrorCode
from worker.compiler.extensions import built_in, collect
from worker.compiler.rewrites.rewrite import AnyRewrite, GraphRewrite, Rewrite
from worker.errors import JobError

GROUP = "bessemer.rewrites"

BUILT_IN = built_in(
    GROUP,
    "worker.compiler.rewrites.*:REWRITES",
    ("gelu", "norms", "attention_rewrites", "multiply_add"),
)


@dataclass(frozen=True)
class RewriteBook:
    """Rewrites by name in the order in which they run, and the entry point that each comes from."""

    rewrites: dict[str, AnyRewrite]
    sources: dict[str, str]

    def chosen(self, options: OptimizeOptions) -> tuple[AnyRewrite, ...]:
        """The rewrites that a request switches on, or leaves on.

        Raises:
            JobError: ``rewrite-unknown`` with the nearest name, where it names one that is not here.
        """
        for name in (*options.enable, *options.disable):
            if name not in self.rewrites:
                raise JobError(ErrorCode.REWRITE_UNKNOWN, self._unknown(name))
        return tuple(
            rewrite
            for name, rewrite in self.rewrites.items()
            if name in options.enable or (rewrite.is_default and name not in options.disable)
        )

    def _unknown(self, name: str) -> str:
        hint = did_you_mean(name, self.rewrites)
        return f"there is no rewrite '{name}'{hint} (known: {', '.join(self.rewrites)})"


@lru_cache(maxsize=1)
def rewrite_book() -> RewriteBook:
    """The rewrites in force. An installed package's run first, and replace built-in ones of the same name.

    Raises:
        ExtensionError: an entry point gives no rewrites, or two packages give one of the same name.
    """
    return make_rewrite_book(BUILT_IN, entry_points(group=GROUP))


def make_rewrite_book(own: Iterable[EntryPoint], installed: Iterable[EntryPoint]) -> RewriteBook:
    """The rewrites of entry points; see ``rewrite_book``."""
    kinds: tuple[type[AnyRewrite], ...] = (Rewrite, GraphRewrite)
    ours, theirs = (collect(points, kinds, lambda one: one.name) for points in (own, installed))
    chosen = {**theirs, **{name: found for name, found in ours.items() if name not in theirs}}
    return RewriteBook(
        rewrites={name: rewrite for name, (rewrite, _) in chosen.items()},
        sources={name: source for name, (_, source) in chosen.items()},
    )
