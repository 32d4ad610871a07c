"""Verify a bundle: every file against its lists and its provenance, and the provenance's signature."""

from pathlib import Path

from pydantic import Field, ValidationError

from bessemer.bundle.manifest import CHECKSUMS, ENVELOPE, MANIFEST, PROVENANCE, STATEMENT
from bessemer.bundle.provenance import PAYLOAD_TYPE, Envelope, Statement
from bessemer.client.unpacking import check_bundle, compare_digests, digest_of, files_of
from bessemer.contract.base import Document
from bessemer.errors import BundleError, InvalidArgumentError

NEEDS_PACKAGE = "to check signatures, install cryptography: pip install 'bessemer[verify]'"


class BundleVerification(Document):
    """What was verified of a bundle."""

    files: int = Field(description="Number of files that match, without the provenance itself.")
    lists: tuple[str, ...] = Field(description="The lists that they match.")
    statement: Statement | None = Field(description="The provenance; null if the bundle has none.")
    signed_by: tuple[str, ...] = Field(description="The ids of the keys that the signatures name.")
    verified_key: str | None = Field(description="The id of the given key, which signed; null without a key.")


def verify_bundle(folder: Path, key: Path | None = None) -> BundleVerification:
    """Verify an unpacked bundle.

    Args:
        folder: its folder.
        key: the file of the public key that must have signed it.

    Raises:
        BundleError: a file is altered, missing or additional; or the key did not sign it.
        InvalidArgumentError: the key cannot be used.
    """
    _refuse_links(folder)
    check_bundle(folder)
    paths = files_of(folder)
    statement = _read_statement(folder) if (folder / STATEMENT).is_file() else None
    if statement is not None:
        subjects = {subject.name: subject.digest.sha256 for subject in statement.subject}
        compare_digests(STATEMENT, subjects, {path: digest_of(folder / path) for path in paths - PROVENANCE})
    envelope = _read_envelope(folder)
    stated = () if statement is None else (STATEMENT,)
    return BundleVerification(
        files=len(paths - PROVENANCE),
        lists=(CHECKSUMS, MANIFEST, *stated),
        statement=statement,
        signed_by=() if envelope is None else tuple(each.keyid for each in envelope.signatures),
        verified_key=None if key is None else _verified(envelope, key),
    )


def _refuse_links(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise BundleError(f"{path.relative_to(folder)} is neither a file nor a folder")


def _read_statement(folder: Path) -> Statement:
    try:
        return Statement.read_json((folder / STATEMENT).read_bytes())
    except (OSError, ValidationError) as error:
        raise BundleError(f"this version cannot read the bundle's {STATEMENT}: {error}") from error


def _read_envelope(folder: Path) -> Envelope | None:
    """The envelope, whose payload is the statement; None if the bundle is not signed."""
    path = folder / ENVELOPE
    if not path.is_file():
        return None
    try:
        envelope = Envelope.read_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise BundleError(f"this version cannot read the bundle's {ENVELOPE}: {error}") from error
    if not (folder / STATEMENT).is_file():
        raise BundleError(f"{STATEMENT} is missing, which {ENVELOPE} signs")
    if envelope.payload_type != PAYLOAD_TYPE or envelope.payload != (folder / STATEMENT).read_bytes():
        raise BundleError(f"{STATEMENT} differs from what {ENVELOPE} signs")
    return envelope


def _verified(envelope: Envelope | None, key: Path) -> str:
    try:
        from bessemer.bundle.signing import (
            KeyFileError,
            SignatureError,
            key_id,
            read_public_key,
            require_signature,
        )

        public = read_public_key(key)
        if envelope is None:
            raise BundleError(f"the bundle is not signed: it has no {ENVELOPE}")
        require_signature(envelope, public)
        return key_id(public)
    except ModuleNotFoundError as error:
        raise InvalidArgumentError(NEEDS_PACKAGE) from error
    except KeyFileError as error:
        raise InvalidArgumentError(f"--key: {error}") from error
    except SignatureError as error:
        raise BundleError(f"{ENVELOPE}: {error}") from error
