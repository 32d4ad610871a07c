"""Features of targets: whether LLVM knows them, whether they fit each other, and what libraries need."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bessemer.contract.llvm_processors import (
    AARCH64_FEATURES,
    AARCH64_IMPLIED,
    RISCV64_FEATURES,
    RISCV64_IMPLIED,
    X86_FEATURES,
    X86_IMPLIED,
)
from bessemer.contract.names import did_you_mean


@dataclass(frozen=True)
class Features:
    """The features of an architecture.

    Attributes:
        names: all features.
        implied: features that other features add.
        needed: features that every library uses.
        excluded: features that change how functions are called.
    """

    names: frozenset[str]
    implied: Mapping[str, frozenset[str]]
    needed: frozenset[str]
    excluded: frozenset[str]

    def with_implied(self, name: str) -> frozenset[str]:
        """A feature and all that it adds."""
        return frozenset({name}).union(*map(self.with_implied, self.implied.get(name, ())))


FEATURES = {
    "x86_64": Features(
        X86_FEATURES,
        X86_IMPLIED,
        needed=frozenset({"64bit", "64bit-mode", "x87", "sse", "sse2"}),
        excluded=frozenset({"16bit-mode", "32bit-mode", "soft-float", "x32"}),
    ),
    "aarch64": Features(
        AARCH64_FEATURES, AARCH64_IMPLIED, needed=frozenset({"fp-armv8", "neon"}), excluded=frozenset()
    ),
    "riscv64": Features(
        RISCV64_FEATURES,
        RISCV64_IMPLIED,
        needed=frozenset({"64bit", "i", "d", "f", "zicsr"}),
        excluded=frozenset({"32bit", "e", "zfinx"}),
    ),
}
"""Features by architecture."""

_DOUBLES = "d"


def unfit_features(architecture: str, given: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """The features that a target cannot have, each as its index and the reason."""
    features = FEATURES[architecture]
    removed = {name[1:] for name in given if name.startswith("-")}
    for index, feature in enumerate(given):
        name, adds = feature[1:], feature.startswith("+")
        reached = features.with_implied(name) if name in features.names else frozenset[str]()
        if name not in features.names:
            near = did_you_mean(feature, sorted(feature[0] + known for known in features.names))
            yield index, f"LLVM knows no feature '{feature}'{near}"
        elif adds and reached & features.excluded:
            yield index, f"with '{feature}', functions are called in another way: leave it out"
        elif adds and reached & removed:
            other = min(reached & removed)
            why = "contradicts" if other == name else f"needs {other} and contradicts"
            yield index, f"'{feature}' {why} '-{other}': leave out one of the two"
        elif not adds and name in features.needed:
            yield index, f"every library for {architecture} uses {name}: leave out '{feature}'"


def lacks_doubles(architecture: str, given: tuple[str, ...]) -> bool:
    """Whether features alone give a RISC-V processor no registers for doubles."""
    features = FEATURES[architecture]
    added = (features.with_implied(name[1:]) for name in given if name.startswith("+"))
    return architecture == "riscv64" and not any(_DOUBLES in one for one in added)
