"""What a supervisor states about a bundle, and what a job can do to that."""

import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from test_hostile_results import FORGE
from worker_samples import submit, upload

from bessemer.bundle.manifest import ENVELOPE, STATEMENT
from bessemer.bundle.provenance import Statement
from bessemer.client.unpacking import unpack
from bessemer.client.verifying import verify_bundle
from bessemer.contract.identity import WorkerKind, identity_of
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.problem import ErrorCode
from bessemer.contract.sandbox import SandboxMode
from tests.tenant_data import own
from worker.errors import SigningKeyError
from worker.measure.machine import processor
from worker.settings import WorkerSettings

Rig = Any
HONEST = "return 'honest'"


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    """The files of a private and its public key."""
    key = Ed25519PrivateKey.generate()
    private, public = tmp_path / "key.pem", tmp_path / "key.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def content(rig: Rig, row: Compilation, name: str) -> bytes:
    artifact = next(each for each in row.artifacts if each.name == name)
    return b"".join(own(rig.store).artifacts.stream(artifact.digest))


def bundle(rig: Rig, row: Compilation, folder: Path) -> Path:
    archive = folder / "bundle.tar.zst"
    archive.write_bytes(content(rig, row, archive.name))
    return unpack(archive, folder / "bundle")


def test_a_signed_bundle_says_what_made_it(rig: Rig, tmp_path: Path, keys: tuple[Path, Path]) -> None:
    private, public = keys
    row = rig.handle(rig.job(HONEST), signing_key=private)
    assert row.state is JobState.SUCCEEDED, row.problem
    folder = bundle(rig, row, tmp_path)
    found = verify_bundle(folder, public)
    assert found.verified_key is not None
    statement = Statement.model_validate_json(content(rig, row, STATEMENT))
    assert statement == found.statement
    assert content(rig, row, ENVELOPE) == (folder / ENVELOPE).read_bytes()
    definition, details = statement.predicate.build_definition, statement.predicate.run_details
    assert statement.predicate.model == row.request.model
    assert definition.external_parameters == {"request": row.request.model_dump(mode="json")}
    assert row.target is not None
    assert definition.internal_parameters["target"] == row.target.model_dump(mode="json")
    assert details.metadata.invocation_id == row.id
    assert details.builder.version["apache-tvm"] == rig.zygote.ready.versions["apache-tvm"]
    assert any((each.uri or "").startswith("pkg:pypi/torch@") for each in definition.resolved_dependencies)
    library = hashlib.sha256(content(rig, row, "model.so")).hexdigest()
    assert {each.name: each.digest.sha256 for each in statement.subject}["model.so"] == library


def test_other_programs_read_the_whole_archive(rig: Rig) -> None:
    row = rig.handle(rig.job(HONEST))
    packed = io.BytesIO(content(rig, row, "bundle.tar.zst"))
    raw = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True).read()
    assert raw.endswith(bytes(2 * tarfile.BLOCKSIZE))
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        names = archive.getnames()
    assert names[-1] == STATEMENT
    assert len(set(names)) == len(names)
    assert ENVELOPE not in names


def test_the_same_upload_gives_the_same_library_to_other_workers(rig: Rig) -> None:
    digest = upload(rig.store, rig.folder, HONEST)
    rows = [rig.handle(submit(rig.store, f"compiled-{number}", digest)) for number in range(2)]
    libraries = [{each.name: each.digest for each in row.artifacts}["model.so"] for row in rows]
    assert libraries[0] == libraries[1]


ADDED = """(arguments[0] / "provenance.intoto.json").write_text("{}")
            return honest(arguments[0], (*arguments[1], "provenance.intoto.json"), arguments[2])"""


def test_a_job_cannot_state_its_own_provenance(rig: Rig) -> None:
    row = rig.handle(rig.job(FORGE.format(module="package", name="write_archive", body=ADDED)))
    assert (row.state, row.problem.code) == (JobState.FAILED, ErrorCode.CHILD_MISBEHAVED)
    assert "already has provenance.intoto.json" in row.problem.detail


def test_a_file_beside_the_bundle_is_the_one_in_it(rig: Rig) -> None:
    body = """honest(*arguments, **options)
            (arguments[0] / "model.so").write_bytes(b"other code")"""
    row = rig.handle(rig.job(FORGE.format(module="package", name="write_archive", body=body)))
    assert (row.state, row.problem.code) == (JobState.FAILED, ErrorCode.CHILD_MISBEHAVED)
    assert "'model.so' is not the file of that name in its bundle" in row.problem.detail


def test_a_worker_without_a_usable_key_does_not_start(rig: Rig, tmp_path: Path) -> None:
    with pytest.raises(SigningKeyError, match=r"BESSEMER_SIGNING_KEY: the signing key .* cannot be read"):
        rig.supervisor(signing_key=tmp_path / "missing.pem")


def test_a_key_needs_a_sandbox(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a sandbox"):
        WorkerSettings(signing_key=tmp_path / "key.pem", sandbox=SandboxMode.OFF)


def test_a_job_cannot_read_the_key(rig: Rig, keys: tuple[Path, Path]) -> None:
    private, _ = keys
    private.chmod(0o644)
    body = f"""
    try:
        os.write(1, open({str(private)!r}, "rb").read())
    except OSError as error:
        os.write(1, f"refused: {{type(error).__name__}}".encode())
    return "honest"
    """
    row = rig.handle(rig.job(body), signing_key=private)
    log = content(rig, row, "log.txt").decode()
    assert "refused: PermissionError" in log
    assert "PRIVATE KEY" not in log


def test_a_succeeded_job_answers_identical_requests(rig: Rig) -> None:
    task = rig.job(HONEST)
    row = rig.handle(task)
    ready = rig.zygote.ready
    assert row.state is JobState.SUCCEEDED
    identity = identity_of(row.request, {}, WorkerKind(ready.compiler, ready.mcpu, processor(), 2))
    again = own(rig.store).jobs.submit("asked-again", row.request, None, [identity])
    assert (again.cached, again.original, again.artifacts) == (True, row.id, row.artifacts)
