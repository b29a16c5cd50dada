/* headwater._core.OrderedRows, and order_rows, which writes what it reads. */
#include "core.h"

struct ordered {
    PyObject_HEAD hw_ordered *handle;
};

hw_ordered *core_ordered_handle(PyObject *ordered) {
    return ((struct ordered *)ordered)->handle;
}

static PyObject *ordered_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"path", NULL};
    PyObject *path;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&", names, PyUnicode_FSConverter, &path)) {
        return NULL;
    }
    hw_ordered *handle = NULL;
    hw_error error;
    hw_status status = hw_ordered_open(PyBytes_AsString(path), &handle, &error);
    Py_DECREF(path);
    if (status != HW_OK) {
        return core_raise(core_state_of(type), &error);
    }
    struct ordered *self = (struct ordered *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        hw_ordered_close(handle);
        return NULL;
    }
    self->handle = handle;
    return (PyObject *)self;
}

static void ordered_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    hw_ordered_close(core_ordered_handle(object));
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *stream_of(PyObject *object, const uint32_t *columns, uint32_t column_count) {
    struct ArrowArrayStream stream;
    hw_error error;
    if (hw_ordered_stream(core_ordered_handle(object), columns, column_count, &stream, &error) !=
        HW_OK) {
        return core_raise(core_state_of(Py_TYPE(object)), &error);
    }
    return core_give_stream(&stream);
}

PyDoc_STRVAR(every_doc, "__arrow_c_stream__(requested_schema=None) -> object\n\n"
                        "All columns as a new Arrow C stream, without a copy.");

static PyObject *ordered_every(PyObject *object, PyObject *args) {
    PyObject *requested = NULL; /* what Arrow lets a producer pass over */
    uint32_t count = hw_ordered_column_count(core_ordered_handle(object));
    if (!PyArg_ParseTuple(args, "|O", &requested)) {
        return NULL;
    }
    uint32_t *columns = PyMem_Calloc(count, sizeof *columns);
    if (columns == NULL) {
        return PyErr_NoMemory();
    }
    for (uint32_t c = 0; c < count; c++) {
        columns[c] = c;
    }
    PyObject *capsule = stream_of(object, columns, count);
    PyMem_Free(columns);
    return capsule;
}

PyDoc_STRVAR(stream_doc, "stream(columns: list[int]) -> object\n\n"
                         "These columns as a new Arrow C stream, without a copy.");

static PyObject *ordered_stream(PyObject *object, PyObject *list) {
    uint32_t *columns = NULL, count = 0;
    if (core_u32_list(list, &columns, &count) != 0) {
        return NULL;
    }
    PyObject *capsule = stream_of(object, columns, count);
    PyMem_Free(columns);
    return capsule;
}

static PyMethodDef ordered_methods[] = {
    {"__arrow_c_stream__", ordered_every, METH_VARARGS, every_doc},
    {"stream", ordered_stream, METH_O, stream_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(ordered_doc, "OrderedRows(path)\n\nRows that order_rows wrote (headwater.h).");

static PyType_Slot ordered_slots[] = {
    {Py_tp_new, ordered_new},
    {Py_tp_dealloc, ordered_dealloc},
    {Py_tp_methods, ordered_methods},
    {Py_tp_doc, (void *)(uintptr_t)ordered_doc},
    {0, NULL},
};

PyType_Spec core_ordered_spec = {
    .name = "headwater._core.OrderedRows",
    .basicsize = sizeof(struct ordered),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = ordered_slots,
};

/* ---- order_rows -------------------------------------------------------------------------- */

/* Orders the stream without the GIL (a producer in Python takes it itself) and releases it. */
static PyObject *order(const struct core_state *state, const char *path, PyObject *object,
                       uint32_t column_count, const hw_ordering *ordering) {
    struct ArrowArrayStream *stream;
    PyObject *capsule = core_stream_capsule(object, &stream);
    if (capsule == NULL) {
        return NULL;
    }
    uint64_t row_count = 0;
    hw_error error;
    hw_status status;
    Py_BEGIN_ALLOW_THREADS status =
        hw_order_rows(path, stream, column_count, ordering, &row_count, &error);
    if (stream->release != NULL) {
        stream->release(stream);
    }
    Py_END_ALLOW_THREADS Py_DECREF(capsule);
    if (status != HW_OK || PyErr_Occurred()) {
        return core_raise(state, &error);
    }
    return PyLong_FromUnsignedLongLong(row_count);
}

PyObject *core_order_rows(PyObject *module, PyObject *args) {
    PyObject *path, *stream, *columns, *nulls_first, *result = NULL;
    uint32_t column_count, *indexes = NULL, count = 0;
    char *nulls;
    Py_ssize_t null_count;
    if (!PyArg_ParseTuple(args, "O&OO&OS", PyUnicode_FSConverter, &path, &stream, core_u32,
                          &column_count, &columns, &nulls_first)) {
        return NULL;
    }
    if (core_u32_list(columns, &indexes, &count) == 0 &&
        PyBytes_AsStringAndSize(nulls_first, &nulls, &null_count) == 0) {
        hw_ordering ordering = {.struct_bytes = sizeof ordering,
                                .columns = indexes,
                                .nulls_first = (const uint8_t *)nulls,
                                .column_count = count};
        if (null_count != (Py_ssize_t)count) {
            PyErr_SetString(PyExc_ValueError, "expected one byte of nulls_first per column");
        } else {
            result = order(PyModule_GetState(module), PyBytes_AsString(path), stream, column_count,
                           &ordering);
        }
    }
    PyMem_Free(indexes);
    Py_DECREF(path);
    return result;
}
