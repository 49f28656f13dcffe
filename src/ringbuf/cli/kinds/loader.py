"""RingLoaders from their first pass on, of which nobody has to answer: what they do is read from the page that each one shows."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ringbuf import telemetry
from ringbuf.cli import bottleneck
from ringbuf.cli.kinds.thing import Row, Thing
from ringbuf.cli.page import KEEP, Block, Column, Durations, Facts, Histories, History, Prose, Slots, Table
from ringbuf.cli.processes import is_stopped
from ringbuf.cli.units import age, duration, nbytes, percent, rate
from ringbuf.errors import CorruptSegment
from ringbuf.telemetry import Snapshot, WorkerSnapshot
from ringbuf.telemetry.rates import Rates, WorkerRates, between

__all__ = ["KIND", "There", "Watch", "find", "keys", "look", "page", "there", "watch"]

KIND = "loader"
MOST_LOOKS = 600
MOST_WORKERS = 16
MOST_STUCK = 4
RATES_S, BLAME_S = 5.0, 60.0  # stretches before the last look, of rates and of the bottleneck
KEEP_EVERY_S = 0.5  # of the looks that such a stretch may begin with
MANY_HELD = 3  # slots, that one which is used and one ahead are not
TRAINER = {"waiting": "trainer waits", "using": "trainer at work", "idle": "between passes"}
NOW = {"waiting for a task": "idle", "waiting for a slot": "no slot", "absent": "to come"}
GONE = ("ended", "dead", "absent")


# ---- all of them


class There(NamedTuple):
    """A loader's page, or what is called like one. path: None for what cannot be read, of which `problem` says why."""

    name: str
    pid: int
    path: str | None
    age_s: float | None
    problem: str = ""

    @property
    def key(self) -> str:
        return f"{self.pid}/{self.name}"


def there() -> list[There]:
    found = [There(loader.name, loader.pid, loader.path, loader.age_s) for loader in telemetry.find()]
    return found + [There(page.name, page.pid, None, None, page.problem) for page in telemetry.unreadable()]


def find(everybody: bool) -> list[Thing]:
    """Those of other users show nobody what they do: they are left out in any case."""
    found = []
    for one in there():
        try:
            found.append(_thing(one, _look(one)))
        except FileNotFoundError:  # it went in between
            continue
    return sorted(found, key=lambda thing: (thing.name, thing.pid))


def _thing(one: There, seen: dict[str, Any]) -> Thing:
    about = {"kind": KIND, "name": one.name, "key": one.key, "pid": one.pid, "alive": True, "user": os.geteuid()}
    if not seen["readable"]:
        return Thing(**about, age_s=one.age_s, note=seen["problem"])
    return Thing(**about, slots=seen["states"], nbytes=seen["bytes"], age_s=seen["age_s"], note=_note(seen))


def _note(seen: dict[str, Any]) -> str:
    many, stuck, trainer = seen["num_workers"], seen["stuck"], seen["trainer"]
    share = percent(seen["waited_share"])
    if trainer["stopped"]:
        return "the trainer is stopped"
    if stuck:
        who = f"worker {stuck[0]['worker']}" if many else "the trainer"
        return f"{who} at one batch for {age(stuck[0]['state_s'])}"
    if not trainer["batches"]:
        return f"{_workers(many)}, no batch yet"
    return f"waits for {_workers(many)} {share}" if many else f"makes batches itself {share} of its time"


def _workers(many: int) -> str:
    return f"{many or 'no'} worker{'' if many == 1 else 's'}"


# ---- one look


def keys(name: str) -> list[str]:
    """A name, the pid of a trainer, or PID/NAME: several trainers may have loaders of one name, and one may have several."""
    return [one.key for one in there() if name in (one.name, str(one.pid), one.key)]


def look(key: str) -> dict[str, Any]:
    return _look(_which(key))


def _which(key: str) -> There:
    for one in there():
        if one.key == key:
            return one
    raise FileNotFoundError(f"there is no loader {key}")


def _look(one: There) -> dict[str, Any]:
    """Of the time since it began."""
    if one.path is None:
        return _unreadable(one, one.problem)
    try:
        with _Sight(one) as sight:
            snapshot = sight.look()
    except CorruptSegment as error:
        return _unreadable(one, str(error))
    rates = between(None, snapshot)
    return _frame(one, snapshot, rates, _blame(one, snapshot, rates, f"the {age(rates.seconds)} since it began"))


