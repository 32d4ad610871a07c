"""Calls one loaded bundle from many threads at once: ``python call_from_threads.py BUNDLE THREADS CALLS``.

Every thread has inputs of its own, and checks each of its calls against the outputs of a call made alone.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, sys.argv[1])
import run


def scaled(inputs: dict[str, np.ndarray], factor: int) -> dict[str, np.ndarray]:
    return {name: (array * factor).astype(array.dtype) for name, array in inputs.items()}


def main(bundle: Path, threads: int, calls: int) -> None:
    model = run.load(bundle)
    given = [scaled(model.reference_inputs(), index + 1) for index in range(threads)]
    expected = [model.run(inputs) for inputs in given]

    def count_wrong(index: int) -> int:
        wrong = 0
        for _ in range(calls):
            outputs = model.run(given[index])
            equal = (outputs[name].tobytes() == array.tobytes() for name, array in expected[index].items())
            wrong += not all(equal)
        return wrong

    with ThreadPoolExecutor(threads) as pool:
        wrong = sum(pool.map(count_wrong, range(threads)))
    print(json.dumps({"calls": threads * calls, "wrong": wrong}))


main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
