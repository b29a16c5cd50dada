/*
 * headwater._core.Builder: rows to a store. One thread at a time uses a builder; writes release the
 * GIL, so a second thread that comes meanwhile is refused.
 */
#include "core.h"

#include <string.h>

struct builder {
    PyObject_HEAD hw_builder *handle;
    uint32_t text_dim; /* as set_embedder was told */
    char busy; /* guarded by the GIL: some thread is inside hw_builder_* without it */
};

static int builder_ready(const struct builder *self) {
    if (self->handle == NULL) {
        PyErr_SetString(PyExc_ValueError, "the builder is closed");
        return 0;
    }
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is using the builder");
        return 0;
    }
    return 1;
}

static PyObject *raise(const struct builder *self, const hw_error *error) {
    return core_raise(core_state_of(Py_TYPE((PyObject *)(uintptr_t)self)), error);
}

static PyObject *none_or_raise(const struct builder *self, hw_status status,
                               const hw_error *error) {
    if (status != HW_OK) {
        return raise(self, error);
    }
    return Py_NewRef(Py_None);
}

static PyObject *index_or_raise(const struct builder *self, hw_status status, uint32_t index,
                                const hw_error *error) {
    return status == HW_OK ? PyLong_FromUnsignedLong(index) : raise(self, error);
}

/* ---- open and close ---------------------------------------------------------------------- */

static PyObject *builder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"directory", "name", "stats_until_us", NULL};
    const char *name;
    PyObject *directory;
    hw_builder_options options = {.struct_bytes = sizeof options, .stats_until_us = INT64_MAX};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&sO&", names, PyUnicode_FSConverter,
                                     &directory, &name, core_i64, &options.stats_until_us)) {
        return NULL;
    }
    options.name = name;
    struct builder *self = (struct builder *)PyType_GenericAlloc(type, 0);
    hw_error error;
    hw_status status = HW_OK;
    if (self != NULL) {
        hw_builder *handle = NULL;
        status = hw_builder_open(PyBytes_AsString(directory), &options, &handle, &error);
        self->handle = status == HW_OK ? handle : NULL;
    }
    Py_DECREF(directory);
    if (status != HW_OK) {
        Py_CLEAR(self);
        return core_raise(core_state_of(type), &error);
    }
    return (PyObject *)self;
}

PyDoc_STRVAR(close_doc, "close() -> None\n\n"
                        "Closes; removes the directory unless it was finished or published.");

static PyObject *builder_close(PyObject *object, PyObject *unused) {
    (void)unused;
    struct builder *self = (struct builder *)object;
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is using the builder");
        return NULL;
    }
    hw_builder *handle = self->handle;
    self->handle = NULL;
    Py_BEGIN_ALLOW_THREADS hw_builder_close(handle);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static int builder_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static void builder_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    hw_builder_close(((struct builder *)self)->handle);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* ---- declarations ------------------------------------------------------------------------ */

PyDoc_STRVAR(add_table_doc,
             "add_table(name: str, *, key_part_count: int = 0, temporal: bool = False, "
             "null_time_visible: bool = False, days: bool = False) -> int\n\n"
             "Declares a table; its number.");

static PyObject *add_table(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"name", "key_part_count", "temporal", "null_time_visible", "days",
                            NULL};
    struct builder *self = (struct builder *)object;
    hw_table_spec spec = {.struct_bytes = sizeof spec};
    int temporal = 0, visible = 0, days = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sO&|ppp", names, &spec.name, core_u32,
                                     &spec.key_part_count, &temporal, &visible, &days) ||
        !builder_ready(self)) {
        return NULL;
    }
    spec.temporal = (uint8_t)temporal;
    spec.null_time_visible = (uint8_t)visible;
    spec.days = (uint8_t)days;
    hw_error error;
    uint32_t index = 0;
    hw_status status = hw_builder_add_table(self->handle, &spec, &index, &error);
    return index_or_raise(self, status, index, &error);
}

/* None becomes UINT32_MAX: no column. */
static int optional_column(PyObject *object, void *value) {
    if (object == Py_None) {
        *(uint32_t *)value = UINT32_MAX;
        return 1;
    }
    return core_u32(object, value);
}

PyDoc_STRVAR(add_column_doc,
             "add_column(table: int, name: str, *, stype: int, known: int = 0, "
             "known_column: int | None = None, known_offset_us: int = 0, temporal: bool = False, "
             "stored: bool = False) -> int\n\nDeclares a column; its global number.");

