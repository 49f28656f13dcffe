"""Train with JAX on the CPU, from a private copy of each batch: np.array(batch).

jax.device_put() and jax.dlpack.from_dlpack() take the memory as it is: the jax array *is* the slot. Who writes into the batch
then changes an array that JAX takes for constant, and the slot is not free while the array is there. jnp.array(copy=True)
holds the slot, too, until JAX gets to copying. np.array() has copied when it returns, and JAX uses that memory.

    python examples/with_jax.py
"""

import argparse
import sys
import time

import numpy as np
from sklearn.datasets import load_digits

from ringbuf import RingLoader


class Digits:
    def __init__(self):
        images, labels = load_digits(return_X_y=True)
        self.images, self.labels = images.astype(np.float32) / 16, labels.astype(np.int32)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def show_the_alias(batch):
    import jax

    for name, array in [
        ("device_put(batch)", jax.device_put(batch)),
        ("from_dlpack(batch)", jax.dlpack.from_dlpack(batch)),
        ("device_put(np.array(batch))", jax.device_put(np.array(batch))),
    ]:
        alias = array.unsafe_buffer_pointer() == batch.ctypes.data
        print(f"{name:<28} is {'the slot itself' if alias else 'memory of its own'}")


def main():
    # Here, and not above: JAX has threads, so workers are spawned, and they read this file without needing JAX.
    import jax
    import jax.numpy as jnp

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()

    @jax.jit
    def learn(layers, images, labels):
        def loss(layers):
            scores = jax.nn.relu(images @ layers[0]) @ layers[1]
            return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1).mean()

        value, slopes = jax.value_and_grad(loss)(layers)
        return value, [layer - 0.5 * slope for layer, slope in zip(layers, slopes)]

    layers = [0.1 * jax.random.normal(jax.random.key(0), shape) for shape in ((64, 64), (64, 10))]
    dataset, workers = Digits(), {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": "spawn"}
    with RingLoader(dataset, 64, shuffle=True, generator=0, drop_last=True, **workers) as loader:
        show_the_alias(next(iter(loader))[0])
        for epoch in range(options.epochs):
            began = time.perf_counter()
            for images, labels in loader:
                loss, layers = learn(layers, np.array(images), np.array(labels))
            rate = len(loader) / (time.perf_counter() - began)
            print(f"epoch {epoch}: loss {loss:.3f}, {rate:.0f} batches/s", flush=True)
    scores = jax.nn.relu(dataset.images @ layers[0]) @ layers[1]
    print(f"{(scores.argmax(1) == dataset.labels).mean():.1%} right; {loader.stats().copies} batches found no slot")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
