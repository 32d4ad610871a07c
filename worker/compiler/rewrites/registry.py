"""The rewrites in force, in the order in which they run: those of packages, then the built-in ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from bessemer.contract.options import OptimizeOptions
from worker.compiler import rewrites
from worker.compiler.extensions import ExtensionPoint, cached_book, in_modules
from worker.compiler.rewrites.rewrite import AnyRewrite, GraphRewrite, Rewrite

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
        """The rewrites that a request enables, and the default ones that it does not disable."""
        return tuple(
            rewrite
            for name, rewrite in self.rewrites.items()
            if name in options.enable or (rewrite.is_default and name not in options.disable)
        )


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
