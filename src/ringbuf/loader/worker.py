"""The life of a worker process, from its first instruction of ours to its last.

It knows nothing of loaders: it gets a spec, takes tasks from its inbox and puts answers into its outlet. User
code runs in three places (the dataset, `collate_fn`, `worker_init_fn`), and whatever it raises becomes an answer.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ringbuf.loader._course import Job
from ringbuf.loader.channel import Channel
from ringbuf.loader.failure import Failure
from ringbuf.loader.fetch import Exhausted, Fetcher, PrivateRoom, make_fetcher
from ringbuf.loader.logbook import Log
from ringbuf.loader.outlet import Draft, Outlet, Refused, Stranded
from ringbuf.loader.outset import let_others_go_ahead
from ringbuf.loader.parent import Orphaned, Parent
from ringbuf.loader.post import Post, Stopped
from ringbuf.loader.seeding import seed_worker
from ringbuf.loader.sharing import SharedBatch, Table
from ringbuf.loader.spec import WorkerSpec
from ringbuf.loader.substitute import Substitute
from ringbuf.loader.tasks import Inbox, Order
from ringbuf.telemetry._meter import WorkerMeter
from ringbuf.telemetry.page import attach

__all__ = ["Origin", "WorkerInfo", "get_worker_info", "run"]


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker this process is. An iterable dataset asks, to find its share of the samples."""

    id: int
    """From 0 to num_workers - 1."""
    num_workers: int
    seed: int
    """What `random`, numpy's global stream and torch were seeded with, before worker_init_fn."""
    dataset: Any
    """This process's copy."""


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The worker that this process is; None in the main process.

    It has `id` (from 0 to `num_workers` - 1), `num_workers`, `seed` and `dataset`, which is this process's copy.
    """
    return _info


class Origin(NamedTuple):
    """Where a worker comes from."""

    pid: int
    direct: bool
    """Whether it is a child of that process, not of a forkserver."""
    from_main_thread: bool
    tether: Any
    """See parent.py."""
    inherited: Iterable
    """What a fork copied into it by the way, and it has to close."""


def run(spec: Any, worker_id: int, end: socket.socket, origin: Origin) -> None:
    """The target of the process.

    spec: has a `load()` that returns the WorkerSpec.
    end: its end of the channel.
    """
    # Ctrl-C reaches the whole foreground group. It is the main process's to act on, which then stops us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for thing in origin.inherited:
        thing.close()
    try:
        with end:
            parent = Parent(
                origin.pid, direct=origin.direct, from_main_thread=origin.from_main_thread, tether=origin.tether
            )
            post = Post(Channel(end), parent)
            try:
                _work(spec, worker_id, post)
            except (Exception, Stranded):
                post.last_words(traceback.format_exc())
                sys.exit(1)
    except Stopped:
        pass
    except KeyboardInterrupt:
        pass  # raised by user code; the main process says what happened
    except Orphaned:
        os._exit(1)  # without any clean-up: there is nobody left who could care


def _work(spec: Any, worker_id: int, post: Post) -> None:
    meter = _page_of(post, worker_id)
    inbox = Inbox(post, worker_id)
    worker = _Worker(worker_id, post, Outlet(post, worker_id, meter), Log(post, worker_id), Table(post), meter)
    worker.set_up(spec)
    meter.rest()
    while True:
        worker.answer(inbox.next())
        inbox.done()


def _page_of(post: Post, worker_id: int) -> WorkerMeter:
    """Our row in the loader's page."""
    _, descriptors = post.wait_for(lambda message: message[0] == "page")
    try:
        return attach(descriptors[0], worker_id)
    except (IndexError, OSError):  # nobody can see it, then
        return WorkerMeter.unseen()
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


