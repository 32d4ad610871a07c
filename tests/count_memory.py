"""Prints what loading and running a bundle maps and allocates: ``python count_memory.py BUNDLE [huge]``."""

import json
import resource
import sys
from pathlib import Path
from typing import Any

BUNDLE = Path(sys.argv[1])
sys.path.insert(0, str(BUNDLE))

import run  # noqa: E402

RUNS = 20


def library_bytes(field: str) -> int:
    """A field of the library's read-only mappings of at least 1 MiB, such as ``Rss``.

    ``Anonymous`` counts pages of the process's own. ``Private_Dirty`` would also count pages of a file that
    was just written.
    """
    found, counts = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            low, high = (int(word, 16) for word in words[0].split("-"))
            counts = words[1].startswith("r--") and high - low >= 1 << 20 and line.endswith("model.so")
        elif counts and words[0] == f"{field}:":
            found += int(words[1]) * 1024
    return found


allocations: list[int] = []
empty = run._empty


def counted(spec: Any, shape: Any) -> Any:
    allocations.append(1)
    return empty(spec, shape)


run._empty = counted
model = run.load(BUNDLE, huge_pages="huge" in sys.argv)
mapped = {name: library_bytes(name) for name in ("Rss", "Anonymous")}
inputs = model.reference_inputs()
call = model.bind(inputs)
call()
allocations.clear()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(RUNS):
    call()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(
    json.dumps(
        {
            **mapped,
            "allocations": len(allocations) / RUNS,
            "faults": faults / RUNS,
            "matches": all(each.matches for each in model.compare(model.run(inputs))),
        }
    )
)
