"""Signatures by Ed25519 in DSSE envelopes, and the keys that are refused."""

import base64
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from bessemer.bundle.provenance import PAYLOAD_TYPE, Envelope, pre_authentication
from bessemer.bundle.signing import (
    KeyFileError,
    SignatureError,
    key_id,
    read_public_key,
    read_signing_key,
    require_signature,
)

PLAIN = NoEncryption()
PAYLOAD = b'{"_type": "a statement"}\n'


def write_private(path: Path, key: object, encryption: KeySerializationEncryption = PLAIN) -> Path:
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))  # type: ignore[attr-defined]
    return path


def write_public(path: Path, key: object) -> Path:
    public = key.public_key()  # type: ignore[attr-defined]
    path.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return path


@pytest.fixture
def key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def test_a_signature_covers_type_and_payload_as_dsse_says() -> None:
    covered = pre_authentication("http://example.com/HelloWorld", b"hello world")
    assert covered == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_a_signed_payload_is_verified_with_the_public_key(tmp_path: Path, key: Ed25519PrivateKey) -> None:
    signing = read_signing_key(write_private(tmp_path / "key.pem", key))
    public = read_public_key(write_public(tmp_path / "key.pub", key))
    envelope = Envelope.read_json(signing.sign(PAYLOAD).model_dump_json())
    require_signature(envelope, public)
    assert (envelope.payload, envelope.payload_type) == (PAYLOAD, PAYLOAD_TYPE)
    assert (envelope.signatures[0].keyid, signing.id) == (key_id(public), key_id(public))


def test_the_same_payload_has_the_same_signature(tmp_path: Path, key: Ed25519PrivateKey) -> None:
    signing = read_signing_key(write_private(tmp_path / "key.pem", key))
    assert signing.sign(PAYLOAD) == signing.sign(PAYLOAD)


@pytest.mark.parametrize("change", ["payload", "payload_type", "sig", "key"])
def test_anything_else_is_refused(tmp_path: Path, key: Ed25519PrivateKey, change: str) -> None:
    envelope = read_signing_key(write_private(tmp_path / "key.pem", key)).sign(PAYLOAD)
    other = Ed25519PrivateKey.generate()
    public = read_public_key(write_public(tmp_path / "key.pub", other if change == "key" else key))
    signature = envelope.signatures[0]
    changes: dict[str, dict[str, object]] = {
        "payload": {"payload": PAYLOAD + b" "},
        "payload_type": {"payload_type": "text/plain"},
        "sig": {"signatures": (signature.model_copy(update={"sig": bytes(64)}),)},
        "key": {},
    }
    with pytest.raises(SignatureError, match=f"the key {key_id(public)[:16]} has not signed it"):
        require_signature(envelope.model_copy(update=changes[change]), public)


def test_one_of_several_signatures_is_enough(tmp_path: Path, key: Ed25519PrivateKey) -> None:
    other = Ed25519PrivateKey.generate()
    envelopes = [
        read_signing_key(write_private(tmp_path / "key.pem", one)).sign(PAYLOAD) for one in (other, key)
    ]
    signatures = tuple(envelope.signatures[0] for envelope in envelopes)
    both = envelopes[0].model_copy(update={"signatures": signatures})
    require_signature(both, read_public_key(write_public(tmp_path / "key.pub", key)))


@pytest.mark.parametrize("kind", ["missing", "folder", "text", "encrypted", "elliptic", "public"])
def test_a_file_that_is_no_signing_key_is_refused(tmp_path: Path, key: Ed25519PrivateKey, kind: str) -> None:
    path = tmp_path / "key.pem"
    match kind:
        case "folder":
            path.mkdir()
        case "text":
            path.write_text("a key")
        case "encrypted":
            write_private(path, key, BestAvailableEncryption(b"password"))
        case "elliptic":
            write_private(path, generate_private_key(SECP256R1()))
        case "public":
            write_public(path, key)
    with pytest.raises(KeyFileError, match="the signing key"):
        read_signing_key(path)


@pytest.mark.parametrize("kind", ["missing", "text", "elliptic", "private"])
def test_a_file_that_is_no_public_key_is_refused(tmp_path: Path, key: Ed25519PrivateKey, kind: str) -> None:
    path = tmp_path / "key.pub"
    match kind:
        case "text":
            path.write_text("a key")
        case "elliptic":
            write_public(path, generate_private_key(SECP256R1()))
        case "private":
            write_private(path, key)
    with pytest.raises(KeyFileError, match="the key"):
        read_public_key(path)


def test_no_text_of_a_key_shows_it(tmp_path: Path, key: Ed25519PrivateKey) -> None:
    signing = read_signing_key(write_private(tmp_path / "key.pem", key))
    assert f"{signing!r} {signing}" == f"<SigningKey {signing.id}> <SigningKey {signing.id}>"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl on this machine")
def test_keys_of_openssl_sign_and_openssl_verifies(tmp_path: Path) -> None:
    private, public, signature, covered = (
        tmp_path / name for name in ("key", "key.pub", "signature", "covered")
    )
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    envelope = Envelope.read_json(read_signing_key(private).sign(PAYLOAD).model_dump_json())
    signature.write_bytes(envelope.signatures[0].sig)
    covered.write_bytes(pre_authentication(envelope.payload_type, envelope.payload))
    verify = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin"]
    subprocess.run([*verify, "-in", covered, "-sigfile", signature], check=True, capture_output=True)
    assert base64.b64encode(PAYLOAD).decode() in envelope.model_dump_json()
