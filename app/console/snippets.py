"""Shows a request as a curl command, Python code, a ``bessemer`` command and JSON. Pure functions."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bessemer.contract.dynamic import DimensionRange
from bessemer.contract.extension import file_options
from bessemer.contract.target_names import CUDA
from bessemer.contract.tensor import InputSpec

WIDTH = 78
OPTION_CLASSES: Mapping[str, str] = {
    "translate": "TranslateOptions",
    "optimize": "OptimizeOptions",
    "tune": "TuneOptions",
    "verify": "VerifyOptions",
    "benchmark": "BenchmarkOptions",
    "inspect": "InspectOptions",
}
ARGUMENTS = frozenset(
    {"target", "inputs", "dimensions", "constants", "entries", "stateless", "parameters", "kernels"}
    | {"stop_after", "device", "name", "labels", "priority", "timeout_seconds", "cache", "extensions"}
    | OPTION_CLASSES.keys()
)
"""The fields of a request that ``Client.submit`` has arguments for."""
FLAGS = frozenset(
    {"target", "inputs", "dimensions", "constants", "entries", "extensions", "extension_names"}
    | {"name", "labels", "device"}
)
"""The fields of a request that the command line has its own options for."""


@dataclass(frozen=True)
class Model:
    """The model of a request.

    Attributes:
        file: the name of its file; empty if it is known by its digest only.
        digest: its digest; empty if it was not uploaded yet.
        extensions: the names of files of extensions that were not uploaded yet.
    """

    file: str
    digest: str
    extensions: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The file or the digest that a client submits."""
        return self.file or self.digest or "model.pt2"

    @property
    def path(self) -> str:
        """The same, as an argument in a shell."""
        return _path(self.source)


@dataclass(frozen=True)
class Snippets:
    """The request in each form."""

    curl: str
    python: str
    command: str
    json: str


def snippets(document: Mapping[str, Any], model: Model, url: str, asks_for_keys: bool) -> Snippets:
    """Show a request in each form.

    Args:
        document: the request as JSON has it, without its model and without fields that have their defaults.
        model: its model.
        url: the service's address.
        asks_for_keys: whether callers need a key.
    """
    shown = {"model": model.digest or "…", **document}
    if model.extensions:
        shown["extensions"] = [
            *document.get("extensions", ()),
            *(f"SHA-256 of {file}" for file in model.extensions),
        ]
    return Snippets(
        curl=_curl(document, model, url, asks_for_keys),
        python=_python(document, model, url),
        command=_command(document, model, url),
        json=json.dumps(shown, indent=2, ensure_ascii=False),
    )


def _curl(document: Mapping[str, Any], model: Model, url: str, asks_for_keys: bool) -> str:
    parts = ["curl"]
    if asks_for_keys:
        parts.append('-H "Authorization: Bearer $BESSEMER_API_KEY"')
    if model.file or model.extensions or not model.digest:
        if model.file or not model.digest:
            parts.append(_form_part("model", model.path))
        else:
            document = {"model": model.digest, **document}
        parts += [_form_part("extension", _path(file)) for file in model.extensions]
        parts.append(f"--form-string {shlex.quote('request=' + _json(document))}")
    else:
        parts.append(f"--json {shlex.quote(_json({'model': model.digest, **document}))}")
    parts.append(shlex.quote(f"{url}/v1/compilations"))
    return _joined(parts)


