"""Uploads that run code in different ways: each function makes a model or a bundle that runs a payload."""

import functools
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import zstandard
from torch import nn
from torch._export.serde.schema import SCHEMA_VERSION

from bessemer.bundle.manifest import LIBRARY, MANIFEST
from bessemer.contract.options import VerifyOptions
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget, ResolvedTarget
from bessemer.contract.triple import LINUX_X86_64
from tests.integration.malicious_models import Bomb, malicious_model, payload
from worker.protocol.order import CheckWork, CompileWork, ExtensionFile, InspectWork, InvokeWork, Work

TOP = "archive/"
WEIGHTS = "data/weights/model_weights_config.json"
MODEL = "0" * 64
MARK = "the payload goes here"
CODE_BYTES = 4096
CONSTANTS = "data/constants/model_constants_config.json"


def exported(dynamic: bool = False) -> dict[str, bytes]:
    """The entries of an honest ``.pt2`` file."""
    shapes = {"input": {0: torch.export.Dim("n", min=2, max=64)}} if dynamic else None
    program = torch.export.export(nn.Linear(8, 8), (torch.ones(4, 8),), dynamic_shapes=shapes)
    file = io.BytesIO()
    torch.export.save(program, file)
    with zipfile.ZipFile(file) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def zipped(entries: Mapping[str, bytes], top: str = TOP) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in entries.items():
            archive.writestr(top + name, content)
    return file.getvalue()


def pickled(body: str) -> bytes:
    file = io.BytesIO()
    torch.save(Bomb(payload(body)), file)
    return file.getvalue()


def sample_inputs(body: str) -> bytes:
    """Inputs of a ``.pt2`` file are unpickled."""
    return zipped(exported() | {"data/sample_inputs/model.pt": pickled(body)})


def pickled_weight(body: str) -> bytes:
    """A weight of a ``.pt2`` file may ask to be unpickled."""
    entries = exported()
    config = json.loads(entries[WEIGHTS])
    first = next(iter(config["config"].values()))
    first["use_pickle"] = True
    entries[f"data/weights/{first['path_name']}"] = pickled(body)
    return zipped(entries | {WEIGHTS: json.dumps(config).encode()})


def legacy_weights(body: str) -> bytes:
    """A ``.pt2`` file may have its weights in one pickle."""
    return zipped(exported() | {"data/weights/model.pt": pickled(body)})


def pickled_constant(body: str) -> bytes:
    """A constant of a ``.pt2`` file may ask to be unpickled."""
    meta = {"path_name": "tensor_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    entries = {
        CONSTANTS: json.dumps({"config": {"c": meta}}).encode(),
        "data/constants/tensor_0": pickled(body),
    }
    return zipped(exported() | entries)


def symbolic_size(body: str) -> bytes:
    """A size of a ``.pt2`` file is a text that sympy evaluates."""
    entries = exported(dynamic=True)
    model = entries["models/model.json"].decode()
    (size, *_) = re.findall(r'"expr_str": ("Symbol\(.*?\)")', model)
    evaluated = f"[__import__('builtins').exec({payload(body)!r}, {{}}), {json.loads(size)}][1]"
    return zipped(entries | {"models/model.json": model.replace(size, json.dumps(evaluated)).encode()})


def older_file(body: str) -> bytes:
    """A ``.pt2`` file from before torch 2.8 has its weights in one pickle."""
    empty = io.BytesIO()
    torch.save({}, empty)
    entries = {
        "version": f"{SCHEMA_VERSION[0]}.{SCHEMA_VERSION[1]}".encode(),
        "serialized_exported_program.json": exported()["models/model.json"],
        "serialized_state_dict.pt": pickled(body),
        "serialized_constants.pt": empty.getvalue(),
        "serialized_example_inputs.pt": b"",
    }
    return zipped(entries, top="")


