"""Measure what this installation does on this machine, in about a minute: loaders with a few workers, against torch's DataLoader
where torch is installed, messages and wake-ups between two processes, and plain copying, which bounds the rest. Rounds alternate;
shown are medians, with min and max. All that arrives is checked. At most a quarter of the free memory, and of /dev/shm, is used.
"""

from __future__ import annotations

import argparse
import json
import sys

from ringbuf.cli.outcome import DONE, TERMINATED
from ringbuf.cli.sigterm import Terminated

ABOUT = "measure this installation on this machine, and check it"

EXAMPLES = """\
  ringbuf bench                                about a minute
  ringbuf bench --quick --plot bench.png       ten seconds, and a picture
  ringbuf bench --json | jq '.loaders[0].ratio.median'
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="ten seconds; the figures are rougher")
    parser.add_argument("--plot", metavar="FILE", help="draw the figures, as PNG, SVG or PDF; written anew if it is there")
    parser.add_argument("--json", action="store_true", help="one object on stdout, with the figures of every round")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)  # for tests: all of it, in no time


def run(options: argparse.Namespace) -> int:
    draw = _drawing(options.plot)
    from ringbuf.cli.bench.measure import measure
    from ringbuf.cli.bench.plan import FULL, QUICK, TINY
    from ringbuf.cli.bench.progress import Progress
    from ringbuf.cli.bench.signals import Signals
    from ringbuf.cli.bench.table import page
    from ringbuf.cli.painter import show

    try:
        with Signals() as signals, Progress(sys.stderr) as progress:
            result = measure(TINY if options.tiny else QUICK if options.quick else FULL, progress, signals)
    except Terminated:
        return TERMINATED
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        show(page(result))
    if draw is not None:
        path = draw(result)
        if not options.json:
            print(f"plot: {path}")
    return DONE


def _drawing(path: str | None):
    """What draws a result into `path`, and returns where that is; None where nothing is to be drawn. WrongUsage."""
    if path is None:
        return None
    from ringbuf.cli.bench.picture import Picture

    return Picture(path).draw