def _blame(one: There, snapshot: Snapshot, rates: Rates, since: str) -> bottleneck.Bottleneck:
    return bottleneck.find(snapshot, rates, since, stopped=is_stopped(one.pid))


class _Sight:
    """A page, held open. FileNotFoundError: it is gone by now."""

    def __init__(self, one: There):
        self._path = one.path or ""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            raise FileNotFoundError(f"{one.name} ended just now") from None
        try:
            self._page = _identity(os.fstat(descriptor))
            self._reader = telemetry.Reader.of_descriptor(descriptor, one.pid)
        finally:
            os.close(descriptor)
        self._near = self._reader.look().pid == one.pid  # else it is in a container, where its workers have other pids

    def look(self) -> Snapshot:
        """FileNotFoundError when the trainer, or the loader in it, is gone: the page itself stays for whoever looks at it."""
        with contextlib.suppress(OSError):
            if _identity(os.stat(self._path)) == self._page:
                snapshot = self._reader.snapshot()
                return replace(snapshot, workers=tuple(map(_if_stopped, snapshot.workers))) if self._near else snapshot
        raise FileNotFoundError(f"{self._reader.name} is gone")

    def __enter__(self) -> _Sight:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()


def _if_stopped(worker: WorkerSnapshot) -> WorkerSnapshot:
    return replace(worker, state="stopped") if worker.state not in GONE and is_stopped(worker.pid) else worker


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _unreadable(one: There, problem: str) -> dict[str, Any]:
    return {"kind": KIND, "name": one.name, "key": one.key, "pid": one.pid, "readable": False, "problem": problem}


def _frame(one: There, snapshot: Snapshot, rates: Rates, found: bottleneck.Bottleneck) -> dict[str, Any]:
    """What is known of it, as JSON has it. rates: of the time that `interval_s` says."""
    trainer = snapshot.consumer
    by_id = {worker.id: worker for worker in rates.workers}
    return {
        "kind": KIND,
        "name": one.name,
        "key": one.key,
        "pid": one.pid,
        "readable": True,
        "problem": "",
        "program": snapshot.program,
        "age_s": max(0.0, (snapshot.taken_ns - snapshot.started_ns) / 1e9),
        "num_workers": snapshot.num_workers,
        "passes": snapshot.passes,
        "epoch": snapshot.epoch,
        "length": snapshot.length,
        "slots": snapshot.slots,
        "slot_bytes": snapshot.slot_bytes,
        "bytes": snapshot.slots * snapshot.slot_bytes or None,
        "states": _states(snapshot),
        "interval_s": rates.seconds,
        "batches_per_s": rates.batches_per_s,
        "bytes_per_s": rates.bytes_per_s,
        "wait_share": rates.wait,
        "use_share": rates.use,
        "waited_share": rates.waited,
        "trainer": {
            "stopped": is_stopped(one.pid),
            "state": trainer.state,
            "state_s": _since_s(snapshot, trainer.since_ns),
            "batch": trainer.batch,
            "batches": trainer.batches,
            "bytes": trainer.nbytes,
            "copies": trainer.copies,
            "waited_s": trainer.wait_ns / 1e9,
            "used_s": trainer.use_ns / 1e9,
            "waits": list(trainer.waits),
            "held": trainer.held,
            "ready": trainer.ready,
            "out": trainer.out,
            "restarts": trainer.restarts,
            "errors": trainer.errors,
        },
        "workers": [_worker(snapshot, worker, by_id[worker.id]) for worker in snapshot.workers],
        "stuck": [
            {"worker": worker.id, "pid": worker.pid, "state": worker.state, "batch": worker.batch, "state_s": seconds}
            for worker, seconds in bottleneck.long_at_work(snapshot)
        ],
        "bottleneck": found._asdict(),
    }


def _states(snapshot: Snapshot) -> dict[str, int] | None:
    """Slots, as the trainer last knew them: batches that are made, those it looks at, and those that workers were asked for."""
    left, slots = snapshot.slots, {}
    trainer = snapshot.consumer
    for state, many in (
        ("ready", trainer.ready),
        ("reading", trainer.held),
        ("writing", max(0, trainer.out - trainer.ready)),
    ):
        slots[state] = min(left, many)
        left -= slots[state]
    return {**slots, "free": left} if snapshot.slots else None


