"""What a batch is to who gets it: whose memory, which class, and pinned by whom.

Of torch's own suite: TestStringDataLoader, TestDictDataLoader, TestNamedTupleDataLoader, TestCustomPinFn and packed sequences,
TestDataLoaderDeviceType's nested tensors, shared-memory collate.
"""

import copy
import io
import pickle
import warnings

import pytest
import torch

from conformance.data import (
    Box,
    Counting,
    Dicts,
    NamedTuples,
    Numbers,
    OneBuffer,
    Pair,
    Point,
    Samples,
    Strings,
    as_list,
    cloned,
    pack,
    pair,
    pair_as_mapping,
    pair_as_tuple,
    transposed,
)
from conformance.expect import either, same

without_accelerator = pytest.mark.skipif(
    torch.accelerator.is_available(), reason="is about machines that have no accelerator"
)


# ---- classes ----------------------------------------------------------------------------------------------------


def test_strings_stay_strings(Loader, num_workers):
    loader = Loader(Strings("abcdef"), 2, num_workers=num_workers)
    assert [(list(texts), numbers.tolist()) for texts, numbers in loader] == [
        (["a", "b"], [0, 1]),
        (["c", "d"], [2, 3]),
        (["e", "f"], [4, 5]),
    ]


def test_dicts_stay_dicts_at_every_level(Loader, num_workers):
    first, second = Loader(Dicts(), 2, num_workers=num_workers)
    assert list(first) == ["a_tensor", "a_dict", "a_list"]
    assert same(
        second,
        {
            "a_tensor": torch.stack([torch.full((4, 2), 2.0), torch.full((4, 2), 3.0)]),
            "a_dict": {"one": torch.tensor([2, 3]), "text": ["sample 2", "sample 3"]},
            "a_list": [torch.tensor([2, 3]), torch.tensor([2.5, 3.5]).double()],
        },
    )


def test_named_tuples_stay_named_tuples(Loader, num_workers):
    first, _ = Loader(NamedTuples(), 2, num_workers=num_workers)
    assert same(first, Point(torch.tensor([[0] * 3, [1] * 3]), Point(torch.tensor([0, 1]), ("0", "1"))))


PAIRS = [(torch.full((3,), number), torch.tensor(number)) for number in range(4)]


def test_a_class_of_ones_own_comes_from_collate(Loader, num_workers):
    first, second = Loader(Samples(PAIRS), 2, collate_fn=pair, num_workers=num_workers)
    assert type(second) is Pair and second.target.tolist() == [2, 3]
    assert same(first.input, torch.tensor([[0] * 3, [1] * 3]))


