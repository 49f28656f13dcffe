"""What the numbers say: of every kind of dataset, of passes, of workers that are replaced, of what goes wrong."""

import os
import time

import pytest
import torch
from processes import eventually
from trainers import Dying, Failing, Gate, InPlace, Rows, Stream, Together, listed, names, run

import ringbuf
import ringbuf.torch
from ringbuf import telemetry

LOADERS = {"numpy": ringbuf.RingLoader, "torch": ringbuf.torch.RingLoader}


class TorchStream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(Stream())


KINDS = {
    "rows": (Rows(), {}),
    "collate_fn": (Rows(), {"collate_fn": listed}),
    "together": (Together(), {}),
    "stream": (Stream(), {}),
    "stream with collate_fn": (Stream(), {"collate_fn": listed}),
}


def look(loader):
    with telemetry.open(loader.name) as reader:
        return reader.snapshot()


def named(Loader, *arguments, **options):
    return Loader(*arguments, name=next(names), **options)


@pytest.mark.parametrize(("dataset", "options"), KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("Loader", LOADERS.values(), ids=LOADERS)
def test_batches_samples_and_bytes_are_counted(Loader, workers, dataset, options):
    if isinstance(dataset, Stream) and Loader is ringbuf.torch.RingLoader:
        dataset = TorchStream()
    if "collate_fn" in options and Loader is ringbuf.torch.RingLoader:
        options = {"collate_fn": collate_tensors}
    with named(Loader, dataset, 8, num_workers=workers, **options) as loader:
        assert run(loader) == 8
        seen = look(loader)
        assert seen.consumer.batches == 8 and sum(worker.batches for worker in seen.workers) == 8
        assert sum(worker.samples for worker in seen.workers) == 64
        assert sum(worker.nbytes for worker in seen.workers) >= 8 * 8 * 8 * 4 and seen.consumer.nbytes >= 8 * 8 * 8 * 4
        assert all(worker.load_ns > 0 and worker.collate_ns > 0 for worker in seen.workers)
        assert seen.consumer.wait_ns > 0 and sum(seen.consumer.waits) == 9  # and one for the end
        assert seen.num_workers == workers and seen.passes == 1
        assert seen.length == (None if "Stream" in type(dataset).__name__ else 8)
        assert (seen.slots > 0) == (workers > 0)


def collate_tensors(samples):
    return torch.stack([torch.as_tensor(sample) for sample in samples])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_that_writes_in_place_loads_all_the_time(workers):
    with named(ringbuf.RingLoader, InPlace(), 8, num_workers=workers) as loader:
        run(loader)
        (worker,) = look(loader).workers
        assert worker.batches == 8 and worker.samples == 64
        assert worker.load_ns > 0


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("Loader", LOADERS.values(), ids=LOADERS)
def test_passes_add_up_on_one_page(Loader, persistent):
    with named(Loader, Rows(), 8, num_workers=2, persistent_workers=persistent) as loader:
        for epoch in range(3):
            loader.set_epoch(10 + epoch)
            assert run(loader) == 8
        seen = look(loader)
        assert (seen.passes, seen.epoch, seen.consumer.batches, seen.consumer.batch) == (3, 12, 24, 7)
        assert sum(worker.batches for worker in seen.workers) == 24  # noted before the last one was published
        assert seen.consumer.state == "idle"
        state = "waiting for a task" if persistent else "ended"
        assert [worker.state for worker in seen.workers] == [state, state]


def test_what_a_worker_is_at_is_seen_while_it_hangs():
    gate = Gate(32, closed=13)
    with named(ringbuf.RingLoader, gate, 4, num_workers=2) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)

        def loading():
            first, second = look(loader).workers
            return (first.state, second.state, second.batch) == ("waiting for a task", "loading", 3)

        assert eventually(loading)
        one = look(loader)
        assert one.consumer.state == "using" and one.consumer.batch == 2 and one.length == 8
        assert one.taken_ns >= one.workers[1].since_ns > one.started_ns
        assert {worker.pid for worker in one.workers} == {process.pid for process in batches._workers}
        gate.open()
        assert run(batches) == 5
    gate.close()


