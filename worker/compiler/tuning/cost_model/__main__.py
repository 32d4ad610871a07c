"""Trains a cost model: reads measured functions, a line of JSON for each, and writes the model.

It reads numbers and no modules, and imports neither torch nor TVM.
"""

import os
import resource
import sys

from bessemer.contract.cost_model import MeasuredFunction
from worker.compiler.tuning.cost_model.training import train
from worker.compiler.tuning.cost_model.trees import write_model

NICE = 19
MEMORY_BYTES = 2 << 30


def main() -> None:
    """Train with the lowest priority, in limited memory.

    Raises:
        pydantic.ValidationError: a line is not a measured function.
    """
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    functions = [MeasuredFunction.model_validate_json(line) for line in sys.stdin.buffer]
    sys.stdout.buffer.write(write_model(train(functions, source="searches of this service")))


if __name__ == "__main__":
    main()
