"""Pickles are recognized by their opcodes; nothing in them runs."""

import collections
import fractions
import pickle

import pytest

from worker.compiler.frontend.pickles import Root, pickle_root


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return (exec, ("raise AssertionError",))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_the_class_of_the_outermost_object_is_read_in_every_protocol(protocol: int) -> None:
    root = pickle_root(pickle.dumps(fractions.Fraction(1, 2), protocol))
    assert root == Root("fractions", "Fraction")


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", [{"a": 1}, [1, 2], collections.OrderedDict(a=1)])
def test_containers_are_recognized(protocol: int, value: object) -> None:
    root = pickle_root(pickle.dumps(value, protocol))
    assert root is not None
    assert root.is_container


def test_a_pickle_that_runs_code_is_only_read() -> None:
    root = pickle_root(pickle.dumps(Trap()))
    assert root is not None
    assert root.name == "exec"


@pytest.mark.parametrize("data", [b"", b"\x80", b"hello", bytes(100), b"\x80\x02"])
def test_other_bytes_have_no_root(data: bytes) -> None:
    assert pickle_root(data) is None


def test_the_root_is_found_though_the_rest_is_cut_off() -> None:
    assert pickle_root(pickle.dumps({"a": "x" * 10_000})[:100]) == Root("", "dict")
