"""What ``ci/containers/slim`` leaves of an environment is enough for jobs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from platform_samples import built_for, preset

from worker.compiler.codegen import link
from worker.compiler.codegen.standalone import systems
from worker.compiler.values import StageContext

SLIM = Path(__file__).parents[2] / "ci" / "containers" / "slim"
TARGETS = (
    ("x86-64-v2", "x86_64-unknown-linux-gnu.2.17"),
    ("aarch64", "aarch64-unknown-linux-musl"),
    ("riscv64", "riscv64-unknown-linux-gnu"),
    ("apple-m1", "aarch64-apple-macos11.0"),
    ("x86-64-v3", "x86_64-pc-windows-gnu"),
)


@pytest.mark.slow
def test_a_slim_environment_builds_libraries_for_every_system(
    context: StageContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without libc's headers and sources, by which zig would compile C for a platform."""
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    shutil.copytree(link.linker_path().parent, packages / "ziglang")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    subprocess.run([SLIM, tmp_path], check=True)
    kept = sum(path.stat().st_size for path in (packages / "ziglang" / "lib").rglob("*") if path.is_file())
    for module in (link, systems):
        monkeypatch.setattr(module, "linker_path", lambda: packages / "ziglang" / "zig")

    built = [built_for(preset(*target), "perceptron", context, verification="none") for target in TARGETS]

    assert all(one.library.stat().st_size and one.program is not None for one in built)
    assert kept < 1 << 20