def _worker(snapshot: Snapshot, worker: WorkerSnapshot, rates: WorkerRates) -> dict[str, Any]:
    return {
        "worker": worker.id,
        "pid": worker.pid,
        "state": worker.state,
        "state_s": _since_s(snapshot, worker.since_ns),
        "batch": worker.batch,
        "batches": worker.batches,
        "samples": worker.samples,
        "bytes": worker.nbytes,
        "loaded_s": worker.load_ns / 1e9,
        "collated_s": worker.collate_ns / 1e9,
        "waited_for_tasks_s": worker.wait_task_ns / 1e9,
        "waited_for_slots_s": worker.wait_slot_ns / 1e9,
        "batches_per_s": rates.batches_per_s,
        "samples_per_s": rates.samples_per_s,
        "bytes_per_s": rates.bytes_per_s,
        "load_s_per_batch": rates.load_s,
        "collate_s_per_batch": rates.collate_s,
        "load_share": rates.load,
        "collate_share": rates.collate,
        "wait_task_share": rates.wait_task,
        "wait_slot_share": rates.wait_slot,
    }


def _since_s(snapshot: Snapshot, since_ns: int) -> float:
    return max(0.0, (snapshot.taken_ns - since_ns) / 1e9)


# ---- for people


def page(snapshot: dict[str, Any]) -> list[Block]:
    if not snapshot["readable"]:
        return _head(snapshot)
    return [
        *_head(snapshot),
        *_troubles(snapshot),
        _facts(snapshot),
        *([Slots(snapshot["states"])] if snapshot["states"] else []),
        *_crew(snapshot),
        *_waits(snapshot, snapshot["trainer"]["waits"]),
        Facts(_sums(snapshot)),
    ]


def _head(snapshot: dict[str, Any]) -> list[Block]:
    program = f", {snapshot['program']}" if snapshot.get("program") else ""
    blocks: list[Block] = [Prose(f"loader {snapshot['name']} of process {snapshot['pid']}{program}", "strong")]
    if snapshot["problem"]:
        blocks.append(Prose(snapshot["problem"], "bad"))
    return blocks


def _troubles(snapshot: dict[str, Any]) -> list[Block]:
    """Who holds up whom, and what is at one thing for long."""
    found = snapshot["bottleneck"]
    blocks: list[Block] = [Prose(found["text"], "bad" if found["kind"] == "stuck" else "")]
    stuck = [one for one in snapshot["stuck"] if one["worker"] != found["worker"] or found["kind"] != "stuck"]
    for one in stuck[:MOST_STUCK]:
        batch = "" if one["batch"] is None else f" batch {one['batch']}"
        who = f"worker {one['worker']}, process {one['pid']}" if snapshot["num_workers"] else "the trainer itself"
        blocks.append(Prose(f"{who}: {one['state']}{batch} for {age(one['state_s'])}", "warn"))
    if len(stuck) > MOST_STUCK:
        blocks.append(Prose(f"and {len(stuck) - MOST_STUCK} more workers", "warn"))
    return blocks


def _facts(snapshot: dict[str, Any]) -> Facts:
    trainer = snapshot["trainer"]
    at = "" if trainer["batch"] is None else f", batch {trainer['batch'] + 1}"
    of = f" of {snapshot['length']}" if at and snapshot["length"] is not None else ""
    epoch = "" if snapshot["epoch"] is None else f", epoch {snapshot['epoch']}"
    for_long = f" for {age(trainer['state_s'])}" if trainer["state_s"] >= 1 else ""
    return Facts(
        [
            _workers(snapshot["num_workers"]),
            f"{snapshot['slots']} slots of {nbytes(snapshot['slot_bytes'])}" if snapshot["slots"] else "",
            f"pass {snapshot['passes']}{epoch}{at}{of}",
            f"{TRAINER.get(trainer['state'], trainer['state'])}{for_long}",
            f"{age(snapshot['age_s'])} old",
        ]
    )


