"""python -m tests.soak [--minutes M] [--seed N]: rings and loaders under random faults, checked to the last message."""

from __future__ import annotations

import argparse
import secrets
import sys

from .sandbox import contained
from .supervisor import Supervisor


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long (2)")
    parser.add_argument("--seed", type=int, default=None, help="repeat the plan of faults of an earlier run")
    arguments = parser.parse_args()
    seed = secrets.randbelow(1 << 31) if arguments.seed is None else arguments.seed
    print(
        f"seed {seed}: python -m tests.soak --minutes {arguments.minutes:g} --seed {seed}", file=sys.stderr, flush=True
    )
    return contained(lambda: Supervisor(seed, arguments.minutes * 60).run())


if __name__ == "__main__":
    sys.exit(main())
