"""Keys for servers and clients that are not on one machine: who may connect, and that nobody else can read along.

A folder made by generate():

    server.secret        stays with the server
    server.public        goes to every client
    client.secret        goes to the client, and there alone
    clients/*.public     who may connect: the server reads them when it starts

A server needs server.secret and clients/; a client needs a folder with server.public and client.secret. Copy those
two to the client's machine, and `chmod 600 client.secret` there. The files are certificates as ZeroMQ's tools write them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from ringbuf import checks
from ringbuf.net.zeromq import z85, zmq

__all__ = ["ClientKeys", "ServerKeys", "add_client", "generate", "load_client", "load_server"]

SERVER_SECRET = "server.secret"
SERVER_PUBLIC = "server.public"
CLIENT_SECRET = "client.secret"
ALLOWED = "clients"
KEY_CHARACTERS = 40
MOST_BYTES = 4096  # of a file with a key


class ServerKeys(NamedTuple):
    """A server's pair, as ZeroMQ takes it, and the public keys (32 bytes each) of those who may connect."""

    public: bytes
    secret: bytes
    allowed: frozenset[bytes]


class ClientKeys(NamedTuple):
    """A client's pair, and the public key of its server, as ZeroMQ takes them."""

    public: bytes
    secret: bytes
    server: bytes


def generate(folder: str | os.PathLike) -> list[Path]:
    """Make a folder with keys for a server and for one client, whom it allows. Returns the files.

    Raises FileExistsError where one of them is there already; nothing is overwritten.
    """
    folder = Path(folder)
    clients = folder / ALLOWED
    files = [folder / SERVER_SECRET, folder / SERVER_PUBLIC, folder / CLIENT_SECRET, clients / "client.public"]
    for path in files:
        if path.exists():
            raise FileExistsError(
                f"there are keys already, and clients may rely on them: {path}; choose another folder"
            )
    for path in (folder, clients):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    public, secret = zmq.curve_keypair()
    _write(files[0], public, secret)
    _write(files[1], public)
    return files[:2] + add_client(folder, "client")


def add_client(folder: str | os.PathLike, name: str) -> list[Path]:
    """Make keys of one more client, whom the server in `folder` will allow when it is started again. Returns NAME.secret, to be
    copied to the client's machine as client.secret, and clients/NAME.public. Raises FileExistsError."""
    checks.ring_name(name)
    folder = Path(folder)
    files = [folder / f"{name}.secret", folder / ALLOWED / f"{name}.public"]
    for path in files:
        if path.exists():
            raise FileExistsError(f"a client with this name has keys already: {path}; choose another name")
    public, secret = zmq.curve_keypair()
    _write(files[0], public, secret)
    _write(files[1], public)
    return files


def load_server(folder: str | os.PathLike) -> ServerKeys:
    """Raises FileNotFoundError, PermissionError where others could read or change the keys, ValueError for what is no key."""
    folder = Path(folder)
    public, secret = _read_secret(folder / SERVER_SECRET)
    clients = folder / ALLOWED
    if not clients.is_dir():
        raise FileNotFoundError(
            f"the folder with the public keys of the clients is missing: {clients}; see ringbuf keygen"
        )
    for path in (folder, clients):
        _refuse_others(path, 0o022, "changed", "700")
    allowed = frozenset(z85.decode(_read(path)["public-key"]) for path in sorted(clients.glob("*.public")))
    if not allowed:
        raise ValueError(f"no client is allowed to connect: there is no *.public in {clients}")
    return ServerKeys(public, secret, allowed)


def load_client(folder: str | os.PathLike) -> ClientKeys:
    """Raises FileNotFoundError, PermissionError where others could read the keys, ValueError for what is no key."""
    folder = Path(folder)
    public, secret = _read_secret(folder / CLIENT_SECRET)
    return ClientKeys(public, secret, _read(folder / SERVER_PUBLIC)["public-key"])


def _write(path: Path, public: bytes, secret: bytes | None = None) -> None:
    lines = ["metadata", "curve", f'    public-key = "{public.decode()}"']
    if secret is not None:
        lines.append(f'    secret-key = "{secret.decode()}"')
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write("\n".join([*lines, ""]))


def _read_secret(path: Path) -> tuple[bytes, bytes]:
    if path.exists():
        _refuse_others(path, 0o077, "read", "600")
    found = _read(path)
    if "secret-key" not in found:
        raise ValueError(f"there is no secret-key in {path}; see ringbuf keygen")
    return found["public-key"], found["secret-key"]


def _refuse_others(path: Path, forbidden: int, done: str, wanted: str) -> None:
    status = path.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise PermissionError(f"{path} belongs to user {status.st_uid}, who is not you; keys of others are not used")
    if status.st_mode & forbidden:
        mode = stat.S_IMODE(status.st_mode)
        raise PermissionError(f"{path} can be {done} by others (mode {mode:04o}); do: chmod {wanted} {path}")


def _read(path: Path) -> dict[str, bytes]:
    """The keys in a file, by their names."""
    try:
        with open(path, encoding="ascii") as file:
            text = file.read(MOST_BYTES)
    except FileNotFoundError:
        raise FileNotFoundError(f"a key is missing: {path}; make keys with: ringbuf keygen FOLDER") from None
    except UnicodeDecodeError:
        text = ""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() in ("public-key", "secret-key"):
            found[name.strip()] = _key(value.strip().strip("\"'"), path)
    if "public-key" not in found:
        raise ValueError(f"there is no public-key in {path}; see ringbuf keygen")
    return found


def _key(text: str, path: Path) -> bytes:
    key = text.encode()
    try:
        if len(key) == KEY_CHARACTERS and z85.encode(z85.decode(key)) == key:
            return key
    except Exception:  # whatever the decoder meets first
        pass
    raise ValueError(f"a key has {KEY_CHARACTERS} characters of Z85, here are {len(key)}: {path}")
