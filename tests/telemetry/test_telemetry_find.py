"""Which loaders are found, under which names, from where; and what is not there any more."""

import copy
import fcntl
import os
import pickle
import signal

import pytest
from processes import eventually, forked, script
from trainers import Gate, Rows, names, run, trainer

import ringbuf
import ringbuf.torch
from ringbuf import telemetry
from ringbuf.telemetry import _meter

LOADERS = {"numpy": ringbuf.RingLoader, "torch": ringbuf.torch.RingLoader}


def found(name):
    return [loader for loader in telemetry.find() if loader.name == name]


@pytest.mark.parametrize("Loader", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_is_found_from_its_first_pass_to_its_end(Loader, workers):
    name = next(names)
    with Loader(Rows(), 8, num_workers=workers, name=name) as loader:
        assert found(name) == []
        assert run(loader) == 8
        (there,) = found(name)
        assert there.pid == os.getpid() and 0 <= there.age_s < 60
        run(loader)
        assert len(found(name)) == 1
    assert found(name) == []


def test_a_loader_that_is_dropped_is_not_found():
    name = next(names)
    loader = ringbuf.RingLoader(Rows(), 8, num_workers=1, name=name)
    passing = iter(loader)
    next(passing)
    assert found(name)
    del loader, passing
    assert not found(name)


def test_a_process_is_seen_from_outside_until_it_is_killed(tmp_path):
    name = next(names)
    with trainer(2, tmp_path, name=name) as process:
        (there,) = found(name)
        assert there.pid == process.pid and there.program.startswith("trainer_")
        with telemetry.open(name) as reader:
            before = reader.snapshot()
            assert before.num_workers == 2 and reader.alive()
            assert eventually(lambda: reader.snapshot().consumer.batches > before.consumer.batches)
            process.kill()
            process.wait()
            assert eventually(lambda: not found(name))  # its workers may hold the page a moment longer
            assert not reader.alive()
            assert reader.snapshot().consumer.batches >= before.consumer.batches
    assert eventually(lambda: not [pid for pid, path in telemetry.search._candidates() if holds(path, name)])


def holds(path, name):
    try:
        return os.readlink(path).startswith(f"/memfd:{_meter.PREFIX}{name} ")
    except OSError:
        return False


@pytest.mark.parametrize("workers", [0, 2])
def test_a_process_that_is_stopped_can_be_looked_at(workers, tmp_path):
    name = next(names)
    with trainer(workers, tmp_path, name=name) as process:
        with telemetry.open(process.pid) as reader:
            # Workers are in groups of their own or not; that the trainer stands still is enough for its row to do so.
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            one = reader.snapshot()
            assert reader.alive() and one.consumer == reader.snapshot().consumer
            assert one.consumer.batches > 0 and reader.events().events
            process.send_signal(signal.SIGCONT)
            assert eventually(lambda: reader.snapshot().consumer.batches > one.consumer.batches)


# ---- names --------------------------------------------------------------------------------------------------------


def test_loaders_without_a_name_have_the_pid_in_theirs_and_differ(monkeypatch):
    monkeypatch.delenv("RINGBUF_NAME", raising=False)
    own = f"loader-{os.getpid()}"
    before = {loader.name for loader in telemetry.find() if loader.pid == os.getpid()}
    one, two = (ringbuf.RingLoader(Rows(), 8) for _ in range(2))
    run(one), run(two)
    new = {loader.name for loader in telemetry.find() if loader.pid == os.getpid()} - before
    assert len(new) == 2 and all(name == own or name.startswith(f"{own}-") for name in new)
    with pytest.raises(ValueError, match=rf"pid {os.getpid()} has several loaders: .*{own}.*give the name"):
        telemetry.open(os.getpid())


def test_the_environment_names_loaders_that_have_no_name_of_their_own(monkeypatch):
    name = next(names)
    monkeypatch.setenv("RINGBUF_NAME", name)
    train, test, other = (ringbuf.RingLoader(Rows(), 8, name=given) for given in (None, None, f"{name}-own"))
    for loader in (train, test, other):
        run(loader)
    assert [len(found(wanted)) for wanted in (name, f"{name}-2", f"{name}-own")] == [1, 1, 1]
    assert train.name is None


def test_a_second_pass_at_the_same_time_has_a_page_of_its_own():
    name = next(names)
    with ringbuf.RingLoader(Rows(), 8, num_workers=1, name=name) as loader:
        for _ in range(3):
            assert sum(1 for _ in zip(loader, loader)) == 8
        assert [len(found(wanted)) for wanted in (name, f"{name}-2", f"{name}-3")] == [1, 1, 0]
        assert loader.stats().batches == 3 * 16


@pytest.mark.parametrize("Loader", LOADERS.values(), ids=LOADERS)
def test_a_name_is_kept_by_copies_and_follows_the_rule_of_rings(Loader, monkeypatch):
    loader = Loader(Rows(), name="a.b-c_1")
    assert [twin.name for twin in (loader, copy.copy(loader), pickle.loads(pickle.dumps(loader)))] == ["a.b-c_1"] * 3
    for wrong in ("", "a/b", ".a", "x" * 201):
        with pytest.raises(ValueError, match="name must be"):
            Loader(Rows(), name=wrong)
    with pytest.raises(TypeError, match="must be a str"):
        Loader(Rows(), name=7)
    monkeypatch.setenv("RINGBUF_NAME", "a b")
    with pytest.raises(ValueError, match="RINGBUF_NAME is set"):
        Loader(Rows())


def test_a_loader_that_does_not_run_is_told_with_those_that_do():
    name = next(names)
    loader = ringbuf.RingLoader(Rows(), 8, name=name)
    run(loader)
    for wrong in (f"{name}-nowhere", 1):
        with pytest.raises(FileNotFoundError, match=rf"there is no .*{wrong}.*{name} \(pid {os.getpid()}\)"):
            telemetry.open(wrong)


def test_two_trainers_of_one_name_are_told_apart_by_their_pids(tmp_path):
    name = next(names)
    loader = ringbuf.RingLoader(Rows(), 8, name=name)
    run(loader)
    with trainer(0, tmp_path, name=name) as process:
        with pytest.raises(ValueError, match=f"pids {os.getpid()}, {process.pid}; give the pid"):
            telemetry.open(name)
        with telemetry.open(process.pid) as reader:
            assert reader.pid == process.pid and reader.snapshot().consumer.batches >= 16


def test_a_subclass_may_have_a_name_of_its_own():
    class Named(ringbuf.RingLoader):
        name = "any text / at all"

        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.name = Named.name

    loader = Named(Rows(), 8)
    assert run(loader) == 8 and not found(Named.name)


# ---- processes ----------------------------------------------------------------------------------------------------


def test_a_forked_child_has_a_page_of_its_own_and_leaves_the_parents_alone():
    name = next(names)
    loader = ringbuf.RingLoader(Rows(), 8, num_workers=1, name=name)
    run(loader)

    def child():
        assert run(loader) == 8
        assert loader.stats().batches == 8
        assert [there.pid for there in found(name)] == [os.getppid(), os.getpid()]

    assert forked(child) == 0
    assert loader.stats().batches == 8
    assert [there.pid for there in found(name)] == [os.getpid()]


def test_a_page_goes_with_the_trainer_although_a_child_lives_on():
    name = next(names)
    gate = Gate(1, 0)
    loader = ringbuf.RingLoader(Rows(), 8, name=name)

    def trains():
        run(loader)
        if os.fork() == 0:
            gate[0]
            os._exit(0)
        assert found(name)

    assert forked(trains) == 0
    held = [path for _, path in telemetry.search._candidates() if holds(path, name)]
    assert held and not found(name)
    gate.open()
    gate.close()
    assert eventually(lambda: not any(holds(path, name) for path in held))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_every_start_method_are_seen(method):
    name = next(names)
    with ringbuf.RingLoader(Rows(), 8, num_workers=2, multiprocessing_context=method, name=name) as loader:
        batches = iter(loader)
        next(batches)
        with telemetry.open(name) as reader:
            pids = {worker.pid for worker in batches._workers}
            assert eventually(lambda: {worker.pid for worker in reader.snapshot().workers} == pids)
        assert sum(1 for _ in batches) == 7
        assert sum(worker.batches for worker in loader.stats().by_worker) == 8


def test_a_pass_does_not_fail_of_descriptors_that_are_missing():
    """Nobody sees it then, and the account is complete where the trainer makes the batches itself."""
    done = script("""if True:
        import os, resource, sys
        sys.path.insert(0, sys.argv[1])
        import ringbuf
        from trainers import Rows, run
        loader = ringbuf.RingLoader(Rows(), 8, name="unseen")
        held = [os.dup(0)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (held[0] + 1, held[0] + 1))
        assert run(loader) == 8
        resource.setrlimit(resource.RLIMIT_NOFILE, (held[0] + 1, held[0] + 1))
        assert loader.stats().batches == 8 and loader.stats().by_worker[0].samples == 64
    """, os.path.dirname(__file__))
    assert done.returncode == 0, done.stderr


def test_the_page_cannot_shrink_under_a_reader():
    name = next(names)
    loader = ringbuf.RingLoader(Rows(), 8, name=name)
    run(loader)
    descriptor = os.open(found(name)[0].path, os.O_RDWR)
    assert fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)
    os.close(descriptor)


def test_a_pass_that_cannot_begin_leaves_the_name_to_the_next_one():
    name = next(names)
    with ringbuf.RingLoader(Rows(), 8, num_workers=1, name=name) as loader:
        run(loader)
        loader.worker_init_fn = lambda worker: None
        loader.multiprocessing_context = "spawn"  # which cannot pickle that
        with pytest.warns(UserWarning, match="Got pickle error"), pytest.raises(Exception, match="pickle"):
            iter(loader)
        loader.worker_init_fn = None
        loader.multiprocessing_context = None
        assert run(loader) == 8
        assert [len(found(wanted)) for wanted in (name, f"{name}-2")] == [1, 0]
