"""Loaders that run, looked at from outside.

    for loader in ringbuf.telemetry.find():
        print(loader.name, loader.pid, loader.age_s)
    with ringbuf.telemetry.open("train") as reader:
        print(reader.snapshot().consumer.wait_ns)

    _meter                                  the page: where each number lies, and who writes it
    page                                    a loader's own page
    snapshot, events, reader, search        somebody else's
    rates                                   what two looks make
    tracing                                 events as a file for Perfetto
"""

from ringbuf.telemetry.events import Cursor, Event, Events
from ringbuf.telemetry.reader import Reader
from ringbuf.telemetry.search import Found, Unreadable, find, open, unreadable
from ringbuf.telemetry.snapshot import ConsumerSnapshot, Snapshot, WorkerSnapshot

__all__ = [
    "ConsumerSnapshot",
    "Cursor",
    "Event",
    "Events",
    "Found",
    "Reader",
    "Snapshot",
    "Unreadable",
    "WorkerSnapshot",
    "find",
    "open",
    "unreadable",
]
