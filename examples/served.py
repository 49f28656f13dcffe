"""One server makes batches, two trainers get all of them: one through shared memory, one over TCP as if it were elsewhere.

    python examples/served.py
"""

import argparse
import multiprocessing
import os
import sys
import time

import numpy as np

import ringbuf


class Pictures:
    def __len__(self):
        return 3200

    def __getitem__(self, index):
        return {"image": np.full((64, 64, 3), index % 251, np.uint8), "index": index}


def train(address, epochs):
    """A trainer; as a rule a program of its own, which needs to know the address and nothing else."""
    try:
        with ringbuf.connect(address) as stream:
            way = "shared memory" if stream.local else "TCP"
            for epoch in range(epochs):
                began, batches, indices = time.perf_counter(), 0, 0
                for batch in stream:  # ends with the epoch
                    assert (batch["image"][:, 0, 0, 0] == batch["index"] % 251).all()
                    batches, indices = batches + 1, indices + int(batch["index"].sum())
                rate = batches / (time.perf_counter() - began)
                print(f"epoch {epoch} by {way}: {batches} batches, {rate:.0f}/s, sum of indices {indices}", flush=True)
    except (KeyboardInterrupt, ringbuf.SessionLost):  # the server stops with Ctrl-C, too
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    loader = ringbuf.RingLoader(Pictures(), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
    name = f"example-{os.getpid()}"
    how = {"mode": "broadcast", "clients": 2, "epochs": options.epochs}  # it begins when both are there
    with ringbuf.Server(loader, name, "tcp://127.0.0.1:0", **how) as server:
        print(f"serving at {name!r} and {server.address}", flush=True)
        spawn = multiprocessing.get_context("spawn")  # this process has threads, the server's
        trainers = [spawn.Process(target=train, args=(where, options.epochs)) for where in (name, server.address)]
        for trainer in trainers:
            trainer.start()
        for trainer in trainers:
            trainer.join()
        copies = server.stats()["copies"]
    loader.close()
    print(f"The server copied {copies} batches; the loader's workers wrote where the local trainer reads.")
    return max(abs(trainer.exitcode) for trainer in trainers)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
