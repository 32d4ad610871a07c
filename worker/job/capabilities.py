"""What this machine's processor cannot run, worked out once from what LLVM knows."""

from __future__ import annotations

from bessemer.contract.capability import Capability
from bessemer.contract.target import architecture_of
from worker.compiler.target import (
    dependents,
    host_instruction_sets,
    host_triple,
    known_architectures,
    processors,
)


def capability() -> Capability:
    """What a worker on this machine says of itself, so that it is given only what it can measure."""
    triple = host_triple()
    present = host_instruction_sets(triple)
    needed = processors(triple)
    architecture = architecture_of(triple)
    lacking = frozenset().union(*needed.values()) - present
    return Capability(
        architecture=architecture,
        foreign=tuple(sorted(known_architectures() - {architecture})),
        processors={name: tuple(sorted(sets - present)) for name, sets in needed.items() if sets - present},
        lacking=tuple(sorted(lacking)),
        dependents={
            name: tuple(sorted(sets & lacking)) for name, sets in dependents(triple).items() if sets & lacking
        },
    )
