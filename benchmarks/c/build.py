"""The programs: built as they are now, and listed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.py.turns import ROOT, in_fresh_process

# cmake may be this environment's own.
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
OPTIONS = "-DRINGBUF_BENCHMARKS=ON", "-DRINGBUF_TESTS=OFF", "-DRINGBUF_WERROR=OFF", "-DCMAKE_BUILD_TYPE=Release"


def build(folder: Path, *options: str) -> None:
    """RuntimeError says with the tools' own words why it cannot be built."""
    for command in (["cmake", "-S", ROOT, "-B", folder, *OPTIONS, *options], ["cmake", "--build", folder, "--parallel"]):
        done = subprocess.run(
            command, env=os.environ | {"PATH": PATH}, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stdout}")


class Programs:
    """What was built into a folder: `peers` maps names to what they say of themselves, `missing` to why they are left out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "benchmarks"
        self.missing: dict[str, str] = {}
        self.peers: dict[str, dict[str, Any]] = {}
        for line in (self.folder / "peers.txt").read_text().splitlines():
            name, _, reason = line.partition(": ")
            if reason:
                self.missing[name] = reason
            else:
                self.peers[name] = self.run(name, "info")

    def run(self, program: str, *arguments: str) -> dict[str, Any]:
        """What a program prints. RuntimeError says why there is no result, or that it is wrong."""
        return in_fresh_process([str(self.folder / program), *arguments])
