/*
 * headwater._core.Pass: a finite run over seeds. It keeps its Sampler alive. A close() that comes
 * while another thread waits inside next() is carried out when that thread leaves.
 */
#include "core.h"

struct pass {
    PyObject_HEAD PyObject *sampler;
    hw_pass *handle;
    uint32_t users; /* guarded by the GIL: threads inside hw_pass_next */
    char closing; /* guarded by the GIL */
};

/* ---- open and close ---------------------------------------------------------------------- */

/* The array of a list of int64 that may be None. */
static int64_t *time_list(PyObject *object, uint32_t count) {
    if (PySequence_Size(object) != (Py_ssize_t)count) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "expected one obs_time per anchor");
        }
        return NULL;
    }
    int64_t *times = PyMem_Calloc((size_t)count + 1, sizeof *times);
    if (times == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(object, i);
        int converted = item != NULL && core_i64(item, &times[i]);
        Py_XDECREF(item);
        if (!converted) {
            PyMem_Free(times);
            return NULL;
        }
    }
    return times;
}

static hw_status open_seeds(PyObject *sampler, uint32_t task, PyObject *anchors,
                            PyObject *obs_times, hw_pass **handle, hw_error *error) {
    uint32_t *rows = NULL, count = 0;
    error->status = HW_BAD_ARGUMENT; /* a Python exception is set on the early ways out */
    if (core_u32_list(anchors, &rows, &count) != 0) {
        return HW_BAD_ARGUMENT;
    }
    int64_t *times = time_list(obs_times, count);
    hw_status status = HW_BAD_ARGUMENT;
    if (times != NULL) {
        status = hw_pass_open_seeds(core_sampler_handle(sampler), task, rows, times, count, handle,
                                    error);
    }
    PyMem_Free(rows);
    PyMem_Free(times);
    return status;
}

static PyObject *pass_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"sampler", "split", "task", "index", "anchors", "obs_times", NULL};
    struct core_state *state = core_state_of(type);
    PyObject *sampler, *anchors = Py_None, *obs_times = Py_None;
    uint32_t split = 0, task, index = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O&O&O&|OO", names, state->sampler_type,
                                     &sampler, core_u32, &split, core_u32, &task, core_u32, &index,
                                     &anchors, &obs_times)) {
        return NULL;
    }
    struct pass *self = (struct pass *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    hw_error error;
    hw_status status;
    hw_pass *handle = NULL;
    if (anchors == Py_None) {
        Py_BEGIN_ALLOW_THREADS status = hw_pass_open(core_sampler_handle(sampler), (hw_split)split,
                                                     task, index, &handle, &error);
        Py_END_ALLOW_THREADS
    } else {
        status = open_seeds(sampler, task, anchors, obs_times, &handle, &error);
    }
    if (status != HW_OK) {
        Py_DECREF(self);
        return core_raise_sampler(state, &error);
    }
    self->handle = handle;
    self->sampler = Py_NewRef(sampler);
    return (PyObject *)self;
}

static void close_if_unused(struct pass *self) {
    if (self->closing && self->users == 0) {
        hw_pass *handle = self->handle;
        self->handle = NULL;
        Py_BEGIN_ALLOW_THREADS hw_pass_close(handle);
        Py_END_ALLOW_THREADS
    }
}

PyDoc_STRVAR(close_doc, "close() -> None\n\nDrops what is queued; idempotent.");

static PyObject *pass_close(PyObject *self, PyObject *unused) {
    (void)unused;
    ((struct pass *)self)->closing = 1;
    close_if_unused((struct pass *)self);
    Py_RETURN_NONE;
}

static int pass_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct pass *)self)->sampler);
    return 0;
}

static int pass_clear(PyObject *self) {
    ((struct pass *)self)->closing = 1;
    close_if_unused((struct pass *)self);
    Py_CLEAR(((struct pass *)self)->sampler);
    return 0;
}

static void pass_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    pass_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* ---- batches ----------------------------------------------------------------------------- */

PyDoc_STRVAR(next_doc, "next(timeout: float | None) -> Batch | None\n\nNone at the end.");

static PyObject *pass_next(PyObject *object, PyObject *args) {
    struct pass *self = (struct pass *)object;
    const struct core_state *state = core_state_of(Py_TYPE(object));
    int64_t timeout_ms;
    if (!PyArg_ParseTuple(args, "O&", core_timeout, &timeout_ms)) {
        return NULL;
    }
    if (self->closing) {
        Py_RETURN_NONE;
    }
    hw_batch *batch = NULL;
    hw_error error;
    self->users++;
    PyThreadState *saved = PyEval_SaveThread();
    hw_status status =
        hw_pass_next(self->handle, timeout_ms, core_interrupted, &saved, &batch, &error);
    PyEval_RestoreThread(saved);
    self->users--;
    PyObject *result = NULL;
    if (status == HW_OK) {
        result = core_batch(state, batch);
    } else if (status == HW_END) {
        result = Py_NewRef(Py_None);
    } else {
        core_raise_sampler(state, &error);
    }
    if (self->closing) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        close_if_unused(self);
        PyErr_Restore(type, value, traceback);
    }
    return result;
}

PyDoc_STRVAR(batch_count_doc, "batch_count() -> int\n\nBatches of the whole pass on this rank.");

static PyObject *batch_count(PyObject *object, PyObject *unused) {
    (void)unused;
    struct pass *self = (struct pass *)object;
    return PyLong_FromUnsignedLongLong(self->handle == NULL ? 0
                                                            : hw_pass_batch_count(self->handle));
}

static PyMethodDef pass_methods[] = {
    {"next", pass_next, METH_VARARGS, next_doc},
    {"batch_count", batch_count, METH_NOARGS, batch_count_doc},
    {"close", pass_close, METH_NOARGS, close_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(pass_doc, "Pass(sampler, split, task, index, anchors=None, obs_times=None)\n\n"
                       "A finite run over the seeds of a split, or over given anchors.");

static PyType_Slot pass_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)pass_doc},
    {Py_tp_new, pass_new},
    {Py_tp_methods, pass_methods},
    {Py_tp_traverse, pass_traverse},
    {Py_tp_clear, pass_clear},
    {Py_tp_dealloc, pass_dealloc},
    {0, NULL},
};

PyType_Spec core_pass_spec = {
    .name = "headwater._core.Pass",
    .basicsize = sizeof(struct pass),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = pass_slots,
};
