"""A worker's end of the channel, and its looks at whether anybody still wants its work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from ringbuf.loader.channel import Channel, shared_memory
from ringbuf.loader.parent import Parent

__all__ = ["LOOK_S", "Post", "Stopped"]

LOOK_S = 0.1  # how long a wait may last before the worker looks up
PAUSE_S = 0.02  # how long it may make samples without looking up, about
MOST_SAMPLES = 64  # and how many, however quick the last ones were


class Stopped(BaseException):
    """The main process wants nothing more."""


class Post:
    """The worker's end of the channel: what arrives is kept until it is asked for."""

    def __init__(self, channel: Channel, parent: Parent):
        self._channel = channel
        self._parent = parent
        self._letters: list[tuple[list, list[int]]] = []
        self._looked = self._paused = 0.0
        self._stride = 1

    def pause(self) -> int:
        """Look up, if the last look was some time ago. Returns how many samples to make before the next call."""
        now = time.monotonic()
        quick = now - self._paused < PAUSE_S / 2
        self._stride = min(2 * self._stride, MOST_SAMPLES) if quick else 1
        self._paused = now
        if now - self._looked >= PAUSE_S:
            self._looked = now
            self.look()
        return self._stride

    def look(self) -> None:
        """Raise Stopped or Orphaned if there is nobody to work for."""
        self._parent.check()
        if self._channel.waiting():
            self._collect()

    def wait_for(self, wanted: Callable[[list], bool]) -> tuple[list, list[int]]:
        """The first message that is `wanted`, with its descriptors, however long it takes."""
        while True:
            for place, (message, _) in enumerate(self._letters):
                if wanted(message):
                    return self._letters.pop(place)
            self._channel.waiting(timeout_ms=int(LOOK_S * 1000))
            self.look()

    def send(self, *message: Any, memory: bytes, label: str) -> bool:
        """Send a message with `memory` in a descriptor."""
        descriptor = shared_memory(memory, label)
        try:
            return self._channel.send(*message, descriptor=descriptor)
        finally:
            os.close(descriptor)

    def last_words(self, text: str) -> None:
        self.send("last words", memory=text.encode("utf-8", "backslashreplace"), label="ringbuf-last-words")

    def _collect(self) -> None:
        try:
            while (letter := self._channel.receive()) is not None:
                if letter[0][0] == "stop":
                    raise Stopped
                self._letters.append(letter)
        except EOFError:
            raise Stopped from None
