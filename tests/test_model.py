"""Models of the ring: every schedule and death of tests/model/*.pml under spin, the orders of tests/model/*.cpp under relacy.

What a model shows and leaves out stands in its head. Each is checked in several sizes, and again with one fault planted in it, a
mutant, which must be found, and for the right reason. By hand, in an empty folder:

    spin -a -DPRODUCERS=2 -DNO_HORIZON .../tests/model/queue.pml && gcc -O2 -DSAFETY -o pan pan.c && ./pan -m1000000
    spin -p -g -l -k queue.pml.trail -DPRODUCERS=2 -DNO_HORIZON .../tests/model/queue.pml          # shows how it went wrong
"""

import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from test_ordering_labels import SOURCES, Label, check_file

MODELS = Path(__file__).parent / "model"
CC = os.environ.get("CC", "gcc")
CXX = os.environ.get("CXX", "g++")
MEMORY_MIB = 4000

pytestmark = pytest.mark.timeout(600)


def need(command, package):
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not on this machine: apt-get install {package}")


def run(*command, cwd=None):
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=500
    )
    return done.returncode, done.stdout


# ---- spin ------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    model: str
    flags: str  # NAME or NAME=VALUE, each a -D
    finds: str = ""  # what a mutant must violate; of a model as it is, nothing

    def __str__(self):
        return f"{self.model}-{self.flags or 'as-it-is'}".replace(" ", "-")


# Each of a ring's sizes is one that no other one contains.
HOLDS = [
    Case("queue", "PRODUCERS=2"),
    Case("queue", "MESSAGES=2 CONSUMERS=2"),
    Case("queue", "PRODUCERS=2 KILLS=1 MORTAL=3"),
    Case("queue", "CONSUMERS=2 KILLS=1 MORTAL=2"),
    Case("queue", "CONSUMERS=2 KILLS=1 MORTAL=2 REDELIVER=0"),
    Case("queue", "REAPERS=1 KILLS=2 MORTAL=5"),  # the reaper dies too
    Case("queue", "CONSUMERS=2 LATE=2 KILLS=1 MORTAL=2"),
    Case("queue", "PRODUCERS=2 LATE=1 KILLS=1 MORTAL=1"),  # somebody becomes the dead one
    Case("queue", "SLOTS=1 ANY_END ABORTS KILLS=1 MORTAL=1"),
    Case("queue", "PRODUCERS=2 SLOTS=1 ANY_END"),
    Case("queue", "PRODUCERS=2 SLOTS=1 KILLS=1 MORTAL=1"),  # the other one needs the slot of the dead
    Case("queue", "OVERWRITE MESSAGES=3"),
    Case("queue", "DAMAGE"),
    Case("broadcast", "RESIDENT=1"),
    Case("broadcast", "STAYERS=0 LIVES=2 MESSAGES=2"),
    Case("broadcast", "VISITORS=0 PRODUCERS=2"),
    Case("broadcast", "ENTRIES=1"),  # used again
    Case("broadcast", "STAYERS=0 LIVES=2 KILLS=2 MORTAL=5"),  # a producer, then its reaper
    Case("broadcast", "STAYERS=0 KILLS=2 MORTAL=6"),  # a reader, then its reaper
    Case("event", ""),
    Case("event", "WAITERS=3"),
    Case("event", "BELLS"),
    Case("event", "BELLS KINDS=2 NOTIFIERS=1"),
    Case("event", "KINDS=2 IDLE=1"),
    Case("event", "KILLS=1 WAITERS_ONLY"),
    Case("event", "KILLS=1 WAITERS_ONLY BELLS"),
    Case("event", "KILLS=1 SLICES"),
    Case("event", "KILLS=1 SLICES BELLS NOTIFIERS=1"),
    Case("event", "BELLS KINDS=2 NOTIFIERS=1 IDLE=1 SLICES"),
    Case("store_buffer", ""),
]

