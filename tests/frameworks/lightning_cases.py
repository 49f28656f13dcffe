"""Lightning's Trainer and Fabric, with a RingLoader where torch's loader would be."""

import multiprocessing

import pytest
import pytorch_lightning as pl
import torch
from framework_data import LOADERS, RING_OPTIONS, Line, options_of
from lightning_fabric import Fabric
from pytorch_lightning.trainer.states import RunningStage
from pytorch_lightning.utilities.data import _update_dataloader
from torch.utils.data import DistributedSampler

from ringbuf.torch import RingLoader

pytestmark = pytest.mark.filterwarnings(
    "ignore::lightning_fabric.utilities.warnings.PossibleUserWarning",  # advice: more workers, a validation loader
    "ignore::FutureWarning",  # what it uses of torch
    "ignore::DeprecationWarning",
)


class Model(pl.LightningModule):
    """Remembers what it was given."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(1, 1)
        self.seen = []
        self.losses = []

    def loss(self, batch):
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def training_step(self, batch, number):
        self.seen.append([part.clone() for part in batch])
        return self.loss(batch)

    def validation_step(self, batch, number):
        self.losses.append(self.loss(batch).item())

    def predict_step(self, batch, number):
        return batch[0]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(folder, *callbacks, **options):
    return pl.Trainer(
        accelerator="cpu",
        callbacks=list(callbacks),
        default_root_dir=folder,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        logger=False,
        num_sanity_val_steps=0,
        **options,
    )


def weights(model):
    return [parameter.tolist() for parameter in model.parameters()]


def test_training_and_validation_end_with_the_numbers_of_torchs_loader(tmp_path):
    results = {}
    for name, Loader in LOADERS.items():
        model = Model()
        torch.manual_seed(1)
        train = Loader(Line(), batch_size=4, shuffle=True, num_workers=2)
        validate = Loader(Line(9), batch_size=4, num_workers=2)
        trainer(tmp_path, max_epochs=2).fit(model, train, validate)
        results[name] = weights(model), model.losses, [[part.tolist() for part in batch] for batch in model.seen]
    assert len(results["ours"][2]) == 2 * 7
    assert results["ours"] == results["theirs"]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_trainer_that_is_done_leaves_no_worker_behind(tmp_path, persistent):
    model = Model()
    loaders = [RingLoader(Line(), batch_size=4, num_workers=1, persistent_workers=persistent) for _ in range(2)]
    done = trainer(tmp_path, max_epochs=1)
    done.fit(model, *loaders)
    assert multiprocessing.active_children() == []
    assert all(loader.stats().batches for loader in loaders)


def test_a_loader_made_anew_for_prediction_keeps_all_options_of_the_ring(tmp_path):
    model = Model()
    loader = RingLoader(Line(), batch_size=4, num_workers=2, **RING_OPTIONS)
    predicting = trainer(tmp_path)
    predicted = predicting.predict(model, loader)
    assert torch.cat(predicted).flatten().tolist() == torch.cat([x for x, _ in loader]).flatten().tolist()
    made = predicting.predict_dataloaders
    assert type(made) is RingLoader and options_of(made) == RING_OPTIONS


@pytest.mark.parametrize("mode", [RunningStage.TRAINING, RunningStage.PREDICTING])
def test_a_loader_made_anew_with_a_distributed_sampler_keeps_all_options_of_the_ring(mode):
    options = {"num_workers": 1, "prefetch_factor": 3, "multiprocessing_context": "spawn", "timeout": 50}
    loader = RingLoader(Line(), batch_size=4, drop_last=True, **options, **RING_OPTIONS)
    sampler = DistributedSampler(loader.dataset, num_replicas=2, rank=1, shuffle=False)
    made = _update_dataloader(loader, sampler, mode)
    assert type(made) is RingLoader and options_of(made) == RING_OPTIONS
    assert (made.num_workers, made.prefetch_factor, made.timeout) == (1, 3, 50)
    assert made.multiprocessing_context.get_start_method() == "spawn"
    assert next(iter(made.batch_sampler)) == [1, 3, 5, 7]


def test_a_checkpoint_within_an_epoch_has_the_place_of_the_loader(tmp_path):
    class Keeper(pl.Callback):
        def on_train_batch_end(self, trainer, *args):
            if trainer.global_step == 10:  # the third batch of the second epoch
                trainer.save_checkpoint(tmp_path / "tenth.ckpt")

    def run(num_workers, **options):
        model = Model()
        loader = RingLoader(Line(), 4, shuffle=True, num_workers=num_workers, seed_by="sample")
        trainer(tmp_path, Keeper(), max_epochs=3).fit(model, loader, **options)
        return weights(model), [[part.tolist() for part in batch] for batch in model.seen]

    whole, batches = run(num_workers=1)
    resumed, rest = run(num_workers=2, ckpt_path=tmp_path / "tenth.ckpt")
    assert len(batches) == 21
    assert rest == batches[10:]
    assert resumed == whole


def test_fabric_takes_it_as_a_dataloader(tmp_path):
    batches = {}
    for name, Loader in LOADERS.items():
        fabric = Fabric(accelerator="cpu", devices=1)
        torch.manual_seed(1)
        loader = fabric.setup_dataloaders(Loader(Line(), batch_size=4, shuffle=True, num_workers=2))
        batches[name] = [[part.tolist() for part in batch] for _ in range(2) for batch in loader]
        assert len(loader) == 7
    assert batches["ours"] == batches["theirs"]
    assert multiprocessing.active_children() == []
