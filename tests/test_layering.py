"""A file uses only what stands above it: imports and #includes point up these tables, never down or sideways."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
C = ROOT / "src/ringbuf_c"
PYTHON = ROOT / "src/ringbuf"

# A header and its source are one part. A part may use the parts of the rows above its own.
C_ROWS = [
    ["include/ringbuf", "include/ringbuf_frame", "platform", "crash_points", "lock"],
    ["layout", "copy", "pages", "frame"],
    ["wait", "participant", "stats", "frame_lay_out", "frame_find"],
    ["segment"],
    ["ring", "survey"],
    ["recover"],
    ["handle"],
    ["ringbuf"],
]

PYTHON_ROWS = [
    ["errors", "checks", "memory", "building"],
    ["dtypes", "classes", "tensors"],
    ["pickling"],
    ["tree"],
    ["rebuild"],
    ["_core"],
    ["frame", "_watcher"],
    ["_messages"],
    ["waiting"],
    ["buffer", "loader._rows", "telemetry._meter"],
    ["rows", "telemetry.snapshot"],
    ["telemetry.events"],
    ["telemetry.reader"],
    ["telemetry.page", "telemetry.search", "telemetry.rates"],
    ["telemetry.tracing"],
    ["telemetry"],
    ["loader.sampler", "loader.dataset", "loader.collate", "loader.rings"],
    ["loader.seeding", "loader.source", "loader._course", "loader.substitute", "loader.advice", "loader.outset"],
    ["loader.channel", "loader.parent", "loader.messages", "loader.failure", "loader.dialect", "loader.stats", "loader.state"],
    ["loader._samples", "loader.spec", "loader.post"],
    ["loader.fetch", "loader.observed"],
    ["loader.passes", "loader.tasks", "loader.outlet", "loader.logbook", "loader.sharing", "loader._ledger"],
    ["loader.worker"],
    ["loader.lifecycle"],
    ["loader.losses"],
    ["loader.iterator"],
    ["loader.base"],
    ["loader.loader"],
    ["loader"],
    ["net.protocol", "net._window", "net.fields", "net.parcel", "net.bottleneck", "net.metrics"],
    ["net.session", "net.source"],
    ["net.split", "net.broadcast", "net.local"],
    ["net.status", "net.hub", "net.history", "net.inquiry"],
    ["net.neighbours"],
    ["net.web"],
    ["net.address", "net.codec", "net.link", "net.zeromq"],
    ["net.keys"],
    ["net.doorway", "net.zap"],
    ["net.remote", "net.upstream", "net.dial"],
    ["net.relay"],
    ["net.server", "net.client"],
    ["net.share"],
    ["net"],
    [""],  # ringbuf/__init__.py
    ["torch.collate"],
    ["torch.dialect", "torch.rebuilding"],
    ["torch.loader"],
    ["torch.likeness"],
    ["torch"],
    ["accelerate"],
    ["cli.outcome", "cli.page", "cli.units", "cli.counts", "cli.sigterm", "cli.processes"],
    ["cli.terminal", "cli.kinds.thing", "cli.bottleneck", "cli.running"],
    ["cli.colours"],
    ["cli.painter", "cli.factory"],
    ["cli.reporter", "cli.kinds.ring", "cli.kinds.server", "cli.kinds.loader"],
    ["cli.kinds"],
    ["cli.bench.plan", "cli.bench.figures", "cli.bench.progress", "cli.bench.signals", "cli.bench.pair", "cli.bench.table"],
    ["cli.bench.samples", "cli.bench.plot"],
    ["cli.bench.arrays", "cli.bench.tensors", "cli.bench.epochs", "cli.bench.copying", "cli.bench.picture"],
    ["cli.bench.measure"],
    ["cli.diagnosis.measures", "cli.diagnosis.processes", "cli.diagnosis.forecast", "cli.diagnosis.facts"],
    ["cli.diagnosis.shares"],
    ["cli.diagnosis.causes"],
    ["cli.diagnosis.verdict", "cli.diagnosis.machine", "cli.diagnosis.stretch", "cli.diagnosis.progress"],
    ["cli.diagnosis.attached", "cli.diagnosis.trial", "cli.diagnosis.report"],
    ["cli.diagnosis"],
    ["cli.serve", "cli.keygen", "cli.ls", "cli.stat", "cli.top", "cli.rm", "cli.trace", "cli.bench", "cli.doctor"],
    ["cli"],
    ["__main__"],
]

# Packages that are neither ours nor Python's own: numpy anywhere, each other one through its door alone.
DOORS = {part: {"torch"} for part in ("torch.collate", "torch.dialect", "torch.likeness", "torch.loader", "torch.rebuilding")}
DOORS["accelerate"] = {"accelerate"}
DOORS["cli.colours"] = {"rich"}
DOORS["cli.bench.tensors"] = {"torch"}
DOORS["cli.bench.plot"] = {"matplotlib"}
DOORS["net.metrics"] = {"prometheus_client"}
DOORS["net.zeromq"] = {"zmq"}
DOORS["net.codec"] = {"lz4", "backports", "compression"}


def row_of(part, rows):
    numbers = [number for number, row in enumerate(rows) if part in row]
    assert numbers, f"{part!r} is in no row; give it its place in {Path(__file__).name}"
    return numbers[0]


def sideways_or_down(part, uses, rows):
    return sorted(other for other in uses - {part} if row_of(other, rows) >= row_of(part, rows))


# ---- C -----------------------------------------------------------------------------------------------

C_FILES = sorted(path.relative_to(C) for path in C.rglob("*") if path.suffix in {".c", ".h", ".def"})


def c_part(path):
    return path.with_suffix("").as_posix()


@pytest.mark.parametrize("path", C_FILES, ids=str)
def test_a_c_file_includes_only_what_stands_above_it(path):
    names = re.findall(r'^\s*#\s*include\s+"([^"]+)"', (C / path).read_text(), re.MULTILINE)
    for name in names:
        assert (C / name).is_file(), f"{path} includes {name}, which is not a path from src/ringbuf_c"
    assert not sideways_or_down(c_part(path), {c_part(Path(name)) for name in names}, C_ROWS)


def test_the_ring_calls_nothing_outside_itself(tmp_path):
    """No system call, clock, pid or sleep can be in the algorithm if its object file needs no other."""
    compiled = tmp_path / "ring.o"
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    subprocess.run([compiler, "-std=c11", "-O2", f"-I{C}/include", "-c", C / "ring.c", "-o", compiled], check=True)
    undefined = subprocess.run(["nm", "-u", compiled], check=True, capture_output=True, text=True).stdout.split()
    assert set(undefined) - {"U", "memcpy", "memset"} == set()


# ---- Python ------------------------------------------------------------------------------------------

PYTHON_FILES = sorted(path.relative_to(PYTHON) for path in PYTHON.rglob("*.py*") if path.suffix in {".py", ".pyx"})


def python_part(path):
    return ".".join(path.with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def imports_of_pyx(text):
    """As ast gives them, from the lines that are plain Python imports; `cimport` names C declarations."""
    text = re.sub(r"#.*", "", text)
    return ast.parse("\n".join(re.findall(r"^\s*((?:from\s+\S+\s+)?import\s+(?:\([^)]*\)|.+))", text, re.MULTILINE)))


def imported(path):
    """Absolute names of all that a file imports, lazily or not; `from a import b` is a.b where that is a module of ours."""
    text = (PYTHON / path).read_text()
    package = ["ringbuf", *path.parts[:-1]]
    for node in ast.walk(imports_of_pyx(text) if path.suffix == ".pyx" else ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join(base + ([node.module] if node.module else []))
            for alias in node.names:
                yield f"{module}.{alias.name}" if is_ours(f"{module}.{alias.name}") else module


def is_ours(name):
    path = PYTHON.joinpath(*name.split(".")[1:])
    return name.split(".")[0] == "ringbuf" and any(
        candidate.is_file() for candidate in (path / "__init__.py", path.with_suffix(".py"), path.with_suffix(".pyx"))
    )


@pytest.mark.parametrize("path", PYTHON_FILES, ids=str)
def test_a_python_file_imports_only_what_stands_above_it(path):
    ours = {name.removeprefix("ringbuf").removeprefix(".") for name in imported(path) if name.split(".")[0] == "ringbuf"}
    assert not sideways_or_down(python_part(path), ours, PYTHON_ROWS)


@pytest.mark.parametrize("path", PYTHON_FILES, ids=str)
def test_a_python_file_imports_no_foreign_package_but_through_its_door(path):
    foreign = {name.split(".")[0] for name in imported(path)} - sys.stdlib_module_names - {"ringbuf", "numpy"}
    assert foreign <= DOORS.get(python_part(path), set())


def test_cython_sees_the_librarys_public_headers_alone():
    texts = [path.read_text() for path in PYTHON.rglob("*.p[xy][xd]")]
    headers = {header for text in texts for header in re.findall(r'cdef extern from "([^"]+)"', text)}
    assert {header for header in headers if list(C.rglob(Path(header).name))} == {"ringbuf.h", "ringbuf_frame.h"}


def test_importing_ringbuf_loads_numpy_and_nothing_heavier():
    script = """if True:
        import sys, numpy
        before = set(sys.modules)
        import ringbuf
        print(*(name for name in set(sys.modules) - before if hasattr(sys.modules[name], "__file__")))"""
    output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    loaded = {name.split(".")[0] for name in output.split()}
    assert loaded - sys.stdlib_module_names == {"ringbuf"}
    assert "multiprocessing" not in loaded