def test_packed_sequences_come_from_collate(Loader, num_workers):
    sequences = [torch.arange(length, dtype=torch.float32) for length in (3, 1, 2)]
    (batch,) = Loader(Samples(sequences), 3, collate_fn=pack, num_workers=num_workers)
    padded, lengths = torch.nn.utils.rnn.pad_packed_sequence(batch, batch_first=True)
    assert lengths.tolist() == [3, 1, 2]
    assert padded.tolist() == [[0, 1, 2], [0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("options", [{"batch_size": None}, {"collate_fn": as_list}], ids=["unbatched", "collated"])
def test_tensors_of_ones_own_class_stay_what_they_are(Loader, num_workers, options):
    boxes = [Box([1.0, 2.0], "xy"), Box([3.0, 4.0], "yx")]
    for expected, found in zip(boxes, Loader(Samples(boxes), num_workers=num_workers, **options), strict=True):
        box = found[0] if type(found) is list else found
        assert type(box) is Box and box.format == expected.format and box.tolist() == expected.tolist()


def test_the_default_collate_keeps_the_class_of_tensors(Loader, num_workers):
    (batch,) = Loader(Samples([Box([1.0], "a"), Box([2.0], "b")]), 2, num_workers=num_workers)
    assert type(batch) is Box and batch.tolist() == [[1], [2]]


def test_parameters_come_from_collate(Loader, num_workers):
    parameter = torch.nn.Parameter(torch.ones(2))
    (batch,) = Loader(Samples([parameter]), collate_fn=as_list, num_workers=num_workers)
    assert type(batch[0]) is torch.nn.Parameter and batch[0].requires_grad and batch[0].tolist() == [1, 1]


def test_the_order_of_a_tensors_bytes(Loader, num_workers):
    (batch,) = Loader(Samples([torch.arange(3), torch.arange(3)]), 2, collate_fn=transposed, num_workers=num_workers)
    assert batch.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert batch.stride() == (1, 3)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors_come_from_collate(Loader, num_workers, layout):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are a prototype, torch says
        samples = [torch.nested.nested_tensor([torch.arange(3.0) + number], layout=layout) for number in range(3)]
        for number, (batch,) in enumerate(Loader(Samples(samples), 1, collate_fn=cloned, num_workers=num_workers)):
            assert batch.is_nested and torch.equal(batch[0], torch.arange(3.0) + number)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
def test_sparse_tensors_come_from_collate(Loader, num_workers):
    samples = [torch.eye(3).to_sparse() * number for number in (1, 2)]
    (batch,) = Loader(Samples(samples), 2, collate_fn=as_list, num_workers=num_workers)
    assert [tensor.layout for tensor in batch] == [torch.sparse_coo] * 2
    assert torch.equal(batch[1].to_dense(), torch.eye(3) * 2)


def test_collate_may_return_anything(Loader, num_workers):
    for number, answer in enumerate([None, "text", {1, 2}, torch.float16, ...]):
        loader = Loader(Counting(1), collate_fn=Answers(answer), num_workers=num_workers)
        (batch,) = loader
        assert type(batch) is type(answer) and batch == answer, number


class Answers:
    def __init__(self, answer):
        self.answer = answer

    def __call__(self, samples):
        return self.answer


class Fruit:
    def __init__(self, name):
        self.name = name


def basket(samples, *, collate_fn_map=None):
    return "+".join(sample.name for sample in samples)


def test_the_default_collate_can_be_taught_a_class(Loader, num_workers, monkeypatch):
    from torch.utils.data._utils.collate import default_collate_fn_map

    monkeypatch.setitem(default_collate_fn_map, Fruit, basket)
    (batch,) = Loader(Samples([(Fruit("fig"), 1), (Fruit("plum"), 2)]), 2, num_workers=num_workers)
    assert same(batch, ["fig+plum", torch.tensor([1, 2])])


def test_the_default_collate_can_be_taught_another_way_with_tensors(Loader, num_workers, monkeypatch):
    from torch.utils.data._utils.collate import default_collate_fn_map

    monkeypatch.setitem(default_collate_fn_map, torch.Tensor, as_sum)
    (batch,) = Loader(Numbers(4), 4, num_workers=num_workers)
    assert same(batch, torch.tensor(6))


def as_sum(samples, *, collate_fn_map=None):
    return sum(samples)


# ---- memory -----------------------------------------------------------------------------------------------------


def test_a_batch_may_be_written_to_and_nobody_else_sees_it(Loader, num_workers):
    dataset = Samples([torch.full((2,), number) for number in range(8)])
    loader = Loader(dataset, 2, num_workers=num_workers)
    for _ in range(2):
        for number, batch in enumerate(loader):
            assert batch.tolist() == [[2 * number] * 2, [2 * number + 1] * 2]
            batch.zero_()
            batch.add_(100).t_()
    assert [sample.tolist() for sample in dataset.samples] == [[number] * 2 for number in range(8)]


def test_batches_may_be_kept(Loader, num_workers):
    batches = list(Loader(Numbers(60), 2, num_workers=num_workers))
    assert torch.equal(torch.stack(batches), torch.arange(60).reshape(30, 2))


def test_batches_outlive_the_loader_and_a_view_the_batch(Loader, num_workers):
    def views():
        loader = Loader(Samples(list(torch.arange(12.0).reshape(4, 3))), 2, num_workers=num_workers)
        return [batch[1:, ::2] for batch in loader]

    first, second = views()
    assert (first.tolist(), second.tolist()) == ([[3, 5]], [[9, 11]])
    first += 1
    assert first.tolist() == [[4, 6]]


def test_a_dataset_that_hands_out_one_buffer_each_time(Loader, num_workers):
    """Our workers copy each sample before they ask for the next one. torch gathers references to the one buffer first, and so
    does ours in process."""
    of_torch = [[1, 1], [3, 3], [5, 5], [7, 7]]
    expected = either(Loader, torch=of_torch, ringbuf=[[0, 1], [2, 3], [4, 5], [6, 7]] if num_workers else of_torch)
    loader = Loader(OneBuffer(), 2, num_workers=num_workers)
    assert [batch[:, 0].tolist() for batch in loader] == expected


def test_tensors_of_a_batch_are_plain(Loader, num_workers):
    (batch,) = Loader(Numbers(3), 3, num_workers=num_workers)
    assert type(batch) is torch.Tensor and batch.is_contiguous() and not batch.requires_grad
    assert batch.device == torch.device("cpu")
    assert batch.numpy().flags.writeable


def test_a_batch_can_be_saved_copied_and_sent_on(Loader, num_workers):
    first, _ = Loader(Numbers(8), 4, num_workers=num_workers)
    file = io.BytesIO()
    torch.save(first, file)
    assert file.tell() < 4096  # itself, not what lies beside it
    file.seek(0)
    queue = torch.multiprocessing.get_context("fork").SimpleQueue()
    queue.put(first)
    for twin in (torch.load(file), copy.deepcopy(first), pickle.loads(pickle.dumps(first)), queue.get()):
        assert same(twin, torch.arange(4))


def test_a_batch_can_be_moved_to_torchs_own_shared_memory(Loader, num_workers):
    """There torch's workers have put it already. Of ours it lies in a slot, which torch takes for private memory."""
    (batch,) = Loader(Numbers(4), 4, num_workers=num_workers)
    assert batch.is_shared() == either(Loader, torch=num_workers > 0, ringbuf=False)
    assert batch.share_memory_().is_shared() and batch.tolist() == [0, 1, 2, 3]


def test_a_batch_can_be_differentiated_by_and_its_clone_resized(Loader, num_workers):
    (batch,) = Loader(Samples([torch.ones(2), torch.ones(2)]), 2, num_workers=num_workers)
    batch.requires_grad_()
    (batch * 3).sum().backward()
    assert batch.grad.tolist() == [[3, 3], [3, 3]]
    assert batch.detach().clone().resize_(8).shape == (8,)


# ---- pinning ----------------------------------------------------------------------------------------------------


@without_accelerator
def test_pinning_without_an_accelerator_is_warned_of_and_not_done(Loader, num_workers):
    loader = Loader(Numbers(2), 2, pin_memory=True, num_workers=num_workers)
    with pytest.warns(UserWarning, match="no accelerator is found") as told:
        iterator = iter(loader)
    assert len(told) == 1
    (batch,) = iterator
    assert batch.tolist() == [0, 1] and not batch.is_pinned()


@without_accelerator
@pytest.mark.filterwarnings("ignore:.*no accelerator is found:UserWarning")
@pytest.mark.parametrize("collate_fn", [pair, pair_as_tuple, pair_as_mapping])
def test_without_an_accelerator_nobody_is_asked_to_pin_itself(Loader, num_workers, collate_fn):
    (batch,) = Loader(Samples(PAIRS), 4, collate_fn=collate_fn, pin_memory=True, num_workers=num_workers)
    batch = batch[0] if collate_fn is pair_as_tuple else batch["pair"] if collate_fn is pair_as_mapping else batch
    assert type(batch) is Pair and not batch.pinned


@without_accelerator
@pytest.mark.filterwarnings("ignore:.*no accelerator is found:UserWarning")
def test_the_device_to_pin_for_is_deprecated(Loader):
    with pytest.warns(UserWarning, match="pin_memory_device is deprecated"):
        iter(Loader(Numbers(2), pin_memory=True, pin_memory_device="cuda"))


@without_accelerator
def test_a_device_without_pinning_is_not_warned_of(Loader):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(Loader(Numbers(2), pin_memory_device="cuda"))) == 2
