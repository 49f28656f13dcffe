"""Train on JPEG files that worker processes decode, crop and flip while the network learns.

The files are scikit-image's photographs, written as JPEG into a temporary folder. The network sees small pieces of them and
says which photograph each is from.

    python examples/images.py                   # half a minute on two cores; --workers 0 decodes in the trainer
"""

import argparse
import io
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from skimage import data
from torch import nn

from ringbuf.torch import RingLoader

SIDE = 64  # pixels of a piece


def write_photographs(folder):  # each is a class of its own
    files = []
    for name in ("astronaut", "chelsea", "coffee", "rocket", "immunohistochemistry", "retina"):
        files.append(Path(folder) / f"{name}.jpg")
        Image.fromarray(getattr(data, name)()).resize((512, 384)).save(files[-1], quality=90)
    return files


class Pieces(torch.utils.data.Dataset):
    def __init__(self, files, length):
        self.files, self.length = [file.read_bytes() for file in files], length  # decoding shall be the work, not the disk

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        label = index % len(self.files)
        picture = np.asarray(Image.open(io.BytesIO(self.files[label])).convert("RGB"))
        top, left = (torch.randint(0, size - SIDE, ()) for size in picture.shape[:2])  # the loader has seeded torch
        piece = torch.from_numpy(picture[top : top + SIDE, left : left + SIDE].copy()).permute(2, 0, 1)
        return (piece.flip(2) if torch.rand(()) < 0.5 else piece), label  # uint8: a quarter of the bytes of float32


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--pieces", type=int, default=1800, help="in an epoch")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the network is small, and the other cores are the workers'
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        dataset = Pieces(write_photographs(folder), options.pieces)
    net = nn.Sequential(nn.Conv2d(3, 16, 5, 4), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(6))
    net(torch.zeros(1, 3, SIDE, SIDE))  # by which the last layer learns its size
    optimizer, keep = torch.optim.Adam(net.parameters(), lr=2e-3), options.workers > 0
    with RingLoader(dataset, 60, shuffle=True, num_workers=options.workers, persistent_workers=keep) as loader:
        for epoch in range(options.epochs):
            began, waited, right = time.perf_counter(), loader.stats().wait_ns, 0
            for pieces, labels in loader:
                scores = net(pieces.float() / 255)
                loss = nn.functional.cross_entropy(scores, labels)
                optimizer.zero_grad(), loss.backward(), optimizer.step()
                right += (scores.argmax(1) == labels).sum().item()
            took, waited = time.perf_counter() - began, (loader.stats().wait_ns - waited) / 1e9
            print(f"epoch {epoch}: loss {loss:.3f}, {right / len(dataset):.0%} right", end=", ")
            print(f"{len(loader) / took:.1f} batches/s, waited {waited / took:.0%} of the time", flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
