"""Rounds over a RingLoader: passes whose workers are killed and stopped, broken off, closed, with batches kept; now and then its
main process is killed."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import threading
import time
from typing import Any

from ringbuf import BatchTimeout, Closed, RingLoader, WorkerDied

from . import census
from .arena import Arena, Board, Failure
from .journal import Words
from .loader_data import Planned, Samples, Streams, Stuck, check
from .loader_plan import Fault, LoaderRound, Pass, plan_loader_round
from .troupe import Troupe

ORPHANS_S = 5.0  # what workers may take to end when their main process was killed
STARTING_S = (
    20.0  # and spawned ones, which may still be importing, at the mercy of a busy machine, and know nothing of it
)
PATIENCE_S = 20.0  # for one batch, however often the loader's own timeout passes


class LoaderArena(Arena):
    name = "loader"

    def __init__(self, number: int, seed: int, seconds: float, board: Board):
        super().__init__(seed, seconds, board)
        self.name = f"loader {number}"
        self._plan: LoaderRound | None = None
        self._at = ""

    def warm_up(self) -> None:
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # for good, as soon as something is spawned

    def play(self, number: int) -> None:
        self._plan = plan = plan_loader_round(f"{self.seed}/{self.name}/{number}")
        self._draw = random.Random(f"{self.seed}/{self.name}/{number}/held")
        if plan.kill_main_s is not None:
            self._kill_main(plan)
            return
        kept = Kept(self._draw, plan, self._dataset(plan).size)
        log = Words(1 + plan.workers)
        try:
            dataset = self._dataset(plan, log.at if plan.method == "fork" else None)
            with self._loader(plan, dataset) as loader:
                for at, one in enumerate(plan.passes):
                    self._at = f"pass {at}"
                    if not self._run_pass(loader, plan, one, kept, at + 1):
                        break
        finally:
            log.close()
        while kept.batches:
            kept.let_go()

    def describe(self) -> str:
        return f"\n  at {self._at} of the plan: {self._plan}"

    # ---- a pass

    def _dataset(self, plan: LoaderRound, log: Any = None) -> Any:
        length = plan.batches * plan.batch_size
        if plan.iterable:
            return Streams(length, plan.sample_bytes)
        return Samples(length, plan.sample_bytes, plan.grow_every, plan.failing, plan.batch_size, log)

    def _loader(self, plan: LoaderRound, dataset: Any) -> RingLoader:
        import warnings

        warnings.simplefilter("ignore")  # of batches that are kept, and of more workers than cores
        return RingLoader(
            dataset,
            plan.batch_size,
            num_workers=plan.workers,
            multiprocessing_context=plan.method,
            persistent_workers=plan.persistent,
            in_order=plan.in_order,
            prefetch_factor=plan.prefetch,
            timeout=plan.timeout,
            dispatch="pull" if plan.pull else "static",
            on_worker_death="restart" if plan.restart else "raise",
            max_restarts=1000,
        )

    def _run_pass(self, loader: RingLoader, plan: LoaderRound, one: Pass, kept: Kept, order: int) -> bool:
        """Returns whether the loader is still open."""
        iterator = iter(loader)
        if not plan.iterable:
            loader.dataset.begin(order)
        workers = [os.pidfd_open(worker.pid) for worker in iterator._workers]
        got, failed, died = [], [], None
        villain = Villain(workers, self.board)
        number = 0
        try:
            while True:
                self.board["beat"] += 1
                for fault in one.faults:
                    if fault.at == number:
                        villain.send(fault)
                try:
                    batch = self._next(iterator)
                except StopIteration:
                    break
                except Planned as error:
                    failed.append(error.args[0])
                except WorkerDied as error:
                    died = error
                    break
                else:
                    got.append(check(batch, kept.size))
                    kept.keep(batch)
                    del batch
                    self.board["batches"] += 1
                number += 1
                if number == one.break_at:
                    break
                if number == one.close_at:
                    loader.close()
                    self._demand_closed(iterator)
                    break
        finally:
            villain.finish()
            for worker in workers:
                os.close(worker)
        if died:
            self.board["died"] += 1
            if plan.in_order and not plan.iterable and not plan.pull:
                self._demand_finished(plan, loader.dataset, got, order)
        cut = number in (one.break_at, one.close_at)
        self._account(plan, got, failed, died, villain, complete=not cut and died is None)
        return number != one.close_at

    def _next(self, iterator: Any) -> Any:
        began = time.monotonic()
        while True:
            try:
                return next(iterator)
            except BatchTimeout:
                if time.monotonic() - began > PATIENCE_S:
                    raise

    @staticmethod
    def _demand_closed(iterator: Any) -> None:
        try:
            next(iterator)
        except (Closed, StopIteration):
            return
        raise Failure("a closed loader gave one more batch")

    def _account(
        self,
        plan: LoaderRound,
        got: list[list[int]],
        failed: list[int],
        died: WorkerDied | None,
        villain: Villain,
        *,
        complete: bool,
    ) -> None:
        flat = [index for batch in got for index in batch]
        if len(flat) != len(set(flat)):
            raise Failure(f"samples came twice: {sorted(index for index in set(flat) if flat.count(index) > 1)}")
        if died:
            if plan.restart:
                raise Failure(f"dead workers were to be replaced, but: {died}")
            if not villain.killed:
                raise Failure(f"no worker was killed, but: {died}")
            if -died.exitcode not in villain.killed:
                raise Failure(f"workers were killed by {villain.killed}, but: {died}")
            owed = set(died.indices) & set(flat)
            if owed:
                raise Failure(f"{sorted(owed)} were received, and reported lost: {died}")
        if plan.iterable:
            self._account_for_streams(plan, got, complete)
            return
        wanted = [list(range(n * plan.batch_size, (n + 1) * plan.batch_size)) for n in range(plan.batches)]
        good = [batch for batch in wanted if not plan.failing & set(batch)]
        if plan.in_order and got != sorted(got):
            raise Failure(f"out of order: {got}")
        if complete:
            if sorted(got) != good:
                raise Failure(f"a complete pass gave {sorted(got)}")
            bad = [min(plan.failing & set(batch)) for batch in wanted if plan.failing & set(batch)]
            if sorted(failed) != bad:
                raise Failure(f"errors were due for samples {bad}, and came for {sorted(failed)}")
        elif plan.in_order and (plan.restart or not villain.killed) and got != good[: len(got)]:
            raise Failure(f"a pass that was broken off gave {got}, with gaps")
        elif any(batch not in good for batch in got):
            raise Failure(f"not batches of this sampler: {[batch for batch in got if batch not in good]}")

    @staticmethod
    def _demand_finished(plan: LoaderRound, dataset: Samples, got: list[list[int]], order: int) -> None:
        """Before a death is raised, all that was finished is handed out. A worker that is at a batch has finished those before
        it, which in order are every n-th."""
        for number in range(plan.batches):
            batch = list(range(number * plan.batch_size, (number + 1) * plan.batch_size))
            finished = number < dataset.finished_before(number % plan.workers, order)
            if finished and batch not in got and not plan.failing & set(batch):
                raise Failure(f"WorkerDied came before the batch {batch}, which was finished; received {got}")

    def _account_for_streams(self, plan: LoaderRound, got: list[list[int]], complete: bool) -> None:
        flat = [index for batch in got for index in batch]
        for worker in range(plan.workers):
            own = [index for index in flat if index % plan.workers == worker]
            if own != sorted(own) and plan.in_order:
                raise Failure(f"worker {worker}'s samples are out of order: {own}")
        if complete and sorted(flat) != list(range(plan.batches * plan.batch_size)):
            raise Failure(f"a complete pass gave {sorted(flat)}")

    # ---- the main process is killed

    def _kill_main(self, plan: LoaderRound) -> None:
        pids = Words(8)
        troupe = Troupe()

        def load(_: Any) -> None:
            endless = plan._replace(batches=10**9 // plan.batch_size, failing=frozenset(), timeout=0)
            dataset = self._dataset(endless)
            if self._draw.random() < 0.5 and not plan.iterable:
                dataset = Stuck(dataset.length, plan.sample_bytes, batch_size=plan.batch_size)
            kept = Kept(self._draw, endless, dataset.size)
            iterator = iter(self._loader(endless, dataset))
            for at, worker in enumerate(iterator._workers):
                pids.at[at] = worker.pid
            for batch in iterator:
                check(batch, kept.size)
                kept.keep(batch)
                del batch

        self._at = "the killing of the main process"
        try:
            main = troupe.start("main", 0, load)
            watched = self._watch(pids, plan.workers, main.pid)
            time.sleep(plan.kill_main_s)
            segments = census.ring_inodes(main.pid)
            troupe.kill(main)
            began = time.monotonic()
            while not troupe.bury():
                time.sleep(0.001)
            if main.status != -signal.SIGKILL:
                raise Failure(f"the main process ended by itself: {main}")
            self.board["kills_main"] += 1
            self._demand_gone(watched, began, ORPHANS_S if plan.method == "fork" else STARTING_S)
            mapped = {pid: census.ring_inodes(pid) & segments for pid in census.parents()}
            if any(mapped.values()):
                raise Failure(f"memory of the killed process is still mapped: {mapped}")
        finally:
            troupe.end()
            pids.close()

    def _watch(self, pids: Words, workers: int, main: int) -> list[int]:
        """A descriptor for each worker of the main process."""
        until = time.monotonic() + PATIENCE_S
        while not pids.at[workers - 1]:
            if time.monotonic() > until:
                raise Failure(f"the loader in process {main} has not started in {PATIENCE_S} s")
            self.board["beat"] += 1
            time.sleep(0.002)
        return [os.pidfd_open(pids.at[at]) for at in range(workers)]

    def _demand_gone(self, watched: list[int], began: float, within_s: float) -> None:
        left = list(watched)
        while left and time.monotonic() - began < within_s:
            self.board["beat"] += 1
            left = [worker for worker in left if not select.select([worker], [], [], 0.02)[0]]
        for worker in watched:
            os.close(worker)
        if left:
            raise Failure(f"{len(left)} workers live {within_s} s after their main process was killed")


class Kept:
    """Batches that the consumer keeps, or views of parts of them; each is looked at again before it is let go."""

    def __init__(self, draw: random.Random, plan: LoaderRound, size: Any):
        self._draw, self._most, self._sub_views, self.size = draw, plan.hold, plan.sub_views, size
        self.batches: list[tuple[dict[str, Any], list[int]]] = []

    def keep(self, batch: dict[str, Any]) -> None:
        if self._sub_views:  # the slot lives by these alone
            rows = self._draw.randint(1, len(batch["index"]))
            batch = {name: array[-rows:][::1] for name, array in batch.items()}
        self.batches.append((batch, batch["index"].tolist()))
        while len(self.batches) > self._draw.randint(0, self._most):
            self.let_go()

    def let_go(self) -> None:
        batch, indices = self.batches.pop(self._draw.randrange(len(self.batches)))
        if check(batch, self.size) != indices:
            raise Failure(f"the batch {indices}, which was kept, is {batch['index'].tolist()} now")


class Villain:
    """Kills and stops workers of the loader in this process: at once, or by a thread a moment later."""

    def __init__(self, workers: list[int], board: Board):
        self._workers, self._board = workers, board
        self._threads: list[threading.Thread] = []
        self._victims: list[int] = []
        self.killed: set[int] = set()

    def send(self, fault: Fault) -> None:
        if fault.act == "kill":
            self.killed.add(fault.signal)
        if fault.delay_s == 0 and fault.act == "kill":
            self._send(fault)
            return
        thread = threading.Thread(target=self._send, args=(fault,))
        thread.start()
        self._threads.append(thread)

    def finish(self) -> None:
        """Wait until all that was sent has happened: the next pass shall not see the end of this one's victims."""
        for thread in self._threads:
            thread.join()
        for worker in self._victims:
            if not select.select([worker], [], [], PATIENCE_S)[0]:
                raise Failure(f"a killed worker lives after {PATIENCE_S} s")

    def _send(self, fault: Fault) -> None:
        time.sleep(fault.delay_s)
        if fault.worker >= len(self._workers):  # killed in the pass before, and not missed yet
            return
        worker = self._workers[fault.worker]
        with contextlib.suppress(ProcessLookupError):  # ended already
            if fault.act == "stop":
                signal.pidfd_send_signal(worker, signal.SIGSTOP)
                self._board["stops"] += 1
                time.sleep(fault.seconds)
                signal.pidfd_send_signal(worker, signal.SIGCONT)
                return
            signal.pidfd_send_signal(worker, fault.signal)
            self._victims.append(worker)
            self._board["kills_worker"] += 1
