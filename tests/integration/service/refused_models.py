"""Models that cannot be compiled, each as the bytes of its file."""

import io
import json
import sys
import types
import warnings
import zipfile
from collections.abc import Callable

import torch
from torch import fx, nn

PAIR = torch.ones(2, 3)


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Mixed(nn.Module):
    """Takes and returns unusual values, and compiles."""

    def forward(
        self, größe: torch.Tensor, times: int, how: str, absent: torch.Tensor | None
    ) -> dict[str, torch.Tensor]:
        scaled = größe * times if how == "scaled" and absent is None else größe
        return {"nan": (scaled - 1e9).log(), "inf": scaled.exp() * 1e38, "same": scaled, "again": scaled}


class WithoutInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self) -> torch.Tensor:
        return self.weight * 2


class WithoutOutputs(nn.Module):
    def forward(self, x: torch.Tensor) -> None:
        del x


class Counting(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x, x.size(0)


class Repeated(nn.Module):
    def forward(self, x: torch.Tensor, times: int) -> torch.Tensor:
        return x * times


class EighthWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(3).to(torch.float8_e4m3fn))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale.float()


class Dense(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to_dense() * 2


class Raising(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.size(0) > 1:
            raise ValueError("one at a time")
        return x


class Endless(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while bool((x * x).sum() > -1.0):
            x = x + 0.0
        return x


class Hungry(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ones(x.size(0) * 100_000_000_000).cumsum(0)


class Lookup(nn.Module):
    """Computes its indices, so that their range is unknown."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table(x + 4)


class Oscillating(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.airy_ai(x) + torch.special.bessel_j0(x)


class Unsupported(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Oscillating()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def exported(module: nn.Module, *inputs: object, training: bool = False) -> bytes:
    """A file of ``torch.export.save``."""
    file = io.BytesIO()
    torch.export.save(torch.export.export(module.train(training), inputs), file)
    return file.getvalue()


def scripted(module: nn.Module) -> bytes:
    """A file of ``torch.jit.save``."""
    file = io.BytesIO()
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        torch.jit.save(torch.jit.script(module.eval()), file)
    return file.getvalue()


def saved(value: object) -> bytes:
    """A file of ``torch.save``."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def graph(module: nn.Module) -> bytes:
    """A file of ``torch.save`` with an FX graph module."""
    return saved(fx.symbolic_trace(module.eval()))


def quantized() -> bytes:
    """A graph whose weights are packed for 8-bit integers."""
    with warnings.catch_warnings(action="ignore"):
        return graph(torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 2)), {nn.Linear}))


def on_cuda() -> bytes:
    """A program whose weights claim to be on a GPU."""
    return _rewritten(
        exported(nn.Linear(3, 2), PAIR),
        lambda text: text.replace(b'"type": "cpu", "index": null', b'"type": "cuda", "index": 0'),
    )


def of_another_schema() -> bytes:
    """A program with a future schema version."""
    return _rewritten(exported(Doubled(), PAIR), _with_another_schema)


def zip_bomb() -> bytes:
    """An archive that expands a thousandfold."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/data.pkl", bytes(100 << 20))
    return file.getvalue()


def with_a_leaf_of_the_users() -> bytes:
    """A graph that calls a module of an unavailable class."""
    package = types.ModuleType("users_own_package")
    source = "from torch import nn\nclass Own(nn.Module):\n    def forward(self, x):\n        return x\n"
    exec(source, package.__dict__)
    sys.modules[package.__name__] = package
    try:
        leaf = package.Own()
        model = nn.Sequential(nn.ReLU(), leaf)
        traced = fx.GraphModule(model, _LeafTracer(leaf).trace(model))
        traced._tracer_cls = fx.Tracer
        return saved(traced)
    finally:
        del sys.modules[package.__name__]


class _LeafTracer(fx.Tracer):
    def __init__(self, leaf: nn.Module) -> None:
        super().__init__()
        self.leaf = leaf

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return m is self.leaf or super().is_leaf_module(m, module_qualified_name)


def _with_another_schema(text: bytes) -> bytes:
    model = json.loads(text)
    if "schema_version" in model:
        model["schema_version"] = {"major": 99, "minor": 1}
    return json.dumps(model).encode()


def _rewritten(content: bytes, rewrite: Callable[[bytes], bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            new.writestr(entry, rewrite(data) if entry.filename.endswith(".json") else data)
    return file.getvalue()
