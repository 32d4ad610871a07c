"""Trains a cost model: reads measured functions, each packed as it is stored, and writes the model.

Each line of standard input is the base64 of one. This process reads numbers and no modules, and imports
neither torch nor TVM.
"""

import resource
import sys
from base64 import b64decode
from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from bessemer.contract.cost_model import MeasuredFunction, unpacked
from worker.compiler.tuning.cost_model.training import train
from worker.compiler.tuning.cost_model.trees import write_model

MEMORY_BYTES = 1 << 30
PROCESSOR_SECONDS = 60


def main() -> None:
    """Train in limited memory and time."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
    functions = list(_read(sys.stdin.buffer))
    sys.stdout.buffer.write(write_model(train(functions, source="searches of this service")))


def _read(lines: Iterable[bytes]) -> Iterator[MeasuredFunction]:
    """The functions; those that this release cannot read are left out."""
    for line in lines:
        try:
            yield unpacked(b64decode(line))
        except ValidationError as error:
            sys.stderr.write(f"left out a function: {error.errors()[0]['msg']}\n")


if __name__ == "__main__":
    main()
