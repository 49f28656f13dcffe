"""Train a classifier on images that worker processes augment while it learns.

The images are the 1797 handwritten digits that come with scikit-learn. Every time one is read it is turned and
shifted a little, so the classifier never sees the same image twice, and that is most of the work. RingLoader's
workers do it ahead of time, and write straight into the shared memory in which the classifier reads.

    python examples/digits.py                   # without workers, then with two: which is faster?
    python examples/digits.py --no-compare      # with workers only
"""

import argparse
import os
import time

# The matrices are small: one thread multiplies them fastest, and leaves the other cores to the workers.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import ndimage
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from tqdm import tqdm

from ringbuf import RingLoader


class Augmented:
    """A dataset is anything with a length and items; here pairs of an image and its label."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        # In a worker: the loader has seeded numpy's and Python's generators, differently in each.
        turned = ndimage.rotate(self.images[index], angle=np.random.uniform(-10, 10), reshape=False)
        return ndimage.shift(turned, np.random.uniform(-0.7, 0.7, size=2)), self.labels[index]


def digits(seed):
    """Images of 12 x 12 pixels from 0 to 1 and their labels: three quarters to train with, the others to test."""
    data = load_digits()
    images = np.pad(data.images.astype(np.float32) / 16, ((0, 0), (2, 2), (2, 2)))  # a margin to turn and shift in
    return train_test_split(images, data.target, test_size=0.25, stratify=data.target, random_state=seed)


def train(dataset, *, workers, epochs, seed):
    """Return a trained classifier, the seconds that it took, and the loader's account."""
    np.random.seed(seed)  # for the augmentation in this process, when there are no workers
    model = MLPClassifier(hidden_layer_sizes=(256, 128), learning_rate_init=2e-3, random_state=seed)
    start = time.perf_counter()
    with RingLoader(
        dataset,
        batch_size=64,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,  # the same processes in every epoch
        generator=seed,  # the order of the images, and the workers' seeds
    ) as loader:
        with tqdm(total=epochs * len(loader), desc=f"{workers} workers", unit=" batches") as bar:
            for _ in range(epochs):
                # Views of a slot in shared memory. The slot is free again when nothing refers to them any more.
                for images, labels in loader:
                    model.partial_fit(flat(images), labels, classes=np.arange(10))
                    bar.update()
                bar.set_postfix(loss=f"{model.loss_:.3f}")
        return model, time.perf_counter() - start, loader.stats()


def flat(images):
    return images.reshape(len(images), -1)


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
        model, seconds[workers], account = train(dataset, workers=workers, epochs=options.epochs, seed=options.seed)
        accuracy = model.score(flat(test_images), test_labels)
        print(f"{workers} workers: {seconds[workers]:.2f} s, test accuracy {accuracy:.1%}", flush=True)
    if len(seconds) == 2:
        ratio = seconds[0] / seconds[options.workers]
        print(f"With {options.workers} workers the same training runs {ratio:.2f} times as fast.")
    print(f"\nThe loader's account\n{account}")


if __name__ == "__main__":
    main()
