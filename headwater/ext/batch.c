/*
 * headwater._core.Batch: one reference to an hw_batch. Every array it gives away holds a reference
 * of its own, so the slab returns to the pool when the last array over it is gone.
 */
#include "core.h"

struct batch {
    PyObject_HEAD hw_batch *handle;
};

PyObject *core_batch(const struct core_state *state, hw_batch *handle) {
    struct batch *batch = PyObject_GC_New(struct batch, state->batch_type);
    if (batch == NULL) {
        hw_batch_release(handle);
        return NULL;
    }
    batch->handle = handle;
    PyObject_GC_Track(batch);
    return (PyObject *)batch;
}

PyDoc_STRVAR(batch_tensors_doc, "tensors() -> list[tuple[str, bool, Array]]\n\n"
                                "(name, info, array) per array, in the order of batch_fields().");

static PyObject *batch_tensors(PyObject *self, PyObject *unused) {
    (void)unused;
    const struct core_state *state = core_state_of(Py_TYPE(self));
    hw_batch *handle = ((struct batch *)self)->handle;
    uint32_t count = hw_batch_tensor_count(handle);
    PyObject *list = PyList_New(count);
    for (uint32_t i = 0; i < count && list != NULL; i++) {
        hw_tensor tensor = hw_batch_tensor(handle, i);
        struct core_owner owner = {hw_batch_retain(handle), core_release_batch};
        PyObject *array = core_array(state, tensor.data, core_format_of(tensor.dtype), tensor.rank,
                                     tensor.shape, owner);
        PyObject *item = array == NULL ? NULL
                                       : Py_BuildValue("(sON)", tensor.name,
                                                       tensor.info ? Py_True : Py_False, array);
        if (item == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, i, item);
        }
    }
    return list;
}

static int batch_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static void batch_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    hw_batch_release(((struct batch *)self)->handle);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef batch_methods[] = {
    {"tensors", batch_tensors, METH_NOARGS, batch_tensors_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(batch_doc, "The memory of one batch.");

static PyType_Slot batch_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)batch_doc},
    {Py_tp_methods, batch_methods},
    {Py_tp_traverse, batch_traverse},
    {Py_tp_dealloc, batch_dealloc},
    {0, NULL},
};

PyType_Spec core_batch_spec = {
    .name = "headwater._core.Batch",
    .basicsize = sizeof(struct batch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = batch_slots,
};
