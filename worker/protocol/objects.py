"""Finds compiled functions in the worker's cache: the job asks its supervisor, which keeps the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from bessemer.contract.base import Digest
from worker.protocol.answers import read_answer
from worker.protocol.messages import MAX_OBJECTS, Message, ObjectsRequested
from worker.protocol.order import ObjectsFound


class CachedObjects(Protocol):
    """Objects by the digests of the texts of their functions."""

    def find(self, keys: Sequence[Digest]) -> Mapping[Digest, Path]:
        """The objects of the keys that the cache knows."""
        ...

    def offer(self, key: Digest, text: bytes) -> None:
        """Offer functions that the cache lacks. It compiles them again itself, once the job has succeeded."""
        ...


class NoObjects:
    """A cache that knows no objects."""

    def find(self, keys: Sequence[Digest]) -> Mapping[Digest, Path]:
        """See ``CachedObjects.find``."""
        return {}

    def offer(self, key: Digest, text: bytes) -> None:
        """See ``CachedObjects.offer``."""


class AskedObjects:
    """A cache that another process keeps.

    Args:
        send: sends a message.
        answers: a descriptor on which one line arrives for each question.
        found: where that process puts the object of a key.
        offered: where it looks for the functions of a key.
    """

    def __init__(
        self,
        send: Callable[[Message], None],
        answers: int,
        found: Callable[[Digest], Path],
        offered: Callable[[Digest], Path],
    ) -> None:
        self._send = send
        self._answers = answers
        self._found = found
        self._offered = offered

    def find(self, keys: Sequence[Digest]) -> Mapping[Digest, Path]:
        """See ``CachedObjects.find``."""
        self._send(ObjectsRequested(keys=tuple(dict.fromkeys(keys))[:MAX_OBJECTS]))
        answer = ObjectsFound.model_validate_json(read_answer(self._answers))
        return {key: self._found(key) for key in answer.keys}

    def offer(self, key: Digest, text: bytes) -> None:
        """See ``CachedObjects.offer``."""
        self._offered(key).write_bytes(text)