HOLDS_THOROUGH = [
    Case("queue", "PRODUCERS=2 CONSUMERS=2"),
    Case("queue", "PRODUCERS=2 MESSAGES=2"),
    Case("queue", "PRODUCERS=2 MESSAGES=2 CONSUMERS=2"),
    Case("queue", "PRODUCERS=2 CONSUMERS=2 KILLS=1 MORTAL=5"),
    Case("queue", "PRODUCERS=2 CONSUMERS=1 REAPERS=1 KILLS=1 MORTAL=1 LATE=1"),
    Case("queue", "CONSUMERS=2 REAPERS=1 KILLS=1 MORTAL=2 MESSAGES=2"),
    Case("queue", "REAPERS=2 KILLS=2 MORTAL=5"),
    Case("queue", "PRODUCERS=2 KILLS=2 MORTAL=3"),
    Case("queue", "PRODUCERS=2 SLOTS=1 ANY_END ABORTS KILLS=1 MORTAL=1"),
    Case("queue", "PRODUCERS=2 OVERWRITE MESSAGES=2"),
    Case("queue", "SLOTS=3 PRODUCERS=2 MESSAGES=2"),
    Case("broadcast", "RESIDENT=1 MESSAGES=2 LIVES=2"),
    Case("broadcast", "VISITORS=0 PRODUCERS=2 MESSAGES=2"),
    Case("broadcast", "RESIDENT=1 KILLS=1 MORTAL=5"),
    Case("broadcast", "ENTRIES=1 KILLS=1 MORTAL=5 MESSAGES=2"),
    Case("broadcast", "STAYERS=0 VISITORS=2"),
    Case("event", "WAITERS=3 NOTIFIERS=3"),
    Case("event", "BELLS IDLE=1"),
    Case("event", "KILLS=2 SLICES BELLS KINDS=2"),
]

MUTANTS = [
    Case("queue", "NO_HORIZON MESSAGES=2", "in_order"),
    Case("queue", "OLD_HORIZON", "honest_is_not_damage"),
    Case("queue", "NO_LOCK REAPERS=1 KILLS=1 MORTAL=1", "still_ours"),
    Case("queue", "EARLY_UNLOCK PRODUCERS=2 LATE=1 REAPERS=1 KILLS=1 MORTAL=2", "still_ours"),
    Case("queue", "JOIN_BLIND CONSUMERS=2 LATE=2 KILLS=1 MORTAL=2", "each_committed_is_gone"),
    Case("queue", "OWNER_LATER KILLS=1 MORTAL=1", "invalid end state"),
    Case("queue", "PLAIN_CLAIM PRODUCERS=2", "still_ours"),
    Case("queue", "FRESH_TICKET CONSUMERS=2 MESSAGES=2 KILLS=1 MORTAL=2", "in_order"),
    Case("queue", "COUNT_WITHOUT_NOTE REAPERS=1 KILLS=2 MORTAL=5", "each_loss_counted_once"),
    Case("queue", "COUNT_BEFORE_NOTE REAPERS=1 KILLS=2 MORTAL=5", "each_loss_counted_once"),
    Case("queue", "NOTE_AFTER_FREE REAPERS=1 KILLS=2 MORTAL=5", "each_loss_counted_once"),
    Case("queue", "ANY_TAG KILLS=1 MORTAL=1 MESSAGES=2 SLOTS=1", "tag_is_true"),
    Case("queue", "STALE_FREE ABORTS KILLS=1 MORTAL=1 MESSAGES=2 SLOTS=1", "tag_is_true"),
    Case("queue", "NO_SECOND_LOOK ANY_END", "every_slot_is_free"),
    Case("queue", "WORDS_FIRST ANY_END", "every_slot_is_free"),
    Case("queue", "NO_LAST_REAP CONSUMERS=2 KILLS=1 MORTAL=2", "nothing_left_with_the_dead"),
    Case("broadcast", "NO_RECHECK", "every_slot_is_free"),
    Case("broadcast", "MASK_FIRST VISITORS=0", "all_owed_was_got"),
    Case("broadcast", "START_FIRST VISITORS=0", "all_owed_was_got"),
    Case("broadcast", "OWED_NOTHING_YET VISITORS=0", "all_owed_was_got still_ours"),
    Case("broadcast", "NO_HORIZON VISITORS=0 MESSAGES=2", "in_order"),
    Case("broadcast", "KEEPS_IGNORED STAYERS=0", "still_ours"),
    Case("broadcast", "KEEPS_LATE STAYERS=0", "still_ours"),
    Case("broadcast", "SWEEPS_HELD STAYERS=0", "still_ours"),
    Case("broadcast", "NO_LAST_SWEEP STAYERS=0 MESSAGES=2", "every_slot_is_free"),
    Case("broadcast", "OWNER_FIRST ENTRIES=1", "all_owed_was_got"),
    Case("broadcast", "NO_REAPERS_SWEEP STAYERS=0 KILLS=1 MORTAL=1", "every_slot_is_free"),
    Case("event", "NO_SECOND_LOOK", "nobody_sleeps_beside_it"),
    Case("event", "CARELESS_SLEEP", "nobody_sleeps_beside_it"),
    Case("event", "WAKE_ONE", "nobody_sleeps_beside_it"),
    Case("event", "EPOCH_STAYS", "nobody_sleeps_beside_it"),
    Case("event", "NOTIFY_FIRST", "nobody_sleeps_beside_it"),
    Case("event", "BELLS KINDS=2 NOTIFIERS=1 ONE_BELL", "nobody_sleeps_beside_it"),
    # No mutants, but why a sleep is bounded: without slices these lose a wake-up.
    Case("event", "KILLS=1", "nobody_sleeps_beside_it"),
    Case("event", "KILLS=1 BELLS", "nobody_sleeps_beside_it"),
    Case("event", "BELLS KINDS=2 NOTIFIERS=1 IDLE=1", "nobody_sleeps_beside_it"),
    Case("store_buffer", "NO_FENCE_BEFORE_THE_LOOK", "one_sees_the_other"),
    Case("store_buffer", "NO_FENCE_BEFORE_THE_FLAG", "one_sees_the_other"),
]


