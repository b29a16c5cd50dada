"""The loaded library: its functions, the errors they report, and what they hand out.

A `Handle` owns one reference to something of the library. Python counts the references to the
handle: a method holds one while it is in C, and an array holds one to what it lies in, so that
closing never takes anything from under a thread or an array.
"""

from __future__ import annotations

from ctypes import CDLL, PYFUNCTYPE, PyDLL, Structure, byref, c_void_p, py_object, pythonapi, sizeof
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.binding.conversions import CONVERSIONS
from headwater.binding.header import FUNCTIONS, HW_OK, STRUCTS
from headwater.errors import STATUS_ERRORS

LIBRARY = Path(__file__).with_name("_headwater.so")
# Called without the interpreter's lock: they work, wait, read what is not in memory or call back.
# The others are called with it: giving it up and taking it back would cost more than they do, and
# much more if other threads of Python are at work.
WORKING = frozenset({
    "hw_builder_close", "hw_builder_write_rows", "hw_builder_write_edges", "hw_builder_write_seeds",
    "hw_builder_write_vectors", "hw_builder_finish", "hw_builder_publish",
    "hw_store_open", "hw_store_metadata", "hw_store_check_files", "hw_store_verify",
    "hw_store_edges", "hw_store_column", "hw_store_warm_up", "hw_sampler_open",
    "hw_sampler_shutdown", "hw_sampler_close", "hw_sampler_next", "hw_sampler_batch",
    "hw_sampler_subgraph", "hw_sampler_set_position", "hw_pass_open", "hw_pass_open_seeds",
    "hw_pass_open_chosen", "hw_pass_open_levelled", "hw_pass_next", "hw_pass_close",
    "hw_seed_pool_open", "hw_seed_pool_next",
})  # fmt: skip
Error: Any = STRUCTS["hw_error"]


class Functions:
    """The functions of headwater.h by their names."""

    def __init__(self, path: Path) -> None:
        quick = PyDLL(str(path))
        working = CDLL(str(path), handle=quick._handle)
        for name, (_, result, taken) in FUNCTIONS.items():
            function = getattr(working if name in WORKING else quick, name)
            function.restype, function.argtypes = result, taken
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"headwater.h has no {name}")


lib = Functions(LIBRARY)
VERSION: str = lib.hw_version().decode()


# ---- errors ----------------------------------------------------------------------------------


def error_of(error: Any, advice: str = "") -> BaseException:
    """What an hw_error is in Python."""
    kind: type[BaseException] = STATUS_ERRORS[error.status]
    return kind(error.message.decode("utf-8", "replace") + advice)


def call(function: Any, *arguments: Any) -> None:
    """Call a function whose last argument is an hw_error; raise what it reports."""
    error = Error()
    if function(*arguments, byref(error)) != HW_OK:
        raise error_of(error)


# ---- what is handed out ----------------------------------------------------------------------


_untrack = PYFUNCTYPE(None, py_object)(("PyObject_GC_UnTrack", pythonapi))


class Handle:
    """One reference to something of the library, dropped when the last one to this object goes.

    Functions take it as it is, which keeps it for as long as they run. out: where one writes the
    pointer.

    What drops it is a member, not a method: no code of Python runs then, in which an interrupt
    would be raised, and lost, before the reference is dropped. And the garbage collector does not
    know it, which would drop it while others of its cycle still use it.
    """

    __slots__ = ("__del__", "_as_parameter_", "out")

    def __init__(self, close: Any) -> None:
        self.out = self._as_parameter_ = c_void_p()
        self.__del__ = partial(close, self.out)
        _untrack(self)

    def __reduce__(self) -> Any:
        raise TypeError("stores, samplers and batches cannot be pickled: open them in each process")

    def close(self) -> None:
        """Drop it now: only where no other thread can be in a function that has it."""
        address, self.out.value = c_void_p(self.out.value), None
        self.__del__.func(address)


class View:
    """What NumPy takes an array from, and holds while there is an array over it."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, owner: Handle, interface: dict[str, Any]) -> None:
        self.owner = owner
        self.__array_interface__ = interface


def view(owner: Handle, address: int | None, typestr: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """A read-only array over memory that lasts as long as the handle."""
    if not address or 0 in shape:
        return own(np.empty(shape, typestr))
    interface = {"data": (address, True), "shape": shape, "typestr": typestr, "version": 3}
    return np.asarray(View(owner, interface))


def own(array: NDArray[Any]) -> NDArray[Any]:
    """An array of memory of its own, read-only as all others are."""
    array.flags.writeable = False
    return array


# ---- structs ---------------------------------------------------------------------------------


def filled(struct: str, **values: Any) -> Any:
    """A struct of options, by its name in C, from what Python has for its
    fields; None is left at the default."""
    kind = STRUCTS[struct]
    made, types = kind(struct_bytes=sizeof(kind)), dict(kind._fields_)
    for name, value in values.items():
        if value is not None:
            setattr(made, name, CONVERSIONS[types[name]](value))
    return made


def read(struct: str, function: Any, *arguments: Any) -> Any:
    """The struct, by its name in C, that a function fills as the last argument before its error."""
    kind = STRUCTS[struct]
    made = kind(sizeof(kind))  # struct_bytes
    call(function, *arguments, byref(made))
    return made


def as_dict(made: Structure) -> dict[str, Any]:
    """The fields of a struct that was read, in their order."""
    names = [field[0] for field in made._fields_ if field[0] not in ("struct_bytes", "reserved")]
    return {name: getattr(made, name) for name in names}
