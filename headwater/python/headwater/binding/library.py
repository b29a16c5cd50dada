"""The loaded library: its functions, the errors they report, and what they hand out.

A `Handle` owns one reference to something of the library. Python counts the references to the
handle: a method holds one while it is in C, and an array holds one to what it lies in, so that
closing never takes anything from under a thread or an array.
"""

from __future__ import annotations

from ctypes import CDLL, PYFUNCTYPE, PyDLL, Structure, byref, c_void_p, py_object, pythonapi, sizeof
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headwater.binding.constants import HW_OK
from headwater.binding.conversions import CONVERSIONS
from headwater.binding.signatures import QUICK, WORKING, types_of
from headwater.binding.structs import Error
from headwater.errors import STATUS_ERRORS

LIBRARY = Path(__file__).with_name("_headwater.so")


class Functions:
    """The functions of headwater.h by their names."""

    def __init__(self, path: Path) -> None:
        quick = PyDLL(str(path))
        working = CDLL(str(path), handle=quick._handle)
        for library, declarations in ((quick, QUICK), (working, WORKING)):
            for name, (result, taken) in types_of(declarations).items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, taken
                setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"headwater.h has no {name}")


lib = Functions(LIBRARY)
VERSION: str = lib.hw_version().decode()


# ---- errors ----------------------------------------------------------------------------------


def error_of(error: Error, advice: str = "") -> BaseException:
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
    pointer. keeps: what must go after it.

    What drops it is a member, not a method: no code of Python runs then, in which an interrupt
    would be raised, and lost, before the reference is dropped. And the garbage collector does not
    know it, which would drop it while others of its cycle still use it.
    """

    __slots__ = ("__del__", "_as_parameter_", "keeps", "out")

    def __init__(self, close: Any, keeps: Handle | None = None) -> None:
        self.out = self._as_parameter_ = c_void_p()
        self.keeps = keeps
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

Made = TypeVar("Made", bound=Structure)


def filled(kind: type[Made], **values: Any) -> Made:
    """A struct of options from what Python has for its fields; None is left at the default."""
    made = kind()
    made.struct_bytes = sizeof(kind)
    types = {field[0]: field[1] for field in kind._fields_}
    for name, value in values.items():
        if value is not None:
            setattr(made, name, CONVERSIONS[types[name]](value))
    return made


def as_dict(made: Structure) -> dict[str, Any]:
    """The fields of a struct, in their order."""
    return {field[0]: getattr(made, field[0]) for field in made._fields_}
