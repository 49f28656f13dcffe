"""accelerate, with a RingLoader where torch's loader would be."""

import json
import multiprocessing
import pickle
import warnings

import accelerate
import pytest
import torch
from accelerate.state import AcceleratorState, GradientState
from framework_data import LOADERS, RING_OPTIONS, Epochs, Line, Stream, flat, options_of

import ringbuf.accelerate
from ringbuf.torch import RingLoader, rebuilding

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def nothing_warned_yet(monkeypatch):
    monkeypatch.setattr(rebuilding, "warned", False)


def accelerator(**options):
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    return accelerate.Accelerator(cpu=True, **options)


def prepare(here, loader):
    """As whoever has the loader would."""
    return ringbuf.accelerate.prepare(here, loader) if isinstance(loader, RingLoader) else here.prepare(loader)


def listed(batches):
    return [[part.tolist() for part in batch] if isinstance(batch, list) else batch.tolist() for batch in batches]


CONFIGS = {
    "as it is": {},
    "with a sampler of accelerate's": {"use_seedable_sampler": True},
    "dispatched": {"dispatch_batches": True, "even_batches": False},
}


def in_each_process(folder):
    """Run by each of several processes: what it gets in two epochs from either loader, in a file of its own."""
    shares = {}
    for name, config in CONFIGS.items():
        here = accelerate.Accelerator(cpu=True, dataloader_config=accelerate.DataLoaderConfiguration(**config))
        for Loader in LOADERS.values():
            torch.manual_seed(5)
            loader = prepare(here, Loader(Line(), batch_size=4, shuffle=True, num_workers=1))
            batches, states = [], []
            for _ in range(2):
                for x, _ in loader:
                    batches.append(x.tolist())
                    states.append(loader.state_dict() if Loader is RingLoader else {})
            places = [state.get("position") for state in states]
            shares[f"{name}, {Loader.__name__}"] = [type(loader).__name__, batches, places]
            if name == "as it is" and Loader is RingLoader:
                torch.manual_seed(6)
                again = prepare(here, Loader(Line(), batch_size=4, shuffle=True))
                again.load_state_dict(states[5])  # the second batch of the second epoch
                shares["resumed"] = [x.tolist() for x, _ in again]
    (folder / f"{here.process_index}.json").write_text(json.dumps(shares))


@pytest.fixture(scope="module")
def shares(tmp_path_factory):
    """Of two processes."""
    folder = tmp_path_factory.mktemp("shares")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OMP_NUM_THREADS", "1")  # or accelerate warns that it does so
        accelerate.debug_launcher(in_each_process, (folder,), num_processes=2)
    return [json.loads((folder / f"{process}.json").read_text()) for process in range(2)]


@pytest.mark.parametrize("config", CONFIGS)
def test_each_of_two_processes_gets_the_share_that_torchs_loader_gives_it(shares, config):
    for share in shares:
        kind, ours, _ = share[f"{config}, RingLoader"]
        _, theirs, _ = share[f"{config}, DataLoader"]
        assert kind == ("_Dispatcher" if config == "dispatched" else "_Shard")
        assert ours == theirs
        assert len(ours) == 2 * 4
    first, second = (share[f"{config}, RingLoader"][1] for share in shares)
    assert first != second


def test_the_place_in_two_processes_counts_the_batches_that_were_handed_out(shares):
    first = shares[0]
    assert first["as it is, RingLoader"][2] == 2 * [1, 2, 3, 0]
    assert first["dispatched, RingLoader"][2] == 2 * [2, 4, 6, 0]  # the first process reads for both


def test_a_saved_place_is_found_again_in_each_of_two_processes(shares):
    for share in shares:
        assert share["resumed"] == share["as it is, RingLoader"][1][6:]
        assert len(share["resumed"]) == 2