static PyObject *add_column(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"table",           "name",     "stype",  "known", "known_column",
                            "known_offset_us", "temporal", "stored", NULL};
    struct builder *self = (struct builder *)object;
    hw_column_spec spec = {.struct_bytes = sizeof spec, .known_column = UINT32_MAX};
    uint32_t table, stype = UINT32_MAX, known = HW_KNOWN_CREATION;
    int temporal = 0, stored = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&sO&|O&O&O&pp", names, core_u32, &table,
                                     &spec.name, core_u32, &stype, core_u32, &known,
                                     optional_column, &spec.known_column, core_i64,
                                     &spec.known_offset_us, &temporal, &stored) ||
        !builder_ready(self)) {
        return NULL;
    }
    if (stype == UINT32_MAX) { /* the parser cannot demand one keyword and not the others */
        PyErr_SetString(PyExc_TypeError, "add_column needs the keyword stype");
        return NULL;
    }
    spec.stype = (hw_semantic_type)stype;
    spec.known = (hw_known)known;
    spec.temporal = (uint8_t)temporal;
    spec.stored = (uint8_t)stored;
    hw_error error;
    uint32_t index = 0;
    hw_status status = hw_builder_add_column(self->handle, table, &spec, &index, &error);
    return index_or_raise(self, status, index, &error);
}

PyDoc_STRVAR(add_key_doc,
             "add_key(child_table: int, parent_table: int, columns: Sequence[int]) -> int\n\n"
             "Declares a foreign key over global columns of the child; its global number.");

static PyObject *add_key(PyObject *object, PyObject *args) {
    struct builder *self = (struct builder *)object;
    hw_key_spec spec = {.struct_bytes = sizeof spec};
    PyObject *columns;
    uint32_t *numbers = NULL;
    if (!PyArg_ParseTuple(args, "O&O&O", core_u32, &spec.child_table, core_u32, &spec.parent_table,
                          &columns) ||
        !builder_ready(self) || core_u32_list(columns, &numbers, &spec.column_count) != 0) {
        return NULL;
    }
    spec.columns = numbers;
    hw_error error;
    uint32_t index = 0;
    hw_status status = hw_builder_add_key(self->handle, &spec, &index, &error);
    PyMem_Free(numbers);
    return index_or_raise(self, status, index, &error);
}

PyDoc_STRVAR(add_task_doc,
             "add_task(name: str, *, anchor_table: int, target_column: int | None, "
             "target_name: str, target_stype: int, categories: list[str], hidden: Sequence[int], "
             "exclusive: bool, given_split: bool, context_labels: int, "
             "label_times: bool = False) -> int\n\n"
             "Declares a task; its number. target_column None: a derived task.");

static PyObject *add_task(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"name",         "anchor_table",   "target_column", "target_name",
                            "target_stype", "categories",     "hidden",        "exclusive",
                            "given_split",  "context_labels", "label_times",   NULL};
    struct builder *self = (struct builder *)object;
    hw_task_spec spec = {.struct_bytes = sizeof spec};
    PyObject *categories, *hidden;
    const char **words = NULL;
    uint32_t *columns = NULL;
    uint32_t stype, labels;
    int exclusive, given, label_times = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sO&O&sO&OOppO&|p", names, &spec.name, core_u32,
                                     &spec.anchor_table, optional_column, &spec.target_column,
                                     &spec.target_name, core_u32, &stype, &categories, &hidden,
                                     &exclusive, &given, core_u32, &labels, &label_times) ||
        !builder_ready(self) || core_string_list(categories, &words, &spec.category_count) != 0) {
        return NULL;
    }
    if (core_u32_list(hidden, &columns, &spec.hidden_count) != 0) {
        PyMem_Free(words);
        return NULL;
    }
    spec.target_stype = (hw_semantic_type)stype;
    spec.categories = words;
    spec.hidden = columns;
    spec.exclusive = (uint8_t)exclusive;
    spec.given_split = (uint8_t)given;
    spec.context_labels = (hw_context_labels)labels;
    spec.label_times = (uint8_t)label_times;
    hw_error error;
    uint32_t index = 0;
    hw_status status = hw_builder_add_task(self->handle, &spec, &index, &error);
    PyMem_Free(words);
    PyMem_Free(columns);
    return index_or_raise(self, status, index, &error);
}

PyDoc_STRVAR(set_categories_doc, "set_categories(column: int, categories: list[str]) -> None\n\n"
                                 "Categories of a categorical column, before its rows.");

