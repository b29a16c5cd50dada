/*
 * headwater._core: the module, its constants, and what its types share. Multi-phase initialisation
 * with per-module state; no global is ever written.
 */
#include "core.h"

#include <string.h>

/* ---- constants --------------------------------------------------------------------------- */

struct constant {
    const char *dict, *word;
    int value;
};

/* Words of the enums of headwater.h, and its bits: each dict maps words of Python to numbers. */
static const struct constant CONSTANTS[] = {
    {"SEMANTIC_TYPES", "identifier", HW_IDENTIFIER},
    {"SEMANTIC_TYPES", "numerical", HW_NUMERICAL},
    {"SEMANTIC_TYPES", "timestamp", HW_TIMESTAMP},
    {"SEMANTIC_TYPES", "boolean", HW_BOOLEAN},
    {"SEMANTIC_TYPES", "categorical", HW_CATEGORICAL},
    {"SEMANTIC_TYPES", "text", HW_TEXT},
    {"SEMANTIC_TYPES", "ignored", HW_IGNORED},
    {"SPLITS", "train", HW_TRAIN},
    {"SPLITS", "val", HW_VAL},
    {"SPLITS", "test", HW_TEST},
    {"KNOWN", "creation", HW_KNOWN_CREATION},
    {"KNOWN", "never", HW_KNOWN_NEVER},
    {"KNOWN", "column", HW_KNOWN_COLUMN},
    {"KNOWN", "offset", HW_KNOWN_OFFSET},
    {"CONTEXT_LABELS", "default", HW_LABELS_DEFAULT},
    {"CONTEXT_LABELS", "train", HW_LABELS_TRAIN},
    {"CONTEXT_LABELS", "none", HW_LABELS_NONE},
    {"CONTEXT_LABELS", "all", HW_LABELS_ALL},
    {"CHILD_ORDERS", "uniform", HW_CHILDREN_UNIFORM},
    {"CHILD_ORDERS", "recent", HW_CHILDREN_RECENT},
    {"CHILD_WIDTH_PER", "foreign_key", HW_WIDTH_PER_KEY},
    {"CHILD_WIDTH_PER", "row", HW_WIDTH_PER_ROW},
    {"IDENTIFIER_CELLS", "all", HW_IDENTIFIERS_ALL},
    {"IDENTIFIER_CELLS", "foreign_keys", HW_IDENTIFIERS_KEYS},
    {"IDENTIFIER_CELLS", "none", HW_IDENTIFIERS_NONE},
    {"OBJECTIVES", "task", HW_OBJECTIVE_TASK},
    {"OBJECTIVES", "masked_cells", HW_OBJECTIVE_MASKED_CELLS},
    {"TASK_ORDERS", "weighted", HW_TASKS_WEIGHTED},
    {"TASK_ORDERS", "round_robin", HW_TASKS_ROUND_ROBIN},
    {"LAYOUTS", "dense", HW_LAYOUT_DENSE},
    {"LAYOUTS", "compact", HW_LAYOUT_COMPACT},
    {"TARGETS", "inline", HW_TARGETS_INLINE},
    {"TARGETS", "separate", HW_TARGETS_SEPARATE},
    {"TEXT_MODES", "batch", HW_TEXTS_BATCH},
    {"TEXT_MODES", "resident", HW_TEXTS_RESIDENT},
    {"LOADS", "mmap", HW_LOAD_MMAP},
    {"LOADS", "ram", HW_LOAD_RAM},
    {"VERIFY", "once", HW_VERIFY_ONCE},
    {"VERIFY", "header", HW_VERIFY_HEADER},
    {"VERIFY", "full", HW_VERIFY_FULL},
    {"VERIFIED", "header", HW_VERIFIED_HEADER},
    {"VERIFIED", "before", HW_VERIFIED_BEFORE},
    {"VERIFIED", "now", HW_VERIFIED_NOW},
    {"EMBEDDING_KINDS", "texts", HW_EMBED_TEXTS},
    {"EMBEDDING_KINDS", "columns", HW_EMBED_COLUMNS},
    {"EMBEDDING_KINDS", "categories", HW_EMBED_CATEGORIES},
    {"CELL_BITS", "semantic_type", HW_CELL_TYPE_MASK},
    {"CELL_BITS", "is_null", HW_CELL_NULL},
    {"CELL_BITS", "is_target", HW_CELL_TARGET},
    {"CELL_BITS", "is_padding", HW_CELL_PADDING},
    {"TIME_SHIFTS", "weekday", HW_TIME_WEEKDAY_SHIFT},
    {"TIME_SHIFTS", "year_day", HW_TIME_YEAR_DAY_SHIFT},
};

