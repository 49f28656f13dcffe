"""What of a machine and its limits is in the way of a loader: a function of facts alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ringbuf.cli.diagnosis.facts import Facts
from ringbuf.cli.units import nbytes, percent

__all__ = ["Check", "Use", "checks"]

SMALL_SHM = 256 << 20  # containers have 64 MiB by default
LITTLE = 0.1  # of a limit
FEW_FILES = 256
FEW_FILES_OF = 0.8  # of those that may be open
FILES_OF_A_WORKER = 4
COLLAPSE = (6, 1)  # since this Linux, huge pages of shared memory come also where they are not switched on


class Use(NamedTuple):
    """What a loader needs of it, as far as that is known; 0 and None: nothing is."""

    workers: int = 0
    ring_bytes: int = 0
    method: str | None = None
    """How its workers are started."""
    threads: int | None = None
    """Of Python, besides the main one, in the process that starts them."""
    runs: bool = False
    """It has its memory already."""


class Check(NamedTuple):
    name: str
    ok: bool
    text: str
    advice: str | None = None


def checks(facts: Facts, use: Use) -> list[Check]:
    """One for each thing that could be found out."""
    found = (_shm, _memory, _locked, _huge_pages, _processors, _start, _files, _overcommit)
    return [check for look in found for check in look(facts, use)]


def _shm(facts: Facts, use: Use) -> Iterator[Check]:
    if facts.shm_total is None or facts.shm_free is None:
        yield Check("/dev/shm", False, "is not there", "rings with a name need it: mount a tmpfs there; loaders do not need it")
        return
    text = f"{nbytes(facts.shm_free)} of {nbytes(facts.shm_total)} free"
    if facts.shm_free < SMALL_SHM:
        advice = "docker run --shm-size=, or mount -o remount,size=: rings with a name live there; loaders' do not"
        yield Check("/dev/shm", False, text, advice)
    else:
        yield Check("/dev/shm", True, text)


def _memory(facts: Facts, use: Use) -> Iterator[Check]:
    left = [size for size in (facts.memory_available, facts.group_left) if size is not None]
    if not left:
        return
    text = ""
    if facts.memory_total is not None and facts.memory_available is not None:
        text = f"{nbytes(facts.memory_available)} of {nbytes(facts.memory_total)} available"
    if facts.group_limit is None:
        text += ", no limit of a container"
        short = facts.memory_total is not None and left[0] < LITTLE * facts.memory_total
    else:
        text += f", the container's limit of {nbytes(facts.group_limit)} leaves {nbytes(facts.group_left or 0)}"
        short = (facts.group_left or 0) < LITTLE * facts.group_limit
    needed = 0 if use.runs else use.ring_bytes
    if needed:
        text += f"; the loader's slots may take {nbytes(needed)}"
        short = short or needed > min(left)
    advice = "raise the limit of the container, or have fewer and smaller slots (slots=, prefetch_factor=) and workers"
    yield Check("memory", not short, text.removeprefix(", "), advice if short else None)


def _locked(facts: Facts, use: Use) -> Iterator[Check]:
    if facts.locked_limit is None:
        return
    text = "no limit" if facts.locked_limit < 0 else f"at most {nbytes(facts.locked_limit)} (ulimit -l)"
    yield Check("locked memory", True, f"{text}; rings lock none")


def _huge_pages(facts: Facts, use: Use) -> Iterator[Check]:
    mode = facts.huge_pages
    if mode is None:
        yield Check("huge pages", True, "this kernel has none for shared memory: large batches are copied some 10 % slower")
        return
    by_request = facts.kernel is None or facts.kernel >= COLLAPSE
    ok = mode in ("always", "within_size", "advise", "force") or (mode == "never" and by_request)
    kernel = "" if facts.kernel is None else f", Linux {facts.kernel[0]}.{facts.kernel[1]}"
    advice = "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, as root: large batches are copied faster"
    yield Check("huge pages", ok, f"shmem_enabled is {mode}{kernel}", None if ok else advice)


def _processors(facts: Facts, use: Use) -> Iterator[Check]:
    text = f"{facts.cores:g} to use"
    if facts.processors and facts.cores < facts.processors:
        text += f" of {facts.processors}"
    limits = []
    if facts.allowed and facts.processors and facts.allowed < facts.processors:
        limits.append(f"affinity {facts.allowed}")
    if facts.quota is not None:
        limits.append(f"cpu.max {facts.quota:g}")
    if limits:
        text += f" ({', '.join(limits)})"
    if use.workers:
        text += f", for the trainer and {use.workers} worker{'s' if use.workers > 1 else ''}"
    seen = facts.allowed or facts.processors or 1
    if facts.quota is not None and facts.quota < seen:
        few = max(1, int(facts.quota))
        advice = f"libraries start {seen} threads, by what they see: set OMP_NUM_THREADS={few}, and num_workers to {few} at most"
        yield Check("processors", False, text, advice)
    else:
        yield Check("processors", True, text)


def _start(facts: Facts, use: Use) -> Iterator[Check]:
    if use.method is None:
        return
    if use.method == "fork" and use.threads:
        text = f"fork, and {use.threads} more thread{'s' if use.threads > 1 else ''} of Python in the trainer"
        advice = "what a thread has locked stays locked in workers: multiprocessing_context='forkserver', or begin threads later"
        yield Check("start method", False, text, advice)
        return
    costs = "" if use.method == "fork" else "; a worker imports the program anew, so keep them: persistent_workers=True"
    yield Check("start method", True, use.method + costs)


def _files(facts: Facts, use: Use) -> Iterator[Check]:
    limit, opened = facts.files_limit, facts.files_open
    if limit is None:
        return
    if limit < 0:
        yield Check("open files", True, "no limit")
        return
    more = 0 if use.runs else FILES_OF_A_WORKER * use.workers
    text = f"{opened if opened is not None else '?'} of at most {limit}"
    short = limit < FEW_FILES or (opened or 0) + more > FEW_FILES_OF * limit
    advice = f"ulimit -n {max(4096, 2 * limit)}: rings, workers and shared tensors take some each"
    yield Check("open files", not short, text, advice if short else None)


def _overcommit(facts: Facts, use: Use) -> Iterator[Check]:
    if facts.overcommit is None:
        return
    text = f"vm.overcommit_memory is {facts.overcommit}"
    if facts.overcommit != 2 or not facts.commit_limit or facts.committed is None:
        yield Check("overcommit", facts.overcommit != 2, text, None if facts.overcommit != 2 else STRICT)
        return
    share = facts.committed / facts.commit_limit
    text += f", {nbytes(facts.committed)} of {nbytes(facts.commit_limit)} promised ({percent(share)})"
    yield Check("overcommit", share < 1 - LITTLE, text, None if share < 1 - LITTLE else STRICT)


STRICT = "sysctl vm.overcommit_memory=0, or more swap: forking a large trainer fails although memory is free"
