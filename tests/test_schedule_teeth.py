"""The sweeps of tests/schedule notice faults: with each of these planted in a copy of the library, one fails and says how to
repeat it."""

import os
import re
import shlex
import shutil
import subprocess
from typing import NamedTuple

import pytest
from c_build import ENVIRONMENT, ROOT, build

C = ROOT / "src/ringbuf_c"
SCHEDULE = ROOT / "tests/schedule"

pytestmark = pytest.mark.timeout(300)


class Fault(NamedTuple):
    name: str
    file: str
    text: str  # occurs once
    instead: str
    sweep: str  # program and case
    said: str


FAULTS = [
    Fault("no horizon in take", "ring.c", "rb_word_seq(map, best.word) >= horizon", "horizon == UINT64_MAX", "queue redeliver", "committed before it"),
    Fault(
        "a take that does not compare",
        "ring.c",
        """return atomic_compare_exchange_strong_explicit(&map->descs[slot.index].word, &slot.word, mine,
						       memory_order_acquire, memory_order_relaxed)
		       ? mine : 0;""",
        "atomic_store_explicit(&map->descs[slot.index].word, mine, memory_order_release); return mine;",
        "queue redeliver",
        "slot",
    ),
    Fault(
        "a claim that does not compare",
        "ring.c",
        """if (!atomic_compare_exchange_strong_explicit(&desc->word, &slot.word, mine, memory_order_seq_cst,
							     memory_order_relaxed))
			continue;""",
        "atomic_store_explicit(&desc->word, mine, memory_order_seq_cst);",
        "queue redeliver",
        "slot",
    ),
    Fault(
        "a release that does not compare",
        "ring.c",
        """ours = atomic_compare_exchange_strong_explicit(&map->descs[slot->index].word, &expected,
							       rb_word(map, RB_FREE, 0, slot->ticket),
							       memory_order_release, memory_order_relaxed);""",
        """(void)expected; ours = true; atomic_store_explicit(&map->descs[slot->index].word,
	rb_word(map, RB_FREE, 0, slot->ticket), memory_order_release);""",
        "queue twice",
        "slot",
    ),
    Fault("the end not looked at after a claim", "ring.c", "if (!is_finished(map))\n\t\t\treturn 0;", "return 0;", "queue finish", "end"),
    Fault("a claim under way forgotten at the end", "ring.c", "if (rb_word_state(word) == RB_WRITING)\n\t\t\treturn false;", "",
          "queue finish", "after the end"),
    Fault("the tag before the claim", "recover.c", "bool tagged = atomic_load_explicit(&desc->claimed, memory_order_acquire) == word;",
          "bool tagged = true;", "queue redeliver", "is listed as lost"),
    Fault("freed instead of redelivered", "recover.c", "map->header.redeliver ? rb_word", "word == 1 ? rb_word", "queue redeliver", "is dropped"),
    Fault(
        "a reaper that ignores the lock",
        "participant.c",
        "if (rb_lock(self->live, row_byte(row), F_WRLCK) < 0)\n\t\treturn false;",
        "rb_lock(self->live, row_byte(row), F_WRLCK);",
        "queue redeliver",
        "under its",
    ),
    Fault("a row given up before its slots", "recover.c", "returned += return_all(map, p, true);\n\t\trb_member_vacate(map, self, p);",
          "rb_member_vacate(map, self, p);\n\t\treturned += return_all(map, p, true);", "queue redeliver", "is given up"),
    Fault("a loss counted twice", "recover.c", "atomic_store_explicit(&row->lost, count, memory_order_relaxed);",
          "atomic_fetch_add_explicit(&row->lost, count > 0, memory_order_relaxed);", "queue reapers", "losses are counted"),
    Fault("a loss listed twice", "stats.c", "if (listed(seen, n, slot, word))\n\t\t\tcontinue;", "(void)listed;", "queue reapers", "listed"),
    Fault("a burial not finished", "recover.c", "int returned = finish_burial(map, &map->rows[p]);", "int returned = 0;",
          "queue reapers", "burial is not finished"),
    Fault("no second look after publishing", "ring.c", "\tclear_unentitled(map, slot->index, ticket, mask);\n\tRB_CRASH_POINT(commit_rechecked);",
          "", "broadcast keep", "never comes back"),
    Fault("bits that a dead producer left", "recover.c", "returned += rb_ring_clear_unentitled(map);", ";", "broadcast leave", "never comes back"),
    Fault(
        "the first ticket read before the reader is active",
        "ring.c",
        """atomic_fetch_or_explicit(&control->active, 1u << b, memory_order_seq_cst);
		RB_CRASH_POINT(subscribe_active);
		/* subscribe:F seq_cst, pairs with commit:E: ... then the first ticket: a commit that draws it or a later one sees us */
		uint64_t first = atomic_load_explicit(&control->tickets, memory_order_seq_cst);""",
        """uint64_t first = atomic_load_explicit(&control->tickets, memory_order_seq_cst);
		atomic_fetch_or_explicit(&control->active, 1u << b, memory_order_seq_cst);""",
        "broadcast keep",
        "starts before it",
    ),
    Fault("a joining reader owed nothing yet", "ring.c", "atomic_store_explicit(&reader->start, 0, memory_order_seq_cst);",
          "atomic_store_explicit(&reader->start, UINT64_MAX, memory_order_seq_cst);", "broadcast join", "from under its reader"),
    Fault("what a reader keeps ignored", "ring.c", "return atomic_load_explicit(&map->control->readers[b].keeps, memory_order_seq_cst) != 0;",
          "return false;", "broadcast two-each", "from under its reader"),
    Fault("what a reader keeps said too late", "ring.c", "held != NULL, memory_order_seq_cst", "0, memory_order_seq_cst", "broadcast nobody-stays",
          "from under its reader"),
    Fault("a reader's bits left behind", "ring.c", "if (rb_word_state(word) == RB_READY)\n\t\t\tfreed += clear_bit(map, i, ticket, 1u << b, &cleared);",
          "(void)ticket; (void)cleared;", "broadcast leave", "never comes back"),
    Fault("no second look before sleeping", "ringbuf.c",
          "uint32_t seen = rb_event_prepare(event);\n\t\trc = attempt->run(ring, attempt);\n\t\tif (rc != -EAGAIN)\n\t\t\treturn rc;\n",
          "uint32_t seen = rb_event_prepare(event);\n", "waiting one-each", "sleeps for ever"),
    Fault("a flag that does not stay", "wait.c", "&word, word | FLAG,", "&word, word,", "waiting one-each", "does not end"),
    Fault("a commit that wakes nobody", "ringbuf.c", "else\n\t\trb_event_notify(&ring->map.control->ready);", "", "waiting one-each",
          "sleeps for ever"),
    Fault("a claim that backs out unheard", "ringbuf.c", "if (rc == -EPIPE)\n\t\trb_handle_notify(ring);", "", "waiting finish", "sleeps for ever"),
]


