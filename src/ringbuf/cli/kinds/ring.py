"""Named rings, of which nobody has to answer: what they are is read from their memory."""

from __future__ import annotations

import errno
import os
import pwd
import time
from collections import deque
from typing import Any

from ringbuf import checks, memory
from ringbuf._core import survey
from ringbuf.cli.kinds.thing import Row, Thing
from ringbuf.cli.page import KEEP, Block, Column, Facts, Histories, History, Prose, Slots, Table
from ringbuf.cli.units import age, nbytes, percent, rate

__all__ = ["KIND", "Watch", "find", "holders", "keys", "look", "page", "thing_of", "watch"]

KIND = "ring"
PREFIX = os.path.basename(memory.path_of(""))
STATES = ("ready", "reading", "writing", "free")
STUCK_S = 5.0  # what is in one hand for longer is worth a line
MOST_STUCK = 8
MOST_SLOTS = 16  # of a snapshot for people
MOST_LOOKS = 600
BLAME_LOOKS = 60
OFTEN = 0.5  # of the looks


# ---- all of them


def find(everybody: bool) -> list[Thing]:
    found = []
    for name in names():
        try:
            thing = thing_of(name, look(name))
        except FileNotFoundError:  # it went in between
            continue
        if everybody or thing.user == os.geteuid():
            found.append(thing)
    return found


def names() -> list[str]:
    """Of all that stands where rings do, whoever's it is."""
    try:
        files = os.listdir(memory.SHM)
    except OSError:
        return []
    return sorted(file[len(PREFIX) :] for file in files if file.startswith(PREFIX) and _is_legal(file[len(PREFIX) :]))


def _is_legal(name: str) -> bool:
    try:
        checks.ring_name(name)
    except ValueError:
        return False
    return True


def thing_of(name: str, seen: dict[str, Any]) -> Thing:
    return Thing(
        kind=KIND,
        name=name,
        key=name,
        pid=seen["pid"],
        alive=seen["alive"],
        mode=seen.get("mode"),
        slots=seen.get("states"),
        nbytes=seen["bytes"],
        age_s=seen["age_s"],
        note=seen["problem"],
        user=seen["user"],
    )


# ---- one look


def keys(name: str) -> list[str]:
    return [name]


def look(name: str) -> dict[str, Any]:
    if not _is_legal(name):
        raise FileNotFoundError(errno.ENOENT, "no ring can have this name", name)
    seen = survey(name)
    snapshot: dict[str, Any] = {
        "kind": KIND,
        "name": name,
        "pid": None,
        "alive": seen["alive"],
        "problem": _problem(seen),
        "readable": seen["readable"],
        "user": seen["uid"],
        "version": seen["version"] or None,
        "bytes": seen["file_bytes"],
        "age_s": max(0.0, time.time() - (seen.get("created_ns") or seen["changed_ns"]) / 1e9),
    }
    if not seen["readable"]:
        return snapshot
    stats = seen["stats"]
    peers = sorted(seen["peers"], key=lambda peer: (not peer.alive, peer.joined_ns))
    return {
        **snapshot,
        "pid": peers[0].pid if peers else None,
        "id": seen["id"],
        "mode": seen["mode"],
        "full": seen["full"],
        "slots": seen["slots"],
        "slot_bytes": seen["slot_bytes"],
        "message_bytes": seen["message_bytes"],
        "states": {state: stats[state] for state in STATES},
        **{key: stats[key] for key in ("published", "consumed", "dropped", "lost", "waits", "finished", "readers")},
        "waited_s": stats["wait_ns"] / 1e9,
        "room": seen["room"],
        "participants": [_participant(peer) for peer in peers],
        "in_use": [
            {"slot": view.index, "state": view.state, "pid": view.pid or None, "tag": view.tag, "word": f"{view.word:016x}"}
            for view in seen["views"]
        ],
    }


