"""What `ringbuf serve` says while it runs: lines for people on stderr, or objects for programs on stdout.

On a terminal one line is written again and again, else a line comes now and then. Who reads may go away: serving goes on.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

from ringbuf.cli.outcome import one_line
from ringbuf.cli.terminal import is_terminal
from ringbuf.cli.units import amount, nbytes

__all__ = ["Reporter", "status_line"]

TERMINAL_S = 2.0
PLAIN_S = 30.0
JSON_S = 5.0
FIRST_BATCH_S = 5.0  # while the source makes its first batch, which it may take long for


class Reporter:
    """Tells about one server, from a thread of its own.

    source: what is served, as it was asked for.
    """

    def __init__(self, server: Any, source: str, *, keys: bool, as_json: bool):
        self._server, self._source, self._keys, self._json = server, source, keys, as_json
        self._stream = (sys.stdout if as_json else sys.stderr) or open(os.devnull, "w")
        self._terminal = not as_json and is_terminal(self._stream)
        self._ended = threading.Event()
        self._on_line = False  # whether the last line may be written over
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """The server can be reached: say where, and go on telling how it is."""
        self._say_where()
        self._thread = threading.Thread(target=self._run, name="ringbuf-reporter", daemon=True)
        self._thread.start()

    def end(self, event: str, text: str) -> None:
        """Tell how it ended, in one line."""
        self._stop()
        self._put({"event": event, "text": text}, f"ringbuf serve: {text}")

    def fail(self, error: Exception, trace: Sequence[str]) -> None:
        """The source raised."""
        self._stop()
        kind = type(error).__name__
        line = f"the source raised {kind}: {one_line(error)}" if str(error) else f"the source raised {kind}"
        if self._json:
            self._put({"event": "failed", "kind": kind, "text": str(error), "traceback": "".join(trace)}, "")
        self._stream = sys.stderr or self._stream
        self._put(None, f"ringbuf serve: {line}\n\n{''.join(trace).rstrip()}")

    # ---- the thread

    def _run(self) -> None:
        told = 0
        while not self._ended.wait(self._pause_s()):
            dropped = self._server.stats()["dropped"]
            if dropped > told:
                who = self._server.dropped[told - dropped :]
                text = f"gave up {', '.join(who)}: too slow for the others (--lag)"
                self._put({"event": "dropped", "clients": who}, f"ringbuf serve: {text}")
                told = dropped
            report = self._server.history.report()
            self._put({"event": "status", **report}, status_line(report, self._columns()), over=True)

    def _pause_s(self) -> float:
        if self._terminal:
            return TERMINAL_S
        usual = JSON_S if self._json else PLAIN_S
        return usual if self._server.account.produced else min(usual, FIRST_BATCH_S)

    def _columns(self) -> int | None:
        """Of the terminal; None where there is none."""
        if not self._terminal:
            return None
        try:
            return os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):
            return 80

    def _stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    # ---- output

    def _say_where(self) -> None:
        server = self._server
        connect = []
        if server.name is not None:
            connect.append(f'ringbuf.connect("{server.name}")')
        if server.address is not None:
            keys = ', keys="FOLDER"' if self._keys else ""
            connect.append(f'ringbuf.connect("{server.address}"{keys})')
        epochs = "without end" if server.epochs is None else f"{server.epochs} epoch{'s' if server.epochs != 1 else ''}"
        lines = [f"ringbuf serve: {self._source}, {server.mode}, {epochs}, process {os.getpid()}"]
        lines += [f"  {'connect:' if at == 0 else '':<9}{line}" for at, line in enumerate(connect)]
        if server.http_address is not None:
            lines.append(f"  {'status:':<9}{server.http_address}")
        where = {
            "event": "serving",
            "source": self._source,
            "name": server.name,
            "address": server.address,
            "http": server.http_address,
            "mode": server.mode,
            "epochs": server.epochs,
            "pid": os.getpid(),
            "connect": connect,
        }
        self._put(where, "\n".join(lines))

    def _put(self, event: dict | None, text: str, over: bool = False) -> None:
        """Write an object or a text. Over: the next may take its place, on a terminal."""
        if self._json and event is not None:
            text = json.dumps(event, separators=(",", ":"))
        before = "\r\x1b[K" if self._on_line else ""
        self._on_line = over and self._terminal
        # A reader that is gone, or a terminal that is, must not end the server, nor be an error when Python exits.
        try:
            self._stream.write(before + text + ("" if self._on_line else "\n"))
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = open(os.devnull, "w")


def status_line(report: dict[str, Any], columns: int | None = None) -> str:
    """How the server is, in one line, no longer than `columns`: what is least worth knowing goes first."""
    blame = report["bottleneck"]["text"]
    if report["bottleneck"]["kind"] == "start":
        return _cut(blame, columns)
    of = "" if report["length"] is None else f"/{report['length']}"
    of_epochs = "" if report["epochs"] is None else f" of {report['epochs']}"
    place = f"epoch {report['epoch']}{of_epochs}, batch {report['index']}{of}"
    rate = f"{amount(report['batches_per_s'])} batches/s"
    size = f"{nbytes(report['bytes_per_s'])}/s"
    count = report["connected"]
    clients = f"{count} client{'s' if count != 1 else ''}"
    for parts in (
        [place, f"{rate}, {size}", clients, blame],
        [place, rate, clients, blame],
        [place, rate, blame],
        [place, blame],
    ):
        line = " | ".join(parts)
        if columns is None or len(line) < columns:
            return line
    return _cut(line, columns)


def _cut(line: str, columns: int | None) -> str:
    return line if columns is None or len(line) < columns else line[: max(0, columns - 4)] + "..."