# Steps that no size of HOLDS takes, and why they are there.
NEVER = [
    ("producer", "||finished)||", "waiting for a slot, in the sizes whose ring is never full"),
    ("producer", "(!(joined[N])&&(lock[N]==N))", "joining late: those who do are consumers"),
    ("producer", "(p<(((N+N)+N)-N))", "as before"),
    ("producer", "p = N", "as before"),
    ("reaper", "(!(w))", "bits of the second entry: where producers die, one reader comes and goes, in the first"),
    ("reaper", "else", "as before"),
    ("reaper", "b = N", "the reaper's own reset"),
]


class Result(NamedTuple):
    output: str
    states: int
    unreached: frozenset  # of (process, statement)
    existing: frozenset

    def found(self):
        """What the search found first, or an empty string."""
        match = re.search(r"^pan:\d+: (.*) \(at depth", self.output, re.MULTILINE)
        return match[1] if match else ""


@functools.cache
def search(case, large=False):
    need("spin", "spin")
    defines = [f"-D{flag}" for flag in case.flags.split()]
    # A mutant is found early, and a small model is searched sooner than compiled well.
    how = ["-O2", "-DCOLLAPSE"] if large else ["-O0"]
    with tempfile.TemporaryDirectory() as folder:
        rc, said = run("spin", "-a", *defines, MODELS / f"{case.model}.pml", cwd=folder)
        assert rc == 0 and "Error" not in said, f"spin refuses the model:\n{said}"
        rc, said = run(CC, "-w", *how, "-DSAFETY", f"-DMEMLIM={MEMORY_MIB}", "-o", "pan", "pan.c", cwd=folder)
        assert rc == 0, f"what spin made does not compile:\n{said}"
        # In event.pml a sleeper for whom nothing is left sleeps for ever; its init tells the others from it.
        options = ["-E"] if case.model == "event" else []
        _, output = run("./pan", "-m1000000", *options, cwd=folder)
        _, table = run("./pan", "-d", cwd=folder)
    unreached, process = set(), ""
    for line in output.splitlines():
        if match := re.match(r"unreached in (?:proctype |init)(\w*)", line):
            process = match[1]
        elif match := re.match(r'\t\S*?:\d+, state \d+, "(.*)"', line):
            unreached.add((process, match[1]))
    existing = set()
    for line in table.splitlines():
        if match := re.match(r"(?:proctype|init)\s*(\w*)", line):
            process = match[1]
        elif match := re.match(r"\tstate .* => (.*)", line):
            existing.add((process, match[1]))
    states = re.search(r"(\d+) states, stored", output)
    return Result(output, int(states[1]) if states else 0, frozenset(unreached), frozenset(existing))


def holds(case, large, figures):
    result = search(case, large)
    assert not result.found(), f"{case} violates {result.found()}:\n{result.output}"
    assert re.search(r"errors: 0$", result.output, re.MULTILINE), result.output
    for flaw in ("max search depth too small", "out of memory", "Search not completed", "reached -DMEMLIM", "hash table full"):
        assert flaw not in result.output, result.output
    assert "Full statespace search" in result.output, result.output
    figures(model=case.model, size=case.flags.replace(" ", ",").replace("=", ":") or "smallest", states=result.states)


@pytest.mark.parametrize("case", HOLDS, ids=str)
def test_the_model_holds(case, figures):
    holds(case, False, figures)


@pytest.mark.thorough
@pytest.mark.parametrize("case", HOLDS_THOROUGH, ids=str)
def test_the_model_holds_in_larger_sizes(case, figures):
    holds(case, True, figures)


@pytest.mark.parametrize("case", MUTANTS, ids=str)
def test_a_mutant_is_found(case):
    result = search(case)
    assert result.found(), f"{case} was not found:\n{result.output}"
    assert any(result.found().endswith(name) for name in (case.finds, *case.finds.split())), result.output


@pytest.mark.parametrize("model", sorted({case.model for case in HOLDS}))
def test_every_step_is_taken(model):
    """Of each process, in some size: a step that no schedule takes shows nothing. Numbers differ between sizes."""

    def plain(steps):
        return {(process, re.sub(r"\d+", "N", step)) for process, step in steps if process and not step.startswith("D_STEP")}

    results = [search(case, False) for case in HOLDS if case.model == model]
    taken = set().union(*(plain(result.existing) - plain(result.unreached) for result in results))
    never = set().union(*(plain(result.unreached) for result in results)) - taken
    never = {step for step in never if not any(process == step[0] and text in step[1] for process, text, _ in NEVER)}
    assert not never


