"""Addresses of servers: tcp://HOST:PORT, and who may listen where."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

__all__ = ["Address", "parse_address", "refuse_exposed"]

_PATTERN = re.compile(r"tcp://(\[[0-9A-Fa-f:.]+\]|\*|[A-Za-z0-9._-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*):([0-9]{1,5})")


class Address(NamedTuple):
    """host: without brackets. text: as ZeroMQ takes it."""

    host: str
    port: int

    @property
    def text(self) -> str:
        return f"tcp://[{self.host}]:{self.port}" if self.is_v6 else f"tcp://{self.host}:{self.port}"

    @property
    def is_v6(self) -> bool:
        return ":" in self.host


def parse_address(label: str, text: str) -> Address:
    """Raises TypeError, ValueError."""
    if not isinstance(text, str):
        raise TypeError(f"{label} should be an address such as 'tcp://127.0.0.1:5557', got {text!r}")
    found = _PATTERN.fullmatch(text)
    if found is None or int(found[2]) > 65535:
        raise ValueError(f"{label} should be an address such as 'tcp://127.0.0.1:5557', got {text!r}")
    return Address(found[1].strip("[]"), int(found[2]))


def refuse_exposed(address: Address) -> None:
    """Without keys, anybody who reaches the address could take batches: refuse all but loopback. Raises ValueError."""
    try:
        if ipaddress.ip_address(address.host).is_loopback:
            return
    except ValueError:  # the name of a host or an interface, which may stand for anything, today or tomorrow
        pass
    raise ValueError(
        f"whoever reaches {address.text} could take batches, and read along: make keys (ringbuf keygen FOLDER) and pass them "
        f"(keys=FOLDER, --keys FOLDER), or serve this machine alone, at tcp://127.0.0.1:{address.port}"
    )
