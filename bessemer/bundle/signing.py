"""Signs provenance with Ed25519, and verifies the signatures. Needs the package ``cryptography``."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bessemer.bundle.provenance import PAYLOAD_TYPE, Envelope, pre_authentication

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


class KeyFileError(ValueError):
    """A file is not a usable key."""


class SignatureError(ValueError):
    """The key made none of the signatures, or its signature covers something else."""


@dataclass(frozen=True)
class SigningKey:
    """A private key; it never appears in a text form."""

    private: Ed25519PrivateKey

    def __repr__(self) -> str:
        return f"<SigningKey {self.id}>"

    @property
    def id(self) -> str:
        """The id of the public key."""
        return key_id(self.private.public_key())

    def sign(self, payload: bytes) -> Envelope:
        """The envelope of an in-toto statement."""
        signature = self.private.sign(pre_authentication(PAYLOAD_TYPE, payload))
        return Envelope.model_validate(
            {
                "payload": base64.b64encode(payload),
                "payload_type": PAYLOAD_TYPE,
                "signatures": [{"keyid": self.id, "sig": base64.b64encode(signature)}],
            }
        )


def read_signing_key(path: Path) -> SigningKey:
    """Read a private key in PEM without a password.

    Raises:
        KeyFileError: the file cannot be read, or has another kind of key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        reason = (
            error.strerror if isinstance(error, OSError) else "expected a private key in PEM, unencrypted"
        )
        raise KeyFileError(f"the signing key {path} cannot be read: {reason}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"the signing key {path} is not an Ed25519 key")
    return SigningKey(key)


def read_public_key(path: Path) -> Ed25519PublicKey:
    """Read a public key in PEM.

    Raises:
        KeyFileError: the file cannot be read, or has another kind of key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        reason = error.strerror if isinstance(error, OSError) else "expected a public key in PEM"
        raise KeyFileError(f"the key {path} cannot be read: {reason}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError(f"the key {path} is not an Ed25519 key")
    return key


def key_id(key: Ed25519PublicKey) -> str:
    """The SHA-256 of a public key in DER."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def require_signature(envelope: Envelope, key: Ed25519PublicKey) -> None:
    """Check that the key made one of the signatures.

    Raises:
        SignatureError: it made none.
    """
    from cryptography.exceptions import InvalidSignature

    signed = pre_authentication(envelope.payload_type, envelope.payload)
    for signature in envelope.signatures:
        try:
            key.verify(signature.sig, signed)
        except InvalidSignature:
            continue
        return
    ids = ", ".join(signature.keyid[:16] or "unnamed" for signature in envelope.signatures)
    raise SignatureError(f"the key {key_id(key)[:16]} has not signed it: the signatures are by {ids}")
