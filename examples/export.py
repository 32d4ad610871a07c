"""Writes an example model to a file: ``python examples/export.py cnn --format pt2 --output cnn.pt2``."""

import argparse
from pathlib import Path

from models import EXAMPLES
from models.save import SavedAs, save


def main() -> None:
    """Read the command line and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=EXAMPLES)
    parser.add_argument("--format", type=SavedAs, choices=list(SavedAs), default=SavedAs.PT2)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    example = EXAMPLES[arguments.model]
    save(example, arguments.format, arguments.output)
    print(f"{arguments.output}: {' '.join(f'--input {spec.spec}' for spec in example.inputs)}")


if __name__ == "__main__":
    main()
