"""Attacks that hide memory, files or threads from the supervisor's watch: each is refused or counted."""

import errno
from typing import Any

import pytest

Rig = Any

MEBIBYTE = 1 << 20

WITHOUT_MAIN_THREAD = """
    import ctypes, threading, time
    def rest_of_the_job():
        time.sleep(0.3)
        {attack}
        time.sleep({rest})
        with open("evidence.json", "w") as file:
            json.dump({{"did": "done"}}, file)
        os._exit(0)
    threading.Thread(target=rest_of_the_job).start()
    ctypes.CDLL(None).syscall(60, 0)
"""
HOLD_MEMORY = "kept = bytearray(768 << 20); kept[::4096] = bytes([1]) * len(kept[::4096])"
HOLD_DELETED_FILES = """kept = [open(f"part-{number}", "wb") for number in range(32)]
        for number, file in enumerate(kept):
            os.unlink(f"part-{number}")
            file.write(bytes(4 << 20))
            file.flush()"""


@pytest.mark.parametrize(
    ("attack", "settings", "code"),
    [
        (HOLD_MEMORY, {"limit_memory_bytes": 512 * MEBIBYTE}, "limit-memory"),
        (HOLD_DELETED_FILES, {"limit_disk_bytes": 64 * MEBIBYTE}, "limit-disk"),
    ],
    ids=["memory", "deleted files"],
)
def test_a_job_is_measured_after_its_main_thread_has_ended(
    rig: Rig, attack: str, settings: dict[str, int], code: str
) -> None:
    assert rig.unconfined(WITHOUT_MAIN_THREAD.format(attack=attack, rest=0)).did == "done"
    outcome = rig.confined(WITHOUT_MAIN_THREAD.format(attack=attack, rest=60), **settings)
    assert outcome.termination is not None and outcome.termination.code == code
    assert outcome.did is None
    assert outcome.left_running == ()


ANONYMOUS = "mapping = mmap.mmap(-1, 64 << 20)"
ZERO_DEVICE = "mapping = mmap.mmap(os.open('/dev/zero', os.O_RDWR), 64 << 20)"


@pytest.mark.parametrize("mapping", [ANONYMOUS, ZERO_DEVICE], ids=["anonymous", "/dev/zero"])
def test_shared_memory_that_can_be_hidden_is_refused(rig: Rig, mapping: str) -> None:
    attack = f"""
        import mmap
        {mapping}
        for start in range(0, len(mapping), 4096):
            mapping[start] = 1
        mapping.madvise(mmap.MADV_DONTNEED)
        return mapping[4096]
    """
    assert rig.unconfined(attack).did == 1, "the memory is still there"
    assert rig.confined(attack).error == "PermissionError"


def test_deleted_files_that_are_only_mapped_are_limited(rig: Rig) -> None:
    attack = """
        import mmap, time
        kept = []
        for number in range({files}):
            with open(f"part-{{number}}", "w+b") as file:
                file.write(bytes(4 << 20))
                file.flush()
                kept.append(mmap.mmap(file.fileno(), 4096))
            os.unlink(f"part-{{number}}")
        time.sleep({rest})
        return len(kept)
    """
    assert rig.unconfined(attack.format(files=24, rest=0)).did == 24
    outcome = rig.confined(attack.format(files=400, rest=60), limit_disk_bytes=64 * MEBIBYTE)
    assert outcome.code == "limit-disk"


def test_deleted_files_count_as_files(rig: Rig) -> None:
    attack = """
        import time
        kept = []
        for _ in range(3):
            if os.fork() == 0:
                break
        for number in range(500):
            name = f"{{os.getpid()}}-{{number}}"
            kept.append(open(name, "w"))
            os.unlink(name)
        time.sleep({rest})
        return len(kept)
    """
    assert rig.unconfined(attack.format(rest=0.5)).did == 500
    assert rig.confined(attack.format(rest=60), limit_inodes=1000).code == "limit-inodes"


def test_a_job_cannot_hide_its_memory_and_files(rig: Rig) -> None:
    attack = "import ctypes\nreturn ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)"
    assert rig.unconfined(attack).did == 0
    assert rig.confined(attack).did == -1
    truncated = attack.replace("prctl(4", "prctl(ctypes.c_ulong(0x100000004)")
    assert rig.confined(truncated).did == -1


def test_space_cannot_be_reserved_beyond_the_end_of_a_file(rig: Rig) -> None:
    reserve = """
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        with open("reserved", "wb") as file:
            answers = {}
            for mode in (0, 1):
                result = libc.fallocate(file.fileno(), mode, ctypes.c_long(0), ctypes.c_long(4096))
                answers[str(mode)] = [result, ctypes.get_errno() if result else 0]
        return answers
    """
    assert rig.confined(reserve).did == {"0": [0, 0], "1": [-1, errno.EOPNOTSUPP]}


def test_a_job_cannot_pin_other_processes_to_a_core(rig: Rig) -> None:
    attack = "os.sched_setaffinity({pid}, {{0}})\nreturn sorted(os.sched_getaffinity({pid}))"
    zygote = rig.zygote.pid
    assert rig.confined(attack.format(pid=zygote)).error == "PermissionError"
    assert rig.confined(attack.format(pid=0)).did == [0]
