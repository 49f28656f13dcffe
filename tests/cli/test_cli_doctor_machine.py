"""What `ringbuf doctor` says of a machine, by tables of facts; and where the facts come from."""

import multiprocessing
import os
import resource
import threading
import time
from dataclasses import replace

import pytest
from processes import eventually, process

from ringbuf import memory
from ringbuf.cli.diagnosis import facts as looking
from ringbuf.cli.diagnosis.facts import Facts, facts
from ringbuf.cli.diagnosis.machine import Use, checks
from ringbuf.cli.diagnosis.processes import Tally, times_of

MB, GB = 10**6, 10**9
NOBODY = 2**22 + 1  # no pid is so large

SOUND = Facts(
    shm_total=8 * GB,
    shm_free=7 * GB,
    memory_total=64 * GB,
    memory_available=50 * GB,
    locked_limit=8 * MB,
    huge_pages="advise",
    kernel=(6, 6),
    processors=16,
    allowed=16,
    files_limit=1024,
    files_open=20,
    overcommit=0,
    commit_limit=32 * GB,
    committed=10 * GB,
)
TRAINING = Use(workers=4, ring_bytes=GB, method="fork", threads=0)

CASES = {
    # what differs from a sound machine, and from its use: which check warns, with which words
    "a container's shm": ({"shm_total": 64 * MB, "shm_free": 60 * MB}, {}, "/dev/shm", "60.0 MB of 64.0 MB free", "--shm-size"),
    "no shm": ({"shm_total": None}, {}, "/dev/shm", "is not there", "mount a tmpfs"),
    "a tight container": (
        {"group_limit": 4 * GB, "group_left": 300 * MB},
        {"ring_bytes": 0},
        "memory",
        "limit of 4.00 GB leaves 300 MB",
        "raise the limit",
    ),
    "slots beyond it": (
        {"group_limit": 4 * GB, "group_left": 2 * GB},
        {"ring_bytes": 3 * GB},
        "memory",
        "slots may take 3.00 GB",
        "slots=",
    ),
    "a full machine": ({"memory_available": 2 * GB}, {}, "memory", "2.00 GB of 64.0 GB available", "fewer"),
    "huge pages denied": ({"huge_pages": "deny"}, {}, "huge pages", "shmem_enabled is deny", "echo advise"),
    "no huge pages, of old": ({"huge_pages": "never", "kernel": (5, 15)}, {}, "huge pages", "is never, Linux 5.15", "advise"),
    "a quota": ({"quota": 2.5}, {}, "processors", "2.5 to use of 16 (cpu.max 2.5)", "OMP_NUM_THREADS=2"),
    "fork with threads": ({}, {"threads": 2}, "start method", "fork, and 2 more threads of Python", "forkserver"),
    "many files": ({"files_open": 900}, {}, "open files", "900 of at most 1024", "ulimit -n 4096"),
    "few files": ({"files_limit": 64}, {}, "open files", "20 of at most 64", "ulimit -n 4096"),
    "strict overcommit": (
        {"overcommit": 2, "committed": 31 * GB},
        {},
        "overcommit",
        "31.0 GB of 32.0 GB promised (97 %)",
        "sysctl",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_in_the_way_is_the_one_warning(case):
    facts, use, name, words, advice = CASES[case]
    found = checks(replace(SOUND, **facts), TRAINING._replace(**use))
    (warning,) = [check for check in found if not check.ok]
    assert warning.name == name and words in warning.text and advice in warning.advice


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"huge_pages": "never"},
        {"huge_pages": None},
        {"allowed": 2},
        {"overcommit": 2},
        {"files_limit": -1},
        {"locked_limit": -1},
        {"group_limit": 8 * GB, "group_left": 6 * GB},
    ],
    ids=str,
)
def test_a_sound_machine_has_eight_checks_and_no_warning(more):
    found = checks(replace(SOUND, **more), TRAINING)
    assert [check.name for check in found] == [
        "/dev/shm", "memory", "locked memory", "huge pages", "processors", "start method", "open files", "overcommit"
    ]  # fmt: skip
    assert all(check.ok and check.advice is None for check in found)


