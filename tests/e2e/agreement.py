"""Compares a bundle with its original on random inputs: ``python agreement.py MODEL BUNDLE COUNT``.

A program of its own: the test's process must never run in parallel, since other tests fork from it.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bessemer.bundle.run import load  # noqa: E402
from examples.models import EXAMPLES  # noqa: E402


def main(name: str, bundle: str, count: int) -> None:
    example, library = EXAMPLES[name], load(Path(bundle))
    original, generator = example.build().eval(), torch.Generator().manual_seed(7)
    classes = 0
    worst = 0.0
    with torch.inference_mode():
        for _ in range(count):
            x = example.inputs[0].draw(generator)
            expected = original(x).numpy()
            (actual,) = library.run({example.inputs[0].name: x.numpy()}).values()
            classes += int(actual.argmax() == expected.argmax())
            worst = max(worst, float(np.abs(actual - expected).max() / max(1.0, np.abs(expected).max())))
    print(json.dumps({"same_class": classes, "worst_error": worst}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
