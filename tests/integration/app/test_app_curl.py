"""The commands of the pages that need nothing but curl, as they stand there."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from app_samples import DIGEST, MODEL_BYTES
from server_process import ServerProcess

from app.http.forms import FORM
from app.http.multipart import MULTIPART
from bessemer.contract.request import CompilationRequest

ROOT = Path(__file__).parents[3]
WRITTEN_URL = "http://127.0.0.1:8000"
FILE = "mlp.pt2"
BEYOND = {"bessemer", "python"}
CURL = shutil.which("curl")


def commands(page: str) -> list[str]:
    """The blocks of a page in which curl sends the example's model, and asks for nothing of a worker."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return [
        "\n".join(line.removeprefix("$ ") for line in block.splitlines())
        for block in blocks
        if "curl" in block and FILE in block and not BEYOND & set(block.split())
    ]


def test_the_line_of_the_readme_sends_the_form_that_the_api_takes() -> None:
    (line,) = commands("README.md")
    words = shlex.split(line)
    assert words[-1] == f"{WRITTEN_URL}/v1/compilations"
    fields = dict(words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "-F")
    taken = FORM["requestBody"]["content"][MULTIPART]["schema"]["properties"]
    assert fields.keys() <= taken.keys()
    assert fields.keys() >= {"model", "request"}
    assert fields["model"] == f"@{FILE}"
    CompilationRequest.model_validate({"model": DIGEST, **json.loads(fields["request"])})


@pytest.mark.parametrize("page", ["README.md", "docs/usage.md"])
def test_what_is_pasted_from_a_page_submits_a_compilation(
    shared_server: ServerProcess, tmp_path: Path, page: str
) -> None:
    (tmp_path / FILE).write_bytes(MODEL_BYTES)
    (pasted,) = commands(page)
    if CURL is None:
        pytest.skip("there is no curl on this machine")
    script = pasted.replace(WRITTEN_URL, shared_server.url)
    ran = subprocess.run(
        ["bash", "-euc", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert "HTTP/1.1 202 Accepted" in ran.stdout
    assert re.search(r"^location: /v1/compilations/[0-9a-f]{32}\r?$", ran.stdout, re.MULTILINE)
