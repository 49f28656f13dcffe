"""Servers, which are asked; of one that does not answer it is still known which process it is."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Any

from ringbuf.cli.kinds.thing import Row, Thing
from ringbuf.cli.page import KEEP, Block, Column, Facts, Histories, History, Prose, Table
from ringbuf.cli.processes import is_stopped
from ringbuf.cli.units import age, nbytes, percent, rate
from ringbuf.net import inquiry, local
from ringbuf.net.history import History as Samples

__all__ = ["KIND", "Watch", "find", "keys", "look", "page", "watch"]

KIND = "server"
PATIENCE_S = 1.0  # with each part of an answer
MOST_LOOKS = 600


# ---- all of them


def find(everybody: bool) -> list[Thing]:
    """Those of other users answer nobody, so that there is nothing to be said of them: they are left out in any case."""
    found = []
    for name in local.running():
        try:
            found.append(_thing(look(name)))
        except (FileNotFoundError, PermissionError):  # it went in between
            continue
    return found


def _thing(snapshot: dict[str, Any]) -> Thing:
    name = snapshot["name"]
    about = {"kind": KIND, "name": name, "key": name, "pid": snapshot["pid"], "alive": True, "user": os.geteuid()}
    if not snapshot["answers"]:
        return Thing(**about, note=snapshot["problem"])
    clients = snapshot["connected"]
    return Thing(
        **about,
        mode=snapshot["mode"],
        slots={"ready": snapshot["ready"], "free": max(0, snapshot["ahead"] - snapshot["ready"])},
        age_s=snapshot["running_s"],
        note=f"{clients} client{'' if clients == 1 else 's'}",
    )


# ---- one look


def keys(name: str) -> list[str]:
    return [name]


def look(name: str) -> dict[str, Any]:
    try:
        return {"kind": KIND, "answers": True, **inquiry.status(_legal(name), PATIENCE_S)}
    except ConnectionError as error:
        return _mute(name, str(error))


def _legal(name: str) -> str:
    """What no server may be called none is called."""
    try:
        return local.server_name(name)
    except ValueError as error:
        raise FileNotFoundError(str(error)) from None


def _mute(name: str, problem: str) -> dict[str, Any]:
    pid = inquiry.process_of(name)
    if pid is not None and is_stopped(pid):
        problem = "does not answer: its process is stopped"
    return {"kind": KIND, "answers": False, "name": name, "pid": pid, "problem": problem}


# ---- for people


def page(snapshot: dict[str, Any]) -> list[Block]:
    blocks = _head(snapshot)
    if snapshot["answers"]:
        blocks.append(_facts(snapshot))
        if snapshot["clients"]:
            blocks.append(_clients(snapshot["clients"], {}))
    return blocks


def _head(snapshot: dict[str, Any]) -> list[Block]:
    of = f" of process {snapshot['pid']}" if snapshot["pid"] else ""
    blocks: list[Block] = [Prose(f"server {snapshot['name']}{of}", "strong")]
    if not snapshot["answers"]:
        blocks.append(Prose(snapshot["problem"], "bad"))
    return blocks


def _facts(snapshot: dict[str, Any]) -> Facts:
    of = "" if snapshot["length"] is None else f"/{snapshot['length']}"
    of_epochs = "" if snapshot["epochs"] is None else f" of {snapshot['epochs']}"
    return Facts(
        [
            snapshot["mode"],
            f"epoch {snapshot['epoch']}{of_epochs}, batch {snapshot['index']}{of}",
            f"{snapshot['produced']} made, {nbytes(snapshot['produced_bytes'])}",
            f"{snapshot['ready']} of {snapshot['ahead']} ready",
            f"{snapshot['connected']} client{'' if snapshot['connected'] == 1 else 's'}",
            f"{snapshot['dropped']} dropped" if snapshot["dropped"] else "",
            f"{snapshot['refused']} refused" if snapshot["refused"] else "",
            f"running {age(snapshot['running_s'])}",
            snapshot["address"] or "",
        ]
    )


def _clients(clients: list[dict[str, Any]], acknowledged: dict[int, float]) -> Table:
    """acknowledged: batches per second, by client, where that is known; else sums are shown."""
    columns = [
        Column("client", KEEP, least=4),
        Column("process", 1, right=True),
        Column("place", 2, right=True),
        Column("sent", 5, right=True),
        Column("done", 4, right=True),
        Column("lag", 6, right=True),
        Column("held", 3, right=True),
        Column("waits", 5, right=True),
    ]
    rows = []
    for client in clients:
        place = f"{client['epoch']}:{client['index']}" if client["in_loop"] else "not in a loop"
        if "batches_per_s" in client:
            sent, done = rate(client["batches_per_s"]), rate(acknowledged.get(client["client"]))
            waits = percent(client["waiting_share"])
        else:
            sent, done, waits = str(client["sent"]), str(client["acknowledged"]), f"{client['waited_s']:.1f} s"
        where = "" if client["local"] else " (remote)"
        pid = str(client["pid"] or "")
        rows.append([client["label"] + where, pid, place, sent, done, str(client["lag"]), str(client["held"]), waits])
    return Table(columns, rows)


# ---- again and again


class Watch:
    def __init__(self, name: str):
        self._name = name
        self._pid: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._samples = Samples(self._ask, every_s=0.0)
        self._at: float | None = None
        self._done: dict[int, int] = {}
        self._acknowledged: dict[int, float] = {}
        self._rates: deque[float | None] = deque(maxlen=MOST_LOOKS)
        self._frame: dict[str, Any] = {}

    def _ask(self) -> dict[str, Any]:
        return inquiry.status(_legal(self._name), PATIENCE_S)

    def look(self) -> dict[str, Any]:
        try:
            self._samples.tick(time.monotonic())
        except ConnectionError as error:
            self._frame = _mute(self._name, str(error))
            self._rates.append(None)
            return self._frame
        report = self._samples.report()
        if report["pid"] != self._pid:  # another server by now
            self._pid, known = report["pid"], self._pid
            if known is not None:
                self._begin()
                return self.look()
        now = time.monotonic()
        elapsed_s = None if self._at is None else now - self._at
        done = {client["client"]: client["acknowledged"] for client in report["clients"]}
        if elapsed_s:
            self._acknowledged = {n: (done[n] - self._done.get(n, 0)) / elapsed_s for n in done}
            self._rates.append(report["batches_per_s"])
        self._at, self._done = now, done
        clients = [{**client, "acknowledged_per_s": self._acknowledged.get(client["client"])} for client in report["clients"]]
        self._frame = {"kind": KIND, "answers": True, "interval_s": elapsed_s, **report, "clients": clients}
        if elapsed_s is None:  # from one look there are no rates
            self._frame |= {"batches_per_s": None, "bytes_per_s": None}
        return self._frame

    def page(self) -> list[Block]:
        frame = self._frame
        blocks = _head(frame)
        if not frame["answers"]:
            return blocks
        size = "" if frame["bytes_per_s"] is None else f", {nbytes(frame['bytes_per_s'])}/s"
        blocks += [
            Prose(frame["bottleneck"]["text"]),
            _facts(frame),
            Histories([History("batches", self._rates, f"{rate(frame['batches_per_s'])}{size}")]),
            Facts([f"source at work {percent(frame['source_share'])}", f"waits for room {percent(frame['room_share'])}"]),
        ]
        if frame["clients"]:
            blocks.append(_clients(frame["clients"], self._acknowledged))
        return blocks

    def row(self) -> Row:
        frame = self._frame
        if not frame["answers"]:
            return Row(None, None, None, frame["problem"])
        share = frame["ready"] / frame["ahead"] if frame["ahead"] else None
        return Row(frame["batches_per_s"], frame["bytes_per_s"], share, frame["bottleneck"]["text"])


def watch(name: str) -> Watch:
    return Watch(name)
