"""``python -m worker``: run a supervisor with its zygote until SIGINT or SIGTERM."""

import sys

from bessemer.quick_imports import quick_imports

if __name__ == "__main__":
    with quick_imports():
        from worker.supervisor.program import main

    sys.exit(main())
