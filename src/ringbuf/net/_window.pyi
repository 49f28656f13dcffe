import socket
from typing import final

@final
class Segment:
    nbytes: int
    writable: bool
    def __new__(cls, fd: int, nbytes: int, writable: bool) -> Segment: ...

@final
class Doorbell:
    held: int
    def __init__(self, sock: socket.socket, message: bytes) -> None: ...
    def flush(self) -> bool: ...
    def part(self, goodbye: bytes) -> None: ...
    def hang_up(self) -> None: ...

@final
class Window:
    nbytes: int
    seq: int
    owned: bool
    def __init__(self, segment: Segment, offset: int, nbytes: int, bell: Doorbell, seq: int) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
