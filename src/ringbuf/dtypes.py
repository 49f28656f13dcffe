"""A numpy dtype as plain data, and back.

A *spec* is what the field table of a frame says about a dtype:

    "<f4"  ">U3"  "|V8"  "<M8[25us]"                 numpy's own string, where it tells all
    "ml_dtypes.bfloat16"                             a type of that package, by name
    ("struct", itemsize, aligned,                    a structured dtype
        (name, title, offset, spec, shape), ...)

Structured dtypes are spelled out because neither `dtype.str` nor `dtype.descr` keeps alignment, padding
and titles. What a spec cannot say is dropped or refused: `dtype.metadata` and the scalar type of a record
array are dropped (a recarray arrives as a plain structured array), object and variable-width string
dtypes are a TypeError, because their memory holds pointers that mean nothing in another process.
"""

from __future__ import annotations

import functools
import importlib
import re

import numpy as np

__all__ = ["dtype_of", "spec_of"]

MAX_NESTING = 16  # structured dtypes inside structured dtypes

# Exactly what dtype.str writes. Anything else stays out: np.dtype("O") is a dtype of pointers, and
# np.dtype("2i4,(3)f8") would start a parser that we do not need.
_PLAIN = re.compile(r"[<>|][biufcSUV]\d{1,10}|[<>][mM]8(\[\d{0,10}[a-zA-Z]{1,2}\])?")
_ML_PREFIX = "ml_dtypes."


def spec_of(dtype: np.dtype):
    """Describe `dtype`; the result is hashable, made of str, int, None and tuples.

    Raises TypeError, saying why, for a dtype whose bytes do not carry its values.
    """
    # Equal dtypes may differ in what a struct spec says (alignment), so those are not cached.
    return _plain_spec(dtype) if dtype.names is None else _struct_spec(dtype, 1)


@functools.lru_cache(maxsize=1024)
def _plain_spec(dtype: np.dtype) -> str:
    if dtype.kind == "O":
        raise TypeError("object arrays hold pointers; convert to a numeric, bytes or fixed-width string dtype")
    if dtype.kind == "T":
        raise TypeError("variable-width strings hold pointers; use a fixed width such as array.astype('U16')")
    if dtype.isbuiltin == 2:  # registered by another package
        return _ml_spec(dtype)
    if not _PLAIN.fullmatch(dtype.str):
        raise TypeError(f"dtype {dtype!r} is not one of the fixed-size numpy dtypes")
    return dtype.str


def _ml_spec(dtype: np.dtype) -> str:
    if dtype.type.__module__ != "ml_dtypes":
        raise TypeError(f"dtype {dtype!r} of package {dtype.type.__module__!r} is not known to readers")
    if dtype != np.dtype(dtype.type):
        raise TypeError(f"dtype {dtype!r} is not in native byte order; use array.astype({dtype.name})")
    return _ML_PREFIX + dtype.type.__name__


def _struct_spec(dtype: np.dtype, nesting: int) -> tuple:
    if nesting > MAX_NESTING:
        raise TypeError(f"a structured dtype is nested more than {MAX_NESTING} deep")
    if not issubclass(dtype.type, np.void):
        raise TypeError(f"dtype {dtype!r} gives field names to a {dtype.kind!r} number; view it as one or the other")
    members = []
    for name in dtype.names:
        inner, offset, *title = dtype.fields[name]
        if title and type(title[0]) is not str:
            raise TypeError(f"field {name!r} has the title {title[0]!r}; titles must be strings")
        shape = ()
        if inner.subdtype is not None:
            inner, shape = inner.subdtype
        try:
            spec = _plain_spec(inner) if inner.names is None else _struct_spec(inner, nesting + 1)
        except TypeError as error:
            raise TypeError(f"field {name!r}: {error}") from None
        members.append((name, title[0] if title else None, offset, spec, shape))
    return ("struct", dtype.itemsize, int(dtype.isalignedstruct), *members)


def dtype_of(spec) -> np.dtype:
    """Make the dtype that `spec` describes; tuples may have become lists on the way.

    Raises ValueError or TypeError for anything that spec_of() would not have written.
    """
    return _plain_dtype(spec) if type(spec) is str else _struct_dtype(spec, 1)


@functools.lru_cache(maxsize=1024)
def _plain_dtype(spec: str) -> np.dtype:
    if spec.startswith(_ML_PREFIX):
        return _ml_dtype(spec.removeprefix(_ML_PREFIX))
    if not _PLAIN.fullmatch(spec):
        raise ValueError(f"{spec!r} does not name a fixed-size dtype")
    return np.dtype(spec)


def _ml_dtype(name: str) -> np.dtype:
    try:
        package = importlib.import_module("ml_dtypes")
    except ImportError:
        raise ValueError(f"arrays of dtype {name!r} need the package ml_dtypes; install it beside ringbuf") from None
    scalar = vars(package).get(name)
    if not (isinstance(scalar, type) and issubclass(scalar, np.generic)):
        raise ValueError(f"ml_dtypes {package.__version__} has no dtype {name!r}")
    return np.dtype(scalar)


def _struct_dtype(spec, nesting: int) -> np.dtype:
    if nesting > MAX_NESTING:
        raise ValueError(f"a structured dtype is nested more than {MAX_NESTING} deep")
    word, itemsize, aligned, *members = spec
    if word != "struct":
        raise ValueError(f"{word!r} does not begin a dtype")
    names, titles, offsets, formats = [], [], [], []
    for name, title, offset, inner, shape in members:
        base = _plain_dtype(inner) if type(inner) is str else _struct_dtype(inner, nesting + 1)
        names.append(name)
        titles.append(title)
        offsets.append(offset)
        formats.append((base, tuple(shape)) if shape else base)
    layout = {"names": names, "formats": formats, "offsets": offsets, "titles": titles, "itemsize": itemsize}
    return np.dtype(layout, align=bool(aligned))
