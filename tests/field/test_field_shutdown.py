"""The end: of the main process by a kill, of the interpreter with loaders alive, of programs with work under way."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest
from field_loaders import Theirs, both
from processes import eventually, script
from scene import segments

IMPORTS = {"numpy": "from ringbuf import RingLoader", "torch": "from ringbuf.torch import RingLoader"}

# ---- the main process is killed -----------------------------------------------------------------------------------

SITUATIONS = ["mid-epoch", "between epochs", "in the dataset", "in a thread"]


class Endless:
    def __len__(self):
        return 1 << 40

    def __getitem__(self, index):
        return index


class Stuck(Endless):
    def __getitem__(self, index):
        signal.pause()


def load_until_killed(Loader, situation, report):
    """In a process of its own: say who the workers are, then load for ever."""
    if situation == "between epochs":
        loader = Loader(list(range(4)), 2, num_workers=2, persistent_workers=True)
        list(loader)
        iterator = loader._iterator
    else:
        iterator = iter(Loader(Stuck() if situation == "in the dataset" else Endless(), 2, num_workers=2))
    os.write(report, " ".join(str(worker.pid) for worker in iterator._workers).encode() + b"\n")
    if situation == "between epochs":
        signal.pause()
    for _ in iterator:
        pass


@both
@pytest.mark.parametrize("situation", SITUATIONS)
def test_workers_are_gone_soon_after_their_main_process_is_killed(Loader, situation):
    reading, writing = os.pipe()
    main = os.fork()
    if main == 0:
        import threading

        work = threading.Thread(target=load_until_killed, args=(Loader, situation, writing))
        if situation == "in a thread":
            work.start()
            work.join()
        else:
            work.run()
        os._exit(1)
    os.close(writing)
    try:
        with open(reading) as pipe:
            pids = [int(pid) for pid in pipe.readline().split()]
            assert len(pids) == 2
    finally:
        os.kill(main, signal.SIGKILL)
        os.waitpid(main, 0)
    assert eventually(lambda: not any(map(lives, pids)), within_s=5)


def lives(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    return False


KILLED_FAMILY = """
import os, sys, time
import numpy as np
import ringbuf

class Data:
    def __len__(self):
        return 1 << 30
    def __getitem__(self, index):
        return np.full(1000, index)

ring = ringbuf.RingBuffer(slots=4, slot_bytes=1 << 16, name=sys.argv[1])
for _ in range(3):
    ring.put(np.arange(1000))
iterator = iter(ringbuf.RingLoader(Data(), 4, num_workers=2))
for _ in range(3):
    next(iterator)
print("ready", flush=True)
for _ in iterator:
    pass
"""


def test_kill_after_kill_leaves_never_more_than_the_names_of_one_run():
    name = f"field-killed-{os.getpid()}"
    path = f"/dev/shm/ringbuf.{name}"
    before = segments()
    sizes = []
    try:
        for _ in range(4):
            family = subprocess.Popen(
                [sys.executable, "-c", KILLED_FAMILY, name], stdout=subprocess.PIPE, text=True, start_new_session=True
            )
            with family:
                try:
                    assert family.stdout.readline() == "ready\n"
                finally:
                    os.killpg(family.pid, signal.SIGKILL)
                assert family.stdout.read() == "", "the pipe ends when the last of them is gone"
            assert segments() - before == {f"ringbuf.{name}"}
            sizes.append(os.stat(path).st_size)
        assert len(set(sizes)) == 1
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


# ---- the interpreter ends -----------------------------------------------------------------------------------------

PROGRAM = """
import atexit, os, sys, threading
{imports}

class Data:
    def __len__(self):
        return 400
    def __getitem__(self, index):
        return index

class Holder:
    pass

def main():
    loader = RingLoader(Data(), 2, num_workers=2, persistent_workers={persistent})
{body}

main()
"""

# Those that a numpy loader goes through in tests/loader, at once in one program.
ENDINGS = {
    "everywhere": (
        "global it, kept; it = iter(loader); kept = next(it); Holder.it = it; cycle = [it]; cycle.append(cycle)\n"
        "    another = RingLoader(Data(), 2, num_workers=1); Holder.thread = iter(another)\n"
        "    threading.Thread(target=lambda: [None for _ in Holder.thread], daemon=True).start()\n"
        "    sys.exit(5)",
        5,
        "",
    ),
    "atexit": ("atexit.register(lambda: print(sum(len(b) for b in loader)))", 0, "400\n"),
    "os._exit": ("global it; it = iter(loader); next(it); os._exit(6)", 6, ""),
}


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(("body", "status", "out"), ENDINGS.values(), ids=ENDINGS)
def test_a_program_that_ends_with_passes_under_way_ends_quietly(body, status, out, persistent):
    name = "torch" if persistent else "numpy"
    done = script(PROGRAM.format(imports=IMPORTS[name], body="    " + body, persistent=persistent))
    assert (done.returncode, done.stdout, done.stderr) == (status, out, "")


LARGE_TASKS = """
{imports}
import numpy as np
sampler = list(range(40960)) * 10
loader = RingLoader(np.arange(40960), 40960, sampler=sampler, num_workers=1, prefetch_factor=10)
it = iter(loader)
next(it)
raise ValueError("mine")
"""


@pytest.mark.parametrize("name", IMPORTS)
def test_large_tasks_that_are_out_do_not_hold_up_the_end_of_a_program(name):
    done = script(LARGE_TASKS.format(imports=IMPORTS[name]))
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("ValueError: mine") and done.stderr.count("Traceback") == 1


AFTER_IMPORT_ORDER = """
{first}
{second}
loader = RingLoader(list(range(8)), 2, num_workers=2)
it = iter(loader)
next(it)
print(len(list(it)))
global_it = iter(loader)
"""


def test_the_order_in_which_torch_and_ringbuf_are_imported_does_not_matter_to_the_end():
    done = script(AFTER_IMPORT_ORDER.format(first=IMPORTS["numpy"], second="import torch"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


SUBINTERPRETER = """
import faulthandler
faulthandler.enable()
import {interpreters} as interpreters
import ringbuf
one = interpreters.create()
try:
    interpreters.run_string(one, "import ringbuf")
except Exception as error:
    print("refused", type(error).__name__)
else:
    print("imported")
print(ringbuf.RingBuffer(slots=1, slot_bytes=8).slots)
"""


def test_a_subinterpreter_is_served_or_refused_and_harms_nobody():
    module = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    done = script(SUBINTERPRETER.format(interpreters=module))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] in ("imported", "refused RunFailedError", "refused ExecutionFailed", "refused ImportError")
    assert done.stdout.splitlines()[1] == "1"


DUMPED = """
import faulthandler, os, signal, threading
{imports}

class Waits:
    def __len__(self):
        return 2
    def __getitem__(self, index):
        threading.Event().wait(0.3)
        return index

def dump():
    for _ in range(20):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        over.wait(0.01)

over = threading.Event()
faulthandler.register(signal.SIGUSR1, file=open("/dev/null", "w"))
iterator = iter(RingLoader(Waits(), num_workers=1))
thread = threading.Thread(target=dump)
thread.start()
print(len(list(iterator)))
thread.join()
"""


def test_dumps_of_the_stack_while_a_batch_is_waited_for_are_harmless():
    done = script(DUMPED.format(imports=IMPORTS["numpy"]))
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


def test_torchs_loader_is_not_changed_by_the_one_that_takes_its_place():
    assert Theirs.__module__ == "torch.utils.data.dataloader"
    assert [batch.tolist() for batch in Theirs(list(range(4)), 2, num_workers=0)] == [[0, 1], [2, 3]]


