"""What a server did over the last minutes: samples, once a second, and what follows from two of them.

The server's own thread takes a sample; everybody else looks at what is there, however often, and costs that thread nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ringbuf.net import bottleneck
from ringbuf.net.bottleneck import Bottleneck, ClientShare

__all__ = ["History", "Sample"]

EVERY_S = 1.0
MOST_SAMPLES = 600
RATE_WINDOW_S = 5.0
BLAME_WINDOW_S = 60.0


NUMBER, SENT, BYTES, WAITED = range(4)
"""Columns of Sample.clients."""


class Sample(NamedTuple):
    """Sums up to one moment.

    clients: of shape (clients, 4): number (rising), batches sent, bytes sent, seconds waited. 600 samples of hundreds of clients
        are a few MB.
    """

    number: int
    at: float
    produced: int
    nbytes: int
    source_s: float
    room_s: float
    clients: np.ndarray

    def rows(self) -> dict[int, list[float]]:
        """The row of each client, by its number."""
        return {int(row[NUMBER]): row for row in self.clients.tolist()}


class History:
    """The last samples, and the newest picture.

    describe: gives a picture of the server, as `Server.stats()` does.
    every_s: between samples, at least.
    """

    def __init__(self, describe: Callable[[], dict[str, Any]], every_s: float = EVERY_S):
        self._describe = describe
        self._every_s = every_s
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self._picture: dict[str, Any] | None = None
        self._due = float("-inf")
        self._number = 0

    def tick(self, now: float) -> None:
        """Take a sample, if it is time to. From one thread alone.

        now: monotonic seconds.
        """
        if now < self._due:
            return
        self._due += self._every_s  # and not so long from now: they would drift
        if self._due <= now:
            self._due = now + self._every_s
        picture = self._describe()
        rows = sorted((c["client"], c["sent"], c["bytes"], c["waited_s"]) for c in picture["clients"])
        self._number += 1
        sample = Sample(
            self._number,
            now,
            picture["produced"],
            picture["produced_bytes"],
            picture["source_s"],
            picture["room_s"],
            np.array(rows, np.float64).reshape(-1, 4),
        )
        with self._lock:
            self._picture = picture
            self._samples.append(sample)

    @property
    def picture(self) -> dict[str, Any] | None:
        """The server as it was at the newest sample; None before the first."""
        return self._picture

    def report(self) -> dict[str, Any] | None:
        """The newest picture with rates of the last seconds, of the server and of each client, and the bottleneck.

        Adds: number (of the sample); batches_per_s, bytes_per_s; room_share, source_share (of the last minute, or since
        clients are there); bottleneck ({"kind", "text"}); and to each client batches_per_s, bytes_per_s, waiting_share.
        None before the first sample.
        """
        with self._lock:
            picture, samples = self._picture, list(self._samples)
        if picture is None:
            return None
        last = samples[-1]
        # Nobody who is here is to blame for the time before.
        longest_s = max((client["connected_s"] for client in picture["clients"]), default=BLAME_WINDOW_S)
        recent, minute = _before(samples, RATE_WINDOW_S), _before(samples, min(longest_s, BLAME_WINDOW_S))
        recent_s, minute_s = last.at - recent.at, last.at - minute.at
        rows, recent_rows, minute_rows = last.rows(), recent.rows(), minute.rows()
        nothing = [0.0] * 4
        clients = []
        for client in picture["clients"]:
            number = client["client"]
            row, before = rows[number], recent_rows.get(number, nothing)
            there_s = min(minute_s, client["connected_s"])
            clients.append(
                {
                    **client,
                    "batches_per_s": _per(row[SENT] - before[SENT], recent_s),
                    "bytes_per_s": _per(row[BYTES] - before[BYTES], recent_s),
                    "waiting_share": _share(row[WAITED] - minute_rows.get(number, nothing)[WAITED], there_s),
                }
            )
        room_share = _share(last.room_s - minute.room_s, minute_s)
        found = self._blame(picture, clients, minute_s, room_share)
        return {
            **picture,
            "clients": clients,
            "number": last.number,
            "batches_per_s": _per(_gained(last, recent, SENT), recent_s),
            "bytes_per_s": _per(_gained(last, recent, BYTES), recent_s),
            "room_share": room_share,
            "source_share": _share(last.source_s - minute.source_s, minute_s),
            "bottleneck": {"kind": found.kind, "text": found.text},
        }

    @staticmethod
    def _blame(picture: dict[str, Any], clients: list[dict], window_s: float, room: float) -> Bottleneck:
        return bottleneck.find(
            mode=picture["mode"],
            window_s=window_s,
            room=room,
            clients=[ClientShare(c["label"], c["waiting_share"], c["lag"], c["in_loop"], c["local"]) for c in clients],
            produced=picture["produced"],
            doing=picture["doing"],
            doing_s=picture["doing_s"],
        )

    def series(self, after: int = 0) -> dict[str, Any]:
        """What is plotted, of the stretches that end with the samples numbered above `after`.

        numbers: of the samples; age_s: how long before the newest one; batches_per_s, bytes_per_s: what the clients were sent;
        room, source: shares of time; waiting: for each client that is there (its number as text) its share, or None.
        """
        with self._lock:
            samples = list(self._samples)
        samples = [sample for sample in samples if sample.number >= after]
        steps = list(pairwise(samples))
        lengths_s = [later.at - earlier.at for earlier, later in steps]

        def rates(column: int) -> list[float]:
            return [round(_per(_gained(later, earlier, column), s), 2) for (earlier, later), s in zip(steps, lengths_s)]

        def shares(name: str) -> list[float]:
            sums = [getattr(sample, name) for sample in samples]
            return [round(_share(b - a, s), 3) for (a, b), s in zip(pairwise(sums), lengths_s)]

        return {
            "numbers": [later.number for _, later in steps],
            "age_s": [round(samples[-1].at - later.at, 1) for _, later in steps],
            "batches_per_s": rates(SENT),
            "bytes_per_s": rates(BYTES),
            "room": shares("room_s"),
            "source": shares("source_s"),
            "waiting": _waiting(samples, lengths_s) if steps else {},
        }


def _waiting(samples: list[Sample], lengths_s: list[float]) -> dict[str, list[float | None]]:
    """Shares of time of the clients in the last sample."""
    numbers = samples[-1].clients[:, NUMBER]
    waited_s = np.full((len(samples), len(numbers)), np.nan)
    for sample, row in zip(samples, waited_s):
        at, found = _find(numbers, sample.clients[:, NUMBER])
        row[at[found]] = sample.clients[found, WAITED]
    gained_s = waited_s[1:] - np.nan_to_num(waited_s[:-1])  # from nothing, where it came in between
    shares = np.round(np.clip(gained_s / np.array(lengths_s)[:, None], 0.0, 1.0), 3).T.tolist()
    return {str(int(number)): [None if x != x else x for x in row] for number, row in zip(numbers, shares)}


def _gained(later: Sample, earlier: Sample, column: int) -> float:
    """What clients got from one sample to the other. What one got that is gone since is not known."""
    at, found = _find(earlier.clients[:, NUMBER], later.clients[:, NUMBER])
    return float(later.clients[:, column].sum() - earlier.clients[at[found], column].sum())


def _find(numbers: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each of `wanted` is in `numbers`, which rise; and of which that is so."""
    at = np.searchsorted(numbers, wanted)
    if len(numbers) == 0:
        return at, np.zeros(len(wanted), bool)
    return at, numbers[np.minimum(at, len(numbers) - 1)] == wanted


def _before(samples: list[Sample], seconds: float) -> Sample:
    """The sample that was taken so long before the last one, or the oldest."""
    wanted = samples[-1].at - seconds - EVERY_S / 2
    return next(sample for sample in samples if sample.at >= wanted)


def _per(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0


def _share(part_s: float, whole_s: float) -> float:
    return min(1.0, max(0.0, part_s / whole_s)) if whole_s > 0 else 0.0
