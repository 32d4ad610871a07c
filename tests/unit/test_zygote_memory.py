from worker.job.huge_pages import HUGE_PAGE_BYTES, collapse_memory, collapsible

MAPS = """\
00400000-00a00000 r-xp 00000000 fe:00 42 /usr/bin/python3.11
00a00000-01200000 rw-p 00600000 fe:00 42 /usr/bin/python3.11
01300000-01900000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000600000 rw-p 00000000 00:00 0
7f0000700000-7f0000a00000 rw-p 00000000 00:00 0
7f0000b00000-7f0001300000 r--p 00000000 00:00 0
7ff000000000-7ff000800000 rw-p 00000000 00:00 0 [stack]
"""


def test_only_whole_huge_pages_of_writable_memory_collapse() -> None:
    assert list(collapsible(MAPS)) == [
        (0x01400000, 0x01800000),
        (0x7F0000000000, 0x7F0000600000),
        (0x7F0000800000, 0x7F0000A00000),
    ]


def test_memory_keeps_its_content() -> None:
    content = bytearray(range(256)) * (4 * HUGE_PAGE_BYTES // 256)
    before = bytes(content)
    collapse_memory()
    assert content == before
