"""Datasets and other functions that workers need, in a module of their own so that spawned ones find them."""

import collections
import faulthandler
import os
import random
import signal
import threading

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info


class Numbers(Dataset):
    """Sample i is i, as a tensor."""

    def __init__(self, length=10):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.tensor(index)


class Samples(Dataset):
    """What it is given, by position."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


class Counting(Dataset):
    """Sample i is the int i."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return index


class Stream(IterableDataset):
    """Numbers from 0 on, shared out between the workers by their ids, or not."""

    def __init__(self, length, *, shared_out=True):
        self.length, self.shared_out = length, shared_out

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info is not None and self.shared_out else (0, 1)
        return iter([torch.tensor(number) for number in range(first, self.length, step)])


class ToldStream(Stream):
    """The same with a length, true or not."""

    def __init__(self, length, *, told, shared_out=True):
        super().__init__(length, shared_out=shared_out)
        self.told = told

    def __len__(self):
        return self.told


class Uneven(IterableDataset):
    """Worker k has so many numbers, which say whose they are."""

    def __init__(self, *lengths):
        self.lengths = lengths

    def __iter__(self):
        worker_id = get_worker_info().id
        return iter([torch.tensor([worker_id, number]) for number in range(self.lengths[worker_id])])


class CountingStream(IterableDataset):
    def __init__(self, length):
        self.length = length

    def __iter__(self):
        return iter(range(self.length))


class PulledTooOften(IterableDataset):
    """An iterator that would go on after its end."""

    def __init__(self):
        self.given = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.given += 1
        if self.given == 4:
            raise StopIteration
        return torch.tensor(self.given)


class WorkerIds(Dataset):
    """Each sample says which worker made it."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.tensor([index, get_worker_info().id])


class WaitsFor(Dataset):
    """Sample `at` waits until the event is set."""

    def __init__(self, event, at=0, length=4):
        self.event, self.at, self.length = event, at, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.at:
            assert self.event.wait(30), "nobody set the event"
        return torch.tensor(index)


class SetsWhenDone(Dataset):
    """Each sample raises a semaphore once it is made."""

    def __init__(self, made, length):
        self.made, self.length = made, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.made.release()
        return torch.tensor(index)


class Together(Dataset):
    """Fetches whole batches."""

    def __init__(self, length=10):
        self.length = length

    def __len__(self):
        return self.length

    def __getitems__(self, indices):
        assert type(indices) is list
        return [torch.tensor(100 + index) for index in indices]

    def __getitem__(self, index):
        return torch.tensor(index)


class TogetherButNot(Together):
    """Has the method, and says that it is not to be used."""

    __getitems__ = None


class TogetherLess(Together):
    """Leaves out what it cannot read."""

    def __getitems__(self, indices):
        return [torch.tensor(index) for index in indices if index % 3]


class Table(Together):
    """Gives a batch as columns."""

    def __getitems__(self, indices):
        return {"rows": list(indices)}


class OneBuffer(Dataset):
    """Hands out the same tensor each time."""

    def __init__(self, length=8):
        self.buffer = torch.zeros(3, dtype=torch.int64)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.buffer.fill_(index)


class Draws(Dataset):
    """Random numbers from every stream that a worker has, and what it says of its seed."""

    def __init__(self, length=8):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return draw()


class DrawingStream(IterableDataset):
    def __iter__(self):
        return iter([draw() for _ in range(4)])


def draw():
    info = get_worker_info()
    return {
        "random": random.getrandbits(60),
        "numpy": np.random.randint(1 << 60),
        "torch": torch.randint(1 << 60, ()),
        "initial": torch.initial_seed(),
        "seed": -1 if info is None else info.seed,
        "id": -1 if info is None else info.id,
    }


def seed_anew(worker_id):
    random.seed(worker_id)
    np.random.seed(worker_id)
    torch.manual_seed(worker_id)


class SeedSeenByInit(Dataset):
    """What worker_init_fn saw."""

    seen = None

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.seen


def note_seed(worker_id):
    get_worker_info().dataset.seen = {"id": worker_id, "initial": torch.initial_seed(), "seed": get_worker_info().seed}


class Introspective(Dataset):
    """Each sample tells about the worker that made it."""

    mark = -1

    def __init__(self, length=4):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        info = get_worker_info()
        return {
            "id": info.id,
            "num_workers": info.num_workers,
            "seed": info.seed,
            "same": info.dataset is self,
            "pid": os.getpid(),
            "threads": torch.get_num_threads(),
            "mark": self.mark,
            "type": f"{type(info).__module__}.{type(info).__qualname__}",
            "refuses": refuses_assignment(info),
        }


class Everything(Introspective):
    """The same, and random numbers."""

    def __getitem__(self, index):
        return super().__getitem__(index) | draw()


def refuses_assignment(info):
    try:
        info.id = 7
    except (AttributeError, RuntimeError):
        return info.id != 7
    return False


def mark_dataset(worker_id):
    get_worker_info().dataset.mark = worker_id + 10


def collate_with_worker_id(samples):
    info = get_worker_info()
    return -1 if info is None else info.id, len(samples)


class IdsOfSampler(torch.utils.data.Sampler):
    """Notes where it runs."""

    def __init__(self, length):
        self.length, self.places = length, []

    def __len__(self):
        return self.length

    def __iter__(self):
        for index in range(self.length):
            self.places.append((os.getpid(), get_worker_info()))
            yield index


class CountsInits(Dataset):
    """How often worker_init_fn ran, and how many samples this copy has made."""

    inits = 0
    made = 0

    def __len__(self):
        return 4

    def __getitem__(self, index):
        self.made += 1
        return torch.tensor([self.inits, self.made, os.getpid()])


def count_init(worker_id):
    get_worker_info().dataset.inits += 1


class CountsPasses(IterableDataset):
    """How often this copy was iterated."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        return iter([torch.tensor([self.passes, number]) for number in range(3)])


