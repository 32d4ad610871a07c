"""Attacks on limited resources: the limit that an attack exceeds ends it.

The controls are bounded to protect the machine that runs the tests.
"""

from typing import Any

import pytest

MEBIBYTE = 1 << 20
GIBIBYTE = 1 << 30
Rig = Any


def test_memory_of_one_process_is_limited(rig: Rig) -> None:
    attack = """
        import time
        kept = []
        for _ in range(32):
            kept.append(bytearray(32 << 20))
            kept[-1][::4096] = bytes([1]) * len(kept[-1][::4096])
        time.sleep({rest})
        return len(kept)
    """
    assert rig.unconfined(attack.format(rest=0)).did == 32
    outcome = rig.confined(attack.format(rest=60), limit_memory_bytes=700 * MEBIBYTE)
    assert outcome.code == "limit-memory" or outcome.error == "MemoryError"
    assert outcome.did is None


def test_memory_of_all_processes_together_is_limited(rig: Rig) -> None:
    attack = """
        import time
        pids = []
        for _ in range(6):
            pid = os.fork()
            if pid == 0:
                kept = bytearray(256 << 20)
                kept[::4096] = bytes([1]) * len(kept[::4096])
                time.sleep({rest})
                os._exit(0)
            pids.append(pid)
        return sum(os.waitpid(pid, 0)[1] for pid in pids)
    """
    assert rig.unconfined(attack.format(rest=0)).did == 0
    outcome = rig.confined(attack.format(rest=60), limit_memory_bytes=700 * MEBIBYTE)
    assert outcome.code == "limit-memory"
    assert outcome.left_running == ()


def test_a_pickle_cannot_fork_without_end(rig: Rig) -> None:
    attack = """
        import time
        count = 0
        try:
            for _ in range(80):
                if os.fork() == 0:
                    time.sleep(60)
                    os._exit(0)
                count += 1
        except OSError as error:
            return [count, type(error).__name__]
        return [count, ""]
    """
    assert rig.unconfined(attack).did == [80, ""]
    outcome = rig.confined(attack, limit_processes=32, limit_memory_bytes=64 * GIBIBYTE)
    assert outcome.did[0] < 40
    assert outcome.did[1] == "BlockingIOError"
    assert outcome.left_running == ()


def test_a_fork_bomb_is_ended_to_the_last_process(rig: Rig) -> None:
    bomb = """
        import time
        while True:
            try:
                os.fork()
            except OSError:
                time.sleep(0.001)
    """
    outcome = rig.confined(bomb, limit_processes=64, limit_wall_seconds=2, limit_memory_bytes=64 * GIBIBYTE)
    assert outcome.code == "limit-wall-clock"
    assert outcome.left_running == ()


WRITE = """
    for number in range({files}):
        with open(f"part-{{number}}", "wb") as file:
            file.write(bytes(4 << 20))
    return {files}
"""
WRITE_DELETED = """
    kept = []
    for number in range({files}):
        kept.append(open(f"part-{{number}}", "wb"))
        os.unlink(f"part-{{number}}")
        kept[-1].write(bytes(4 << 20))
        kept[-1].flush()
    return {files}
"""


@pytest.mark.parametrize("attack", [WRITE, WRITE_DELETED], ids=["named", "deleted but open"])
def test_a_pickle_cannot_fill_the_disk(rig: Rig, attack: str) -> None:
    assert rig.unconfined(attack.format(files=24)).did == 24
    outcome = rig.confined(attack.format(files=800), limit_disk_bytes=64 * MEBIBYTE)
    assert outcome.code == "limit-disk"


def test_a_single_file_is_limited(rig: Rig) -> None:
    attack = "return open('large', 'wb').write(bytes(16 << 20))"
    assert rig.unconfined(attack).did == 16 << 20
    assert rig.confined(attack, limit_file_bytes=8 * MEBIBYTE).error == "OSError"


def test_a_pickle_cannot_make_files_without_end(rig: Rig) -> None:
    attack = """
        for number in range({files}):
            open(str(number), "w").close()
        return {files}
    """
    assert rig.unconfined(attack.format(files=3000)).did == 3000
    outcome = rig.confined(attack.format(files=200_000), limit_inodes=1000)
    assert outcome.code == "limit-inodes"


def test_a_tree_too_deep_for_any_path_is_refused_and_removed(rig: Rig) -> None:
    attack = """
        for _ in range({depth}):
            os.mkdir("d")
            os.chdir("d")
        import time
        time.sleep({rest})
        return {depth}
    """
    outcome = rig.confined(attack.format(depth=3000, rest=30))
    assert outcome.code == "limit-inodes"


def test_a_pickle_cannot_print_without_end(rig: Rig) -> None:
    attack = """
        for _ in range({lines}):
            os.write(1, b"x" * 65535 + b"\\n")
        return {lines}
    """
    assert rig.unconfined(attack.format(lines=64)).did == 64
    outcome = rig.confined(attack.format(lines=100_000), limit_output_bytes=MEBIBYTE)
    assert outcome.code == "limit-output"


def test_processor_time_of_all_processes_together_is_limited(rig: Rig) -> None:
    attack = """
        import time
        second = os.fork()
        while time.process_time() < {seconds}:
            pass
        if second == 0:
            os._exit(0)
        os.waitpid(second, 0)
        return {seconds}
    """
    assert rig.unconfined(attack.format(seconds=0.8)).did == 0.8
    outcome = rig.confined(attack.format(seconds=60), limit_cpu_seconds=3)
    assert outcome.code == "limit-cpu"
    assert outcome.left_running == ()


SLEEP = "import time\ntime.sleep({seconds})\nreturn {seconds}"


@pytest.mark.parametrize(
    ("timeout_seconds", "code"), [(None, "limit-wall-clock"), (0.25, "timeout")], ids=["worker", "request"]
)
def test_a_pickle_that_never_ends_is_ended(rig: Rig, timeout_seconds: float | None, code: str) -> None:
    assert rig.unconfined(SLEEP.format(seconds=0.6)).did == 0.6
    outcome = rig.confined(SLEEP.format(seconds=600), timeout_seconds, limit_wall_seconds=0.5)
    assert outcome.code == code
    assert outcome.exit.signal == 9
    assert outcome.left_running == ()


def test_a_cancelled_job_is_ended(rig: Rig) -> None:
    job = rig.start(SLEEP.format(seconds=600))
    termination = rig.watched(job, rig.settings_limits(), lambda: True)
    assert termination is not None and termination.code == "cancelled"
    assert rig.end(job).signal == 9