static int add_constants(PyObject *module) {
    for (size_t i = 0; i < sizeof CONSTANTS / sizeof CONSTANTS[0]; i++) {
        const struct constant *constant = &CONSTANTS[i];
        if (i == 0 || strcmp(constant->dict, CONSTANTS[i - 1].dict) != 0) {
            PyObject *dict = PyDict_New();
            int failed = PyModule_AddObjectRef(module, constant->dict, dict);
            Py_XDECREF(dict);
            if (failed) {
                return -1;
            }
        }
        PyObject *dict = PyObject_GetAttrString(module, constant->dict);
        PyObject *value = PyLong_FromLong(constant->value);
        int failed =
            dict == NULL || value == NULL || PyDict_SetItemString(dict, constant->word, value) != 0;
        Py_XDECREF(dict);
        Py_XDECREF(value);
        if (failed) {
            return -1;
        }
    }
    if (PyModule_AddIntConstant(module, "FORMAT_VERSION", HW_FORMAT_VERSION) < 0) {
        return -1;
    }
    return PyModule_AddStringConstant(module, "VERSION", HW_VERSION);
}

/* ---- shared by the types ----------------------------------------------------------------- */

struct core_state *core_state_of(PyTypeObject *type) {
    return PyType_GetModuleState(type);
}

PyObject *core_raise(const struct core_state *state, const hw_error *error) {
    if (PyErr_Occurred()) {
        return NULL;
    }
    PyObject *class = PyTuple_GetItem(state->status_errors, (Py_ssize_t)error->status);
    if (class != NULL) {
        PyErr_SetString(class, error->message);
    }
    return NULL;
}

int core_u64(PyObject *object, void *value) {
    PyObject *integer = PyNumber_Index(object);
    if (integer == NULL) {
        return 0;
    }
    unsigned long long number = PyLong_AsUnsignedLongLong(integer);
    Py_DECREF(integer);
    if (number == (unsigned long long)-1 && PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "%R is not an integer from 0 to 2^64 - 1", object);
        return 0;
    }
    *(uint64_t *)value = number;
    return 1;
}

int core_u32(PyObject *object, void *value) {
    uint64_t wide;
    if (!core_u64(object, &wide)) {
        return 0;
    }
    if (wide > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%R is not an integer from 0 to 2^32 - 1", object);
        return 0;
    }
    *(uint32_t *)value = (uint32_t)wide;
    return 1;
}

int core_i64(PyObject *object, void *value) {
    PyObject *integer = PyNumber_Index(object);
    if (integer == NULL) {
        return 0;
    }
    long long number = PyLong_AsLongLong(integer);
    Py_DECREF(integer);
    if (number == -1 && PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "%R is not an integer of 64 bits", object);
        return 0;
    }
    *(int64_t *)value = number;
    return 1;
}

int core_u32_list(PyObject *object, uint32_t **values, uint32_t *count) {
    *values = NULL;
    *count = 0;
    if (object == NULL || object == Py_None) {
        return 0;
    }
    Py_ssize_t size = PySequence_Size(object);
    if (size < 0) {
        return -1;
    }
    if ((uint64_t)size > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a list has more than 2^32 - 1 numbers");
        return -1;
    }
    uint32_t *list = PyMem_Calloc((size_t)size + 1, sizeof *list);
    if (list == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = PySequence_GetItem(object, i);
        int converted = item != NULL && core_u32(item, &list[i]);
        Py_XDECREF(item);
        if (!converted) {
            PyMem_Free(list);
            return -1;
        }
    }
    *values = list;
    *count = (uint32_t)size;
    return 0;
}