def _waits(snapshot: dict[str, Any], waits: Sequence[int]) -> list[Block]:
    """How long next() took, and how often."""
    total = sum(waits)
    if not total:
        return []
    below = [sum(waits[: bit + 1]) for bit in range(len(waits))]
    half = next(bit for bit, many in enumerate(below) if many * 2 >= total)
    longest = max(bit for bit, many in enumerate(waits) if many)
    said = [
        f"next() took {percent(snapshot['wait_share'])} of the time",
        f"half of {total} calls within {_about(half)}",
        f"all within {_about(longest)}" if longest < len(waits) - 1 else "",
    ]
    return [Durations("next()", waits), Facts(said)]


def _about(bit: int) -> str:
    """2**bit nanoseconds, as the axis has them."""
    step, rest = divmod(bit, 10)
    return f"about {2**rest} {('ns', 'us', 'ms', 's', 'ks')[step]}"


def _crew(snapshot: dict[str, Any]) -> list[Block]:
    workers = snapshot["workers"]
    if not workers:
        return []
    stuck = {one["worker"] for one in snapshot["stuck"]}
    first = sorted(workers, key=lambda worker: (worker["worker"] not in stuck, worker["worker"]))[:MOST_WORKERS]
    shown = sorted(first, key=lambda worker: worker["worker"])
    more = len(workers) - len(shown)
    blocks: list[Block] = [_table(shown, stuck, snapshot["num_workers"])]
    return [*blocks, Prose(f"and {more} more workers", "dim")] if more else blocks


def _each(worker: dict[str, Any]) -> float | None:
    """What a batch takes, of those that were made lately, or else of all."""
    if worker["load_s_per_batch"] is not None:
        return worker["load_s_per_batch"] + worker["collate_s_per_batch"]
    return (worker["loaded_s"] + worker["collated_s"]) / worker["batches"] if worker["batches"] else None


def _table(workers: Iterable[dict[str, Any]], stuck: set[int], num_workers: int) -> Table:
    columns = [
        Column("worker", KEEP),
        Column("process", 2, right=True),
        Column("made", 6, right=True),
        Column("each", 5, right=True),
        Column("loads", 4, right=True),
        Column("collates", 3, right=True),
        Column("idle", 4, right=True),
        Column("no slot", 3, right=True),
        Column("now", 8),
        Column("batch", 1, right=True),
        Column("for", 7, right=True),
    ]
    rows: list[Sequence[str | tuple[str, str]]] = []
    for worker in workers:
        each = _each(worker)
        state = worker["state"]
        bad = "bad" if state in ("dead", "stopped") else "warn" if worker["worker"] in stuck else ""
        rows.append(
            [
                str(worker["worker"]) if num_workers else "trainer",
                str(worker["pid"] or ""),
                rate(worker["batches_per_s"]),
                "-" if each is None else duration(each),
                percent(worker["load_share"]),
                percent(worker["collate_share"]),
                percent(worker["wait_task_share"]) if num_workers else "",
                percent(worker["wait_slot_share"]) if worker["wait_slot_share"] >= 0.005 else "",
                (NOW.get(state, state), bad),
                "" if worker["batch"] is None else str(worker["batch"]),
                (age(worker["state_s"]), bad),
            ]
        )
    return Table(columns, rows)


def _sums(snapshot: dict[str, Any]) -> list[str]:
    trainer = snapshot["trainer"]
    return [
        f"{trainer['batches']} batches, {nbytes(trainer['bytes'])}",
        f"waited {duration(trainer['waited_s'])}, used {duration(trainer['used_s'])}",
        f"{trainer['copies']} copied" if trainer["copies"] else "",
        f"{trainer['restarts']} of the workers replaced" if trainer["restarts"] else "",
        f"{trainer['errors']} samples failed" if trainer["errors"] else "",
    ]


# ---- again and again