def test_a_loader_that_runs_has_its_memory_and_files():
    small = replace(SOUND, group_limit=4 * GB, group_left=GB, files_open=815)
    use = TRAINING._replace(ring_bytes=2 * GB)
    assert [check.name for check in checks(small, use) if not check.ok] == ["memory", "open files"]
    assert all(check.ok for check in checks(small, use._replace(runs=True)))


def test_what_cannot_be_found_out_is_left_out():
    assert [check.name for check in checks(Facts(), Use())] == ["/dev/shm", "huge pages", "processors"]


# ---- facts


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """groups(lines) makes the lines of /proc/PID/cgroup; the folders lie in the path that it returns."""
    monkeypatch.setattr(memory, "CGROUP", str(tmp_path / "cgroup"))

    def make(membership):
        (tmp_path / "membership").write_text(membership)
        return str(tmp_path / "membership"), tmp_path / "cgroup"

    return make


def test_the_tightest_group_counts_in_version_2(groups):
    membership, root = groups("0::/around/ours\n")
    write(root / "around/ours", memory__max="9000\n", memory__current="1\n", memory__stat="", cpu__max="max 100000\n")
    write(root / "around", memory__max="5000\n", memory__current="4000\n", memory__stat="file 10\nshmem 3\n")
    write(root / "around", cpu__max="150000 100000\n")
    assert looking._tightest(membership) == (5000, 1007)
    assert looking._quota(membership) == 1.5


def test_and_in_version_1(groups):
    membership, root = groups("4:memory:/ours\n2:cpu,cpuacct:/ours\n")
    write(root / "memory/ours", memory__limit_in_bytes="5000\n", memory__usage_in_bytes="4000\n", memory__stat="total_cache 0\n")
    write(root / "memory", memory__limit_in_bytes=f"{(1 << 63) - 4096}\n", memory__usage_in_bytes="9000\n", memory__stat="")
    write(root / "cpu/ours", cpu__cfs_quota_us="50000\n", cpu__cfs_period_us="100000\n")
    write(root / "cpu", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert looking._tightest(membership) == (5000, 1000)
    assert looking._quota(membership) == 0.5


def test_without_groups_there_is_no_limit(groups):
    membership, _ = groups("0::/\n")
    assert looking._tightest(membership) == (None, None) and looking._quota(membership) is None
    assert looking._tightest("/nowhere") == (None, None)


def test_facts_are_those_of_the_process_that_is_asked_about():
    def limited(ready):
        resource.setrlimit(resource.RLIMIT_NOFILE, (333, 333))
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        ready.set()
        threading.Event().wait(30)

    ready = multiprocessing.get_context("fork").Event()
    with process(limited, ready) as child:
        assert ready.wait(30)
        known = facts(child.pid)
    assert (known.files_limit, known.allowed) == (333, 1)
    assert known.cores <= 1 and known.files_open > 0 and facts().files_limit != 333


@pytest.mark.parametrize(("line", "mode"), [("always within_size advise [never] deny force", "never"), ("never", "never")])
def test_the_mode_in_brackets_holds(line, mode):
    assert looking._chosen(line) == mode


# ---- processors


def spin(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_a_tally_has_what_processes_had_since_it_began():
    spin(0.05)
    tally = Tally([os.getpid()])
    assert tally.total().processor_s == 0
    spin(0.05)
    tally.note([os.getpid()])
    total = tally.total()
    assert 0.03 <= total.processor_s < 30 and total.delay_s >= 0


def test_who_comes_later_counts_from_its_beginning():
    tally = Tally([])
    assert tally.total() is None
    with process(spin, 30) as child:
        assert eventually(lambda: tally.note([child.pid]) or tally.total().processor_s > 0.02)
    had = tally.total()
    tally.note([NOBODY])
    assert tally.total() == had and times_of(NOBODY) is None