def test_every_mutant_of_a_model_is_tried():
    """A mutant is an #ifdef, #if defined or #ifndef whose line says so."""
    for model in {case.model for case in HOLDS}:
        text = (MODELS / f"{model}.pml").read_text()
        marked = set(re.findall(r"^#(?:if|ifdef|ifndef|elif)\b.*?(\w+)\)? /\* mutant", text, re.MULTILINE))
        marked |= set(re.findall(r"NO_FENCE_BEFORE\w+", text))
        tried = {flag for case in MUTANTS if case.model == model for flag in case.flags.split()}
        assert marked <= tried


# ---- relacy ----------------------------------------------------------------------------------------------

# Each test of tests/model/*.cpp, and what must not be weaker in it. Several labels at once: either one would do alone.
ORDERS = {
    "ring": {
        "publish": ["commit:C=relaxed", "take:C=relaxed take:D=relaxed", "release:A=relaxed", "claim:C=relaxed"],
        "readers": ["clear:B=relaxed", "clear:B=acquire", "claim:C=release"],
        "fifo": ["commit:A=acquire", "take:A=relaxed", "take:A=none", "commit:C=relaxed", "take:H=none"],
        "end": ["claim:C=acq_rel", "finished:A=acquire", "finish:A=release", "drained:A=acquire"],
        "join": ["commit:E=acq_rel", "commit:F=acquire", "subscribe:C=acq_rel", "subscribe:F=acquire"],
        "leave": ["commit:G=acq_rel", "unsubscribe:A=acq_rel", "unsubscribe:B=acquire", "entitled:A=acquire"],
        "keep": ["commit:G=acq_rel", "unsubscribe:B=acquire"],
    },
    "sleep": {
        "flag": ["prepare:B=none", "prepare:B=acq_rel", "notify:A=none", "notify:A=acq_rel"],
        "bell": ["sleep:A=acq_rel", "sleep:B=acquire", "notify:C=acq_rel", "ring_bell:A=acquire"],
        "tag": ["claim:H=relaxed", "bury:A=relaxed"],
        "note": ["bury:B=relaxed", "finish_burial:A=relaxed", "finish_burial:H=relaxed"],
        "withdrawn": ["withdrawn:B=release", "taken:C=acquire", "taken:B=acq_rel", "withdrawn:C=acquire"],
    },
}
TESTS = [(program, test) for program, tests in ORDERS.items() for test in tests]
WEAKER = [(program, test, change) for program, test in TESTS for change in ORDERS[program][test]]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """program(name) is the path of that program, built when first asked for."""
    need(CXX, "g++")
    folder = tmp_path_factory.mktemp("relacy")
    (folder / "probe.cpp").write_text("#include <relacy/relacy.hpp>\n")
    if run(CXX, "-E", folder / "probe.cpp")[0] != 0:
        pytest.skip("relacy is not on this machine: apt-get install relacy-dev")

    @functools.cache
    def build(name):
        rc, said = run(CXX, "-O0", "-w", "-o", folder / name, MODELS / f"{name}.cpp")
        assert rc == 0, said
        return folder / name

    return build


@pytest.mark.parametrize("name, test", TESTS)
def test_the_orders_suffice(program, figures, name, test):
    rc, output = run(program(name), test)
    assert rc == 0, output
    figures(orders=test, schedules=int(re.search(r"schedules: (\d+)", output)[1]))


@pytest.mark.parametrize("name, test, change", WEAKER, ids=lambda value: value.replace(" ", "-"))
def test_a_weaker_order_is_noticed(program, name, test, change):
    rc, output = run(program(name), test, *change.split())
    assert rc == 1, f"relacy finds nothing wrong with {change}:\n{output}"
    assert re.search(r"USER ASSERT FAILED|DATA RACE", output), output


def test_the_orders_are_those_of_the_sources():
    labels = {}
    for source in SOURCES:
        labels |= {found.name: found.order for found in check_file(source.name, source.read_text()) if isinstance(found, Label)}
    for path in MODELS.glob("*.cpp"):
        said = re.findall(r'\b(?:order|fence)\("(\w+:\w+)", (\w+)', path.read_text())
        assert said
        assert dict(said) == {name: labels.get(name) for name, _ in said}, path.name
    for path in MODELS.glob("*.pml"):
        named = set(re.findall(r"\b([a-z_]+:[A-Z])\b", path.read_text()))
        assert named <= labels.keys(), path.name
