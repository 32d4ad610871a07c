"""The rewrites in force, in the order in which they run: those of packages, then the built-in ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from bessemer.contract.names import did_you_mean
from bessemer.contract.options import OptimizeOptions
from bessemer.contract.problem import ErrorCode
from worker.compiler import rewrites
from worker.compiler.extensions import ExtensionPoint, cached_book, in_modules
from worker.compiler.rewrites.rewrite import AnyRewrite, GraphRewrite, Rewrite
from worker.errors import JobError

POINT: ExtensionPoint[AnyRewrite] = ExtensionPoint(
    group="bessemer.rewrites",
    attribute="REWRITES",
    kinds=(Rewrite, GraphRewrite),
    name_of=lambda rewrite: rewrite.name,
    # in the order in which they run
    built_in=in_modules(
        rewrites, "REWRITES", ("gelu", "norms", "pools", "attention_rewrites", "multiply_add")
    ),
)


@dataclass(frozen=True)
class RewriteBook:
    """Rewrites by name in the order in which they run, and the entry point that each comes from."""

    rewrites: dict[str, AnyRewrite]
    sources: dict[str, str]

    def chosen(self, options: OptimizeOptions) -> tuple[AnyRewrite, ...]:
        """The rewrites that a request enables, and the default ones that it does not disable.

        Raises:
            JobError: ``rewrite-unknown`` with the nearest name, where a name is not found.
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
        return f"unknown rewrite '{name}'{hint} (known: {', '.join(self.rewrites)})"


@cached_book
def rewrite_book() -> RewriteBook:
    """The rewrites in force.

    Raises:
        ExtensionError: an entry point does not give rewrites, or two packages give one of the same name.
    """
    return make_rewrite_book(POINT.installed())


def make_rewrite_book(installed: Iterable[EntryPoint]) -> RewriteBook:
    """The built-in rewrites and those of entry points; see ``rewrite_book``."""
    chains = POINT.chains(installed)
    return RewriteBook(
        rewrites={name: chain[0].item for name, chain in chains.items()},
        sources={name: chain[0].source for name, chain in chains.items()},
    )
