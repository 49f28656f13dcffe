"""`pip install --no-build-isolation .`, or `python setup.py build_ext --inplace`; needs cython, setuptools and ringloader."""

from Cython.Build import cythonize
from setuptools import Extension, setup

import ringbuf

walks = Extension(
    "walks",
    ["walks.pyx"],
    include_dirs=[ringbuf.get_include()],
    extra_objects=[ringbuf.get_library()],
    extra_link_args=["-pthread"],
)
setup(name="walks", version="1.0", ext_modules=cythonize([walks]))
