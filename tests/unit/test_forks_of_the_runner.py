"""In a fork, ``run.py`` calls the runtime in the same thread, unless the parent has called it."""

import subprocess
import sys

import pytest

SCRIPT = """
import os, sys, threading
from bessemer.bundle.run import _with_helpers
if {parent_calls}:
    _with_helpers(threading.get_ident)
if os.fork() == 0:
    os._exit(_with_helpers(threading.get_ident) != threading.get_ident())
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.sampled
@pytest.mark.parametrize("parent_calls", [False, True])
def test_a_fork_needs_a_new_thread_only_if_its_parent_has_called_the_runtime(parent_calls: bool) -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT.format(parent_calls=parent_calls)], check=False)

    assert bool(ran.returncode) == parent_calls
