"""Arrow C streams in capsules of the published name, in and out."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import (
    CFUNCTYPE,
    PYFUNCTYPE,
    Structure,
    addressof,
    c_char_p,
    c_int,
    c_void_p,
    py_object,
    pythonapi,
)
from typing import Any, Protocol

from headwater.binding.library import call, lib

NAME = b"arrow_array_stream"

_is_capsule = PYFUNCTYPE(c_int, py_object, c_char_p)(("PyCapsule_IsValid", pythonapi))
_pointer_of = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", pythonapi))


class ArrowArrayStream(Structure):
    """Of the Arrow C stream interface."""

    _fields_ = (
        ("get_schema", c_void_p),
        ("get_next", c_void_p),
        ("get_last_error", c_void_p),
        ("release", CFUNCTYPE(None, c_void_p)),
        ("private_data", c_void_p),
    )


class ArrowStream(Protocol):
    """What exports an Arrow C stream."""

    @property
    def __arrow_c_stream__(self) -> Callable[..., object]: ...


class Stream:
    """A stream that was not read yet, of a capsule or of what exports one."""

    def __init__(self, given: ArrowStream | object) -> None:
        self.capsule: Any = given
        if not _is_capsule(given, NAME):
            export = getattr(given, "__arrow_c_stream__", None)
            if export is None:
                raise TypeError(
                    "expected an Arrow C stream or an object that exports one, "
                    f"found {type(given)!r}"
                )
            self.capsule = export()
        self.address: int = _pointer_of(self.capsule, NAME)
        self._stream = ArrowArrayStream.from_address(self.address)
        if not self._stream.release:
            raise ValueError("the Arrow stream was read already")

    def release(self) -> None:
        """End it, also where its capsule lives on: a producer may have only one open at a time."""
        if self._stream.release:
            self._stream.release(addressof(self._stream))


def steady_stream(given: ArrowStream | object, /) -> object:
    """The stream (a capsule), made one that stays failed once it failed: a reader with several
    threads asks again, and what a producer then says is not why it failed."""
    stream = Stream(given)
    call(lib.hw_steady_stream, stream.address)
    return stream.capsule
