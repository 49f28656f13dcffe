"""Hugging Face datasets in a RingLoader."""

import datasets
import pytest
import torch
from framework_data import LOADERS, flat

from ringbuf.torch import RingLoader

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def table():
    columns = {"n": list(range(26)), "x": [[n / 2, n / 3] for n in range(26)], "text": [f"sample {n}" for n in range(26)]}
    return datasets.Dataset.from_dict(columns)


def rows_of(shards):
    for shard in shards:
        for n in range(shard * 10, shard * 10 + 10):
            yield {"n": n}


def stream():
    """Three shards of ten samples: 0 to 29."""
    return datasets.IterableDataset.from_generator(rows_of, gen_kwargs={"shards": [0, 1, 2]})


def plain(value):
    """Types and numbers, without the tensors."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.tolist()
    return [plain(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", [None, "torch", "numpy"])
def test_a_table_gives_the_batches_of_torchs_loader(kind):
    batches = {}
    for name, Loader in LOADERS.items():
        dataset = table().with_format(kind)
        assert callable(dataset.__getitems__)  # a batch is fetched at once
        torch.manual_seed(1)
        loader = Loader(dataset, batch_size=4, shuffle=True, num_workers=2)
        batches[name] = [plain(batch) for batch in loader]
    assert batches["ours"] == batches["theirs"]
    assert sorted(flat(batch["n"][1] for batch in batches["ours"])) == list(range(26))


def test_a_map_over_a_table_runs_in_the_workers():
    dataset = table().with_format("torch").with_transform(lambda rows: {"twice": [2 * n for n in rows["n"]]})
    batches = list(RingLoader(dataset, batch_size=13, num_workers=2))
    assert [batch["twice"].tolist() for batch in batches] == [list(range(0, 26, 2)), list(range(26, 52, 2))]


def test_a_stream_of_three_shards_gives_each_sample_once_to_two_workers():
    batches = {}
    for name, Loader in LOADERS.items():
        batches[name] = [batch["n"].tolist() for batch in Loader(stream(), batch_size=4, num_workers=2)]
    assert batches["ours"] == batches["theirs"]
    assert sorted(flat(batches["ours"])) == list(range(30))


def test_an_epoch_reaches_workers_that_live_on():
    dataset = stream().shuffle(seed=3, buffer_size=10)
    orders = []
    with RingLoader(dataset, batch_size=5, num_workers=2, persistent_workers=True) as loader:
        for epoch in (0, 1, 0):
            loader.set_epoch(epoch)
            orders.append([batch["n"].tolist() for batch in loader])
    first, second, again = orders
    assert first == again != second
    assert sorted(flat(second)) == list(range(30))


def test_a_stream_goes_on_where_it_was_saved():
    def loader():
        return RingLoader(stream().shuffle(seed=3, buffer_size=10), batch_size=4, num_workers=2)

    first = loader()
    first.set_epoch(1)
    batches = iter(first)
    for _ in range(3):
        next(batches)
    state = first.state_dict()
    rest = [batch["n"].tolist() for batch in batches]

    second = loader()
    second.load_state_dict(state)
    assert [batch["n"].tolist() for batch in second] == rest
    assert len(rest) == 8 - 3
