"""What the binding reads of headwater.h, by the compiler; and what crosses between the two."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headwater
import numpy as np
import pyarrow as pa
import pytest
from headwater import binding
from headwater.binding import header, library
from headwater.binding.arrow import ArrowArrayStream
from headwater.binding.background import listen
from headwater.binding.options import ITEMS, Option
from headwater.binding.options import OPTIONS as OPTIONS_OF_C
from tiny_store import write_tiny

INCLUDE = Path(__file__).parents[3] / "include"
HEADER = re.sub(r"/\*.*?\*/", "", (INCLUDE / "headwater.h").read_text(), flags=re.DOTALL)
C_TYPES: dict[Any, str] = {
    None: "void",
    ctypes.c_char: "char",
    ctypes.c_uint8: "uint8_t",
    ctypes.c_uint16: "uint16_t",
    ctypes.c_int32: "int32_t",
    ctypes.c_uint32: "uint32_t",
    ctypes.c_int64: "int64_t",
    ctypes.c_uint64: "uint64_t",
    ctypes.c_float: "float",
    ctypes.c_double: "double",
    ctypes.c_char_p: "const char *",
    ctypes.c_void_p: "void *",
    ctypes.POINTER(ctypes.c_char_p): "const char *const *",
    **{
        ctypes.POINTER(item): f"const {np.dtype(item).name}_t *"
        for item in (
            ctypes.c_uint8,
            ctypes.c_uint16,
            ctypes.c_int32,
            ctypes.c_uint32,
            ctypes.c_int64,
            ctypes.c_uint64,
        )
    },
    ctypes.POINTER(ctypes.c_double): "const double *",
}
LISTS_OF_C = {
    header.HW_OPTION_TIMES: "const int64_t *",
    header.HW_OPTION_NUMBERS: "const uint32_t *",
    header.HW_OPTION_WEIGHTS: "const double *",
}
OPTIONS: dict[str, Any] = {
    "default_batch_size": 4, "default_sequence_length": 32, "max_rows": 16, "text_budget": 64,
    "split_ratios": (0.6, 0.2, 0.2), "num_threads": 2,
}  # fmt: skip


# ---- the header --------------------------------------------------------------------------------


def claims() -> list[str]:
    """All that the binding's tables say, as C that does not compile where the header says
    otherwise."""
    structs = {**header.STRUCTS, "struct ArrowArrayStream": ArrowArrayStream}
    return [
        *(declaration for declaration, _, _ in header.FUNCTIONS.values()),
        *(claim for name, kind in structs.items() for claim in struct_claims(name, kind)),
        *(
            f"{name} *is_{name} = ({C_TYPES[kind._restype_]} (**)"
            f"({', '.join(C_TYPES[argument] for argument in kind._argtypes_)}))0;"
            for name, kind in header.CALLBACKS.items()
        ),
        *(
            is_of(f"({name})0", C_TYPES[kind])
            for name, kind in header.VALUES.items()
            if kind in C_TYPES and kind not in (None, ctypes.c_void_p)
        ),
        *(
            f"_Static_assert({name} == {value}, {quoted(name)});"
            for name, value in header.NUMBERS.items()
        ),
        *(claim for option in OPTIONS_OF_C.values() for claim in option_claims(option)),
    ]


def option_claims(option: Option) -> Iterator[str]:
    """That a member is where the library's table says, and of the type that it says."""
    member = f"((hw_sampler_options *)0)->{option.name}"
    place = f"offsetof(hw_sampler_options, {option.name}) == {option.offset}"
    yield f"_Static_assert({place}, {quoted(option.name)});"
    if option.type == header.HW_OPTION_NUMBERS:
        count = f"offsetof(hw_sampler_options, {option.name.removesuffix('s')}_count)"
        yield f"_Static_assert({count} == {option.count}, {quoted(option.name)});"
    elif option.count > 1 and not option.is_list:
        size = f"sizeof({member}) / sizeof({member}[0])"
        yield f"_Static_assert({size} == {option.count}, {quoted(option.name)});"
    if option.is_list:
        yield is_of(member, LISTS_OF_C[option.type])
    elif not option.words:
        yield is_of(member + ("[0]" if option.count > 1 else ""), C_TYPES[ITEMS[option.type]])
    else:
        yield f"_Static_assert(sizeof({member}) == 4, {quoted(option.name)});"