@functools.cache
def _native_template() -> bytes:
    """Compiled once. It is linked without libc, which zig would build first and the process has."""
    source = f"""
    #include <sys/wait.h>
    #include <unistd.h>
    static volatile const char CODE[{CODE_BYTES}] = "{MARK}";
    __attribute__((constructor)) static void run(void) {{
        int status;
        if (fork() == 0) {{
            execl({json.dumps(sys.executable)}, "python", "-c", (const char *)CODE, (char *)0);
            _exit(1);
        }}
        wait(&status);
    }}
    """
    with tempfile.TemporaryDirectory() as folder:
        code, made, library = (Path(folder) / f"library.{end}" for end in ("c", "o", "so"))
        code.write_text(source)
        zig = [sys.executable, "-m", "ziglang"]
        caches = os.environ | {"ZIG_LOCAL_CACHE_DIR": folder, "ZIG_GLOBAL_CACHE_DIR": folder}
        options = ("-O2", "-fPIC", "-fno-stack-protector")
        subprocess.run([*zig, "cc", "-c", *options, "-o", made, code], check=True, env=caches)
        subprocess.run([*zig, "ld.lld", "-shared", "-o", library, made], check=True, env=caches)
        return library.read_bytes()


def native(body: str) -> bytes:
    """A shared library whose constructor runs a payload in a Python of its own."""
    code = payload(body).encode()
    marked = MARK.encode().ljust(len(code) + 1, b"\0")
    assert len(code) < CODE_BYTES
    assert marked in _native_template()
    return _native_template().replace(marked, code + b"\0")


def ahead_of_time_library(body: str) -> bytes:
    """A ``.pt2`` file may bring an AOTInductor library beside the program."""
    entries = {
        "data/aotinductor/model/model.wrapper.so": native(body),
        "data/aotinductor/model/model.wrapper_metadata.json": b'{"AOTI_DEVICE_KEY": "cpu"}',
    }
    return zipped(exported() | entries)


@functools.cache
def _honest_bundle() -> dict[str, bytes]:
    """The files of a bundle. Made once: its maker imports TVM."""
    maker = Path(__file__).parents[1] / "client" / "make_runnable_bundle.py"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        subprocess.run([sys.executable, maker, folder], check=True)
        files = (path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def forged_bundle(body: str) -> bytes:
    """A bundle whose library is native code; its manifest has the right digests."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, content in _honest_bundle().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        (folder / LIBRARY).write_bytes(native(body))
        manifest = json.loads((folder / MANIFEST).read_text())
        for file in manifest["files"]:
            content = (folder / file["path"]).read_bytes()
            file.update(digest=hashlib.sha256(content).hexdigest(), size_bytes=len(content))
        (folder / MANIFEST).write_text(json.dumps(manifest | _rest_of_the_manifest()))
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path in sorted(folder.rglob("*")):
                archive.add(path, path.relative_to(folder), recursive=False)
    return zstandard.compress(packed.getvalue())


def _rest_of_the_manifest() -> dict[str, Any]:
    """What the runner in the bundle does not read, but the service does."""
    target = ResolvedTarget(
        name="host", kind="llvm", mcpu="x86-64", triple=LINUX_X86_64, features=(), cores=2
    )
    created_at = "2026-01-01T00:00:00Z"
    return {
        "model": MODEL,
        "target": target.model_dump(mode="json"),
        "versions": {},
        "created_at": created_at,
    }


@dataclass(frozen=True)
class Upload:
    """How a payload is delivered: the file that carries it, and the job that opens the file.

    An ``extension`` lies beside the model.
    """

    make: Callable[[str], bytes]
    work: Work = field(default_factory=InspectWork)
    extension: Callable[[str], bytes] | None = None


EXTENSION = "e" * 64
FX = Upload(malicious_model)
UPLOADS = {
    "fx": FX,
    "pt2-sample-inputs": Upload(sample_inputs),
    "pt2-weight": Upload(pickled_weight),
    "pt2-legacy-weights": Upload(legacy_weights),
    "pt2-constant": Upload(pickled_constant),
    "pt2-size": Upload(symbolic_size),
    "pt2-older": Upload(older_file),
    "extension": Upload(
        lambda _: zipped(exported()),
        CompileWork(
            request=CompilationRequest(
                model=MODEL, target=PresetTarget(preset="host"), stop_after=Stage.TRANSLATE
            ),
            extensions=(ExtensionFile(digest=EXTENSION, name="mine.py"),),
            seconds=60,
        ),
        lambda body: payload(body).encode(),
    ),
    "bundle-invoked": Upload(forged_bundle, InvokeWork(runs=0)),
    "bundle-checked": Upload(forged_bundle, CheckWork(model=MODEL, verify=VerifyOptions())),
}
