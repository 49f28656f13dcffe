"""Environments in processes of their own write their rows of one batch in place, and a policy sees the batch.

    pip install '.[rl]'; python examples/rl.py

A batch is what gymnasium's AsyncVectorEnv returns for the same seeds and actions, bit for bit. It is no copy, and can be kept.
"""

import multiprocessing
import sys
import time

import gymnasium
import numpy as np

import ringbuf


def environment(rows, row, name, seed):
    """A process: one environment, until the learner closes or dies. An ended episode's next step is a reset."""
    env, over = gymnasium.make(name), True
    for given in rows.serve(row):
        reward, terminated, truncated = 0.0, False, False
        if given.message is None or over:
            observation, _ = env.reset(seed=seed if given.message is None else None)
        else:
            observation, reward, terminated, truncated, _ = env.step(given.message)
        over = terminated or truncated
        given["observation"], given["reward"] = observation, reward
        given["terminated"], given["truncated"] = terminated, truncated
    env.close()


class Environments:
    """`count` environments. reset() and step() return a batch, views of its slot; all but one of `slots` may be kept."""

    def __init__(self, name, count, *, slots=4, seed=0, method="spawn"):
        space = gymnasium.make(name).observation_space
        fields = {"observation": (space.shape, space.dtype), "reward": ((), np.float64)}
        fields |= {"terminated": ((), bool), "truncated": ((), bool)}
        self.rows = ringbuf.RowRing(count, fields, slots=slots)
        start = multiprocessing.get_context(method).Process
        arguments = [(self.rows, row, name, seed + row) for row in range(count)]
        self.processes = [start(target=environment, args=each, daemon=True) for each in arguments]
        for process in self.processes:
            process.start()
        if without := self.rows.wait_for_writers(timeout=60):
            raise TimeoutError(f"no environment came up for rows {without}")

    def reset(self):
        return self.step(None)

    def step(self, actions):
        out = self.rows.hand_out(None if actions is None else actions.tolist())
        if missing := out.wait():
            raise RuntimeError(f"the processes of rows {missing} died")
        return out.batch()

    def close(self):
        self.rows.close()
        for process in self.processes:
            process.join()


def main(count=4, steps=1000):
    envs = Environments("CartPole-v1", count)
    batch, episodes, began = envs.reset(), 0, time.perf_counter()
    for _ in range(steps):
        angle, speed = batch["observation"][:, 2:].T
        batch = envs.step((angle + 0.5 * speed > 0).astype(np.int64))  # push the cart to where its pole falls
        episodes += int((batch["terminated"] | batch["truncated"]).sum())
    took = time.perf_counter() - began
    envs.close()
    print(f"{count} environments made {count * steps / took:.0f} steps/s, and {episodes} episodes")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
