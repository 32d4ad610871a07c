"""The provenance of a bundle: an in-toto statement with SLSA's predicate, and the envelope that signs it.

The formats are in-toto's Statement v1, SLSA's Provenance v1 and DSSE v1, so that other tools read them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Base64Bytes, ConfigDict, Field
from pydantic.alias_generators import to_camel

from bessemer.contract.base import Digest, Document

PAYLOAD_TYPE = "application/vnd.in-toto+json"
BUILD_TYPE = "urn:bessemer:compilation:v1"
BUILDER = "urn:bessemer:worker"
MODEL = "model"
"""The name of the compiled model among the dependencies."""


class InTotoDocument(Document):
    """A document in camel case."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, serialize_by_alias=True, extra="forbid", frozen=True
    )


class Sha256(InTotoDocument):
    """A set of one digest."""

    sha256: Digest


class Subject(InTotoDocument):
    """A file of the bundle."""

    name: str
    digest: Sha256


class Dependency(InTotoDocument):
    """An input of the build: an upload by its digest, or a package by its URL."""

    name: str | None = None
    uri: str | None = None
    digest: Sha256 | None = None


class BuildDefinition(InTotoDocument):
    """The requested build."""

    build_type: str
    external_parameters: dict[str, Any] = Field(description="The request of the compilation.")
    internal_parameters: dict[str, Any] = Field(description="The resolved target, and the worker.")
    resolved_dependencies: tuple[Dependency, ...]


class Builder(InTotoDocument):
    """Who made it, with the versions of its parts."""

    id: str
    version: dict[str, str]


class BuildMetadata(InTotoDocument):
    """When it was made, and by which compilation."""

    invocation_id: str
    started_on: datetime | None
    finished_on: datetime


class RunDetails(InTotoDocument):
    """How it was made."""

    builder: Builder
    metadata: BuildMetadata


class Provenance(InTotoDocument):
    """SLSA's predicate."""

    build_definition: BuildDefinition
    run_details: RunDetails

    @property
    def model(self) -> Digest | None:
        """The digest of the compiled model."""
        found = (each.digest for each in self.build_definition.resolved_dependencies if each.name == MODEL)
        digest = next(found, None)
        return None if digest is None else digest.sha256


class Statement(InTotoDocument):
    """Which files were made, and how. The subjects are all files except this one and its envelope."""

    type_: Literal["https://in-toto.io/Statement/v1"] = Field(
        default="https://in-toto.io/Statement/v1", alias="_type"
    )
    subject: tuple[Subject, ...]
    predicate_type: Literal["https://slsa.dev/provenance/v1"] = "https://slsa.dev/provenance/v1"
    predicate: Provenance


class Signature(InTotoDocument):
    """One signature; ``keyid`` is the SHA-256 of the public key in DER."""

    keyid: str = ""
    sig: Base64Bytes


class Envelope(InTotoDocument):
    """A signed payload."""

    payload: Base64Bytes
    payload_type: str
    signatures: tuple[Signature, ...] = Field(min_length=1)


def pre_authentication(payload_type: str, payload: bytes) -> bytes:
    """The bytes that a signature covers, by DSSE."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
