"""From the source tree to an archive, from that to an installation that rebuilds itself, and to a wheel."""

import os
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEADLINE_S = 280

pytestmark = pytest.mark.timeout(300)  # the first test of each compiles all extensions, without optimising them

BACKEND = "import sys, scikit_build_core.build as backend; print(backend.build_{}(sys.argv[1], {}))"
SETTINGS = {"build-dir": "build/at-import", "cmake.build-type": "Debug"}


def run(*command, folder, **variables):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"  # cmake and ninja may be our own
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env={**environment, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    run(sys.executable, "-c", BACKEND.format("sdist", "{}"), folder, folder=ROOT)
    (path,) = folder.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def sources(archive, tmp_path_factory):
    """The archive's contents, where no repository is."""
    folder = tmp_path_factory.mktemp("sources")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    (sources,) = folder.iterdir()
    return sources


@pytest.fixture(scope="module")
def editable(sources, tmp_path_factory):
    """The interpreter of an environment in which the unpacked sources are installed to be edited."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    # It sees what is installed where this runs: numpy, and what builds the package.
    (packages / "outer.pth").write_text("\n".join(site.getsitepackages()))
    python = folder / "bin/python"
    settings = [f"-C{name}={value}" for name, value in {**SETTINGS, "editable.rebuild": "true"}.items()]
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    run(*pip, *settings, "--ignore-installed", "-e", ".", folder=sources)
    return python


def test_the_archive_holds_what_is_needed_and_nothing_that_was_made_of_it(archive):
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert names >= {
        "LICENSE", "README.md", "PKG-INFO", "pyproject.toml", "CMakeLists.txt", "cmake/ringbuf.pc.in",
        "src/ringbuf/_core.pyx", "src/ringbuf/py.typed", "src/ringbuf_c/include/ringbuf.h", "src/ringbuf_c/crash_points.def",
    }  # fmt: skip
    assert {name.partition("/")[0] for name in names} <= {
        "benchmarks", "cmake", "docs", "examples", "scripts", "src", "tests",
        ".ci", ".gitignore", "CHANGELOG.md", "CMakeLists.txt", "CMakePresets.json", "CONTRIBUTING.md", "LICENSE", "Makefile",
        "PKG-INFO", "README.md", "pyproject.toml",
    }  # fmt: skip
    assert not {name for name in names if name.endswith((".so", ".pyc", ".o", ".a", ".whl")) or "__pycache__" in name}
    assert not {name for name in names if name.startswith("src/ringbuf/") and name.endswith(".c")}  # Cython's


def test_what_is_edited_is_what_runs(editable, sources, tmp_path):
    say = "import ringbuf; r = ringbuf.RingBuffer(slots=2, slot_bytes=8); r.put(b'x'); print(ringbuf.__file__, len(r))"
    assert run(editable, "-c", say, folder=tmp_path).split()[-2:] == [f"{sources}/src/ringbuf/__init__.py", "1"]

    c = sources / "src/ringbuf_c/ringbuf.c"
    text = c.read_text()
    signature = "int rb_ready(struct rb_ring *ring)\n{"
    assert text.count(signature) == 1
    c.write_text(text.replace(signature, f"{signature}\n\tif (ring)\n\t\treturn 41;"))
    assert run(editable, "-c", say, folder=tmp_path).split()[-1] == "41"
    c.write_text(text)
    assert run(editable, "-c", say, folder=tmp_path).split()[-1] == "1"


def test_an_installation_to_edit_has_what_builders_need(editable, tmp_path):
    paths = run(editable, "-c", "import ringbuf; print(ringbuf.get_include(), ringbuf.get_library())", folder=tmp_path).split()
    assert Path(paths[-2], "ringbuf_frame.h").is_file() and Path(paths[-1]).is_file()


def test_the_wheel_of_the_archive_runs_where_no_sources_are(editable, sources, tmp_path):
    """`editable` has compiled what goes into it."""
    run(sys.executable, "-c", BACKEND.format("wheel", SETTINGS), tmp_path, folder=sources)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as zipped:
        zipped.extractall(tmp_path / "site")
    say = """if True:
        import numpy, ringbuf
        with ringbuf.RingBuffer(slots=2, slot_bytes=1 << 10) as ring:
            ring.put({"x": numpy.arange(3)})
            print(ringbuf.__file__, ring.get()["x"].tolist())"""
    output = run(sys.executable, "-c", say, folder=tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert output == f"{tmp_path}/site/ringbuf/__init__.py [0, 1, 2]\n"
