"""Train with accelerate, and keep the ring: ringbuf.accelerate.prepare() instead of accelerator.prepare() for the loader.

accelerator.prepare(loader) would make a plain DataLoader of a RingLoader, which warns of that. Several processes share
the batches:

    python examples/with_accelerate.py
    accelerate launch --cpu --num_processes 2 examples/with_accelerate.py
"""

import argparse
import sys
import time

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn

import ringbuf.accelerate
from ringbuf.torch import RingLoader


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1, help="of each process")
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the network is small, and the other cores are the workers'
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    net, optimizer = accelerator.prepare(net, torch.optim.Adam(net.parameters(), lr=3e-3))
    loader = RingLoader(
        torch.utils.data.TensorDataset(images, labels),
        batch_size=32,
        shuffle=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
    )
    loader = ringbuf.accelerate.prepare(accelerator, loader)
    for epoch in range(options.epochs):
        began = time.perf_counter()
        for pictures, answers in loader:
            loss = nn.functional.cross_entropy(net(pictures), answers)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        rate = len(loader) / (time.perf_counter() - began)
        accelerator.print(f"epoch {epoch}: loss {loss.item():.3f}, {rate:.0f} batches/s", flush=True)
    right = (net(images).argmax(1) == labels).float().mean()
    account = loader.base_dataloader.stats()  # the RingLoader inside, of this process
    accelerator.print(f"{right:.1%} right; {account.batches} batches through the ring, {account.copies} of them copied")
    loader.base_dataloader.close()
    accelerator.end_training()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
