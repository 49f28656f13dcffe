"""Train a classifier on Fashion-MNIST twice, with torch's DataLoader and with RingLoader: is it the same training?

The 70,000 pictures of clothes are Debian's package dataset-fashion-mnist, 30 MB. Every time one is read it is flipped,
shifted and dimmed at random, in worker processes, so the losses depend on every worker's seed. Both loaders get
the same seed, and the losses, the accuracies and the weights at the end have to be the same, bit for bit.

    python examples/fashion.py                  # a minute or so on two cores
    python examples/fashion.py --quick          # a few pictures, seconds
"""

import argparse
import gzip
import random
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from ringbuf.torch import RingLoader

FOLDER = Path("/usr/share/datasets/fashion-mnist")
LOADERS = {"DataLoader": DataLoader, "RingLoader": RingLoader}
TESTED_AT_ONCE = 500


class Clothes(Dataset):
    """Pairs of a picture, differently disturbed at each reading, and what it shows: a number from 0 to 9."""

    def __init__(self, pictures, labels):
        self.pictures, self.labels = pictures, labels

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        # Three sources of random numbers, as real datasets have them; workers seed each of them.
        picture = self.pictures[index]
        if random.random() < 0.5:
            picture = picture[:, ::-1]
        down, right = np.random.randint(-2, 3, size=2)
        picture = np.roll(picture, (down, right), axis=(0, 1))  # what leaves on one side is black, and so is the other
        brightness = torch.empty(1).uniform_(0.6, 1.0)
        return torch.from_numpy(picture).unsqueeze(0) * (brightness / 255), int(self.labels[index])


class Epoch(NamedTuple):
    losses: list
    """One for each batch."""
    correct: int
    """Of the test pictures."""
    seconds: float
    waited: float
    """Seconds of them in which there was no batch to learn from."""

    @property
    def loss(self):
        return sum(self.losses) / len(self.losses)


def read(folder, name):
    """The pictures and labels of a part, "train" or "t10k": uint8 arrays of shape (n, 28, 28) and (n,)."""
    with gzip.open(folder / f"{name}-images-idx3-ubyte.gz") as file:
        pictures = np.frombuffer(bytearray(file.read()), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(bytearray(file.read()), np.uint8, offset=8)
    return pictures, labels


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 12, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(12, 24, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24 * 7 * 7, 96),
        nn.ReLU(),
        nn.Linear(96, 10),
    )


def train(name, dataset, test, options):
    """Return the network and a list of epochs."""
    net = network(options.seed)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    loader = LOADERS[name](
        dataset,
        batch_size=options.batch_size,
        shuffle=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
        generator=torch.Generator().manual_seed(options.seed),
    )
    seed_this_process(options.seed)  # which makes the samples where there are no workers
    epochs = []
    for number in range(1, options.epochs + 1):
        losses, waited, began = [], 0.0, time.perf_counter()
        label = f"{name} {number}/{options.epochs}"
        with tqdm(total=len(loader), desc=label, unit=" batches", file=sys.stdout, mininterval=0.5, ncols=80) as bar:
            asked = time.perf_counter()
            for pictures, labels in loader:
                waited += time.perf_counter() - asked
                loss = functional.cross_entropy(net(pictures), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                bar.update()
                asked = time.perf_counter()
            waited += time.perf_counter() - asked
            seconds = time.perf_counter() - began
        epochs.append(Epoch(losses, count_correct(net, test), seconds, waited))
    return net, epochs


def warm_up(options, test):
    """Have torch do once what takes it a second the first time, so that whoever trains first does not pay for it."""
    pictures, labels = (part[: options.batch_size] for part in test)
    net = network(options.seed)
    functional.cross_entropy(net(pictures), labels).backward()
    torch.optim.SGD(net.parameters()).step()


def seed_this_process(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@torch.no_grad()
def count_correct(net, test):
    parts = zip(*(part.split(TESTED_AT_ONCE) for part in test))
    return sum(int((net(pictures).argmax(1) == labels).sum()) for pictures, labels in parts)


def table(runs, tested):
    """Both loaders side by side, epoch by epoch."""
    titles = ("loss", "accuracy", "seconds", "waited")
    lines = [
        "       " + "   ".join(f"{name:^35}" for name in runs).rstrip(),
        "epoch  " + "   ".join("".join(f"{title:>{wide}}" for title, wide in zip(titles, (8, 10, 9, 8))) for _ in runs),
    ]
    for number, epochs in enumerate(zip(*runs.values()), 1):
        cells = [
            f"{epoch.loss:8.5f}{epoch.correct / tested:10.2%}{epoch.seconds:9.2f}{epoch.waited:8.2f}" for epoch in epochs
        ]
        lines.append(f"{number:5}  " + "   ".join(cells))
    return "\n".join(lines)


def difference(runs, nets):
    """Where the two trainings part; None where they never do."""
    theirs, ours = runs.values()
    for number, (one, other) in enumerate(zip(theirs, ours), 1):
        for batch, (a, b) in enumerate(zip(one.losses, other.losses, strict=True), 1):
            if a != b:
                return f"the loss at batch {batch} of epoch {number} is {a!r} with DataLoader, {b!r} with RingLoader"
        if one.correct != other.correct:
            return f"after epoch {number} {one.correct} test pictures are right with DataLoader, {other.correct} with RingLoader"
    weights = [net.state_dict() for net in nets]
    unequal = [name for name in weights[0] if not torch.equal(weights[0][name], weights[1][name])]
    return f"the weights {unequal} differ" if unequal else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, help="times that every picture is used (default: 5; quick: 2)")
    parser.add_argument("--workers", type=int, default=2, help="processes that disturb (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, help="pictures in a batch (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="2,000 pictures to learn from, 500 to test with")
    parser.add_argument("--data", type=Path, default=FOLDER, help="where the four .gz files are (default: %(default)s)")
    options = parser.parse_args()
    if options.epochs is None:
        options.epochs = 2 if options.quick else 5
    try:
        (pictures, labels), (test_pictures, test_labels) = read(options.data, "train"), read(options.data, "t10k")
    except FileNotFoundError as error:
        print(
            f"Fashion-MNIST is not there: {error.filename} is missing.\n"
            "On Debian or Ubuntu: apt-get install dataset-fashion-mnist\n"
            "Elsewhere, put the four files {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz of\n"
            "github.com/zalandoresearch/fashion-mnist into a folder and name it with --data.",
            file=sys.stderr,
        )
        return 1
    if options.quick:
        pictures, labels, test_pictures, test_labels = pictures[:2000], labels[:2000], test_pictures[:500], test_labels[:500]

    # Sums in another order are other sums: one thread adds up in one order, and leaves a core to the workers.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dataset = Clothes(pictures, labels)
    test = torch.from_numpy(test_pictures).unsqueeze(1) / 255, torch.from_numpy(test_labels).long()
    warm_up(options, test)
    runs, nets = {}, []
    for name in LOADERS:
        net, runs[name] = train(name, dataset, test, options)
        nets.append(net)

    print(f"\n{table(runs, len(test_labels))}\n")
    waited = {name: sum(epoch.waited for epoch in epochs) for name, epochs in runs.items()}
    print("Waited for data: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in waited.items()))
    parted = difference(runs, nets)
    if parted is not None:
        print(f"Not the same: {parted}.")
        return 1
    losses = sum(len(epoch.losses) for epoch in runs["RingLoader"])
    print(f"All {losses} losses, {options.epochs} accuracies and the final weights: identical.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