static PyObject *set_categories(PyObject *object, PyObject *args) {
    struct builder *self = (struct builder *)object;
    uint32_t column, count;
    PyObject *categories;
    const char **words = NULL;
    if (!PyArg_ParseTuple(args, "O&O", core_u32, &column, &categories) || !builder_ready(self) ||
        core_string_list(categories, &words, &count) != 0) {
        return NULL;
    }
    hw_error error;
    hw_status status = hw_builder_set_categories(self->handle, column, words, count, &error);
    PyMem_Free(words);
    return none_or_raise(self, status, &error);
}

/* ---- streams ----------------------------------------------------------------------------- */

enum stream_kind { STREAM_ROWS, STREAM_EDGES, STREAM_SEEDS };

/* Writes one stream without the GIL (a producer in Python takes it itself) and releases it: a
 * producer may have only one open at a time. `count`: of NULL keys; out: of edges. */
static PyObject *write_stream(struct builder *self, enum stream_kind kind, uint32_t index,
                              PyObject *object, uint64_t *count) {
    struct ArrowArrayStream *stream;
    PyObject *capsule = core_stream_capsule(object, &stream);
    if (capsule == NULL) {
        return NULL;
    }
    /* The exporter ran Python code, in which another thread may have closed the builder. */
    if (!builder_ready(self)) {
        Py_DECREF(capsule);
        return NULL;
    }
    hw_error error;
    hw_status status = HW_OK;
    self->busy = 1;
    Py_BEGIN_ALLOW_THREADS switch (kind) {
    case STREAM_ROWS:
        status = hw_builder_write_rows(self->handle, index, stream, &error);
        break;
    case STREAM_EDGES:
        status = hw_builder_write_edges(self->handle, index, stream, *count, count, &error);
        break;
    case STREAM_SEEDS:
    default:
        status = hw_builder_write_seeds(self->handle, index, stream, &error);
        break;
    }
    if (stream->release != NULL) {
        stream->release(stream);
    }
    Py_END_ALLOW_THREADS self->busy = 0;
    Py_DECREF(capsule);
    return none_or_raise(self, status, &error);
}

PyDoc_STRVAR(write_rows_doc,
             "write_rows(table: int, stream: object) -> None\n\n"
             "Rows of a table: an Arrow C stream capsule or anything with __arrow_c_stream__.");

static PyObject *write_rows(PyObject *object, PyObject *args) {
    struct builder *self = (struct builder *)object;
    uint32_t table;
    PyObject *stream;
    if (!PyArg_ParseTuple(args, "O&O", core_u32, &table, &stream) || !builder_ready(self)) {
        return NULL;
    }
    return write_stream(self, STREAM_ROWS, table, stream, NULL);
}

PyDoc_STRVAR(write_edges_doc,
             "write_edges(key: int, stream: object, null_count: int) -> int\n\n"
             "Parents of a foreign key as pairs (child, parent) in any order; their number.");

static PyObject *write_edges(PyObject *object, PyObject *args) {
    struct builder *self = (struct builder *)object;
    uint32_t key;
    uint64_t count;
    PyObject *stream;
    if (!PyArg_ParseTuple(args, "O&OO&", core_u32, &key, &stream, core_u64, &count) ||
        !builder_ready(self)) {
        return NULL;
    }
    PyObject *none = write_stream(self, STREAM_EDGES, key, stream, &count);
    Py_XDECREF(none);
    return none != NULL ? PyLong_FromUnsignedLongLong(count) : NULL;
}

PyDoc_STRVAR(write_seeds_doc,
             "write_seeds(task: int, stream: object) -> None\n\nSeeds of a task, sorted.");

static PyObject *write_seeds(PyObject *object, PyObject *args) {
    struct builder *self = (struct builder *)object;
    uint32_t task;
    PyObject *stream;
    if (!PyArg_ParseTuple(args, "O&O", core_u32, &task, &stream) || !builder_ready(self)) {
        return NULL;
    }
    return write_stream(self, STREAM_SEEDS, task, stream, NULL);
}

/* ---- statistics and texts ---------------------------------------------------------------- */

PyDoc_STRVAR(seed_splits_doc, "seed_splits(task: int) -> tuple[int, int, int]\n\n"
                              "Seeds of train, val and test; dealt by hash with the defaults.");

static PyObject *seed_splits(PyObject *object, PyObject *args) {
    struct builder *self = (struct builder *)object;
    uint32_t task;
    if (!PyArg_ParseTuple(args, "O&", core_u32, &task) || !builder_ready(self)) {
        return NULL;
    }
    uint64_t counts[3];
    hw_error error;
    if (hw_builder_seed_splits(self->handle, task, counts, &error) != HW_OK) {
        return raise(self, &error);
    }
    return Py_BuildValue("(KKK)", (unsigned long long)counts[0], (unsigned long long)counts[1],
                         (unsigned long long)counts[2]);
}

