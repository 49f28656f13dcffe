"""What builders in C, C++ and Cython need of an installed ringbuf: headers, the static library, and the flags for both."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["ANSWERS", "get_include", "get_library"]


def get_include() -> str:
    """The folder of ringbuf.h and ringbuf_frame.h: for the compiler's -I, or `include_dirs` of setuptools.

    Raises FileNotFoundError where the package was installed without them.
    """
    return str(_part("include/ringbuf.h").parent)


def get_library() -> str:
    """The file libringbuf.a: for the linker, with -pthread, or `extra_objects` of setuptools.

    What is linked with it has a ringbuf of its own, which knows nothing of the handles of Python's in the same process; they
    meet in shared memory. Raises FileNotFoundError where the package was installed without it.
    """
    return str(_part("lib/libringbuf.a"))


def _cmake_dir() -> str:
    return str(_part("lib/cmake/ringbuf/ringbuf-config.cmake").parent)


def _pkgconfig_dir() -> str:
    return str(_part("lib/pkgconfig/ringbuf.pc").parent)


def _compile_flags() -> str:
    return f"-I{get_include()}"


def _link_flags() -> str:
    return f"{get_library()} -pthread"


ANSWERS = {
    "cflags": (_compile_flags, "what a C or C++ compiler needs"),
    "libs": (_link_flags, "what the linker needs"),
    "cmakedir": (_cmake_dir, "the folder of the CMake package, for -Dringbuf_DIR="),
    "pkgconfigdir": (_pkgconfig_dir, "the folder of ringbuf.pc, for PKG_CONFIG_PATH"),
}
"""What `python -m ringbuf --NAME` prints, and what that is."""


def _part(name: str) -> Path:
    folders = sys.modules["ringbuf"].__path__  # of an editable install two: the sources, and what was built of them
    for folder in folders:
        if (path := Path(folder, name)).exists():
            return path
    raise FileNotFoundError(f"{name} is in none of {', '.join(folders)}; install ringloader with `pip install`")
