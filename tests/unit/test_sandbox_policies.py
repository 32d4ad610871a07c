import struct
from pathlib import Path

import pytest

from worker.sandbox import allowed_syscalls
from worker.sandbox.confine import gpu_rules
from worker.sandbox.identity import Switch, choose_switch
from worker.sandbox.landlock import WORK_IN, Access, handled_access, ruleset_attribute
from worker.settings import WorkerSettings


@pytest.mark.parametrize(
    ("unreadable", "may_read_all", "switch"),
    [
        ((), False, Switch.PLAIN),
        ((), True, Switch.PLAIN),
        ((Path("/root/python"),), True, Switch.KEEP_READING),
        ((Path("/root/python"),), False, Switch.NONE),
    ],
)
def test_the_read_capability_is_kept_only_where_needed(
    unreadable: tuple[Path, ...], may_read_all: bool, switch: Switch
) -> None:
    assert choose_switch(unreadable, may_read_all) is switch


@pytest.mark.parametrize(
    ("abi", "words", "beyond_abi_1"),
    [
        (1, 1, Access(0)),
        (2, 1, Access.REFER),
        (3, 1, Access.REFER | Access.TRUNCATE),
        (4, 2, Access.REFER | Access.TRUNCATE),
        (5, 2, Access.REFER | Access.TRUNCATE | Access.IOCTL_DEV),
        (6, 3, Access.REFER | Access.TRUNCATE | Access.IOCTL_DEV),
        (9, 3, Access.REFER | Access.TRUNCATE | Access.IOCTL_DEV),
    ],
)
def test_a_ruleset_uses_only_rights_the_kernel_knows(abi: int, words: int, beyond_abi_1: Access) -> None:
    attribute = ruleset_attribute(abi)
    assert len(attribute) == 8 * words
    assert struct.unpack_from("=Q", attribute)[0] == handled_access(abi) == 0x1FFF | beyond_abi_1


def test_a_job_cannot_create_links_devices_or_pipes() -> None:
    made = Access.MAKE_SYM | Access.MAKE_FIFO | Access.MAKE_SOCK | Access.MAKE_CHAR | Access.MAKE_BLOCK
    assert not WORK_IN & made
    assert not WORK_IN & Access.EXECUTE


def test_a_job_for_a_gpu_opens_its_nodes_and_nothing_else_of_the_devices(tmp_path: Path) -> None:
    for name in (
        "nvidiactl",
        "nvidia0",
        "nvidia12",
        "nvidia-uvm",
        "nvidia-uvm-tools",
        "nvidia-modeset",
        "mem",
    ):
        (tmp_path / name).touch()
    opened = {rule.path.name: rule.access for rule in gpu_rules(tmp_path) if rule.path.parent == tmp_path}
    assert opened == dict.fromkeys(
        ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia12"),
        Access.READ_FILE | Access.WRITE_FILE | Access.IOCTL_DEV,
    )
    others = [rule for rule in gpu_rules(tmp_path) if rule.path.parent != tmp_path]
    assert not [rule for rule in others if rule.access & ~(Access.READ_FILE | Access.READ_DIR)]


def test_only_a_job_for_a_gpu_has_all_addresses() -> None:
    settings = WorkerSettings()
    plain, on_gpu = settings.confinement(None), settings.confinement(None, gpus=True)
    assert (plain.gpus, on_gpu.gpus) == (False, True)
    assert on_gpu.rlimits.address_space_bytes > plain.rlimits.address_space_bytes
    assert on_gpu.rlimits.data_bytes == plain.rlimits.data_bytes


def test_each_system_call_is_in_one_list() -> None:
    conditional = ("clone", "fcntl", "ioctl", "prlimit64")
    names = (
        *(allowed_syscalls.ALLOWED + allowed_syscalls.ALLOWED_TO_OWN_USER),
        *(allowed_syscalls.DENIED + allowed_syscalls.FALL_BACK + conditional),
    )
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "name",
    [
        "socket",
        "connect",
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "keyctl",
        "memfd_create",
        "setsid",
        "setpgid",
        "unshare",
        "setns",
        "shmget",
        "semget",
        "msgget",
        "mount",
        "open_by_handle_at",
        "bpf",
        "userfaultfd",
        "perf_event_open",
        "truncate",
    ],
)
def test_escape_calls_are_denied(name: str) -> None:
    assert name in allowed_syscalls.DENIED


def test_every_setting_is_described() -> None:
    assert all(field.description for field in WorkerSettings.model_fields.values())


def test_a_job_may_reserve_more_than_it_may_use() -> None:
    settings = WorkerSettings()
    limits = settings.rlimits()
    assert settings.limit_memory_bytes < limits.data_bytes < limits.address_space_bytes
