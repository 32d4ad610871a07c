"""All rewrites: the built-in ones, then those that installed packages add, in the order in which they run.

Both are entry points of ``GROUP`` whose objects are tuples of rewrites. The built-in ones are named here: the
worker runs from a checkout, which is no installed package.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from bessemer.contract.problem import ErrorCode
from bessemer.contract.request import OptimizeOptions
from worker.errors import JobError
from worker.extensions import collect
from worker.rewrites.rewrite import AnyRewrite, GraphRewrite, Rewrite

GROUP = "bessemer.rewrites"

BUILT_IN: tuple[EntryPoint, ...] = tuple(
    EntryPoint(name=name, value=f"worker.rewrites.{name}:REWRITES", group=GROUP)
    for name in ("gelu", "norms", "projections", "attention", "linear", "fma")
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
        near = difflib.get_close_matches(name, self.rewrites, n=1, cutoff=0.4)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        return f"there is no rewrite '{name}'{hint} (known: {', '.join(self.rewrites)})"


@lru_cache(maxsize=1)
def rewrite_book() -> RewriteBook:
    """The rewrites in force. An installed package's run first, and replace built-in ones of the same name.

    Raises:
        ExtensionError: an entry point gives no rewrites, or two packages give one of the same name.
    """
    return make_rewrite_book(BUILT_IN, entry_points(group=GROUP))


def make_rewrite_book(built_in: Iterable[EntryPoint], installed: Iterable[EntryPoint]) -> RewriteBook:
    """The rewrites of entry points; see ``rewrite_book``."""
    kinds: tuple[type[AnyRewrite], ...] = (Rewrite, GraphRewrite)
    ours, theirs = (collect(points, kinds, lambda one: one.name) for points in (built_in, installed))
    chosen = {**theirs, **{name: found for name, found in ours.items() if name not in theirs}}
    return RewriteBook(
        rewrites={name: rewrite for name, (rewrite, _) in chosen.items()},
        sources={name: source for name, (_, source) in chosen.items()},
    )