int core_string_list(PyObject *object, const char ***strings, uint32_t *count) {
    *strings = NULL;
    *count = 0;
    if (!PyList_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "expected a list of str");
        return -1;
    }
    Py_ssize_t size = PyList_Size(object);
    const char **list = PyMem_Calloc((size_t)size + 1, sizeof *list);
    if (list == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        Py_ssize_t bytes = 0;
        list[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(object, i), &bytes);
        if (list[i] != NULL && strlen(list[i]) != (size_t)bytes) {
            PyErr_Format(PyExc_ValueError, "string %zd holds a zero character", i);
            list[i] = NULL;
        }
        if (list[i] == NULL) {
            PyMem_Free(list);
            return -1;
        }
    }
    *strings = list;
    *count = (uint32_t)size;
    return 0;
}

/* ---- functions --------------------------------------------------------------------------- */

PyDoc_STRVAR(hash64_doc, "hash64(data: bytes, seed: int = 0) -> int\n\nXXH64 of the bytes.");

static PyObject *hash64(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer data;
    uint64_t seed = 0;
    if (!PyArg_ParseTuple(args, "y*|O&", &data, core_u64, &seed)) {
        return NULL;
    }
    uint64_t hash = hw_hash64(data.buf, (size_t)data.len, seed);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLongLong(hash);
}

PyDoc_STRVAR(hash_embed_doc, "hash_embed(texts: list[str], dim: int) -> Array\n\n"
                             "Vectors of the `hash` embedder, float16 [len(texts), dim].");

static PyObject *hash_embed(PyObject *module, PyObject *args) {
    const struct core_state *state = PyModule_GetState(module);
    PyObject *texts;
    uint32_t dim;
    if (!PyArg_ParseTuple(args, "O!O&", &PyList_Type, &texts, core_u32, &dim)) {
        return NULL;
    }
    Py_ssize_t count = PyList_Size(texts);
    if (dim > 0 && (uint64_t)count > (uint64_t)PY_SSIZE_T_MAX / 2 / dim) {
        return PyErr_NoMemory();
    }
    unsigned char *vectors = PyMem_Calloc((size_t)count * dim + 1, 2);
    if (vectors == NULL) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t bytes = 0;
        const char *text = PyUnicode_AsUTF8AndSize(PyList_GetItem(texts, i), &bytes);
        hw_error error;
        if (text == NULL ||
            hw_hash_embed(text, (size_t)bytes, dim, vectors + 2 * (size_t)i * dim, &error)) {
            PyMem_Free(vectors);
            return text == NULL ? NULL : core_raise(state, &error);
        }
    }
    uint64_t shape[3] = {(uint64_t)count, dim};
    return core_array(state, vectors, CORE_FLOAT16, 2, shape,
                      (struct core_owner){vectors, PyMem_Free});
}

PyDoc_STRVAR(batch_fields_doc,
             "batch_fields() -> list[tuple[str, str, tuple[str, ...], bool, str | None, str]]\n\n"
             "The batch format: (name, dtype, dims, info, when, meaning) per array.");