def _participant(peer: Any) -> dict[str, Any]:
    told = peer._asdict()
    joined_ns, wait_ns = told.pop("joined_ns"), told.pop("wait_ns")
    return {**told, "joined_s": joined_ns / 1e9, "waited_s": wait_ns / 1e9}


def _problem(seen: dict[str, Any]) -> str:
    """Why nobody of ours can attach to it, or nobody will; empty where all is well."""
    problem = seen["problem"]
    if problem == 0:
        return "" if seen["alive"] else "dead"
    if problem == errno.EACCES and seen["uid"] != os.geteuid():
        return f"of user {_user(seen['uid'])}"
    if problem == errno.EACCES:
        return "open to other users, or closed to you" if not seen["readable"] else "open to other users"
    if problem == errno.EPROTO:
        return f"layout version {seen['version']}, or another build" if seen["version"] else "another layout"
    return "no ring, or damaged"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def holders(snapshot: dict[str, Any]) -> list[int]:
    """The processes that are attached and alive."""
    return [who["pid"] for who in snapshot.get("participants", []) if who["alive"]]


def _lives(snapshot: dict[str, Any]) -> dict[int, bool]:
    """Whether each process that is or was attached lives."""
    return {who["pid"]: who["alive"] for who in snapshot["participants"]}


# ---- for people


def page(snapshot: dict[str, Any]) -> list[Block]:
    if not snapshot["readable"]:
        return [*_head(snapshot), Facts([nbytes(snapshot["bytes"]), f"last changed {age(snapshot['age_s'])} ago"])]
    held = [slot for slot in snapshot["in_use"] if slot["state"] != "ready"]
    return [
        *_head(snapshot),
        _facts(snapshot),
        Slots(snapshot["states"]),
        Facts(_sums(snapshot)),
        *([_participants(snapshot, {})] if snapshot["participants"] else []),
        *([_slots(held[:MOST_SLOTS], _lives(snapshot))] if held else []),
        *([Prose(f"and {len(held) - MOST_SLOTS} more slots", "dim")] if len(held) > MOST_SLOTS else []),
    ]


def _head(snapshot: dict[str, Any]) -> list[Block]:
    pid, alive = snapshot["pid"], snapshot["alive"]
    if alive is None or not snapshot["readable"]:
        state = "in use" if alive else "nobody uses it" if alive is False else ""
    elif alive:
        state = f"alive, process {pid}" if pid else "alive"
    else:
        state = f"dead, of process {pid}" if pid else "dead"
    problem = snapshot["problem"] if snapshot["problem"] != "dead" else ""
    blocks: list[Block] = [Prose(f"ring {snapshot['name']}: {', '.join(filter(None, [state, problem]))}", "strong")]
    if alive is False and not problem:
        blocks.append(Prose(f"All its processes ended without closing it; `ringbuf rm {snapshot['name']}` removes it.", "warn"))
    return blocks


def _facts(snapshot: dict[str, Any]) -> Facts:
    return Facts(
        [
            snapshot["mode"],
            "overwrites when full" if snapshot["full"] == "overwrite" else "",
            f"{snapshot['slots']} slots of {nbytes(snapshot['slot_bytes'])}",
            f"{nbytes(snapshot['bytes'])} in all",
            f"{age(snapshot['age_s'])} old",
            "finished" if snapshot["finished"] else "",
        ]
    )


def _sums(snapshot: dict[str, Any]) -> list[str]:
    return [
        f"{snapshot['published']} published",
        f"{snapshot['consumed']} taken",
        f"{snapshot['dropped']} dropped" if snapshot["dropped"] else "",
        f"{snapshot['lost']} lost" if snapshot["lost"] else "",
        f"{snapshot['waits']} waits, {snapshot['waited_s']:.1f} s",
        f"messages of about {nbytes(snapshot['message_bytes'])}" if snapshot["message_bytes"] else "",
    ]