def run(*command):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENVIRONMENT)
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def libraries():
    """What is linked around a planted fault, built from the sources as they are now."""
    folder = build("futex", "ringbuf_steps", "ringbuf_scheduler")
    return [str(folder / f"lib{name}.a") for name in ("ringbuf_scheduler", "ringbuf_steps", "ringbuf_scheduler")]


def plant(fault, folder):
    """A copy of the library's sources with the fault in it; returns the file that has it."""
    shutil.copytree(C, folder)
    text = (folder / fault.file).read_text()
    assert text.count(fault.text) == 1, (
        f"{fault.file} holds the text that {fault.name!r} replaces {text.count(fault.text)} times, not once; "
        f"plant the fault in the text as it is now:\n{fault.text}"
    )
    (folder / fault.file).write_text(text.replace(fault.text, fault.instead))
    return folder / fault.file


FLAGS = ["-std=c11", "-O1", "-w", f"-I{C}", f"-I{C}/include"]


def compile(*arguments):
    command = [*shlex.split(os.environ.get("CC") or "cc"), *FLAGS, *map(str, arguments)]
    rc, said = run(*command)
    assert rc == 0, f"{shlex.join(command)} failed:\n{said}"


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    folder = tmp_path_factory.mktemp("objects")
    for program in ("queue", "broadcast", "waiting"):
        compile("-c", SCHEDULE / f"{program}.c", "-o", folder / f"{program}.o")
    return folder


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_planted_fault_is_noticed(fault, libraries, objects, tmp_path):
    program, case = fault.sweep.split()
    source = plant(fault, tmp_path / "c")
    compile("-include", SCHEDULE / "step_atomics.h", "-c", source, "-o", tmp_path / "faulty.o")
    # What the faulty file defines is not looked for in the libraries.
    compile(objects / f"{program}.o", tmp_path / "faulty.o", *libraries, "-pthread", "-o", tmp_path / program)
    rc, output = run(str(tmp_path / program), case)
    assert rc == 1, f"the sweep '{fault.sweep}' does not notice '{fault.name}' (exit {rc}):\n{output}"
    first = output.splitlines()[0]
    assert fault.said in first, output

    again = re.search(r"--replay (\S+)", output)
    assert again, output
    rc, output = run(str(tmp_path / program), case, "--replay", again[1])
    assert rc == 1 and first in output, f"--replay {again[1]} does not show it again:\n{output}"