def struct_claims(name: str, kind: type[ctypes.Structure]) -> Iterator[str]:
    yield f"_Static_assert(sizeof({name}) == {ctypes.sizeof(kind)}, {quoted(name)});"
    for field, item, *_ in kind._fields_:
        member, offset = f"(({name} *)0)->{field}", getattr(kind, field).offset
        yield f"_Static_assert(offsetof({name}, {field}) == {offset}, {quoted(name, field)});"
        yield f"_Static_assert(sizeof({member}) == {ctypes.sizeof(item)}, {quoted(name, field)});"
        while issubclass(item, ctypes.Array):
            member, item = member + "[0]", item._type_
        if item in C_TYPES and item is not ctypes.c_void_p:
            yield is_of(member, C_TYPES[item])
        else:  # a pointer to whatever
            yield f"_Static_assert(sizeof(*({member})) > 0, {quoted(member)});"


def is_of(expression: str, kind: str) -> str:
    writable = kind.removeprefix("const ")  # ctypes does not tell the two apart
    kinds = kind if writable == kind else f"{kind}: 1, {writable}"
    choice = f"_Generic({expression}, {kinds}: 1, default: 0)"
    return f"_Static_assert({choice}, {quoted(expression, kind)});"


def quoted(*words: str) -> str:
    return '"' + " ".join(words) + '"'


def faults(lines: list[str], folder: Path) -> str:
    """What the compiler says of them, behind the header."""
    source = folder / "claims.c"
    source.write_text('#include "headwater.h"\n' + "\n".join(lines) + "\n")
    compiler = os.environ.get("CC", "cc").split()
    flags = ["-std=c17", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}", "-c", "-o", os.devnull]
    done = subprocess.run(
        [*compiler, *flags, str(source)], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode == 0) == (done.stderr == "")
    return done.stderr


def test_all_that_the_tables_say_is_so_in_the_header(tmp_path: Path) -> None:
    assert faults(claims(), tmp_path) == ""


@pytest.mark.parametrize(
    ("of", "instead"),
    [
        ("int64_t timeout_ms,", "int32_t timeout_ms,"),
        ("const hw_store *store, uint32_t row,", "const hw_store *store, uint64_t row,"),
        ("hw_store *hw_store_retain", "void hw_store_retain"),
        ("sizeof(hw_shape) == 64", "sizeof(hw_shape) == 68"),
        ("offsetof(hw_task_spec, label_times) == 76", "offsetof(hw_task_spec, label_times) == 80"),
        ("->is_null, uint8_t:", "->is_null, uint32_t:"),
        ("->train_count, uint64_t:", "->train_count, double:"),
        ("->categories, const char *const *:", "->categories, const char *:"),
        ("->anchors, const uint32_t *:", "->anchors, const int32_t *:"),
        ("->shape[0], uint64_t:", "->shape[0], int64_t:"),
        ("(void *, uint64_t, uint64_t)", "(void *, uint64_t)"),
        ("HW_FORKED == 11", "HW_FORKED == 12"),
        ("(hw_load)0, uint32_t:", "(hw_load)0, int32_t:"),
    ],
)
def test_a_claim_that_is_not_so_does_not_compile(of: str, instead: str, tmp_path: Path) -> None:
    changed = [line.replace(of, instead) for line in claims()]
    assert changed != claims()
    assert "error" in faults(changed, tmp_path)


