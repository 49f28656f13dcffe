"""Serve batches to clients on this machine and elsewhere, until the last epoch is over, or until Ctrl-C."""

from __future__ import annotations

import argparse
import re
import traceback
from typing import Any

from ringbuf.cli.counts import count, count_or_0
from ringbuf.cli.factory import load
from ringbuf.cli.outcome import DONE, FAILED, INTERRUPTED, TERMINATED, Failed, WrongUsage, one_line
from ringbuf.cli.reporter import Reporter
from ringbuf.cli.sigterm import Terminated, terminated_by_sigterm

ABOUT = "serve the batches of a loader to clients"

EXAMPLES = """\
  ringbuf serve mypackage.data:make_loader --name train
  ringbuf serve mypackage.data:make_loader --name train --mode broadcast --lag 30s --http 127.0.0.1:8265
  ringbuf serve mypackage.data:make_loader --bind tcp://127.0.0.1:5557 --compress lz4

and in a client:
  for batch in ringbuf.connect("train"): ...
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="MODULE:OBJECT",
        help="a RingLoader, any iterable of batches, or a callable that returns one; looked for in the current folder too",
    )
    parser.add_argument("--name", help="by which clients on this machine find it")
    parser.add_argument(
        "--bind", metavar="tcp://HOST:PORT", help="where clients elsewhere find it; not loopback: with --keys"
    )
    parser.add_argument(
        "--mode", choices=["split", "broadcast"], default="split", help="each batch to one client (default), or to all"
    )
    parser.add_argument("--epochs", type=count, metavar="N", help="stop after so many; without it, there is no end")
    parser.add_argument("--compress", choices=["lz4", "zstd"], help="what goes over the network")
    parser.add_argument("--workers", type=count_or_0, metavar="N", help="worker processes of the loader")
    parser.add_argument("--ahead", type=count, default=8, metavar="N", help="batches kept ready (default 8)")
    parser.add_argument(
        "--lag",
        type=_lag,
        default="block",
        metavar="block|30s|5",
        help="of a broadcast: others wait for a slow client (default), for 30 seconds, or until it is 5 batches behind",
    )
    parser.add_argument(
        "--clients", type=count, default=1, metavar="N", help="of a broadcast: begin when so many are there"
    )
    parser.add_argument("--keys", metavar="DIR", help="keys made by `ringbuf keygen DIR`, for clients elsewhere")
    parser.add_argument("--http", metavar="HOST:PORT", help="a status page and metrics, such as 127.0.0.1:8265")
    parser.add_argument("--json", action="store_true", help="what happens as JSON on stdout, one object a line")


def run(options: argparse.Namespace) -> int:
    if options.name is None and options.bind is None:
        raise WrongUsage("--name is missing, for clients on this machine, or --bind, for clients elsewhere")
    source = load(options.source, options.workers)
    server = _make(source, options)
    reporter = Reporter(server, options.source, keys=options.keys is not None, as_json=options.json)
    try:
        with terminated_by_sigterm():
            server.run(ready=reporter.start)
    except KeyboardInterrupt:
        reporter.end("interrupted", "stopped by Ctrl-C; clients were told")
        return INTERRUPTED
    except Terminated:
        reporter.end("terminated", "stopped by SIGTERM; clients were told")
        return TERMINATED
    except Exception as error:
        if not reporter.started:  # there is no place for it, or no key
            raise Failed(one_line(error)) from error
        reporter.fail(error, traceback.format_exception(error))
        return FAILED
    reporter.end("finished", _summary(server))
    return DONE


def _make(source: Any, options: argparse.Namespace) -> Any:
    from ringbuf.net.server import Server

    try:
        return Server(
            source,
            options.name,
            options.bind,
            mode=options.mode,
            epochs=options.epochs,
            compress=options.compress,
            keys=options.keys,
            ahead=options.ahead,
            lag=options.lag,
            clients=options.clients,
            http=options.http,
        )
    except (ValueError, TypeError) as error:
        raise WrongUsage(one_line(error)) from None


def _summary(server: Any) -> str:
    stats = server.stats()
    epochs, clients = stats["epochs"], stats["served"]
    given_up = f", {stats['dropped']} given up as too slow" if stats["dropped"] else ""
    return (
        f"served {epochs} epoch{'s' if epochs != 1 else ''}, {stats['produced']} batches; "
        f"{clients} client{'s' if clients != 1 else ''} in all{given_up}"
    )


# ---- arguments


def _lag(text: str) -> Any:
    from ringbuf.net.server import drop_client

    if text == "block":
        return text
    seconds = re.fullmatch(r"(\d+(?:\.\d+)?)s", text, re.ASCII)
    try:
        return drop_client(float(seconds[1]) if seconds else int(text))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither block, nor seconds such as 30s, nor a number of batches such as 5"
        ) from None
