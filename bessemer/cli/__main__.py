"""``python -m bessemer.cli``."""

from bessemer.cli import main

main()