def test_nothing_of_the_header_is_left_out() -> None:
    declared = re.findall(r"^HW_(?:API|CHECK)[^;(]*?(hw_\w+)\(", HEADER, re.MULTILINE)
    assert [*header.FUNCTIONS] == declared
    assert {*header.FUNCTIONS} >= library.WORKING
    names = set(re.findall(r"\bHW_[A-Z0-9_]+\b", HEADER)) - {"HW_API", "HW_CHECK", "HW_VERSION"}
    assert {*header.NUMBERS} == names
    bodies = re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", HEADER, re.DOTALL)
    assert [*header.STRUCTS] == [name for _, name in bodies]
    for body, name in bodies:
        members = [
            re.sub(r"\[.*", "", part).split()[-1].lstrip("*")
            for line in body.split(";")
            for part in line.split(",")
            if part.strip()
        ]
        assert members == [field[0] for field in header.STRUCTS[name]._fields_], name
    options = {field[0] for field in header.STRUCTS["hw_sampler_options"]._fields_}
    assert {name for name in options if not name.endswith("_count")} == {
        "struct_bytes", *OPTIONS_OF_C,
    }  # fmt: skip
    with pytest.raises(AttributeError, match=r"headwater\.h has no HW_ANYTHING"):
        header.HW_ANYTHING  # noqa: B018


# ---- arguments ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[binding.Builder]:
    builder = binding.Builder(tmp_path / "building", name="one", stats_until_us=0)
    yield builder
    builder.close()


def test_an_integer_that_does_not_fit_is_refused_and_not_cut(
    path: Path, builder: binding.Builder
) -> None:
    store = binding.Store(path)
    for row in (-1, 2**32, 2**64):
        with pytest.raises(ValueError, match=r"is not an integer from 0 to 2\^32 - 1"):
            store.row_table(row)
        with pytest.raises(ValueError, match=r"is not an integer from 0 to 2\^32 - 1"):
            builder.add_key(0, 0, [0, row])
    with pytest.raises(ValueError, match="is not an integer of 64 bits"):
        builder.add_column(0, "a", stype=1, known_offset_us=2**63)
    with pytest.raises(TypeError, match="float"):
        store.row_table(1.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="zero"):
        builder.add_table("a\0b")
    with pytest.raises(ValueError, match="null byte"):
        binding.Store("a\0b")


def test_vectors_are_taken_as_they_lie_or_refused(builder: binding.Builder) -> None:
    builder.add_table("t")
    builder.set_embedder("numbered", 4)
    texts = binding.EMBEDDING_KINDS["texts"]
    wide = np.zeros((2, 8), np.float16)
    for strange in (wide, wide[:, ::2], wide[:, :4].astype(np.float32), wide[0], [[0.0] * 4]):
        with pytest.raises(ValueError, match=r"expected float16 vectors \[count, 4\]"):
            builder.write_vectors(texts, strange)


class Endless:
    """Rows of one column without end, until the builder was asked from elsewhere."""

    def __init__(self, asked: threading.Event) -> None:
        self.started, self.asked = threading.Event(), asked

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        schema = pa.schema([("n", pa.float64())])
        return pa.RecordBatchReader.from_batches(schema, self.rows()).__arrow_c_stream__()

    def rows(self) -> Iterator[pa.RecordBatch]:
        while not self.asked.wait(0.001):
            yield pa.record_batch({"n": [1.0]})
            self.started.set()


