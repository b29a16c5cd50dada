/*
 * headwater._core.Store: an open store for people, tests and samplers. The arrays it gives away
 * hold references of their own to the map, so close() never takes memory from under them.
 */
#include "core.h"

#include <stdlib.h>

struct store {
    PyObject_HEAD hw_store *handle;
};

static hw_store *store_open(PyObject *object) {
    hw_store *handle = ((struct store *)object)->handle;
    if (handle == NULL) {
        PyErr_SetString(PyExc_ValueError, "the store is closed");
    }
    return handle;
}

hw_store *core_store_handle(PyObject *object) {
    hw_store *handle = store_open(object);
    return handle == NULL ? NULL : hw_store_retain(handle);
}

static PyObject *raise(PyObject *self, const hw_error *error) {
    return core_raise(core_state_of(Py_TYPE(self)), error);
}

static PyObject *view(PyObject *self, const void *data, struct core_format format, uint32_t rank,
                      const uint64_t *shape) {
    struct core_owner owner = {hw_store_retain(((struct store *)self)->handle), core_release_store};
    return core_array(core_state_of(Py_TYPE(self)), data, format, rank, shape, owner);
}

/* ---- open and close ---------------------------------------------------------------------- */

static PyObject *store_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"path", "load", NULL};
    PyObject *path;
    uint32_t load = HW_LOAD_MMAP;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|O&", names, PyUnicode_FSConverter, &path,
                                     core_u32, &load)) {
        return NULL;
    }
    hw_store *handle = NULL;
    hw_error error;
    hw_status status;
    Py_BEGIN_ALLOW_THREADS status =
        hw_store_open(PyBytes_AsString(path), (hw_load)load, &handle, &error);
    Py_END_ALLOW_THREADS Py_DECREF(path);
    if (status != HW_OK) {
        return core_raise(core_state_of(type), &error);
    }
    struct store *self = (struct store *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        hw_store_close(handle);
        return NULL;
    }
    self->handle = handle;
    return (PyObject *)self;
}

PyDoc_STRVAR(close_doc, "close() -> None\n\nDrops the map; arrays over it keep it alive.");

static PyObject *store_close(PyObject *self, PyObject *unused) {
    (void)unused;
    hw_store *handle = ((struct store *)self)->handle;
    ((struct store *)self)->handle = NULL;
    hw_store_close(handle);
    Py_RETURN_NONE;
}

static int store_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static void store_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    hw_store_close(((struct store *)self)->handle);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* ---- what it is -------------------------------------------------------------------------- */

PyDoc_STRVAR(counts_doc, "counts() -> dict[str, int]\n\ntable_count, column_count, key_count, "
                         "task_count, row_count, category_count, text_count, text_dim.");

static PyObject *counts(PyObject *self, PyObject *unused) {
    (void)unused;
    const hw_store *handle = store_open(self);
    if (handle == NULL) {
        return NULL;
    }
    hw_store_counts c = hw_store_get_counts(handle);
    return Py_BuildValue("{sIsIsIsIsIsIsIsI}", "table_count", c.table_count, "column_count",
                         c.column_count, "key_count", c.key_count, "task_count", c.task_count,
                         "row_count", c.row_count, "category_count", c.category_count, "text_count",
                         c.text_count, "text_dim", c.text_dim);
}

PyDoc_STRVAR(fingerprint_doc, "fingerprint() -> str\n\n32 hex digits over the contents.");

static PyObject *fingerprint(PyObject *self, PyObject *unused) {
    (void)unused;
    const hw_store *handle = store_open(self);
    return handle == NULL ? NULL : PyUnicode_FromString(hw_store_fingerprint(handle));
}

PyDoc_STRVAR(directory_doc, "directory() -> str\n\nDirectory of the build that is open.");

static PyObject *directory(PyObject *self, PyObject *unused) {
    (void)unused;
    const hw_store *handle = store_open(self);
    return handle == NULL ? NULL : PyUnicode_DecodeFSDefault(hw_store_directory(handle));
}

/* ---- verify and warm up ------------------------------------------------------------------ */

/* Faults as they come, while the GIL is not held: joined in one growing buffer of C strings. */
struct faults {
    char *text;
    size_t bytes, capacity;
    int out_of_memory;
};

