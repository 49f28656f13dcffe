"""Train a classifier on images that worker processes augment while it learns.

The images are the 1797 handwritten digits that come with scikit-learn. Every time one is read it is turned and
shifted a little, so that the classifier never sees the same image twice, and that is nearly all of the work.
RingLoader's workers do it ahead of time, and write straight into the shared memory that the classifier reads.

    python examples/digits.py                   # without workers, then with two: which is faster?
    python examples/digits.py --no-compare      # with workers only
"""

import argparse
import os
import time

# The matrices are small: one thread multiplies them fastest, and leaves the other cores to the workers.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy import ndimage
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

from ringbuf import RingLoader


class Augmented:
    """A dataset is anything with a length and items; these are pairs of an image and its label."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        # The loader seeds numpy's random numbers in its workers, differently in each.
        turned = ndimage.rotate(self.images[index], angle=np.random.uniform(-10, 10), reshape=False)
        return ndimage.shift(turned, np.random.uniform(-0.7, 0.7, size=2)), self.labels[index]


def digits(seed):
    """Images of 12 x 12 pixels and their labels: three quarters to train with, the others to test."""
    data = load_digits()
    images = np.pad(data.images.astype(np.float32) / 16, ((0, 0), (2, 2), (2, 2)))  # room to turn and shift in
    return train_test_split(images, data.target, test_size=0.25, stratify=data.target, random_state=seed)


def train(dataset, *, workers, epochs, seed):
    """Return a trained network, the seconds that it took, and the loader's account."""
    np.random.seed(seed)  # for the augmentation in this process, where there are no workers
    start = time.perf_counter()
    with RingLoader(
        dataset,
        batch_size=64,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,  # the same processes in every epoch
        generator=seed,  # decides the order of the images, and the workers' seeds
    ) as loader:
        network = Network(steps=epochs * len(loader), seed=seed)
        with tqdm(total=epochs * len(loader), desc=f"{workers} workers", unit=" batches") as bar:
            for _ in range(epochs):
                # Views of a slot in shared memory, which is free again as soon as nothing refers to them.
                for images, labels in loader:
                    loss = network.learn(images, labels)
                    bar.update()
                bar.set_postfix(loss=f"{loss:.3f}")
        return network, time.perf_counter() - start, loader.stats()


class Network:
    """144 pixels, 256 hidden units, 10 digits; gradient descent with momentum, at a rate that falls to zero."""

    def __init__(self, *, steps, seed):
        random = np.random.default_rng(seed)
        sizes = (144, 256), (256, 10)
        self.layers = [random.standard_normal((n + 1, m), np.float32) * np.float32((2 / n) ** 0.5) for n, m in sizes]
        self.momenta = [np.zeros_like(layer) for layer in self.layers]
        self.rates = iter(np.linspace(0.2, 0, steps, dtype=np.float32))

    def forward(self, images):
        """What goes into either layer, with a one for the bias, and the probability of each digit."""
        pixels = with_one(images.reshape(len(images), -1))
        hidden = with_one(np.maximum(pixels @ self.layers[0], 0))
        scores = hidden @ self.layers[1]
        exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
        return pixels, hidden, exponentials / exponentials.sum(axis=1, keepdims=True)

    def learn(self, images, labels):
        """One step downhill. Returns the loss."""
        pixels, hidden, probabilities = self.forward(images)
        error = (probabilities - np.eye(10, dtype=np.float32)[labels]) / len(labels)
        hidden_error = (error @ self.layers[1][:-1].T) * (hidden[:, :-1] > 0)
        rate = next(self.rates)
        for layer, momentum, gradient in zip(self.layers, self.momenta, (pixels.T @ hidden_error, hidden.T @ error)):
            momentum *= 0.9
            momentum -= rate * gradient
            layer += momentum
        return -np.log(probabilities[np.arange(len(labels)), labels]).mean()

    def accuracy(self, images, labels):
        return (self.forward(images)[2].argmax(axis=1) == labels).mean()


def with_one(rows):
    return np.column_stack([rows, np.ones(len(rows), np.float32)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="processes that augment (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=30, help="times that every image is used (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default: %(default)s)")
    parser.add_argument("--no-compare", action="store_true", help="leave out the training without workers")
    options = parser.parse_args()

    train_images, test_images, train_labels, test_labels = digits(options.seed)
    dataset = Augmented(train_images, train_labels)
    seconds = {}
    for workers in [options.workers] if options.no_compare else sorted({0, options.workers}):
        network, seconds[workers], account = train(dataset, workers=workers, epochs=options.epochs, seed=options.seed)
        accuracy = network.accuracy(test_images, test_labels)
        print(f"{workers} workers: {seconds[workers]:.2f} s, test accuracy {accuracy:.1%}", flush=True)
    if len(seconds) == 2:
        ratio = seconds[0] / seconds[options.workers]
        print(f"With {options.workers} workers the same training runs {ratio:.2f} times as fast.")
        if ratio < 1.1:
            print("(Workers need cores to run on; are those of this machine busy?)")
    print(f"\nThe loader's account\n{account}")


if __name__ == "__main__":
    main()