def _form_part(name: str, path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    is_plain = shlex.quote(path) == path
    return f"-F {name}=@{path}" if is_plain else "-F " + shlex.quote(f'{name}=@"{escaped}"')


def _path(file: str) -> str:
    """A file as an argument in a shell, where a leading dash would make it an option or standard input."""
    return f"./{file}" if file.startswith("-") else file


def _command(document: Mapping[str, Any], model: Model, url: str) -> str:
    if reason := _why_no_command(document):
        return f"# the command line gives {reason}: send the request as JSON"
    parts = [f"bessemer compile {shlex.quote(model.path)}"]
    target = document.get("target")
    for name, value in _targets(target):
        parts.append(f"{name} {shlex.quote(value)}")
    for spec in document.get("inputs", ()):
        parts.append(f"--input {shlex.quote(str(InputSpec.model_validate(spec)))}")
    for name, limits in document.get("dimensions", {}).items():
        parts.append(f"--dimension {name}={DimensionRange.model_validate(limits)}")
    for name, value in document.get("constants", {}).items():
        parts.append(f"--constant {shlex.quote(f'{name}={json.dumps(value)}')}")
    parts += _extension_options(document, model)
    for name, entry in document.get("entries", {}).items():
        parts.append(f"--entry {shlex.quote(_entry(name, entry))}")
    for name in ("device", "name"):
        if name in document:
            parts.append(f"--{name} {shlex.quote(str(document[name]))}")
    for name, value in document.get("labels", {}).items():
        parts.append(f"--label {shlex.quote(f'{name}={value}')}")
    options = _leaves({name: value for name, value in document.items() if name not in FLAGS})
    parts += [
        f"--option {shlex.quote(f'{path}={text}')}"
        for path, text in options
        if not path.startswith("tune.schedules.")
    ]
    parts.append(f"--url {shlex.quote(url)}")
    return _joined(parts)


def _extension_options(document: Mapping[str, Any], model: Model) -> Iterator[str]:
    """The options for files of schedules and of other extensions."""
    known = document.get("extension_names", {})
    names = {digest: known.get(digest, "FILE.py") for digest in document.get("extensions", ())}
    for option, value in file_options(names, document.get("tune", {}).get("schedules", {})):
        yield f"{option} {shlex.quote(value)}"
    yield from (f"--extension {shlex.quote(_path(file))}" for file in model.extensions)


def _why_no_command(document: Mapping[str, Any]) -> str:
    """How the command line is too limited for a request; empty if it can express the request."""
    if not _has_command(document.get("target")):
        return "all targets the same options"
    if not all(map(_is_short, document.get("entries", {}).values())):
        return "all entry points the same constants and dimensions"
    return ""


def _has_command(target: Any) -> bool:
    """Whether options of the command line can describe all targets."""
    if not isinstance(target, list):
        return True
    options = [_target_options(each) for each in target]
    return all(map(_target_name, target)) and all(each == options[0] for each in options)


def _target_options(target: Any) -> dict[str, Any]:
    if isinstance(target, str):
        return {}
    named = {"preset", "kind", "arch"} if target.get("kind") == CUDA else {"preset", "kind"}
    return {name: value for name, value in target.items() if name not in named}


def _targets(target: Any) -> Iterator[tuple[str, str]]:
    """The options of the command line for a target or several."""
    targets = target if isinstance(target, list) else [target]
    for each in targets:
        if name := _target_name(each):
            yield "--target", name
    for path, text in _leaves(_target_options(targets[0]) if targets else {}):
        yield "--option", f"target.{path}={text}"


def _target_name(target: Any) -> str:
    """A target's name; empty for a processor that only options describe."""
    if isinstance(target, str):
        return target
    if target.get("kind") == CUDA and "preset" not in target:
        return f"{CUDA}-{target['arch']}" if target.get("arch") else CUDA
    return str(target.get("preset", ""))


def _is_short(entry: Any) -> bool:
    """Whether ``--entry`` can describe an entry point."""
    return not isinstance(entry, Mapping) or not (entry.get("constants") or entry.get("dimensions"))


def _entry(name: str, entry: Any) -> str:
    fields = entry if isinstance(entry, Mapping) else {}
    own = f"={fields['method']}" if fields.get("method") else f"={name}.pt2" if fields.get("model") else ""
    inputs = (str(InputSpec.model_validate(spec)) for spec in fields.get("inputs", ()))
    return ",".join((f"{name}{own}", *inputs))


def _leaves(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            is_size = all(isinstance(each, int) for each in value) and bool(value)
            yield f"{prefix}{name}", ("x" if is_size else ",").join(map(str, value))
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)


def _python(document: Mapping[str, Any], model: Model, url: str) -> str:
    if not document.keys() <= ARGUMENTS or not _is_plain(document.get("target")):
        return _python_document(document, model, url)
    if model.extensions:
        document = {**document, "extensions": [*document.get("extensions", ()), *model.extensions]}
    classes = [OPTION_CLASSES[name] for name in document if name in OPTION_CLASSES]
    several = isinstance(document.get("target"), list)
    arguments = [repr(model.source), *_arguments(document)]
    call = _call("client.submit_group" if several else "client.submit", arguments)
    lines = [
        f"from bessemer import {', '.join(('Client', *classes))}",
        "",
        f"client = Client({url!r})",
        f"{'group' if several else 'job'} = {call}",
        "group.wait()" if several else f"job.wait(){'' if _stops_early(document) else _DOWNLOAD}",
    ]
    return "\n".join(lines)


_DOWNLOAD = '.download("bundle")'


def _stops_early(document: Mapping[str, Any]) -> bool:
    """Whether a request stops before it makes a bundle."""
    return str(document.get("stop_after", "package")) != "package"


def _python_document(document: Mapping[str, Any], model: Model, url: str) -> str:
    """Python code for a request with fields that ``submit`` has no arguments for."""
    several = isinstance(document.get("target"), list)
    kind, post = ("Submission", "post_group") if several else ("CompilationRequest", "post")
    upload = f"model = client.upload({model.file!r}).digest" if model.file else f"model = {model.digest!r}"
    files, uploads = model.extensions, []
    if files:
        uploads = [f"extensions = [client.upload_extension(file).digest for file in {files!r}]"]
    given = ("'model': model", *(("'extensions': extensions",) if files else ()))
    rest = {name: value for name, value in document.items() if not (files and name == "extensions")}
    fields = ["**{" + ", ".join((*given, *_items(rest))) + "}"]
    lines = [
        f"from bessemer import Client, {kind}",
        "",
        f"client = Client({url!r})",
        upload,
        *uploads,
        f"request = {_call(kind, fields)}",
        f"job = client.{post}(request)",
        "job.wait()",
    ]
    return "\n".join(lines)


def _items(document: Mapping[str, Any]) -> Iterator[str]:
    return (f"{name!r}: {value!r}" for name, value in document.items())


def _is_plain(target: Any) -> bool:
    return all(isinstance(each, str) for each in (target if isinstance(target, list) else [target]))


def _arguments(document: Mapping[str, Any]) -> Iterator[str]:
    for name, value in document.items():
        if name == "target":
            yield f"targets={value!r}" if isinstance(value, list) else f"target={value!r}"
        elif name == "inputs":
            specs = (InputSpec.model_validate(spec) for spec in value)
            shapes = {spec.name: str(spec).partition("=")[2] for spec in specs}
            yield f"inputs={shapes!r}"
        elif name == "dimensions":
            ranges = {key: str(DimensionRange.model_validate(each)) for key, each in value.items()}
            yield f"dimensions={ranges!r}"
        elif name in OPTION_CLASSES:
            given = ", ".join(f"{key}={each!r}" for key, each in value.items())
            yield f"{name}={OPTION_CLASSES[name]}({given})"
        else:
            yield f"{name}={value!r}"


def _call(function: str, arguments: Sequence[str]) -> str:
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= WIDTH:
        return line
    return f"{function}(\n" + "".join(f"    {each},\n" for each in arguments) + ")"


def _joined(parts: Sequence[str]) -> str:
    line = " ".join(parts)
    return line if len(line) <= WIDTH else " \\\n  ".join(parts)


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False)