def _participants(snapshot: dict[str, Any], rates: dict[int, dict[str, float | None]]) -> Table:
    """rates: by row of the table, where there are some; else sums are shown."""
    broadcast = snapshot["mode"] == "broadcast"
    columns = [
        Column("process", KEEP, right=True),
        Column("", 5),
        Column("published", 4, right=True),
        Column("taken", 4, right=True),
        Column("waits", 3, right=True),
        Column("writing", 2, right=True),
        Column("owed" if broadcast else "reading", 2, right=True),
    ]
    rows = []
    for who in snapshot["participants"]:
        rated = rates.get(who["row"])
        told = (
            [rate(rated["published_per_s"]), rate(rated["consumed_per_s"]), percent(rated["waiting_share"])]
            if rated
            else [str(who["published"]), str(who["consumed"]), f"{who['waited_s']:.1f} s"]
        )
        state = ("alive", "good") if who["alive"] else ("dead", "bad")
        rows.append([str(who["pid"]), state, *told, str(who["writing"]), str(who["owed" if broadcast else "reading"])])
    return Table(columns, rows)


def _slots(slots: list[dict[str, Any]], alive: dict[int, bool]) -> Table:
    columns = [
        Column("slot", KEEP, right=True),
        Column("", 5),
        Column("for", 4, right=True),
        Column("process", 6, right=True),
        Column("tag", 2, right=True),
    ]
    rows = [
        [
            str(slot["slot"]),
            (slot["state"], slot["state"]),
            age(slot["held_s"]) if "held_s" in slot else "",
            "" if slot["pid"] is None else f"{slot['pid']}{'' if alive.get(slot['pid'], True) else ' dead'}",
            "" if slot["tag"] is None else str(slot["tag"]),
        ]
        for slot in slots
    ]
    return Table(columns, rows)


# ---- again and again


