"""``bessemer verify-bundle``: what it checks, prints and refuses."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from test_client_unpacking import bundle_files, digest, pack_files
from typer.testing import CliRunner, Result

from bessemer.bundle.manifest import ENVELOPE, STATEMENT
from bessemer.bundle.provenance import (
    BUILD_TYPE,
    BUILDER,
    MODEL,
    BuildDefinition,
    Builder,
    BuildMetadata,
    Dependency,
    Provenance,
    RunDetails,
    Sha256,
    Statement,
    Subject,
)
from bessemer.bundle.signing import SigningKey
from bessemer.cli.application import application
from bessemer.contract.base import now

KEY, OTHER_KEY = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
DIGEST = hashlib.sha256(b"a model").hexdigest()


def statement_of(files: dict[str, bytes]) -> bytes:
    subjects = (Subject(name=path, digest=Sha256(sha256=digest(data))) for path, data in files.items())
    provenance = Provenance(
        build_definition=BuildDefinition(
            build_type=BUILD_TYPE,
            external_parameters={},
            internal_parameters={"target": {"name": "host", "mcpu": "znver4", "cores": 2}},
            resolved_dependencies=(Dependency(name=MODEL, digest=Sha256(sha256=DIGEST)),),
        ),
        run_details=RunDetails(
            builder=Builder(id=BUILDER, version={"bessemer": "0.1.0"}),
            metadata=BuildMetadata(invocation_id="0123456789ab", started_on=now(), finished_on=now()),
        ),
    )
    return Statement(subject=tuple(subjects), predicate=provenance).model_dump_json(indent=2).encode()


def signed_files(key: Ed25519PrivateKey | None = KEY) -> dict[str, bytes]:
    files = bundle_files()
    statement = statement_of(files)
    envelope = {} if key is None else {ENVELOPE: SigningKey(key).sign(statement).model_dump_json().encode()}
    return {**files, STATEMENT: statement, **envelope}


def written(folder: Path, files: dict[str, bytes]) -> Path:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def public(path: Path, key: Ed25519PrivateKey = KEY) -> Path:
    path.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return path


def verify(*arguments: str | Path) -> Result:
    return CliRunner().invoke(application, ["verify-bundle", *map(str, arguments)])


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_a_signed_bundle_is_verified_with_its_key(tmp_path: Path, packed: bool) -> None:
    if packed:
        bundle = pack_files(tmp_path / "bundle.tar.zst", signed_files())
    else:
        bundle = written(tmp_path / "bundle", signed_files())
    ran = verify(bundle, "--key", public(tmp_path / "key.pub"))
    assert ran.exit_code == 0, ran.stderr
    assert "3 match SHA256SUMS, manifest.json, provenance.intoto.json" in ran.stdout
    assert f"model       {DIGEST}" in ran.stdout
    assert f"signature   valid, by the key {SigningKey(KEY).id[:16]}" in ran.stdout


def test_without_a_key_the_signature_is_named_and_not_checked(tmp_path: Path) -> None:
    ran = verify(written(tmp_path / "bundle", signed_files(OTHER_KEY)))
    assert ran.exit_code == 0
    assert f"not checked, by {SigningKey(OTHER_KEY).id[:16]}" in ran.stdout


def test_json_is_one_document(tmp_path: Path) -> None:
    ran = verify(written(tmp_path / "bundle", signed_files()), "--json", "--key", public(tmp_path / "key"))
    document = json.loads(ran.stdout)
    assert (document["files"], document["verified_key"]) == (3, SigningKey(KEY).id)
    assert document["statement"]["_type"] == "https://in-toto.io/Statement/v1"


def test_a_bundle_of_an_earlier_release_has_no_provenance(tmp_path: Path) -> None:
    ran = verify(written(tmp_path / "bundle", bundle_files()))
    assert ran.exit_code == 0
    assert "provenance  none" in ran.stdout


def alter(name: str, added: bytes = b" ") -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes() + added)


def remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def relist(folder: Path) -> None:
    """Alter a file and all lists that name it, which only the signed statement tells."""
    files = bundle_files()
    old, new = files["model.so"], b"other code"
    manifest = json.loads(files["manifest.json"])
    manifest["files"][0] |= {"digest": digest(new), "size_bytes": len(new)}
    changed = {"model.so": new, "manifest.json": json.dumps(manifest).encode()}
    sums = "".join(f"{digest(data)}  {path}\n" for path, data in changed.items()).encode()
    written(folder, {**changed, "SHA256SUMS": sums})
    assert old != new


def restate(folder: Path) -> None:
    """Alter a file, all lists and the statement; only the signature tells."""
    relist(folder)
    files = {
        path.name: path.read_bytes() for path in folder.iterdir() if path.name not in (STATEMENT, ENVELOPE)
    }
    (folder / STATEMENT).write_bytes(statement_of(files))


def resign(folder: Path) -> None:
    restate(folder)
    envelope = SigningKey(OTHER_KEY).sign((folder / STATEMENT).read_bytes())
    (folder / ENVELOPE).write_text(envelope.model_dump_json())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (alter("model.so"), "model.so differs from its checksum in SHA256SUMS"),
        (alter("SHA256SUMS", b"\n"), "SHA256SUMS differs from its checksum in provenance.intoto.json"),
        (remove("model.so"), "model.so is listed in SHA256SUMS but missing"),
        (remove("SHA256SUMS"), "SHA256SUMS cannot be read"),
        (lambda folder: written(folder, {"more/added.py": b""}), "more/added.py is not listed in SHA256SUMS"),
        (lambda folder: (folder / "link").symlink_to("model.so"), "link is neither a file nor a folder"),
        (relist, "differs from its checksum in provenance.intoto.json"),
        (restate, "provenance.intoto.json differs from what provenance.dsse.json signs"),
        (alter(STATEMENT), "provenance.intoto.json differs from what provenance.dsse.json signs"),
        (remove(STATEMENT), "provenance.intoto.json is missing, which provenance.dsse.json signs"),
        (alter("manifest.json"), "manifest.json differs from its checksum in SHA256SUMS"),
        (
            lambda folder: (folder / STATEMENT).write_text("{}"),
            "cannot read the bundle's provenance.intoto.json",
        ),
        (
            lambda folder: (folder / ENVELOPE).write_text("{}"),
            "cannot read the bundle's provenance.dsse.json",
        ),
        (resign, "has not signed it"),
        (remove(ENVELOPE), "the bundle is not signed: it has no provenance.dsse.json"),
    ],
)
def test_whatever_differs_is_named_and_fails(
    tmp_path: Path, change: Callable[[Path], object], told: str
) -> None:
    bundle = written(tmp_path / "bundle", signed_files())
    change(bundle)
    ran = verify(bundle, "--key", public(tmp_path / "key.pub"))
    assert ran.exit_code == 1
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("kind", ["missing", "text"])
def test_a_key_that_cannot_be_used_is_a_usage_error(tmp_path: Path, kind: str) -> None:
    key = tmp_path / "key.pub"
    if kind == "text":
        key.write_text("a key")
    ran = verify(written(tmp_path / "bundle", signed_files()), "--key", key)
    assert ran.exit_code == 2
    assert str(key) in ran.stderr


def test_provenance_of_a_later_release_is_read(tmp_path: Path) -> None:
    files = bundle_files()
    statement = json.loads(statement_of(files))
    statement["predicate"]["runDetails"]["byproducts"] = []
    ran = verify(written(tmp_path / "bundle", {**files, STATEMENT: json.dumps(statement).encode()}))
    assert ran.exit_code == 0, ran.stderr
