"""Show one ring, server or loader as it is now; of one name, all there are. Nothing is attached to and nobody is disturbed."""

from __future__ import annotations

import argparse
import json

from ringbuf.cli.kinds import NAMES, named
from ringbuf.cli.outcome import DONE
from ringbuf.cli.page import Block, Prose
from ringbuf.cli.painter import show

ABOUT = "show one ring, server or loader as it is now"

EXAMPLES = """\
  ringbuf stat train
  ringbuf stat 4711                            the loaders of the trainer with that pid
  ringbuf stat train --json | jq '.[0].participants'
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=NAMES)
    parser.add_argument("--json", action="store_true", help="a list of objects on stdout, one for each thing of that name")


def run(options: argparse.Namespace) -> int:
    found = named(options.name)
    if options.json:
        print(json.dumps([snapshot for _, snapshot in found], indent=1))
        return DONE
    blocks: list[Block] = []
    for kind, snapshot in found:
        blocks += [Prose("")] if blocks else []
        blocks += kind.page(snapshot)
    show(blocks)
    return DONE