# ---- failures ---------------------------------------------------------------------------------------------------


class Raises(Dataset):
    """Raises `error` at one index, or at each."""

    def __init__(self, error, at=3, length=8):
        self.error, self.at, self.length = error, at, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.at is None or index == self.at:
            raise self.error
        return torch.tensor(index)


class RaisingStream(IterableDataset):
    """Raises after two samples."""

    def __iter__(self):
        yield torch.tensor(0)
        yield torch.tensor(1)
        raise ValueError("the stream broke")


class CannotIterate(IterableDataset):
    def __iter__(self):
        raise ValueError("no way to iterate")


class TwoArguments(Exception):
    def __init__(self, code, text):
        super().__init__(code, text)


class WithMessage(Exception):
    """Keeps its text in an attribute, and takes it by keyword only."""

    message = "none"

    def __init__(self, *, message):
        super().__init__(message)
        self.message = message

    def __reduce__(self):
        return remake, (self.message,)


def remake(message):
    return WithMessage(message=message)


def fail_to_init(worker_id):
    raise ValueError(f"no luck in worker {worker_id}")


def fail_to_collate(samples):
    raise ValueError(f"cannot collate {len(samples)} samples")


def make_a_lambda(samples):
    return lambda: samples


class Unpicklable(Numbers):
    def __init__(self):
        super().__init__()
        self.function = lambda: None


class Dies(Dataset):
    """Ends its worker at one index, in one of several ways, once the other worker has made its samples."""

    def __init__(self, how, at=1, length=4, others=None):
        self.how, self.at, self.length, self.others = how, at, length, others

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.at:
            if self.others is not None:
                assert self.others.acquire(timeout=30)
            die(self.how)
        elif self.others is not None:
            self.others.release()
        return torch.tensor(index)


def die(how):
    faulthandler.disable()  # which the test runner left on, and which has nothing to tell
    if isinstance(how, int):
        os._exit(how)
    if how == "segfault":
        import ctypes

        ctypes.string_at(1)
    if isinstance(how, BaseException):
        raise how
    os.kill(os.getpid(), getattr(signal, how))
    threading.Event().wait(30)


# ---- batches ----------------------------------------------------------------------------------------------------

Point = collections.namedtuple("Point", "x y")


class Dicts(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return {
            "a_tensor": torch.full((4, 2), float(index)),
            "a_dict": {"one": index, "text": f"sample {index}"},
            "a_list": [index, index + 0.5],
        }


class NamedTuples(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return Point(torch.full((3,), index), Point(index, str(index)))


class Strings(Dataset):
    def __init__(self, text="abcdefghijkl"):
        self.text = text

    def __len__(self):
        return len(self.text)

    def __getitem__(self, index):
        return self.text[index], index


class Box(torch.Tensor):
    """A tensor of its own class, with an attribute."""

    @staticmethod
    def __new__(cls, values, format):
        box = torch.Tensor._make_subclass(cls, torch.as_tensor(values))
        box.format = format
        return box


class Pair:
    """A batch of its own class, which knows how to pin itself."""

    def __init__(self, samples):
        inputs, targets = zip(*samples, strict=True)
        self.input, self.target = torch.stack(inputs), torch.stack(targets)
        self.pinned = False

    def pin_memory(self):
        self.input, self.target = self.input.pin_memory(), self.target.pin_memory()
        self.pinned = True
        return self


def pair(samples):
    return Pair(samples)


def pair_as_tuple(samples):
    return (Pair(samples),)


def pair_as_mapping(samples):
    return {"pair": Pair(samples)}


def pack(samples):
    lengths = [len(sample) for sample in samples]
    padded = torch.nn.utils.rnn.pad_sequence(samples)
    return torch.nn.utils.rnn.pack_padded_sequence(padded, lengths, enforce_sorted=False)


def as_list(samples):
    return list(samples)


def cloned(samples):
    return [sample.clone() for sample in samples]


def transposed(samples):
    return torch.stack(samples).T


def described(samples):
    return type(samples).__name__, samples


# ---- processes --------------------------------------------------------------------------------------------------


class Affinity(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return sorted(os.sched_getaffinity(0))


def bind_to_last_core(worker_id):
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])


class Convolves(Dataset):
    """Uses the library's threads in the worker."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.nn.functional.conv2d(torch.ones(1, 1, 8, 8), torch.ones(1, 1, 3, 3))[0]


class ParallelAdd(Dataset):
    """An operation large enough for a pool of threads."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return (torch.ones(1 << 17) + index).sum()
