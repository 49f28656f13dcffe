"""Write what a running RingLoader does into a file that ui.perfetto.dev and chrome://tracing show: what each worker loads,
collates and waits for, and how long the trainer waits for and uses each batch. The trainer does not notice, and need not know
of it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time

from ringbuf.cli.outcome import DONE
from ringbuf.cli.running import open_loader

ABOUT = "write what a running loader does into a file for Perfetto"

EXAMPLES = """\
  ringbuf trace train                          10 seconds of RingLoader(..., name="train") into train.trace.json
  ringbuf trace 4711 --seconds 2 -o run.json   of the trainer with that pid
  ringbuf trace train --json                   and tell about the file in JSON
"""

SECONDS = 10.0
SHORTEST_S, LONGEST_S = 0.001, 0.05  # between two looks at the loader
FULL, EMPTY = 512, 128  # records of one log, of 2048: look sooner, look later


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("loader", metavar="NAME", help="the loader's name, or the pid of its trainer")
    parser.add_argument(
        "--seconds", type=_seconds, default=SECONDS, metavar="S", help=f"how long, {SECONDS:g} by default; or Ctrl-C"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="by default NAME.trace.json; written anew if it is there")
    parser.add_argument("--json", action="store_true", help="tell about the file in JSON")


def run(options: argparse.Namespace) -> int:
    from ringbuf.telemetry.tracing import TraceFile, Tracks, check_trace_path

    with open_loader(options.loader) as reader:
        path = options.output or f"{reader.name}.trace.json"
        file = TraceFile(check_trace_path(path))
        cursor = reader.cursor()
        tracks, pause_s, missed = Tracks(reader), SHORTEST_S, 0
        began = time.monotonic()
        ended = interrupted = False
        while not ended and not interrupted:
            try:
                time.sleep(min(pause_s, max(0.0, began + options.seconds - time.monotonic())))
            except KeyboardInterrupt:  # enough
                interrupted = True
            ended = time.monotonic() - began >= options.seconds or not reader.alive()
            found = reader.events(cursor)
            most = max(after - before for before, after in zip(cursor, found.cursor))
            pause_s = max(pause_s / 2, SHORTEST_S) if most > FULL else pause_s
            pause_s = min(pause_s * 2, LONGEST_S) if most < EMPTY else pause_s
            cursor, missed = found.cursor, missed + found.missed
            file.put(tracks.lines(found))
        lives = reader.alive()
        _tell(reader, file, time.monotonic() - began, missed, lives=lives, as_json=options.json)
        file.close()
    return DONE


def _tell(reader, file, seconds: float, missed: int, *, lives: bool, as_json: bool) -> None:
    if as_json:
        about = {"name": reader.name, "pid": reader.pid, "file": file.path, "seconds": round(seconds, 3)}
        print(json.dumps({**about, "events": file.events, "missed": missed, "alive": lives}))
        return
    print(f"{file.path}: {file.events:,} events of {seconds:.1f} s of {reader.name}; open it at https://ui.perfetto.dev")
    if not lives:
        print(f"ringbuf trace: the trainer with pid {reader.pid} has ended", file=sys.stderr)
    if missed:
        print(f"ringbuf trace: {missed:,} events were written over before they could be read", file=sys.stderr)
    if not file.events:
        print("ringbuf trace: nothing happened meanwhile; is the trainer between two passes, or stopped?", file=sys.stderr)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds
