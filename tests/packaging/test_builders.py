"""What builders in C, C++ and Cython find in an installation, and the examples that use it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ringbuf

ROOT = Path(__file__).parents[2]
PACKAGE = Path(ringbuf.get_include()).parent
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]

in_cpp = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler (Debian: g++)")
by_pkg_config = pytest.mark.skipif(shutil.which("pkg-config") is None, reason="no pkg-config")


@pytest.fixture
def example(tmp_path):
    """example(name) copies an example to where no source tree is near, and returns the folder."""

    def copy(name):
        return shutil.copytree(ROOT / "examples" / name, tmp_path / name)

    return copy


@pytest.fixture
def name(request):
    """Of a ring that this test alone uses."""
    return f"builders-{os.getpid()}-{request.node.name[:20]}"


def asked(run, *options):
    return run(sys.executable, "-m", "ringbuf", *options).rstrip("\n")


@pytest.mark.parametrize("header", ["ringbuf.h", "ringbuf_frame.h"])
@pytest.mark.parametrize("language", ["c11", "c17", pytest.param("c++17", marks=in_cpp)])
def test_a_header_compiles_by_itself_without_a_warning(header, language, tmp_path, run):
    compiler, suffix = ("c++", "cpp") if "+" in language else ("cc", "c")
    source = tmp_path / f"alone.{suffix}"
    source.write_text(f"#include <{header}>\nint answer = 42;\n")
    run(compiler, f"-std={language}", *STRICT, *asked(run, "--cflags").split(), "-fsyntax-only", source)


def test_the_c_of_the_documentation_compiles(tmp_path, run):
    writes, reads = re.findall(r"```c\n(.*?)```", (ROOT / "docs/builders.md").read_text(), re.DOTALL)
    source = tmp_path / "documented.c"
    source.write_text(f"""#include <ringbuf.h>
        #include <ringbuf_frame.h>
        #include <stddef.h>
        static void read_sensor(void *pixels) {{ (void)pixels; }}
        void produce(rb_ring *ring) {{ {writes} }}
        void consume(rb_ring *ring) {{ struct rb_slot slot; {reads} }}
    """)
    run("cc", "-std=c11", *STRICT, *asked(run, "--cflags").split(), "-fsyntax-only", source)


def test_flags_are_printed_on_one_line_in_the_order_asked_for(run):
    include, library = ringbuf.get_include(), ringbuf.get_library()
    assert asked(run, "--cflags", "--libs") == f"-I{include} {library} -pthread"
    assert asked(run, "--libs", "--cflags") == f"{library} -pthread -I{include}"


def test_the_flags_are_enough_to_build_with(tmp_path, run):
    source = tmp_path / "version.c"
    source.write_text("#include <ringbuf.h>\nint main(void) { return rb_unlink(\"no-such-ring\") == 0; }\n")
    run("cc", source, "-o", "version", *asked(run, "--cflags", "--libs").split())
    run(tmp_path / "version")


@by_pkg_config
def test_the_camera_in_c_feeds_a_viewer_in_python(example, name, run):
    folder = example("c_producer")
    run("make", f"PYTHON={sys.executable}", f"CFLAGS=-O2 {' '.join(STRICT)}", folder=folder)
    viewer = subprocess.Popen([sys.executable, "viewer.py", name], cwd=folder, stdout=subprocess.PIPE, text=True)
    run(folder / "camera", 60, name)  # ends when its last pictures were looked at
    output, _ = viewer.communicate(timeout=30)
    assert viewer.returncode == 0
    assert re.search(r"^\d+ pictures up to number 59, in order: True; \d+ were overwritten$", output, re.MULTILINE), output


def test_the_simulator_in_cython_feeds_its_reader(example, name, run):
    folder = example("cython_producer")
    run(sys.executable, "setup.py", "-q", "build_ext", "--inplace", folder=folder, CFLAGS="-O1")
    output = run(sys.executable, "run.py", "--walks=300", "--steps=400", f"--name={name}", folder=folder)
    walks, distance = re.match(r"(\d+) walks of 400 steps end (\d+) from the start \(about 28 expected\)", output).groups()
    assert int(walks) == 300 and 22 < int(distance) < 34


@in_cpp
def test_the_consumer_in_cpp_reads_what_python_puts_also_when_all_was_moved(example, name, run, tmp_path):
    folder, moved = example("cpp_consumer"), tmp_path / "moved here"
    for part in ("include", "lib"):
        shutil.copytree(PACKAGE / part, moved / part)
    options = [f"-Dringbuf_DIR={moved}/lib/cmake/ringbuf", f"-DCMAKE_CXX_FLAGS={' '.join(STRICT)}"]
    run("cmake", "-B", "build", *options, folder=folder)
    run("cmake", "--build", "build", folder=folder)
    feeder = subprocess.Popen([sys.executable, "pictures.py", "--messages=20", f"--name={name}"], cwd=folder)
    ringbuf.attach(name).close()  # it is there
    output = run(folder / "build/histogram", name)
    assert feeder.wait(timeout=30) == 0
    assert re.match(r"20 messages, pixels by quarter:( \d+){4}, weights sum to 760\n", output), output
    assert sum(map(int, re.findall(r" (\d+)", output.partition(":")[2].partition(",")[0]))) == 20 * 256 * 256 * 3


@by_pkg_config
def test_pkg_config_finds_what_was_moved(run, tmp_path):
    shutil.copytree(PACKAGE / "lib", tmp_path / "moved/lib")
    flags = run("pkg-config", "--cflags", "--libs", "ringbuf", PKG_CONFIG_PATH=str(tmp_path / "moved/lib/pkgconfig")).split()
    places = {Path(flag[2:]).resolve() for flag in flags if flag[:2] in ("-I", "-L")}
    assert places == {tmp_path / "moved/include", tmp_path / "moved/lib"}
    version = run("pkg-config", "--modversion", "ringbuf", PKG_CONFIG_PATH=asked(run, "--pkgconfigdir"))
    assert version == f"{ringbuf.__version__}\n"


def test_cmake_takes_no_other_version_for_the_one_asked_for(run, tmp_path):
    asking = "\n".join(
        f"find_package(ringbuf {wish} QUIET CONFIG)\nmessage(STATUS \"{wish}: ${{ringbuf_FOUND}}\")\nunset(ringbuf_FOUND)"
        for wish in ("", "0.1", ringbuf.__version__, "0.2", "1")
    )
    (tmp_path / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.20)\nproject(asks LANGUAGES C)\n{asking}\n")
    output = run("cmake", "-B", "build", f"-Dringbuf_DIR={asked(run, '--cmakedir')}")
    assert re.findall(r"^-- (.*): ([01])$", output, re.MULTILINE) == [
        ("", "1"), ("0.1", "1"), (ringbuf.__version__, "1"), ("0.2", "0"), ("1", "0")
    ]  # fmt: skip


def test_a_package_without_its_library_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(ringbuf, "__path__", [str(tmp_path)])
    with pytest.raises(FileNotFoundError, match=f"lib/libringbuf.a is in none of {tmp_path}; install ringloader"):
        ringbuf.get_library()