def test_a_second_thread_at_a_builder_is_refused_until_the_first_is_through(
    builder: binding.Builder,
) -> None:
    builder.add_table("t")
    builder.add_column(0, "n", stype=binding.SEMANTIC_TYPES["numerical"])
    rows = Endless(threading.Event())
    writer = threading.Thread(target=builder.write_rows, args=(0, rows))
    writer.start()
    assert rows.started.wait(10)
    asks: list[Callable[[], object]] = [
        builder.close, builder.text_count, builder.finish,
        lambda: builder.write_rows(0, rows), lambda: builder.texts(0, 0),
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(RuntimeError, match="another thread is using the builder"):
            ask()
    rows.asked.set()
    writer.join()
    assert builder.column_stats(0)["value_count"] > 0
    builder.close()
    with pytest.raises(ValueError, match="the builder is closed"):
        builder.text_count()


class Cyclic:
    """Uses what it has when the garbage collector ends it."""

    said: list[object]

    def __init__(self, builder: binding.Builder, store: binding.Store) -> None:
        self.builder, self.store, self.myself = builder, store, self

    def __del__(self) -> None:
        self.said.append(self.store.row_table(3))
        self.builder.close()


def test_what_goes_with_a_cycle_can_be_used_until_it_is_gone(path: Path, tmp_path: Path) -> None:
    Cyclic.said = []
    folders = [tmp_path / str(number) for number in range(20)]
    gc.disable()  # or it may run between the two lines below
    try:
        for folder in folders:
            Cyclic(binding.Builder(folder, name="one", stats_until_us=0), binding.Store(path))
            assert folder.exists()
    finally:
        gc.enable()
    gc.collect()
    assert Cyclic.said == [0] * 20
    assert not any(folder.exists() for folder in folders)


# ---- callbacks ---------------------------------------------------------------------------------


def test_an_interrupt_ends_work_that_calls_back() -> None:
    ended = threading.Event()

    def work(tell: Callable[..., int]) -> None:
        while tell(1) == 0:
            time.sleep(0.01)
        ended.set()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            listen(work, lambda number: None)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert ended.is_set()


def test_work_that_does_not_look_at_the_answer_is_waited_for() -> None:
    """As faults are told: what hears of them ends at the first, and C tells of all."""
    told: list[int] = []

    def work(tell: Callable[..., int]) -> None:
        told.extend(tell(number) for number in range(5))

    def hear(number: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        listen(work, hear)
    assert told == [1] * 5


def test_an_error_of_the_work_or_of_who_hears_of_it_comes_out() -> None:
    def work(tell: Callable[..., int]) -> None:
        if tell("a", 1) == 0:
            raise OSError("broken")

    heard: list[Any] = []
    with pytest.raises(OSError, match="broken"):
        listen(work, lambda *words: heard.append(words))
    assert heard == [("a", 1)]
    with pytest.raises(ZeroDivisionError):
        listen(work, lambda word, number: number / 0)


# ---- arrays ------------------------------------------------------------------------------------


def test_arrays_are_read_only_for_good_and_outlive_all_handles(path: Path) -> None:
    sampler = headwater.Sampler(db_path=path, **OPTIONS)
    batch = sampler.next_train_batch()
    arrays = [*batch.values(), *batch.info.values(), sampler.store.core.vectors(0)]
    before = [array.tobytes() for array in arrays]
    later = [sampler.next_train_batch() for _ in range(20)]
    sampler.shutdown()
    sampler.store.close()
    del sampler, batch, later
    gc.collect()
    assert [array.tobytes() for array in arrays] == before
    for array in arrays:
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
        base: Any = array
        while isinstance(base, np.ndarray):
            assert not base.flags.writeable
            base = base.base
        with pytest.raises(TypeError):
            memoryview(base)


def test_what_a_batch_holds_is_reused_when_its_last_array_goes(path: Path) -> None:
    with headwater.Sampler(db_path=path, **{**OPTIONS, "num_prefetch": 0}) as sampler:
        kept = sampler.next_train_batch()["num_cells"]
        for _ in range(50):
            sampler.next_train_batch()
        assert sampler.stats()["slab_count"] <= 2
        many = [sampler.next_train_batch()["num_cells"] for _ in range(50)]
        assert sampler.stats()["slab_count"] >= 51
        del kept, many
        assert sampler.stats()["slab_count"] <= 3


def test_memory_is_flat_over_3000_batches(path: Path) -> None:
    def resident_kb() -> int:
        gc.collect()
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]

    with headwater.Sampler(db_path=path, **OPTIONS) as sampler:
        for _ in range(500):
            sampler.next_train_batch()
        before = resident_kb()
        for _ in range(3000):
            sampler.next_train_batch()
        assert resident_kb() - before < 1000  # 20 arrays a batch would be 10,000
