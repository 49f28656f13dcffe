"""Train with Lightning: its Trainer takes a RingLoader as it takes torch's DataLoader, and a checkpoint has its place.

Training is stopped in the middle of an epoch, and goes on from the checkpoint with the batches that were not seen yet.

    python examples/with_lightning.py
"""

import argparse
import logging
import sys
import tempfile
import warnings
from pathlib import Path

import pytorch_lightning as lightning
import torch
from sklearn.datasets import load_digits
from torch import nn

from ringbuf.torch import RingLoader


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.seen = []  # which images this process learned from, in the epoch that it is in

    def training_step(self, batch, number):
        images, labels, indices = batch
        self.seen += indices.tolist()
        return nn.functional.cross_entropy(self.net(images), labels)

    def on_train_batch_end(self, outputs, batch, number):
        if self.trainer.global_step % 20 == 0:
            print(f"  step {self.trainer.global_step}: loss {outputs['loss']:.3f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def fit(dataset, steps, workers, checkpoint=None):
    """Train for so many steps in all, from a checkpoint or from the beginning."""
    model = Classifier()
    torch.manual_seed(0)
    loader = RingLoader(dataset, batch_size=32, shuffle=True, num_workers=workers)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "enable_checkpointing": False}
    trainer = lightning.Trainer(accelerator="cpu", max_steps=steps, **quiet)
    trainer.fit(model, loader, ckpt_path=checkpoint, weights_only=False)
    return trainer, model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)  # and the same for its advice
    torch.set_num_threads(1)  # the network is small, and the other cores are the workers'
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    dataset = torch.utils.data.TensorDataset(images, torch.tensor(digits.target), torch.arange(len(images)))
    with tempfile.TemporaryDirectory() as folder:
        print("20 steps of the first epoch:")
        trainer, first = fit(dataset, 20, options.workers)
        trainer.save_checkpoint(file := Path(folder) / "middle.ckpt")
        print("From the checkpoint, the rest of it:")
        _, second = fit(dataset, 57, options.workers, file)  # 57 batches are an epoch
    twice, missed = set(first.seen) & set(second.seen), set(range(len(dataset))) - {*first.seen, *second.seen}
    print(f"Of {len(dataset)} images {len(twice)} were seen twice and {len(missed)} not at all.")
    right = (second.net(images).argmax(1) == dataset.tensors[1]).float().mean()
    print(f"{right:.1%} of them are told right.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