static PyObject *batch_fields(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    uint32_t count = 0;
    const hw_batch_field *fields = hw_batch_fields(&count);
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; i < count && list != NULL; i++) {
        const hw_batch_field *field = &fields[i];
        Py_ssize_t rank = 0;
        while (rank < 3 && field->dims[rank] != NULL) {
            rank++;
        }
        PyObject *dims = PyTuple_New(rank);
        for (Py_ssize_t d = 0; d < rank && dims != NULL; d++) {
            PyTuple_SetItem(dims, d, PyUnicode_FromString(field->dims[d]));
        }
        PyObject *item =
            dims == NULL
                ? NULL
                : Py_BuildValue("(ssNOzs)", field->name, core_dtype_name(field->dtype), dims,
                                field->info ? Py_True : Py_False, field->when, field->meaning);
        if (item == NULL || PyList_Append(list, item) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

PyDoc_STRVAR(
    calendar_tables_doc,
    "calendar_tables() -> dict[str, Array]\n\n"
    "float32 (sin, cos) pairs of the cyclic parts of a timestamp: sixtieths [60, 2], hours "
    "[24, 2], weekdays [7, 2], and dates [732, 6] by day of year + 366 in a leap year.");

static PyObject *calendar_tables(PyObject *module, PyObject *unused) {
    (void)unused;
    const struct core_state *state = PyModule_GetState(module);
    hw_calendar_tables tables;
    hw_calendar_tables_fill(&tables);
    const struct {
        const char *name;
        const float *values;
        uint64_t shape[3];
    } parts[] = {
        {"sixtieths", tables.sixtieths[0], {60, 2}},
        {"hours", tables.hours[0], {24, 2}},
        {"weekdays", tables.weekdays[0], {7, 2}},
        {"dates", tables.dates[0], {HW_DATE_COUNT, 6}},
    };
    PyObject *dict = PyDict_New();
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && dict != NULL; i++) {
        size_t bytes = sizeof(float) * (size_t)(parts[i].shape[0] * parts[i].shape[1]);
        void *copy = PyMem_Malloc(bytes);
        if (copy == NULL) {
            Py_DECREF(dict);
            return PyErr_NoMemory();
        }
        memcpy(copy, parts[i].values, bytes);
        PyObject *array = core_array(state, copy, core_format_of(HW_FLOAT32), 2, parts[i].shape,
                                     (struct core_owner){copy, PyMem_Free});
        if (array == NULL || PyDict_SetItemString(dict, parts[i].name, array) != 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(array);
    }
    return dict;
}

PyDoc_STRVAR(pack_rows_doc,
             "pack_rows(rows: Iterable[tuple], kinds: str, limit: int) -> tuple[object, int, "
             "bytes]\n\nUp to `limit` rows of int, float, str, bytes and None as an Arrow C stream "
             "of columns, their number, and the kind of each column (ext/rows.c).");

PyDoc_STRVAR(
    steady_stream_doc,
    "steady_stream(stream: object) -> object\n\nThe rest of an Arrow C stream as a new one "
    "that stays failed once it failed.");

/* ---- module ------------------------------------------------------------------------------ */

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type) {
    *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *type == NULL ? -1 : PyModule_AddType(module, *type);
}

static int module_exec(PyObject *module) {
    struct core_state *state = PyModule_GetState(module);
    PyObject *errors = PyImport_ImportModule("headwater.errors");
    if (errors == NULL) {
        return -1;
    }
    state->status_errors = PyObject_GetAttrString(errors, "STATUS_ERRORS");
    Py_DECREF(errors);
    if (state->status_errors == NULL || add_constants(module) != 0) {
        return -1;
    }
    const struct {
        PyType_Spec *spec;
        PyTypeObject **type;
    } types[] = {
        {&core_array_spec, &state->array_type},     {&core_builder_spec, &state->builder_type},
        {&core_store_spec, &state->store_type},     {&core_batch_spec, &state->batch_type},
        {&core_sampler_spec, &state->sampler_type}, {&core_pass_spec, &state->pass_type},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (add_type(module, types[i].spec, types[i].type) != 0) {
            return -1;
        }
    }
    return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    struct core_state *state = PyModule_GetState(module);
    Py_VISIT(state->status_errors);
    Py_VISIT(state->array_type);
    Py_VISIT(state->batch_type);
    Py_VISIT(state->builder_type);
    Py_VISIT(state->store_type);
    Py_VISIT(state->sampler_type);
    Py_VISIT(state->pass_type);
    return 0;
}

static int module_clear(PyObject *module) {
    struct core_state *state = PyModule_GetState(module);
    Py_CLEAR(state->status_errors);
    Py_CLEAR(state->array_type);
    Py_CLEAR(state->batch_type);
    Py_CLEAR(state->builder_type);
    Py_CLEAR(state->store_type);
    Py_CLEAR(state->sampler_type);
    Py_CLEAR(state->pass_type);
    return 0;
}

static void module_free(void *module) {
    module_clear(module);
}

static PyMethodDef module_methods[] = {
    {"hash64", hash64, METH_VARARGS, hash64_doc},
    {"hash_embed", hash_embed, METH_VARARGS, hash_embed_doc},
    {"batch_fields", batch_fields, METH_NOARGS, batch_fields_doc},
    {"pack_rows", core_pack_rows, METH_VARARGS, pack_rows_doc},
    {"steady_stream", core_steady_stream, METH_O, steady_stream_doc},
    {"calendar_tables", calendar_tables, METH_NOARGS, calendar_tables_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "headwater._core",
    .m_doc = "The C library headwater, thinly.",
    .m_size = sizeof(struct core_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void) {
    return PyModuleDef_Init(&module_definition);
}
