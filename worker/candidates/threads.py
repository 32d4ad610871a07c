"""The environment in which TVM's threads start; it counts until the first parallel region of a process."""

import os

_SPIN_COUNT = 2500
"""How often an idle worker thread looks for work before it sleeps: for some 2 ms instead of TVM's 250.

It bridges the gaps inside a model, and gives the core back to whatever is timed in the pause.
"""


def use_threads(threads: int) -> None:
    """Have TVM run with ``threads`` threads in this process; on x86 it would take half the cores."""
    os.environ["TVM_NUM_THREADS"] = str(threads)
    os.environ["TVM_THREAD_POOL_SPIN_COUNT"] = str(_SPIN_COUNT)
