"""Random streams: one for each worker and pass, reproducible, and none of the main process's."""

import random

import numpy as np
import pytest
from loader_data import Draws, Numbered, Whoami, mark_dataset, numbers_in

import ringbuf
from ringbuf import RingLoader

torch = pytest.importorskip("torch", reason="one of the streams is torch's")


class TorchDraws:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        info = torch.utils.data.get_worker_info()
        return int(torch.randint(1 << 60, ())), torch.get_num_threads(), info.id, info.num_workers, info.seed


def draws(loader):
    return [tuple(part.tolist()) for batch in loader for part in batch]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_no_two_workers_and_no_two_passes_share_a_stream(method):
    with RingLoader(Draws(), 1, num_workers=2, multiprocessing_context=method) as loader:
        numbers = [(int(a[0]), int(b[0])) for _ in range(2) for a, b, _ in loader]
    assert len({a for a, _ in numbers}) == len({b for _, b in numbers}) == 16


def test_a_generator_makes_it_all_reproducible():
    def run():
        with RingLoader(Draws(), 2, num_workers=2, generator=11, shuffle=True) as loader:
            return draws(loader) + draws(loader)

    first = run()
    assert first == run()
    half = len(first) // 2
    assert first[:half] != first[half:]


def test_seeds_follow_the_rule():
    with RingLoader(Draws(4), 1, num_workers=2, generator=5) as loader:
        got = [tuple(int(part[0]) for part in batch) for batch in loader]
    base_seed = int(np.random.default_rng(5).integers(1 << 62))
    want = []
    for worker_id in range(2):
        python = random.Random(base_seed + worker_id)
        words = np.random.SeedSequence([worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]).generate_state(4)
        legacy = np.random.RandomState(words)
        want.append([(python.getrandbits(60), legacy.randint(1 << 60), base_seed + worker_id) for _ in range(2)])
    assert got == [want[0][0], want[1][0], want[0][1], want[1][1]]


def test_a_generator_object_is_drawn_from():
    stream = np.random.default_rng(5)
    with RingLoader(Numbered(8), 1, num_workers=1, generator=stream, shuffle=True) as loader:
        order = [numbers_in(batch)[0] for batch in loader]
    twin = np.random.default_rng(5)
    twin.integers(1 << 62)
    assert order == twin.permutation(8).tolist()
    assert stream.bit_generator.state == twin.bit_generator.state


def test_persistent_workers_go_on_with_their_streams():
    with RingLoader(Draws(4), 1, num_workers=1, generator=5, persistent_workers=True) as loader:
        persistent = [int(batch[0][0]) for _ in range(2) for batch in loader]
    with RingLoader(Draws(8), 1, num_workers=1, generator=5) as loader:
        assert persistent == [int(batch[0][0]) for batch in loader]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("generator", [None, 3])
def test_a_pass_leaves_the_main_processs_streams_alone(num_workers, generator):
    def states():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    before = states()
    with RingLoader(Numbered(8), 2, shuffle=True, num_workers=num_workers, generator=generator) as loader:
        for _ in loader:
            pass
    assert states() == before


def test_torch_is_seeded_told_and_kept_to_one_thread():
    with RingLoader(TorchDraws(), 1, num_workers=2) as loader:
        got = [[int(part[0]) for part in batch] for batch in loader]
    assert len({row[0] for row in got}) == 8
    assert [row[1:4] for row in got] == [[1, index % 2, 2] for index in range(8)]
    assert {row[4] - row[2] for row in got} == {got[0][4]}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_knows_who_it_is_and_task_k_is_worker_k_mod_ns(method):
    options = {"num_workers": 2, "multiprocessing_context": method, "worker_init_fn": mark_dataset, "slots": 12}
    with RingLoader(Whoami(12), 2, **options) as loader:
        batches = list(loader)
    assert [batch["id"].tolist() for batch in batches] == [[number % 2] * 2 for number in range(6)]
    assert [batch["mark"].tolist() for batch in batches] == [batch["id"].tolist() for batch in batches]
    assert all(batch["workers"].tolist() == [2, 2] and batch["same"].all() for batch in batches)


def test_init_runs_after_seeding_with_the_workers_id():
    with RingLoader(Draws(2), 1, num_workers=2, worker_init_fn=reseed) as loader:
        numbers = [int(batch[0][0]) for batch in loader]
    assert numbers == [random.Random(1000 + worker_id).getrandbits(60) for worker_id in range(2)]


def reseed(worker_id):
    random.seed(1000 + worker_id)


def test_worker_info_cannot_be_changed():
    with RingLoader(Tampers(), num_workers=1) as loader:
        assert [batch.tolist() for batch in loader] == [[True]]


class Tampers:
    def __len__(self):
        return 1

    def __getitem__(self, index):
        try:
            ringbuf.get_worker_info().id = 7
        except AttributeError:
            return True
        return False
