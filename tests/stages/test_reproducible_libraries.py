"""The same request gives the same library in another process, another folder and another year."""

import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from bessemer.bundle.manifest import LIBRARY, PROGRAM
from bessemer.contract.target import LINUX_X86_64
from examples.models import EXAMPLES
from examples.models.save import SavedAs, save
from worker.compiler.codegen.link import link_shared
from worker.compiler.codegen.standalone.emit import compile_source

HERE = Path(__file__).parent
MODELS = ("mlp", "cnn")
CLOCK = """
#define SHOWN __attribute__((visibility("default")))
struct timespec { long seconds, nanoseconds; };
struct timeval { long seconds, microseconds; };
static long call(long number, long first, long second) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second) : "rcx", "r11", "memory");
  return result;
}
SHOWN int clock_gettime(int clock, struct timespec *at) {
  long failed = call(228, clock, (long)at);
  if (!failed && (clock == 0 || clock == 5)) at->seconds += 366 * 86400L;
  return failed ? -1 : 0;
}
SHOWN int gettimeofday(struct timeval *at, void *zone) {
  struct timespec now;
  clock_gettime(0, &now);
  at->seconds = now.seconds;
  at->microseconds = now.nanoseconds / 1000;
  return 0;
}
SHOWN long time(long *at) {
  struct timespec now;
  clock_gettime(0, &now);
  if (at) *at = now.seconds;
  return now.seconds;
}
"""


@pytest.fixture
def next_year(tmp_path: Path) -> Path:
    """A library that sets the clock of the process that preloads it to the next year."""
    source, compiled, library = (tmp_path / f"clock{suffix}" for suffix in (".c", ".o", ".so"))
    source.write_text(CLOCK)
    compile_source(source, compiled, LINUX_X86_64)
    link_shared(library, [str(compiled)])
    return library


def libraries(folder: Path, models: list[Path], **environment: str) -> tuple[date, list[bytes]]:
    """The date, and the libraries and programs that a new process makes in a folder."""
    folder.mkdir(parents=True)
    ran = subprocess.run(
        [sys.executable, HERE / "build_libraries.py", folder, *models],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    made = [folder / model.stem / "output" / name for model in models for name in (LIBRARY, PROGRAM)]
    return date.fromisoformat(ran.stdout.splitlines()[-1]), [path.read_bytes() for path in made]


@pytest.mark.slow
def test_the_same_request_gives_the_same_bytes(tmp_path: Path, next_year: Path) -> None:
    models = [tmp_path / f"{name}.pt2" for name in MODELS]
    for name, path in zip(MODELS, models, strict=True):
        save(EXAMPLES[name], SavedAs.PT2, path)
    today, first = libraries(tmp_path / "first", models, PYTHONHASHSEED="1")
    later, second = libraries(
        tmp_path / "another" / "folder", models, PYTHONHASHSEED="2", LD_PRELOAD=str(next_year)
    )
    assert (later - today).days >= 365
    assert first == second