class Watch:
    def __init__(self, name: str):
        self._name = name
        self._id: str | None = None
        self._begin()

    def _begin(self) -> None:
        self._at: float | None = None
        self._before: dict[str, Any] = {}
        self._frame: dict[str, Any] = {}
        self._rows: dict[int, dict[str, float | None]] = {}
        self._since: dict[int, tuple[str, float]] = {}  # of each slot: its word, and when that was first seen
        self._states: deque[dict[str, int]] = deque(maxlen=MOST_LOOKS)
        self._rates: deque[float] = deque(maxlen=MOST_LOOKS)

    def look(self) -> dict[str, Any]:
        snapshot, now = look(self._name), time.monotonic()
        if snapshot.get("id") != self._id:  # another ring by now
            self._begin()
            self._id = snapshot.get("id")
        elapsed_s = None if self._at is None else now - self._at
        frame = {**snapshot, "interval_s": elapsed_s}
        if snapshot["readable"]:
            frame |= self._measure(snapshot, elapsed_s)
            in_use = frame.pop("in_use")
            frame["stuck"] = self._stuck(in_use, snapshot["mode"], now)
            self._states.append(snapshot["states"])
            if frame["messages_per_s"] is not None:
                self._rates.append(frame["messages_per_s"])
            frame["bottleneck"] = self._blame(snapshot)
        self._at, self._before, self._frame = now, snapshot, frame
        return frame

    def _measure(self, snapshot: dict[str, Any], elapsed_s: float | None) -> dict[str, Any]:
        def per_s(after: dict, before: dict, key: str) -> float | None:
            return max(0.0, after[key] - before[key]) / elapsed_s if elapsed_s else None

        self._rows = {}
        earlier = {(who["row"], who["pid"]): who for who in self._before.get("participants", [])}
        participants = []
        for who in snapshot["participants"]:
            before = earlier.get((who["row"], who["pid"]))
            self._rows[who["row"]] = rated = {
                "published_per_s": per_s(who, before, "published") if before else None,
                "consumed_per_s": per_s(who, before, "consumed") if before else None,
                "waiting_share": per_s(who, before, "waited_s") if before else None,
            }
            participants.append({**who, **rated})
        published = per_s(snapshot, self._before, "published")
        return {
            "messages_per_s": published,
            "taken_per_s": per_s(snapshot, self._before, "consumed"),
            "dropped_per_s": per_s(snapshot, self._before, "dropped"),
            "bytes_per_s": None if published is None else published * snapshot["message_bytes"],
            "waits_per_s": per_s(snapshot, self._before, "waits"),
            "participants": participants,
        }

    def _stuck(self, in_use: list[dict[str, Any]], mode: str, now: float) -> list[dict[str, Any]]:
        """Slots in one hand for long, the longest first; in broadcast also messages that some reader has not released."""
        since = {}
        for slot in in_use:
            word, seen = self._since.get(slot["slot"], ("", now))
            since[slot["slot"]] = (slot["word"], seen if word == slot["word"] else now)
        self._since = since
        held = [{**slot, "held_s": now - self._since[slot["slot"]][1]} for slot in in_use]
        stuck = [slot for slot in held if slot["held_s"] >= STUCK_S and (slot["state"] != "ready" or mode == "broadcast")]
        return sorted(stuck, key=lambda slot: -slot["held_s"])

    def _blame(self, snapshot: dict[str, Any]) -> str:
        """Who holds up the other side, from how full the ring was at the last looks."""
        looks = list(self._states)[-BLAME_LOOKS:]
        if len(looks) < 3:
            return ""
        full = sum(states["free"] + states["writing"] == 0 for states in looks) / len(looks)
        empty = sum(states["ready"] == 0 for states in looks) / len(looks)
        if self._rates and not any(list(self._rates)[-BLAME_LOOKS:]):
            return "nothing moves: no message was published lately"
        if full >= OFTEN:
            return f"the consumers: the ring was full at {percent(full)} of the last {len(looks)} looks"
        if empty >= OFTEN:
            return f"the producers: nothing was ready at {percent(empty)} of the last {len(looks)} looks"
        return f"balanced: full at {percent(full)}, nothing ready at {percent(empty)} of the last {len(looks)} looks"

    def page(self) -> list[Block]:
        frame = self._frame
        if not frame["readable"]:
            return page(frame)
        blocks: list[Block] = [*_head(frame)]
        if frame["bottleneck"]:
            blocks.append(Prose(frame["bottleneck"]))
        blocks += [_facts(frame), Slots(frame["states"]), Histories(self._histories())]
        if frame["participants"]:
            blocks.append(_participants(frame, self._rows))
        stuck = frame["stuck"]
        if stuck:
            blocks += [Prose("held for long:", "warn"), _slots(stuck[:MOST_STUCK], _lives(frame))]
        if len(stuck) > MOST_STUCK:
            blocks.append(Prose(f"and {len(stuck) - MOST_STUCK} more", "dim"))
        blocks.append(Facts(_sums(frame)))
        return blocks

    def _histories(self) -> list[History]:
        frame = self._frame
        rows = []
        for state in ("ready", "reading", "writing"):
            values = [states[state] for states in self._states]
            if any(values) or state == "ready":
                rows.append(History(state, values, f"{values[-1]} of {frame['slots']}", frame["slots"], state))
        size = "" if frame["bytes_per_s"] is None else f", {nbytes(frame['bytes_per_s'])}/s"
        return [*rows, History("messages", self._rates, f"{rate(frame['messages_per_s'])}{size}")]

    def row(self) -> Row:
        frame = self._frame
        if not frame["readable"]:
            return Row(None, None, None, frame["problem"])
        note = frame["problem"] or (f"{len(frame['stuck'])} slots held for long" if frame["stuck"] else frame["bottleneck"])
        return Row(frame["messages_per_s"], frame["bytes_per_s"], frame["states"]["ready"] / frame["slots"], note)


def watch(name: str) -> Watch:
    return Watch(name)
