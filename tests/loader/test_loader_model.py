"""Random programs over random loaders, checked against the plainest loader there is."""

import gc

import numpy as np
import pytest
from loader_data import Numbered, Stream

from ringbuf import RingLoader


class Varied(Numbered):
    """Samples of many sizes; one of them fails."""

    def __init__(self, length, random):
        super().__init__(length)
        self.sizes = (10 ** random.uniform(0, 5.2, length)).astype(int)
        self.fails = int(random.integers(2 * length + 1))

    def __getitem__(self, index):
        if index == self.fails:
            raise ValueError(index)
        return [np.full(self.sizes[index], index, np.uint8), index, f"{index}"]


def listed(samples):
    return samples


def plain(dataset, batch_size, drop_last):
    """What a pass gives, as comparable values, without any of our code."""
    if isinstance(dataset, Stream):
        samples = [int(sample) for sample in dataset]
        batches = [samples[start : start + batch_size] for start in range(0, len(samples), batch_size)]
        return [batch for batch in batches if len(batch) == batch_size or not drop_last]
    batches = []
    for start in range(0, len(dataset), batch_size):
        indices = range(start, min(start + batch_size, len(dataset)))
        if len(indices) < batch_size and drop_last:
            continue
        batches.append("error" if dataset.fails in indices else [[dataset.sizes[index], index] for index in indices])
    return batches


def seen(batch):
    """The same of a batch, its content checked."""
    if isinstance(batch, np.ndarray):
        return batch.tolist()
    for array, number, text in batch:
        assert (array == number % 256).all()
        assert text == str(number)
    return [[array.size, number] for array, number, _ in batch]


@pytest.mark.filterwarnings("ignore:RingLoader. .* slots are still looked at:UserWarning")
@pytest.mark.parametrize("seed", range(25))
def test_a_random_program_sees_what_the_plainest_loader_gives(seed):
    random = np.random.default_rng(seed)
    dataset = Varied(int(random.integers(1, 60)), random) if random.random() < 0.7 else Stream(int(random.integers(60)))
    batch_size, drop_last = int(random.integers(1, 9)), bool(random.integers(2))
    num_workers = 1 if isinstance(dataset, Stream) else int(random.integers(1, 3))
    loader = RingLoader(
        dataset,
        batch_size,
        drop_last=drop_last,
        collate_fn=None if isinstance(dataset, Stream) else listed,
        num_workers=num_workers,
        prefetch_factor=int(random.integers(1, 6)),
        persistent_workers=bool(random.integers(2)),
        slots=None if random.random() < 0.5 else int(random.integers(1, 12)),
    )
    want = plain(dataset, batch_size, drop_last)
    kept = []  # (batch, what it is)
    iterator, place = None, 0
    for _ in range(120):
        action = random.choice(["next", "iter", "drop", "collect", "check"], p=[0.8, 0.06, 0.05, 0.03, 0.06])
        if action == "iter" or iterator is None:
            iterator, place = iter(loader), 0
        elif action == "next":
            try:
                batch = next(iterator)
            except StopIteration:
                assert place == len(want)
                iterator = None
                continue
            except ValueError:
                assert want[place] == "error"
            else:
                assert seen(batch) == want[place]
                kept.append((batch, want[place]))
                kept = kept[-int(random.integers(1, 30)) :]
            place += 1
        elif action == "drop":
            kept = []
        elif action == "collect":
            iterator = None
            gc.collect()
        else:
            for batch, expected in kept:
                assert seen(batch) == expected
    loader.close()
    for batch, expected in kept:
        assert seen(batch) == expected