PyDoc_STRVAR(column_stats_doc,
             "column_stats(column: int) -> dict[str, int | float]\n\n"
             "value_count, null_count, mean, std, min, max, min_us, max_us, true_count, "
             "category_start, category_count.");

static PyObject *column_stats(PyObject *object, PyObject *args) {
    struct builder *self = (struct builder *)object;
    uint32_t column;
    if (!PyArg_ParseTuple(args, "O&", core_u32, &column) || !builder_ready(self)) {
        return NULL;
    }
    hw_column_stats stats;
    hw_error error;
    if (hw_builder_column_stats(self->handle, column, &stats, &error) != HW_OK) {
        return raise(self, &error);
    }
    return Py_BuildValue(
        "{sKsKsdsdsdsdsLsLsKsIsI}", "value_count", (unsigned long long)stats.value_count,
        "null_count", (unsigned long long)stats.null_count, "mean", stats.mean, "std", stats.std,
        "min", stats.min, "max", stats.max, "min_us", (long long)stats.min_us, "max_us",
        (long long)stats.max_us, "true_count", (unsigned long long)stats.true_count,
        "category_start", stats.category_start, "category_count", stats.category_count);
}

PyDoc_STRVAR(text_count_doc, "text_count() -> int\n\nDistinct texts so far.");

static PyObject *text_count(PyObject *object, PyObject *unused) {
    (void)unused;
    struct builder *self = (struct builder *)object;
    if (!builder_ready(self)) {
        return NULL;
    }
    return PyLong_FromUnsignedLong(hw_builder_text_count(self->handle));
}

PyDoc_STRVAR(texts_doc, "texts(lo: int, hi: int) -> list[str]\n\nTexts lo to hi, hi excluded.");

