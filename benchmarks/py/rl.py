"""Steps per second of several environments at once: examples/rl.py against gymnasium's AsyncVectorEnv.

    python -m benchmarks.py.rl                              # five rounds, some two minutes on two cores
    python -m benchmarks.py.rl --quick                      # does it run? the figures mean nothing
    python -m benchmarks.py.rl --runs 9 --json out.json

One process per environment in each; they take turns, each run in a fresh process; a figure is the median over the runs, with the
least and the largest. The policy costs nothing, so this is the price of stepping together, at its worst in CartPole-v1, whose own
step takes some ten microseconds. `pixels` is an environment whose step costs nothing either, and whose observation is 210 x 160
x 3 bytes, as an Atari game's. AsyncVectorEnv copies each batch out of its shared memory, as it does unless told otherwise: with
copy=False (the third peer) the next step overwrites what the policy was given. Ours is never overwritten, and never copied.

Not measured: environments that take long, for which all of them are the same, and a policy on a device.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.py import machine
from benchmarks.py.turns import ROOT, at_least, in_fresh_process

PEERS = {
    "ringbuf": "RowRing (examples/rl.py)",
    "gymnasium": "AsyncVectorEnv",
    "gymnasium-nocopy": "AsyncVectorEnv(copy=False)",
}
CASES = {"CartPole-v1, 2": ("CartPole-v1", 2), "CartPole-v1, 8": ("CartPole-v1", 8), "pixels, 4": ("pixels", 4)}
PIXELS = "Pixels-v0"


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.run:
        peer, case = options.run
        print(json.dumps(measure(peer, *CASES[case], seconds=options.seconds)))
        return 0
    runs: dict[str, dict[str, list[float]]] = {case: {peer: [] for peer in PEERS} for case in CASES}
    for number in range(options.runs):
        for case, of in runs.items():
            for peer, rates in of.items():
                command = [sys.executable, "-m", "benchmarks.py.rl", "--run", peer, case, "--seconds", str(options.seconds)]
                rates.append(in_fresh_process(command)["steps_per_s"])
                print(f"round {number + 1} of {options.runs}: {case:16} {PEERS[peer]:28} {rates[-1]:8.0f} steps/s", flush=True)
    for case, of in runs.items():
        print(f"\n{case} environments, steps/s of all together: median (least to largest), and ours to this, run by run")
        for peer, rates in of.items():
            ratio = median(ours / theirs for ours, theirs in zip(of["ringbuf"], rates))
            print(f"  {PEERS[peer]:28} {median(rates):8.0f} ({min(rates):.0f} to {max(rates):.0f})  {ratio:.2f}")
    if options.json:
        options.json.write_text(json.dumps({"steps_per_s": runs, "machine": machine.describe()}, indent=2) + "\n")
    return 0


def measure(peer: str, name: str, count: int, *, seconds: float) -> dict[str, float]:
    """One run of one peer, in this process."""
    name = PIXELS if name == "pixels" else name
    envs = opened(peer, name, count)
    envs.reset()
    actions = np.zeros(count, np.int64)
    steps, end = -20, 0.0  # the first ones do not count
    while steps <= 0 or time.perf_counter() < end:
        if steps == 0:
            began = time.perf_counter()
            end = began + seconds
        batch = envs.step(actions)
        del batch
        actions[...] = steps & 1
        steps += 1
    took = time.perf_counter() - began
    envs.close()
    return {"steps_per_s": steps * count / took}


def opened(peer: str, name: str, count: int) -> Any:
    if peer == "ringbuf":
        sys.path.append(str(ROOT / "examples"))
        from rl import Environments

        return Environments(name, count, method="fork")
    import gymnasium

    make = functools.partial(gymnasium.make, name)
    return gymnasium.vector.AsyncVectorEnv([make] * count, copy=peer == "gymnasium", context="fork")


def _register() -> None:
    """Pixels-v0, where gymnasium is there."""
    try:
        import gymnasium
    except ImportError:
        return

    class Pixels(gymnasium.Env):  # type: ignore[misc]
        observation_space = gymnasium.spaces.Box(0, 255, (210, 160, 3), np.uint8)
        action_space = gymnasium.spaces.Discrete(2)
        frame = np.full((210, 160, 3), 7, np.uint8)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self.frame, {}

        def step(self, action: int) -> Any:
            return self.frame, 1.0, False, False, {}

    if "Pixels-v0" not in gymnasium.registry:
        gymnasium.register("Pixels-v0", entry_point=Pixels, disable_env_checker=True, order_enforce=False)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.py.rl", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=at_least(1), metavar="N", help="runs of each peer (5; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="small and once: shows that it runs, measures nothing")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all single runs to PATH")
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.runs = options.runs or (1 if options.quick else 5)
    options.seconds = options.seconds or (0.1 if options.quick else 2.0)
    return options


_register()

if __name__ == "__main__":
    sys.exit(main())