class _Worker:
    def __init__(self, worker_id: int, post: Post, outlet: Outlet, log: Log, table: Table, meter: WorkerMeter):
        self._id = worker_id
        self._post = post
        self._outlet = outlet
        self._log = log
        self._table = table
        self._meter = meter
        self._spec: WorkerSpec
        self._broken: Failure | None = None  # what every task is answered with, when set-up failed
        self._fetcher: Fetcher
        self._epoch: int | None = None
        self._shared: SharedBatch | None = None  # of this epoch; it may be made by now
        self._ended = False

    def set_up(self, spec: Any) -> None:
        """Load the dataset, seed, and call worker_init_fn. What fails is the answer to the first task."""
        global _info
        try:
            self._spec = spec = spec.load()
            spec.dialect.set_up_worker()
            seed = seed_worker(spec.base_seed, self._id)
            _info = WorkerInfo(self._id, spec.num_workers, seed, spec.dataset)
            _tell_torch(_info)
            if spec.worker_init_fn is not None:
                spec.worker_init_fn(self._id)
            self._log.resume()
        except Exception as error:
            self._broken = Failure.of(error, worker_id=self._id, fatal=True)

    def answer(self, order: Order) -> None:
        """Do one task."""
        self._outlet.follow(order.generation)
        if order.epoch != self._epoch:
            self._begin_epoch(order)
        if self._broken is not None:
            self._outlet.fail(order.number, self._broken)
            return
        if self._ended:
            return  # main asked before it knew
        job = order.job
        self._meter.begin(job.batch)
        shared = self._shared if self._shared is not None and self._shared.number == order.number else None
        try:
            with Draft(self._outlet, order.number, self._meter) as draft:
                if shared is None:
                    batch = self._fetcher.fetch(job, draft, private=False)
                else:
                    batch = self._fetch(job, draft, shared)
                self._log.note(order.number)
                draft.publish(batch, self._fetcher.report())
                del batch
        except Exhausted:
            self._ended = True
            self._log.note(order.number)
            self._outlet.end(order.number, self._fetcher.report())
        except Refused:
            self._meter.end()
            self._log.note(order.number)
        except Exception as error:
            self._log.note(order.number)
            index = None if self._spec.iterable else job.index
            passed_over = self._fetcher.report()
            failure = Failure.of(error, worker_id=self._id, index=index, at=self._fetcher.at, passed_over=passed_over)
            self._outlet.fail(order.number, failure)

    def _begin_epoch(self, order: Order) -> None:
        self._shared = shared = self._table.look()
        others = shared is None or shared.number != order.number
        if others and self._epoch is None:
            let_others_go_ahead(self._id, self._outlet.news(), self._post.look)
        self._start_over(order)
        if others and shared is not None and self._broken is None:
            shared.help(self._lend)

    def _lend(self, job: Job, places: range) -> Iterator:
        self._meter.begin(job.batch)
        try:
            yield from self._fetcher.lend(job, places)
            self._log.note_help()  # before they are handed over: whoever takes our place must not draw the same again
        finally:
            self._meter.end()

    def _fetch(self, job: Job, draft: Draft, shared: SharedBatch) -> Any:
        """The batch that others help with."""
        self._fetcher.share(shared.sample)
        try:
            return self._fetcher.fetch(job, draft, private=False)
        finally:
            self._fetcher.share(None)
            shared.over()  # before it is answered: after that there may be another one

    def _start_over(self, order: Order) -> None:
        self._epoch, self._ended = order.epoch, False
        if self._broken is not None:
            return
        spec, job = self._spec, order.job
        try:
            skipped = self._log.begin_epoch(order.epoch)
            if job.epoch is not None and hasattr(spec.dataset, "set_epoch"):
                spec.dataset.set_epoch(job.epoch)
            self._fetcher = make_fetcher(
                spec.dialect.begin_pass(spec.dataset, job.shared_seed),
                iterable=spec.iterable,
                drop_last=spec.drop_last,
                dialect=spec.dialect,
                collate_fn=spec.collate_fn,
                batched=spec.batched,
                pause=self._post.pause,
                meter=self._meter,
                substitute=None if spec.on_error == "raise" else Substitute(spec.on_error),
            )
        except Exception as error:  # a dataset's __iter__
            self._broken = Failure.of(error, worker_id=self._id, fatal=True)
            return
        for _ in range(skipped):  # delivered already: their maker has died, and an iterator goes forward only
            with contextlib.suppress(Exception):
                self._fetcher.fetch(job, PrivateRoom(), private=False)
            self._fetcher.report()


def _tell_torch(info: WorkerInfo) -> None:
    """Datasets written for torch ask torch which worker they are in; and workers share the cores."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    torch.set_num_threads(1)
    theirs = sys.modules.get("torch.utils.data._utils.worker")
    if theirs is not None:
        theirs._worker_info = theirs.WorkerInfo(
            id=info.id, num_workers=info.num_workers, seed=info.seed, dataset=info.dataset
        )
