"""Stopped and continued elsewhere; and what reaches workers that live on."""

import multiprocessing
import pickle

import pytest
from field_data import Filled, Raises
from field_loaders import TorchLoader, both, numbers, rows, same, torch
from processes import DEADLINE_S

context = multiprocessing.get_context("fork")


def shuffled(Loader, dataset=None, **options):
    generator = torch.Generator().manual_seed(5) if Loader is TorchLoader else 5
    return Loader(dataset or Filled(20, (1,)), 2, shuffle=True, generator=generator, **options)


def elsewhere(function):
    """function() in a new process, its result."""
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(function()))
    child.start()
    assert receiver.poll(DEADLINE_S)
    result = receiver.recv()
    child.join(DEADLINE_S)
    child.close()
    return result


@both
@pytest.mark.parametrize("taken", [0, 1, 9, 10, "end"])
def test_a_pass_that_was_stopped_goes_on_in_another_process_with_other_workers_and_another_prefetch(Loader, taken):
    with shuffled(Loader) as loader:
        undisturbed = [numbers(loader) for _ in range(3)]

    with shuffled(Loader, num_workers=2, prefetch_factor=4) as loader:
        iterator = iter(loader)
        seen = [rows(next(iterator)) for _ in range(10 if taken == "end" else taken)]
        if taken == "end":
            assert next(iterator, None) is None
        saved = pickle.dumps(loader.state_dict())

    def go_on():
        with shuffled(Loader, num_workers=1, prefetch_factor=1) as loader:
            loader.load_state_dict(pickle.loads(saved))
            again = same(loader.state_dict(), pickle.loads(saved))
            return again, [numbers(loader) for _ in range(3)]

    again, passes = elsewhere(go_on)
    assert again, "right after it was loaded, the state is what was loaded"
    first = [number for batch in seen for number in batch]
    if taken == "end":
        assert [first, *passes[:2]] == undisturbed
    else:
        # With the whole pass delivered and its end not yet seen, a pass of nothing is left.
        assert [first + passes[0], *passes[1:]] == undisturbed


@both
def test_a_state_may_be_saved_twice_in_a_pass_and_counts_only_what_was_delivered(Loader):
    with shuffled(Loader) as loader:
        undisturbed = numbers(loader)
    states = []
    with shuffled(Loader, num_workers=2, prefetch_factor=5) as loader:
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
            states.append(loader.state_dict())
    for delivered, state in enumerate(states, 1):
        with shuffled(Loader, num_workers=1) as loader:
            loader.load_state_dict(state)
            assert numbers(loader) == undisturbed[2 * delivered :]


@both
def test_an_error_counts_as_its_batch_when_a_pass_goes_on(Loader):
    def loader():
        return Loader(Raises(ValueError, at=3, length=8), 2, num_workers=1)

    with loader() as first:
        iterator = iter(first)
        next(iterator)
        with pytest.raises(ValueError):
            next(iterator)
        state = first.state_dict()
    with loader() as second:
        second.load_state_dict(state)
        assert numbers(second) == [4, 5, 6, 7]


# ---- what reaches persistent workers ------------------------------------------------------------------------------


class Shifted(Filled):
    """Its samples depend on an attribute, and on the epoch that it was told."""

    start = epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        return super().__getitem__(index) + self.start + 1000 * self.epoch


class Rotated:
    """A sampler that begins elsewhere in each epoch."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 6

    def __iter__(self):
        return iter([(number + self.epoch) % 6 for number in range(6)])


@both
@pytest.mark.parametrize("persistent", [False, True])
def test_a_change_of_the_dataset_reaches_only_workers_that_start_after_it(Loader, persistent):
    dataset = Shifted(6, (1,))
    with Loader(dataset, 2, num_workers=2, persistent_workers=persistent) as loader:
        assert numbers(loader) == list(range(6))
        dataset.start = 100
        assert numbers(loader) == ([0, 1, 2, 3, 4, 5] if persistent else [100, 101, 102, 103, 104, 105])
        loader.reset()
        assert numbers(loader) == [100, 101, 102, 103, 104, 105]


@both
@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}], ids=str)
def test_an_epoch_reaches_sampler_and_dataset_wherever_they_are(Loader, options):
    with Loader(Shifted(6, (1,)), 2, sampler=Rotated(), **options) as loader:
        for epoch in (0, 2, 1):
            loader.set_epoch(epoch)
            assert numbers(loader) == [1000 * epoch + (number + epoch) % 6 for number in range(6)]


@both
def test_a_change_of_the_sampler_is_in_the_next_pass_of_persistent_workers(Loader):
    sampler = Rotated()
    with Loader(Filled(6, (1,)), 2, sampler=sampler, num_workers=2, persistent_workers=True) as loader:
        for epoch in (0, 3, 5):
            sampler.set_epoch(epoch)
            assert numbers(loader) == [(number + epoch) % 6 for number in range(6)]
