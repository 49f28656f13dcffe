"""Who gets which batch: Split and Broadcast keep their promises in any order of events; the machines that say so have teeth."""

import importlib.util
from pathlib import Path

import pytest
from dispatch_models import BroadcastMachine, SplitMachine
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import ringbuf.net.broadcast
import ringbuf.net.split

QUIET = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


def run(machine, dispatcher, examples, **more):
    kind = type(machine.__name__, (machine,), {"Dispatcher": dispatcher})
    how = settings(max_examples=examples, stateful_step_count=40, derandomize=True, **QUIET, **more)
    run_state_machine_as_test(kind, settings=how)


@pytest.mark.timeout(300)
def test_split_gives_each_batch_to_one_client(thorough):
    run(SplitMachine, ringbuf.net.split.Split, 10_000 if thorough else 300)


@pytest.mark.timeout(300)
def test_broadcast_gives_each_batch_to_each_client(thorough):
    run(BroadcastMachine, ringbuf.net.broadcast.Broadcast, 10_000 if thorough else 300)


# ---- teeth: each fault is planted in a copy, and has to be found

SPLIT = [
    ("a dead client's batches are forgotten", "            self.add(batch)\n        session.open.clear()", "            pass\n        session.open.clear()"),
    ("what a leaver did not look at is forgotten", "        for batch in returned:\n            self.add(batch)", "        pass"),
    ("what is done is given again", "        if not self._is_done(batch):\n            heapq", "        if True:\n            heapq"),
    ("an epoch ends when all of it was given", "self.first_open >= length and", "not self._waiting and"),
    ("an epoch ends one batch early", "self.first_open >= length and", "self.first_open >= length - 1 and"),
    ("an epoch that all have left does not end", "return bool(inside) and min(inside) > self.epoch", "return False"),
    ("one leaver ends the epoch of all", "min(inside) > self.epoch", "max(inside) > self.epoch"),
    ("room is not looked at", "session.epoch == self.epoch and session.room > 0", "session.epoch == self.epoch and session.inside"),
    ("batches of the next epoch are given early", "self._waiting[0][0] == self.epoch:", "True:"),
    ("what a client was done with is not believed", "            self._know(index, done)", "            pass"),
    ("what is known of epochs to come is forgotten", "self._foretold[epoch] = max(first_open, index), known.union(done)", "pass"),
    ("what one is done with is not noted when it leaves", "        self._finish(finished)\n", ""),
    ("a loop ends for the first client alone", "        for session in list(self.sessions):\n            while", "        for session in self.sessions[:1]:\n            while"),
    ("one epoch is left out", "        self.epoch += 1\n", "        self.epoch += 2\n"),
]  # fmt: skip

BROADCAST = [
    ("a batch is left out for who has no room", "                        break\n                    session.epoch", "                        self._cursors[session] += 1\n                        break\n                    session.epoch"),
    ("a batch is given twice", "                    self._cursors[session] += 1\n                    yield", "                    self._cursors[session] += session.sent % 3 > 0\n                    yield"),
    ("a leaver gets the rest of its epoch", "(epoch + 1, 0))\n        session.epoch", "(epoch, 0))\n        session.epoch"),
    ("a late one begins in the midst of an epoch", "if not now and self._oldest[1] > 0:", "if False:"),
    ("who comes back begins with the oldest", "        self._skip[session] = (epoch, index)\n", ""),
    ("who comes back too late is taken in", "if not self.begins_before(epoch, index):", "if False:"),
    ("an end is passed by who is not in a loop", "                if not session.inside:\n                    break\n", "                if not session.inside:\n                    self._cursors[session] += 1\n                    continue\n"),
    ("the shelf is cleared behind the fastest", "oldest = min(self._cursors.values())", "oldest = max(self._cursors.values())"),
    ("the shelf is never cleared", "        while self._first < oldest:", "        while False:"),
    ("the slowest is waited for in vain", "        self._clear()\n        past", "        if len(self.sessions) < 2:\n            self._clear()\n        past"),
    ("ends are not told to who is full", "            elif not skipped:\n", "            elif not skipped and session.room > 0:\n"),
    ("an end is given twice", "                session.end_loop()\n                self._cursors[session] += 1\n", "                session.end_loop()\n"),
]  # fmt: skip


def planted(module, old, new):
    """A copy of a module with a fault in it."""
    text = Path(module.__file__).read_text()
    assert text.count(old) == 1, f"{module.__name__} has {old!r} {text.count(old)} times; plant the fault anew"
    copy = importlib.util.module_from_spec(importlib.util.spec_from_loader(f"{module.__name__}_with_a_fault", loader=None))
    exec(compile(text.replace(old, new), module.__file__, "exec"), copy.__dict__)
    return copy


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("old", "new"), [fault[1:] for fault in SPLIT], ids=[fault[0] for fault in SPLIT])
def test_a_fault_in_split_is_noticed(old, new):
    dispatcher = planted(ringbuf.net.split, old, new).Split
    with pytest.raises(Exception):  # noqa: B017
        run(SplitMachine, dispatcher, 3000, phases=[Phase.generate], report_multiple_bugs=False)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("old", "new"), [fault[1:] for fault in BROADCAST], ids=[fault[0] for fault in BROADCAST])
def test_a_fault_in_broadcast_is_noticed(old, new):
    dispatcher = planted(ringbuf.net.broadcast, old, new).Broadcast
    with pytest.raises(Exception):  # noqa: B017
        run(BroadcastMachine, dispatcher, 3000, phases=[Phase.generate], report_multiple_bugs=False)
