"""What processes write down in shared memory, so that it is there when they are killed at any moment.

Each word is one aligned 8-byte store: it is there or it is not. An actor says what it is about to do before it does
it, and that it is done afterwards; a death in between leaves exactly two possibilities.
"""

from __future__ import annotations

import mmap

import numpy as np

ROWS = 1024  # actors of one round, dead ones included
ENTRIES = 1 << 15  # receipts of one taker; then it leaves, and another one comes

# A row. INTENT, DONE: the message that a producer is about to publish, and how many it has. MOVED: messages that a
# taker got. LOOKS: calls begun. LEAVE, REST: written by the supervisor: leave now; leave when nothing comes any more.
INTENT, DONE, PHASE, MOVED, LOOKS, LEAVE, REST, WIDTH = 0, 1, 2, 3, 4, 5, 6, 8

# Phases of a producer: what it was about when it died.
IDLE, CLAIMING, WRITING, COMMITTING, PUTTING, ABORTING = range(6)
# Phases of a taker.
TAKING, HOLDING, DRAINED = 10, 11, 12

# What became of a receipt. TAKEN is what memory says from the beginning.
TAKEN, RELEASING, RELEASED = range(3)


class Words:
    """Shared signed 64-bit words, zero at first; `at[i]` reads and writes one."""

    def __init__(self, number: int):
        self._memory = mmap.mmap(-1, number * 8)
        self.at = memoryview(self._memory).cast("q")

    def array(self) -> np.ndarray:
        """A copy of all of them."""
        return np.array(self.at, np.int64)

    def close(self) -> None:
        self.at.release()
        self._memory.close()


class Rows(Words):
    """One row for each actor of a round, the dead included."""

    def __init__(self, rows: int = ROWS):
        super().__init__(rows * WIDTH)
        self.rows = rows

    def row(self, number: int) -> memoryview:
        return self.at[number * WIDTH : (number + 1) * WIDTH]

    def total(self, rows: int) -> int:
        """MOVED over the first so many rows."""
        return sum(self.at[number * WIDTH + MOVED] for number in range(rows))


class Receipts:
    """A taker's list: which message, and what became of it. For readers also what they cannot be owed."""

    def __init__(self):
        self._words = Words(2 * ENTRIES + ROWS)
        self.ids = self._words.at[:ENTRIES]
        self.fate = self._words.at[ENTRIES : 2 * ENTRIES]
        self.before = self._words.at[2 * ENTRIES :]  # by producer: its messages up to this one came before the reader

    def read(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(ids, fates, before), copies."""
        words = self._words.array()
        number = int(np.count_nonzero(words[:ENTRIES]))
        return words[:number], words[ENTRIES : ENTRIES + number], words[2 * ENTRIES :]

    def close(self) -> None:
        for view in (self.ids, self.fate, self.before):
            view.release()
        self._words.close()