class Watch:
    def __init__(self, key: str):
        self._key = key
        self._sight: _Sight | None = None

    def _begin(self) -> None:
        """With a page; the loader may have made another one since."""
        self._there = _which(self._key)
        self._looks: deque[Snapshot] = deque()
        self._before: Snapshot | None = None
        self._states: deque[dict[str, int]] = deque(maxlen=MOST_LOOKS)
        self._waiting: deque[float] = deque(maxlen=MOST_LOOKS)
        self._rates: deque[float] = deque(maxlen=MOST_LOOKS)
        self._waits: Sequence[int] = ()
        self._keeps: str = ""
        self._frame: dict[str, Any] = {}
        self._sight = None if self._there.path is None else _Sight(self._there)

    def look(self) -> dict[str, Any]:
        try:
            snapshot = self._snapshot()
        except CorruptSegment as error:
            self._sight = None
            self._frame = _unreadable(self._there, str(error))
        else:
            self._frame = _unreadable(self._there, self._there.problem) if snapshot is None else self._measure(snapshot)
        return self._frame

    def _snapshot(self) -> Snapshot | None:
        """None: there is something, and it is no page."""
        if self._sight is not None:
            try:
                return self._sight.look()
            except FileNotFoundError:
                pass
        self._begin()
        return self._sight.look() if self._sight is not None else None

    def _measure(self, snapshot: Snapshot) -> dict[str, Any]:
        before, recent, minute = self._before, self._ago(snapshot, RATES_S), self._ago(snapshot, BLAME_S)
        self._before = snapshot
        if not self._looks or snapshot.taken_ns - self._looks[-1].taken_ns >= KEEP_EVERY_S * 1e9:
            self._looks.append(snapshot)
        rates, judged = between(recent, snapshot), between(minute, snapshot)
        since = f"the {age(judged.seconds)} since it began" if minute is None else _stretch(judged.seconds)
        frame = _frame(self._there, snapshot, rates, _blame(self._there, snapshot, judged, since))
        if frame["states"]:
            self._states.append(frame["states"])
        if before is not None:
            self._rates.append(rates.batches_per_s)
            self._waiting.append(between(before, snapshot).wait)
        self._waits = judged.waits
        self._keeps = self._kept(snapshot, rates)
        return frame

    def _ago(self, snapshot: Snapshot, seconds: float) -> Snapshot | None:
        """The look that such a stretch begins with: the oldest one in it, or else the last one before; None: there is none."""
        while self._looks and snapshot.taken_ns - self._looks[0].taken_ns > BLAME_S * 1.05e9:
            self._looks.popleft()
        fitting = (look for look in self._looks if snapshot.taken_ns - look.taken_ns <= seconds * 1.05e9)
        return next(fitting, self._before)

    def _kept(self, snapshot: Snapshot, rates: Rates) -> str:
        """Whether the trainer holds on to batches."""
        trainer, slots = snapshot.consumer, snapshot.slots
        if rates.copies and self._rates:
            return (
                f"{rates.copies} of {rates.batches} batches were copied: the trainer looks at {trainer.held} of {slots} slots; "
                "keep fewer batches, or make more slots"
            )
        looks = list(self._states)[-10:]
        least = min((states["reading"] for states in looks), default=0)
        if len(looks) >= 3 and least >= MANY_HELD and least * 2 > slots:
            return f"the trainer keeps batches: at the last {len(looks)} looks it had {least} of {slots} slots or more"
        return ""

    def page(self) -> list[Block]:
        frame = self._frame
        if not frame["readable"]:
            return page(frame)
        return [
            *_head(frame),
            *_troubles(frame),
            *([Prose(self._keeps, "warn")] if self._keeps else []),
            _facts(frame),
            *([Slots(frame["states"])] if frame["states"] else []),
            Histories(self._histories()),
            *_crew(frame),
            *_waits(frame, self._waits),
            Facts(_sums(frame)),
        ]

    def _histories(self) -> list[History]:
        frame, rows = self._frame, []
        for state in ("ready", "reading", "writing") if self._states else ():
            values = [states[state] for states in self._states]
            if any(values) or state == "ready":
                rows.append(History(state, values, f"{values[-1]} of {frame['slots']}", frame["slots"], state))
        rows.append(History("waits", self._waiting, percent(self._waiting[-1] if self._waiting else None), 1.0, "warn"))
        size = f"{rate(frame['batches_per_s'])}, {nbytes(frame['bytes_per_s'])}/s"
        return [*rows, History("batches", self._rates, size)]

    def row(self) -> Row:
        frame = self._frame
        if not frame["readable"]:
            return Row(None, None, None, frame["problem"])
        share = frame["states"]["ready"] / frame["slots"] if frame["states"] else None
        return Row(frame["batches_per_s"], frame["bytes_per_s"], share, frame["bottleneck"]["text"])


def _stretch(seconds: float) -> str:
    return "the last minute" if 55 <= seconds <= 65 else f"the last {age(seconds)}"


def watch(key: str) -> Watch:
    return Watch(key)