def trained(make, **config):
    """(which steps were the last of an accumulated gradient, batches, weights) of two epochs."""
    here = accelerator(gradient_accumulation_steps=4, **config)
    torch.manual_seed(1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = here.prepare(model, optimizer, make(here))
    steps, batches = [], []
    for _ in range(2):
        for x, y in loader:
            with here.accumulate(model):
                here.backward(torch.nn.functional.mse_loss(model(x), y))
                optimizer.step()
                optimizer.zero_grad()
            steps.append(here.sync_gradients)
            batches.append([x.tolist(), y.tolist(), here.gradient_state.remainder])
    return steps, batches, [parameter.tolist() for parameter in model.parameters()]


def test_training_with_accumulated_gradients_ends_with_the_numbers_of_torchs_loader():
    options = {"batch_size": 4, "shuffle": True, "num_workers": 2}
    theirs = trained(lambda here: LOADERS["theirs"](Line(), **options))
    ours = trained(lambda here: ringbuf.accelerate.prepare(here, LOADERS["ours"](Line(), **options)))
    assert ours == theirs
    assert ours[0] == 2 * [False, False, False, True, False, False, True]


def test_a_prepared_loader_is_a_ringloader_with_all_its_options():
    here = accelerator()
    loader = RingLoader(Line(), batch_size=4, num_workers=2, prefetch_factor=3, **RING_OPTIONS)
    prepared = ringbuf.accelerate.prepare(here, loader)
    assert isinstance(prepared, RingLoader) and options_of(prepared) == RING_OPTIONS
    assert (prepared.num_workers, prepared.prefetch_factor, len(prepared)) == (2, 3, 7)
    listed(prepared)
    assert (prepared.stats().batches, loader.stats().batches) == (7, 0)
    assert here._dataloaders == [prepared]


class Named(RingLoader):
    def __init__(self, name, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.name = name


def test_a_subclass_stays_one():
    prepared = ringbuf.accelerate.prepare(accelerator(), Named("train", Line(), batch_size=4, **RING_OPTIONS))
    assert isinstance(prepared.base_dataloader, Named)
    assert prepared.name == "train" and options_of(prepared) == RING_OPTIONS


def test_preparing_it_once_more_changes_nothing():
    here = accelerator()
    prepared = ringbuf.accelerate.prepare(here, RingLoader(Line(), batch_size=4))
    assert here.prepare(prepared) is prepared
    assert ringbuf.accelerate.prepare(here, prepared) is prepared
    assert here._dataloaders == [prepared]


def test_batches_are_moved_to_the_device():
    here = accelerator()
    here.state.device = torch.device("meta")
    loaders = [RingLoader(Line(), batch_size=4, num_workers=1) for _ in range(2)]
    moved, unmoved = (
        ringbuf.accelerate.prepare(here, loader, device_placement=placed) for loader, placed in zip(loaders, [None, False])
    )
    assert {x.device.type for x, _ in moved} == {"meta"}
    assert {x.device.type for x, _ in unmoved} == {"cpu"}


def test_workers_that_live_on_hear_of_each_epoch():
    loader = RingLoader(Epochs(), batch_size=26, num_workers=1, persistent_workers=True)
    prepared = ringbuf.accelerate.prepare(accelerator(), loader)
    told, pids = [], set()
    for epoch in (None, None, None, 7):
        if epoch is not None:
            prepared.set_epoch(epoch)
        for _, epochs in prepared:
            told.append(epochs.unique().tolist())
            pids |= {child.pid for child in multiprocessing.active_children()}
    prepared.close()
    assert len(pids) == 1
    assert told == [[0], [1], [2], [7]]


def test_the_accelerators_state_has_the_place_of_the_loader(tmp_path):
    def begin(num_workers):
        here = accelerator()
        loader = RingLoader(Line(), 4, shuffle=True, num_workers=num_workers, seed_by="sample")
        return here, ringbuf.accelerate.prepare(here, loader)

    here, loader = begin(num_workers=1)
    torch.manual_seed(1)
    listed(loader)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    here.save_state(tmp_path)
    rest = listed(batches) + listed(loader)

    here, loader = begin(num_workers=2)
    here.load_state(tmp_path)
    assert listed(loader) + listed(loader) == rest
    assert len(rest) == 4 + 7
    assert loader.iteration == 3


def test_a_state_at_the_end_of_an_epoch_begins_with_the_next():
    loader = ringbuf.accelerate.prepare(accelerator(), RingLoader(Epochs(), batch_size=13))
    for _ in loader:
        state = loader.state_dict()
    again = ringbuf.accelerate.prepare(accelerator(), RingLoader(Epochs(), batch_size=13))
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert [epochs.unique().tolist() for _, epochs in again] == [[1], [1]]


def test_first_batches_can_be_skipped():
    loader = ringbuf.accelerate.prepare(accelerator(), RingLoader(Line(), 4, num_workers=1, **RING_OPTIONS))
    skipped = ringbuf.accelerate.skip_first_batches(loader, 5)
    assert isinstance(skipped, RingLoader) and options_of(skipped) == RING_OPTIONS
    assert [x.flatten().tolist() for x, _ in skipped] == [x.flatten().tolist() for x, _ in loader][5:]
    assert skipped.stats().batches == 2


def test_a_stream_is_read_once_and_sliced_for_all_processes():
    batches = {}
    for name, Loader in LOADERS.items():
        batches[name] = listed(prepare(accelerator(), Loader(Stream(), batch_size=4, num_workers=2)))
    assert batches["ours"] == batches["theirs"]
    assert sorted(flat(batches["ours"])) == list(range(26))


def test_a_prepared_loader_pickles_as_a_fresh_one():
    loader = ringbuf.accelerate.prepare(accelerator(), RingLoader(Line(), 4, num_workers=1, **RING_OPTIONS))
    batches = listed(loader)
    again = pickle.loads(pickle.dumps(loader))
    assert type(again) is type(loader) and options_of(again) == RING_OPTIONS
    assert len(listed(again)) == len(batches)


def test_other_loaders_are_refused():
    with pytest.raises(TypeError, match=r"ringbuf\.torch\.RingLoader, but got DataLoader"):
        ringbuf.accelerate.prepare(accelerator(), torch.utils.data.DataLoader(Line()))
    with pytest.raises(TypeError, match="prepare returned, but got RingLoader"):
        ringbuf.accelerate.skip_first_batches(RingLoader(Line()), 1)


# ---- the warning


def test_losing_the_ring_is_warned_of_once_at_the_line_that_loses_it():
    with pytest.warns(UserWarning, match=r"ringbuf\.accelerate\.prepare") as caught:
        lost = accelerator().prepare(RingLoader(Line()))
    assert not isinstance(lost, RingLoader)
    assert [warning.filename for warning in caught] == [__file__]
    accelerator().prepare(RingLoader(Line()))  # not again


def test_losing_it_by_skipping_batches_is_warned_of():
    here = accelerator()
    loader = ringbuf.accelerate.prepare(here, RingLoader(Line()))
    with pytest.warns(UserWarning, match=r"ringbuf\.accelerate\.skip_first_batches"):
        here.skip_first_batches(loader, 1)


def test_nothing_is_warned_of_while_the_ring_stays():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        here = accelerator()
        loader = RingLoader(Line(), 13, num_workers=1)
        prepared = ringbuf.accelerate.prepare(here, loader)
        here.prepare(prepared, torch.nn.Linear(1, 1))
        assert len(listed(ringbuf.accelerate.skip_first_batches(prepared, 1)) + listed(prepared)) == 1 + 2
        assert loader.multiprocessing_context is prepared.multiprocessing_context is None
        here.prepare(torch.utils.data.DataLoader(Line()))  # nothing of ours