static PyObject *texts(PyObject *object, PyObject *args) {
    struct builder *self = (struct builder *)object;
    uint32_t low, high;
    if (!PyArg_ParseTuple(args, "O&O&", core_u32, &low, core_u32, &high) || !builder_ready(self)) {
        return NULL;
    }
    PyObject *list = PyList_New(0);
    for (uint32_t i = low; i < high && list != NULL; i++) {
        const char *text;
        size_t bytes;
        hw_error error;
        if (hw_builder_text(self->handle, i, &text, &bytes, &error) != HW_OK) {
            Py_DECREF(list);
            return raise(self, &error);
        }
        PyObject *item = PyUnicode_DecodeUTF8(text, (Py_ssize_t)bytes, "replace");
        if (item == NULL || PyList_Append(list, item) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

PyDoc_STRVAR(set_embedder_doc, "set_embedder(name: str, dim: int) -> None\n\n"
                               "The embedder's name and width, before any vector.");

static PyObject *set_embedder(PyObject *object, PyObject *args) {
    struct builder *self = (struct builder *)object;
    const char *name;
    uint32_t dim;
    if (!PyArg_ParseTuple(args, "sO&", &name, core_u32, &dim) || !builder_ready(self)) {
        return NULL;
    }
    hw_error error;
    hw_status status = hw_builder_set_embedder(self->handle, name, dim, &error);
    if (status == HW_OK) {
        self->text_dim = dim;
    }
    return none_or_raise(self, status, &error);
}

PyDoc_STRVAR(write_vectors_doc, "write_vectors(kind: int, vectors: Buffer) -> None\n\n"
                                "Appends float16 vectors [count, dim] of an embedding kind.");

static PyObject *write_vectors(PyObject *object, PyObject *args) {
    struct builder *self = (struct builder *)object;
    uint32_t kind;
    PyObject *vectors;
    if (!PyArg_ParseTuple(args, "O&O", core_u32, &kind, &vectors) || !builder_ready(self)) {
        return NULL;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(vectors, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
        return NULL;
    }
    if (view.ndim != 2 || view.format == NULL || strcmp(view.format, "e") != 0 ||
        view.shape[1] != (Py_ssize_t)self->text_dim) {
        PyErr_Format(PyExc_ValueError, "expected float16 vectors [count, %u]",
                     (unsigned)self->text_dim);
        PyBuffer_Release(&view);
        return NULL;
    }
    hw_error error;
    hw_status status;
    self->busy = 1;
    Py_BEGIN_ALLOW_THREADS status = hw_builder_write_vectors(
        self->handle, (hw_embedding_kind)kind, view.buf, (uint64_t)view.shape[0], &error);
    Py_END_ALLOW_THREADS self->busy = 0;
    PyBuffer_Release(&view);
    return none_or_raise(self, status, &error);
}

PyDoc_STRVAR(hash_texts_doc,
             "hash_texts() -> None\n\nEmbeds every text with the `hash` embedder, in C.");

static PyObject *hash_texts(PyObject *object, PyObject *unused) {
    (void)unused;
    struct builder *self = (struct builder *)object;
    if (!builder_ready(self)) {
        return NULL;
    }
    hw_error error;
    hw_status status;
    self->busy = 1;
    Py_BEGIN_ALLOW_THREADS status = hw_builder_hash_texts(self->handle, &error);
    Py_END_ALLOW_THREADS self->busy = 0;
    return none_or_raise(self, status, &error);
}

/* ---- finish ------------------------------------------------------------------------------ */

PyDoc_STRVAR(finish_doc, "finish(metadata: bytes) -> str\n\n"
                         "Writes what is left, with metadata.json; the fingerprint.");

static PyObject *finish(PyObject *object, PyObject *args) {
    struct builder *self = (struct builder *)object;
    Py_buffer metadata;
    if (!PyArg_ParseTuple(args, "y*", &metadata)) {
        return NULL;
    }
    if (!builder_ready(self)) {
        PyBuffer_Release(&metadata);
        return NULL;
    }
    char fingerprint[33];
    hw_error error;
    hw_status status;
    self->busy = 1;
    Py_BEGIN_ALLOW_THREADS status =
        hw_builder_finish(self->handle, metadata.buf, (size_t)metadata.len, fingerprint, &error);
    Py_END_ALLOW_THREADS self->busy = 0;
    PyBuffer_Release(&metadata);
    return status == HW_OK ? PyUnicode_FromString(fingerprint) : raise(self, &error);
}

PyDoc_STRVAR(publish_doc, "publish(store_path: str | PathLike[str]) -> None\n\n"
                          "Moves the finished build into the store and points its manifest at it.");

static PyObject *publish(PyObject *object, PyObject *args) {
    struct builder *self = (struct builder *)object;
    PyObject *path;
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path)) {
        return NULL;
    }
    if (!builder_ready(self)) {
        Py_DECREF(path);
        return NULL;
    }
    hw_error error;
    hw_status status;
    self->busy = 1;
    Py_BEGIN_ALLOW_THREADS status =
        hw_builder_publish(self->handle, PyBytes_AsString(path), &error);
    Py_END_ALLOW_THREADS self->busy = 0;
    Py_DECREF(path);
    return none_or_raise(self, status, &error);
}

static PyMethodDef builder_methods[] = {
    {"add_table", (PyCFunction)(void (*)(void))add_table, METH_VARARGS | METH_KEYWORDS,
     add_table_doc},
    {"add_column", (PyCFunction)(void (*)(void))add_column, METH_VARARGS | METH_KEYWORDS,
     add_column_doc},
    {"add_key", add_key, METH_VARARGS, add_key_doc},
    {"add_task", (PyCFunction)(void (*)(void))add_task, METH_VARARGS | METH_KEYWORDS, add_task_doc},
    {"set_categories", set_categories, METH_VARARGS, set_categories_doc},
    {"write_rows", write_rows, METH_VARARGS, write_rows_doc},
    {"write_edges", write_edges, METH_VARARGS, write_edges_doc},
    {"write_seeds", write_seeds, METH_VARARGS, write_seeds_doc},
    {"seed_splits", seed_splits, METH_VARARGS, seed_splits_doc},
    {"column_stats", column_stats, METH_VARARGS, column_stats_doc},
    {"text_count", text_count, METH_NOARGS, text_count_doc},
    {"texts", texts, METH_VARARGS, texts_doc},
    {"set_embedder", set_embedder, METH_VARARGS, set_embedder_doc},
    {"write_vectors", write_vectors, METH_VARARGS, write_vectors_doc},
    {"hash_texts", hash_texts, METH_NOARGS, hash_texts_doc},
    {"finish", finish, METH_VARARGS, finish_doc},
    {"publish", publish, METH_VARARGS, publish_doc},
    {"close", builder_close, METH_NOARGS, close_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(builder_doc, "Builder(directory, *, name: str, stats_until_us: int)\n\n"
                          "Rows to a store: declare, write, finish, publish (headwater.h).");

static PyType_Slot builder_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)builder_doc},
    {Py_tp_new, builder_new},
    {Py_tp_methods, builder_methods},
    {Py_tp_traverse, builder_traverse},
    {Py_tp_dealloc, builder_dealloc},
    {0, NULL},
};

PyType_Spec core_builder_spec = {
    .name = "headwater._core.Builder",
    .basicsize = sizeof(struct builder),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = builder_slots,
};