def test_a_worker_that_was_killed_is_dead_and_one_in_its_place_goes_on(tmp_path):
    with named(
        ringbuf.RingLoader, Dying(64, str(tmp_path / "died")), 4, num_workers=2, on_worker_death="restart"
    ) as loader:
        batches = iter(loader)
        next(batches)
        before = look(loader).workers
        assert run(batches) == 15
        seen = look(loader)
        assert seen.consumer.restarts == 1 and seen.consumer.batches == 16
        assert sum(worker.batches for worker in seen.workers) == 16
        assert sum(worker.samples for worker in seen.workers) == 64  # a batch that is not published is not counted
        assert seen.workers[1].pid != before[1].pid and seen.workers[0].pid == before[0].pid


def test_a_dead_worker_says_so(tmp_path):
    with named(ringbuf.RingLoader, Dying(64, str(tmp_path / "died")), 4, num_workers=1) as loader:
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        with telemetry.open(loader.name) as reader:
            assert eventually(lambda: reader.snapshot().workers[0].state == "dead")
        with pytest.raises(ringbuf.WorkerDied):
            run(batches)
        assert look(loader).workers[0].state == "ended"


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_that_fail_are_counted(workers):
    with named(ringbuf.RingLoader, Failing(), 4, num_workers=workers, on_error="skip") as loader:
        with pytest.warns(RuntimeWarning, match="sample 5 failed"):
            assert run(loader) == 16
        assert look(loader).consumer.errors == loader.stats().errors == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_that_fails_is_not_handed_out(workers):
    with named(ringbuf.RingLoader, Failing(), 4, num_workers=workers) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(LookupError):
            next(batches)
        assert run(batches) == 14
        seen = look(loader)
        assert seen.consumer.batches == 15 and seen.workers[0].batches == 15


def test_copies_and_slots_that_are_held_are_seen():
    with named(ringbuf.RingLoader, Rows(), 8, num_workers=1, slots=3) as loader:
        batches = iter(loader)
        with pytest.warns(UserWarning, match="private copy"):
            held = [next(batches) for _ in range(7)]

        def gauged():
            time.sleep(0.002)  # no gauge is younger than a millisecond
            return next(batches, None) is None or look(loader).consumer.held >= 2

        assert gauged()
        assert look(loader).consumer.copies == loader.stats().copies >= 4
        assert len(held) == 7


class Timed(Rows):
    """Spends its time in the dataset."""

    def __getitem__(self, index):
        until = time.monotonic() + 0.001
        while time.monotonic() < until:
            pass
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("options", [{}, {"collate_fn": listed}], ids=["rows", "collate_fn"])
def test_time_in_the_dataset_is_told_from_collating(workers, options):
    with named(ringbuf.RingLoader, Timed(32), 4, num_workers=workers, **options) as loader:
        run(loader)
        (worker,) = look(loader).workers
    assert worker.load_ns >= 32_000_000
    assert worker.load_ns > worker.collate_ns


def test_the_table_has_a_line_for_each_worker():
    with ringbuf.RingLoader(Rows(), 8, num_workers=2) as loader:
        assert "worker" not in str(loader.stats()).splitlines()
        run(loader)
    stats = loader.stats()
    text = str(stats)
    lines = text.splitlines()
    assert lines[0].split() == ["batches", "8"]
    assert [line.split()[0] for line in lines if line.split()[:1] in (["load_s"], ["use_s"])] == ["use_s", "load_s"]
    table = lines[lines.index("") + 1 :]
    assert table[0].split()[:4] == ["worker", "pid", "batches", "samples"]
    assert [row.split()[2] for row in table[1:]] == ["4", "4"]
    assert len({len(line) for line in table}) == 1
    assert stats.load_ns == sum(worker.load_ns for worker in stats.by_worker) > 0
    assert "failed" not in text and "by_worker" not in text


def test_a_loader_in_another_process_than_its_page_has_none_of_its_own(tmp_path):
    """Two pages are two loaders: of the same process, under two names."""
    one, two = named(ringbuf.RingLoader, Rows(), 8), named(ringbuf.RingLoader, Rows(32), 8)
    run(one), run(two)
    assert (look(one).consumer.batches, look(two).consumer.batches) == (8, 4)
    assert look(one).pid == look(two).pid == os.getpid()