static void add_fault(void *context, const char *message) {
    struct faults *faults = context;
    size_t bytes = 1;
    while (message[bytes - 1] != 0) {
        bytes++;
    }
    if (faults->capacity - faults->bytes < bytes) {
        size_t capacity = 2 * (faults->capacity + bytes);
        char *grown = realloc(faults->text, capacity);
        if (grown == NULL) {
            faults->out_of_memory = 1;
            return;
        }
        faults->text = grown;
        faults->capacity = capacity;
    }
    for (size_t i = 0; i < bytes; i++) {
        faults->text[faults->bytes++] = message[i];
    }
}

PyDoc_STRVAR(verify_doc, "verify() -> list[str]\n\nEvery fault in the contents; [] if sound.");

static PyObject *verify(PyObject *self, PyObject *unused) {
    (void)unused;
    hw_store *handle = core_store_handle(self);
    if (handle == NULL) {
        return NULL;
    }
    struct faults faults = {0};
    uint64_t count = 0;
    hw_error error;
    hw_status status;
    Py_BEGIN_ALLOW_THREADS status = hw_store_verify(handle, add_fault, &faults, &count, &error);
    hw_store_close(handle);
    Py_END_ALLOW_THREADS PyObject *list = NULL;
    if (status != HW_OK) {
        raise(self, &error);
    } else if (faults.out_of_memory) {
        PyErr_NoMemory();
    } else {
        list = PyList_New(0);
    }
    for (size_t at = 0; list != NULL && at < faults.bytes;) {
        size_t bytes = 0;
        while (faults.text[at + bytes] != 0) {
            bytes++;
        }
        PyObject *item = PyUnicode_DecodeUTF8(faults.text + at, (Py_ssize_t)bytes, "replace");
        if (item == NULL || PyList_Append(list, item) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
        at += bytes + 1;
    }
    free(faults.text);
    return list;
}

PyDoc_STRVAR(identity_doc, "identity() -> str\n\n32 hex digits of this build in these very files.");

static PyObject *identity(PyObject *self, PyObject *unused) {
    (void)unused;
    char text[33];
    const hw_store *handle = store_open(self);
    if (handle == NULL) {
        return NULL;
    }
    hw_store_identity(handle, text);
    return PyUnicode_FromString(text);
}

/* Who is told of a reading, and the thread that was saved. */
struct listener {
    PyThreadState *saved;
    PyObject *progress;
};

static int tell_progress(void *context, uint64_t done_bytes, uint64_t total_bytes) {
    struct listener *listener = context;
    PyObject *told = NULL;
    PyEval_RestoreThread(listener->saved);
    if (PyErr_CheckSignals() == 0) {
        told = PyObject_CallFunction(listener->progress, "KK", (unsigned long long)done_bytes,
                                     (unsigned long long)total_bytes);
    }
    int stop = told == NULL;
    Py_XDECREF(told);
    listener->saved = PyEval_SaveThread();
    return stop;
}

PyDoc_STRVAR(check_files_doc,
             "check_files(verify: int, folder: str | PathLike[str] | None, progress) "
             "-> tuple[int, str]\n\n"
             "How it was verified (VERIFIED), and why that is not remembered, or ''.");

static PyObject *check_files(PyObject *self, PyObject *args) {
    uint32_t verify;
    PyObject *folder, *path = NULL;
    struct listener listener = {NULL, NULL};
    hw_verification found;
    hw_error error;
    if (!PyArg_ParseTuple(args, "O&OO", core_u32, &verify, &folder, &listener.progress) ||
        (folder != Py_None && !PyUnicode_FSConverter(folder, &path))) {
        return NULL;
    }
    hw_store *handle = core_store_handle(self);
    if (handle == NULL) {
        Py_XDECREF(path);
        return NULL;
    }
    const char *name = path == NULL ? NULL : PyBytes_AsString(path);
    listener.saved = PyEval_SaveThread();
    hw_status status = hw_store_check_files(handle, (hw_verify)verify, name, tell_progress,
                                            &listener, &found, &error);
    hw_store_close(handle);
    PyEval_RestoreThread(listener.saved);
    Py_XDECREF(path);
    return status != HW_OK ? raise(self, &error)
                           : Py_BuildValue("(is)", (int)found.how, found.not_remembered);
}

PyDoc_STRVAR(warm_up_doc, "warm_up(threads: int) -> None\n\nReads every page once.");

static PyObject *warm_up(PyObject *self, PyObject *args) {
    uint32_t threads;
    if (!PyArg_ParseTuple(args, "O&", core_u32, &threads)) {
        return NULL;
    }
    hw_store *handle = core_store_handle(self);
    if (handle == NULL) {
        return NULL;
    }
    hw_error error;
    hw_status status;
    Py_BEGIN_ALLOW_THREADS status = hw_store_warm_up(handle, threads, &error);
    hw_store_close(handle);
    Py_END_ALLOW_THREADS if (status != HW_OK) {
        return raise(self, &error);
    }
    Py_RETURN_NONE;
}

/* ---- rows -------------------------------------------------------------------------------- */

PyDoc_STRVAR(row_table_doc, "row_table(row: int) -> int\n\nTable of a global row.");

static PyObject *row_table(PyObject *self, PyObject *args) {
    const hw_store *handle = store_open(self);
    uint32_t row, table;
    hw_error error;
    if (handle == NULL || !PyArg_ParseTuple(args, "O&", core_u32, &row)) {
        return NULL;
    }
    if (hw_store_row_table(handle, row, &table, &error) != HW_OK) {
        return raise(self, &error);
    }
    return PyLong_FromUnsignedLong(table);
}

PyDoc_STRVAR(row_time_doc, "row_time(row: int) -> int\n\n"
                           "Microseconds; INT64_MAX or INT64_MIN where the row has no time.");

static PyObject *row_time(PyObject *self, PyObject *args) {
    const hw_store *handle = store_open(self);
    uint32_t row;
    int64_t time_us;
    hw_error error;
    if (handle == NULL || !PyArg_ParseTuple(args, "O&", core_u32, &row)) {
        return NULL;
    }
    if (hw_store_row_time(handle, row, &time_us, &error) != HW_OK) {
        return raise(self, &error);
    }
    return PyLong_FromLongLong(time_us);
}

PyDoc_STRVAR(cell_doc,
             "cell(row: int, column: int) -> tuple[int, bool, float, int, int]\n\n"
             "(stype, is_null, number, time_us, index) of a row in a global column of its table.");

static PyObject *cell(PyObject *self, PyObject *args) {
    const hw_store *handle = store_open(self);
    uint32_t row, column;
    hw_cell found;
    hw_error error;
    if (handle == NULL || !PyArg_ParseTuple(args, "O&O&", core_u32, &row, core_u32, &column)) {
        return NULL;
    }
    if (hw_store_cell(handle, row, column, &found, &error) != HW_OK) {
        return raise(self, &error);
    }
    return Py_BuildValue("(iOdLI)", (int)found.stype, found.is_null ? Py_True : Py_False,
                         found.number, (long long)found.time_us, found.index);
}

PyDoc_STRVAR(parent_doc, "parent(row: int, key: int) -> int | None\n\nParent by foreign key.");

static PyObject *parent(PyObject *self, PyObject *args) {
    const hw_store *handle = store_open(self);
    uint32_t row, key, found;
    hw_error error;
    if (handle == NULL || !PyArg_ParseTuple(args, "O&O&", core_u32, &row, core_u32, &key)) {
        return NULL;
    }
    if (hw_store_parent(handle, row, key, &found, &error) != HW_OK) {
        return raise(self, &error);
    }
    if (found == UINT32_MAX) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLong(found);
}

PyDoc_STRVAR(children_doc, "children(row: int, key: int) -> Array\n\n"
                           "uint32 [n]: global rows that point at `row` by the key, oldest first.");

static PyObject *children(PyObject *self, PyObject *args) {
    const hw_store *handle = store_open(self);
    uint32_t row, key, count;
    const uint32_t *rows;
    hw_error error;
    if (handle == NULL || !PyArg_ParseTuple(args, "O&O&", core_u32, &row, core_u32, &key)) {
        return NULL;
    }
    if (hw_store_children(handle, row, key, &rows, &count, &error) != HW_OK) {
        return raise(self, &error);
    }
    uint64_t shape[3] = {count};
    return view(self, rows, CORE_UINT32, 1, shape);
}

/* ---- keys and texts ---------------------------------------------------------------------- */

/* The parts of a length-prefixed key, whose bytes come from a file: lengths are checked. */
static PyObject *key_parts(const unsigned char *key, size_t bytes) {
    PyObject *parts = PyList_New(0);
    size_t at = 0;
    while (parts != NULL && bytes - at >= 4) {
        size_t length = (size_t)key[at] | (size_t)key[at + 1] << 8 | (size_t)key[at + 2] << 16 |
                        (size_t)key[at + 3] << 24;
        at += 4;
        if (length > bytes - at) {
            break;
        }
        PyObject *part =
            PyUnicode_DecodeUTF8((const char *)key + at, (Py_ssize_t)length, "replace");
        if (part == NULL || PyList_Append(parts, part) != 0) {
            Py_CLEAR(parts);
        }
        Py_XDECREF(part);
        at += length;
    }
    PyObject *tuple = parts == NULL ? NULL : PyList_AsTuple(parts);
    Py_XDECREF(parts);
    return tuple;
}

PyDoc_STRVAR(row_key_doc, "row_key(row: int) -> tuple[str, ...]\n\nPrimary key of a row.");

static PyObject *row_key(PyObject *self, PyObject *args) {
    const hw_store *handle = store_open(self);
    uint32_t row;
    const void *key;
    size_t bytes;
    hw_error error;
    if (handle == NULL || !PyArg_ParseTuple(args, "O&", core_u32, &row)) {
        return NULL;
    }
    if (hw_store_row_key(handle, row, &key, &bytes, &error) != HW_OK) {
        return raise(self, &error);
    }
    return key_parts(key, bytes);
}

PyDoc_STRVAR(find_doc, "find(table: int, parts: list[str]) -> int | None\n\n"
                       "Global row of a primary key, by its canonical texts.");

static PyObject *find(PyObject *self, PyObject *args) {
    const hw_store *handle = store_open(self);
    uint32_t table, row = UINT32_MAX;
    PyObject *parts;
    if (handle == NULL || !PyArg_ParseTuple(args, "O&O!", core_u32, &table, &PyList_Type, &parts)) {
        return NULL;
    }
    PyObject *key = PyBytes_FromStringAndSize(NULL, 0);
    for (Py_ssize_t i = 0; i < PyList_Size(parts) && key != NULL; i++) {
        Py_ssize_t size = 0;
        const char *text = PyUnicode_AsUTF8AndSize(PyList_GetItem(parts, i), &size);
        if (text == NULL || size > INT32_MAX) {
            if (text != NULL) {
                PyErr_SetString(PyExc_ValueError, "a key part has more than 2^31 bytes");
            }
            Py_CLEAR(key);
            break;
        }
        uint32_t bytes = (uint32_t)size;
        char length[4] = {(char)(bytes & 255), (char)(bytes >> 8 & 255), (char)(bytes >> 16 & 255),
                          (char)(bytes >> 24)};
        PyObject *prefix = PyBytes_FromStringAndSize(length, 4);
        PyBytes_ConcatAndDel(&key, prefix);
        if (key != NULL) {
            PyBytes_ConcatAndDel(&key, PyBytes_FromStringAndSize(text, size));
        }
    }
    if (key == NULL) {
        return NULL;
    }
    hw_error error;
    hw_status status = hw_store_find(handle, table, PyBytes_AsString(key),
                                     (size_t)PyBytes_Size(key), &row, &error);
    Py_DECREF(key);
    if (status != HW_OK) {
        return raise(self, &error);
    }
    if (row == UINT32_MAX) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLong(row);
}

PyDoc_STRVAR(text_doc, "text(index: int) -> str\n\nText of a text cell.");

static PyObject *text(PyObject *self, PyObject *args) {
    const hw_store *handle = store_open(self);
    uint32_t index;
    const char *found;
    size_t bytes;
    hw_error error;
    if (handle == NULL || !PyArg_ParseTuple(args, "O&", core_u32, &index)) {
        return NULL;
    }
    if (hw_store_text(handle, index, &found, &bytes, &error) != HW_OK) {
        return raise(self, &error);
    }
    return PyUnicode_DecodeUTF8(found, (Py_ssize_t)bytes, "replace");
}

/* ---- arrays ------------------------------------------------------------------------------ */

PyDoc_STRVAR(vectors_doc, "vectors(kind: int) -> Array\n\n"
                          "float16 [count, text_dim]: the embeddings of a kind.");

static PyObject *vectors(PyObject *self, PyObject *args) {
    const hw_store *handle = store_open(self);
    uint32_t kind;
    const void *data;
    uint64_t count;
    hw_error error;
    if (handle == NULL || !PyArg_ParseTuple(args, "O&", core_u32, &kind)) {
        return NULL;
    }
    if (hw_store_vectors(handle, (hw_embedding_kind)kind, &data, &count, &error) != HW_OK) {
        return raise(self, &error);
    }
    uint64_t shape[3] = {count, hw_store_get_counts(handle).text_dim};
    return view(self, data, CORE_FLOAT16, 2, shape);
}

PyDoc_STRVAR(seeds_doc,
             "seeds(task: int) -> dict[str, Array]\n\n"
             "anchors uint32, obs_times int64, targets uint64 (float64 bits, us, 0/1 or index in "
             "the block), states uint8 (label state | split << 4), key_hashes uint64, positions "
             "uint32, label_times int64 where the task says when labels are known; all [seeds].");

static PyObject *seeds(PyObject *self, PyObject *args) {
    const hw_store *handle = store_open(self);
    uint32_t task;
    hw_seeds found;
    hw_error error;
    if (handle == NULL || !PyArg_ParseTuple(args, "O&", core_u32, &task)) {
        return NULL;
    }
    if (hw_store_seeds(handle, task, &found, &error) != HW_OK) {
        return raise(self, &error);
    }
    const struct {
        const char *name;
        const void *data;
        struct core_format format;
    } arrays[] = {
        {"anchors", found.anchors, CORE_UINT32},        {"obs_times", found.obs_times, CORE_INT64},
        {"targets", found.targets, CORE_UINT64},        {"states", found.states, CORE_UINT8},
        {"key_hashes", found.key_hashes, CORE_UINT64},  {"positions", found.positions, CORE_UINT32},
        {"label_times", found.label_times, CORE_INT64},
    };
    uint64_t shape[3] = {found.count};
    PyObject *dict = PyDict_New();
    size_t count = sizeof arrays / sizeof arrays[0] - (found.label_times == NULL);
    for (size_t i = 0; i < count && dict != NULL; i++) {
        PyObject *array = view(self, arrays[i].data, arrays[i].format, 1, shape);
        if (array == NULL || PyDict_SetItemString(dict, arrays[i].name, array) != 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(array);
    }
    return dict;
}

/* A new array that owns its memory, which *data receives to be filled. */
static PyObject *new_array(PyObject *self, struct core_format format, uint64_t count, void **data) {
    *data = NULL;
    if (count <= (uint64_t)PY_SSIZE_T_MAX / format.bytes) {
        *data = PyMem_Malloc((size_t)count * format.bytes);
    }
    if (*data == NULL) {
        return PyErr_NoMemory();
    }
    return core_array(core_state_of(Py_TYPE(self)), *data, format, 1, &count,
                      (struct core_owner){*data, PyMem_Free});
}

PyDoc_STRVAR(edges_doc,
             "edges(key: int) -> tuple[Array, Array, Array]\n\n"
             "starts uint64 [parent rows + 1], child rows uint32 [n], when visible int64 us [n].");

static PyObject *edges(PyObject *self, PyObject *args) {
    uint32_t key, parent_rows = 0;
    uint64_t count = 0;
    void *starts, *rows, *times;
    hw_error error;
    const hw_store *open = store_open(self);
    if (open == NULL || !PyArg_ParseTuple(args, "O&", core_u32, &key)) {
        return NULL;
    }
    if (hw_store_edge_counts(open, key, &parent_rows, &count, &error) != HW_OK) {
        return raise(self, &error);
    }
    hw_store *handle = core_store_handle(self);
    PyObject *arrays[3] = {new_array(self, CORE_UINT64, parent_rows + (uint64_t)1, &starts),
                           new_array(self, CORE_UINT32, count, &rows),
                           new_array(self, CORE_INT64, count, &times)};
    PyObject *result = NULL;
    if (arrays[0] != NULL && arrays[1] != NULL && arrays[2] != NULL) {
        hw_status status;
        Py_BEGIN_ALLOW_THREADS status = hw_store_edges(handle, key, starts, rows, times, &error);
        Py_END_ALLOW_THREADS result = status != HW_OK
                                          ? raise(self, &error)
                                          : PyTuple_Pack(3, arrays[0], arrays[1], arrays[2]);
    }
    hw_store_close(handle);
    for (int i = 0; i < 3; i++) {
        Py_XDECREF(arrays[i]);
    }
    return result;
}

PyDoc_STRVAR(column_doc,
             "column(column: int) -> tuple[Array, Array]\n\n"
             "Cells as numbers float64 [rows], when known int64 us [rows], of a table's column.");

static PyObject *column(PyObject *self, PyObject *args) {
    uint32_t number, row_count = 0;
    void *numbers, *times;
    hw_error error;
    const hw_store *open = store_open(self);
    if (open == NULL || !PyArg_ParseTuple(args, "O&", core_u32, &number)) {
        return NULL;
    }
    if (hw_store_column_rows(open, number, &row_count, &error) != HW_OK) {
        return raise(self, &error);
    }
    hw_store *handle = core_store_handle(self);
    PyObject *arrays[2] = {new_array(self, CORE_FLOAT64, row_count, &numbers),
                           new_array(self, CORE_INT64, row_count, &times)};
    PyObject *result = NULL;
    if (arrays[0] != NULL && arrays[1] != NULL) {
        hw_status status;
        Py_BEGIN_ALLOW_THREADS status = hw_store_column(handle, number, numbers, times, &error);
        Py_END_ALLOW_THREADS result =
            status != HW_OK ? raise(self, &error) : PyTuple_Pack(2, arrays[0], arrays[1]);
    }
    hw_store_close(handle);
    Py_XDECREF(arrays[0]);
    Py_XDECREF(arrays[1]);
    return result;
}

static PyMethodDef store_methods[] = {
    {"counts", counts, METH_NOARGS, counts_doc},
    {"fingerprint", fingerprint, METH_NOARGS, fingerprint_doc},
    {"directory", directory, METH_NOARGS, directory_doc},
    {"verify", verify, METH_NOARGS, verify_doc},
    {"identity", identity, METH_NOARGS, identity_doc},
    {"check_files", check_files, METH_VARARGS, check_files_doc},
    {"warm_up", warm_up, METH_VARARGS, warm_up_doc},
    {"row_table", row_table, METH_VARARGS, row_table_doc},
    {"row_time", row_time, METH_VARARGS, row_time_doc},
    {"cell", cell, METH_VARARGS, cell_doc},
    {"parent", parent, METH_VARARGS, parent_doc},
    {"children", children, METH_VARARGS, children_doc},
    {"row_key", row_key, METH_VARARGS, row_key_doc},
    {"find", find, METH_VARARGS, find_doc},
    {"text", text, METH_VARARGS, text_doc},
    {"vectors", vectors, METH_VARARGS, vectors_doc},
    {"seeds", seeds, METH_VARARGS, seeds_doc},
    {"edges", edges, METH_VARARGS, edges_doc},
    {"column", column, METH_VARARGS, column_doc},
    {"close", store_close, METH_NOARGS, close_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(store_doc, "Store(path, load: int = 0)\n\nAn open store (headwater.h).");

static PyType_Slot store_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)store_doc},
    {Py_tp_new, store_new},
    {Py_tp_methods, store_methods},
    {Py_tp_traverse, store_traverse},
    {Py_tp_dealloc, store_dealloc},
    {0, NULL},
};

PyType_Spec core_store_spec = {
    .name = "headwater._core.Store",
    .basicsize = sizeof(struct store),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = store_slots,
};
