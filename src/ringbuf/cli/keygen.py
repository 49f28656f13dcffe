"""Make keys for a server that other machines may reach, and for its clients. Nothing that is there is overwritten."""

from __future__ import annotations

import argparse
from pathlib import Path

from ringbuf.cli.outcome import DONE, WrongUsage

ABOUT = "make keys for a server and its clients"

EXAMPLES = """\
  ringbuf keygen keys                          keys of a server and of its first client
  ringbuf keygen keys --client trainer-b       and of one more
  ringbuf serve mypackage.data:make_loader --bind tcp://0.0.0.0:5557 --keys keys
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="where the keys are")
    parser.add_argument(
        "--client", metavar="NAME", help="make keys of one more client, for a server that has some in DIR"
    )


def run(options: argparse.Namespace) -> int:
    from ringbuf.net.keys import add_client, generate  # needs pyzmq

    try:
        paths = generate(options.folder) if options.client is None else add_client(options.folder, options.client)
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    secrets = [path for path in paths if path.suffix == ".secret" and path.name != "server.secret"]
    width = max(len(str(path)) for path in paths)
    for path in paths:
        print(f"{path!s:<{width}}  {_about(path, secrets)}")
    print(_how_to_go_on(Path(options.folder), secrets[0]))
    return DONE


def _about(path: Path, secrets: list[Path]) -> str:
    if path in secrets:
        return "for the client alone: copy it, then remove it here"
    if path.name == "server.secret":
        return "stays here, and nobody else may read it"
    if path.name == "server.public":
        return "for clients: copy it"
    return "stays here: whom the server lets in, when it is started"


def _how_to_go_on(folder: Path, secret: Path) -> str:
    return (
        f"\nOn the client's machine, put {folder / 'server.public'} and {secret} into one folder, the latter as client.secret:\n"
        "  chmod 600 FOLDER/client.secret\n"
        '  ringbuf.connect("tcp://HOST:PORT", keys="FOLDER")\n'
        f"Here:\n  ringbuf serve ... --bind tcp://ADDRESS:PORT --keys {folder}"
    )
