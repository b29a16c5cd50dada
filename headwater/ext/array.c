/*
 * headwater._core.Array: a read-only, C-contiguous array over memory that a batch, a store or the
 * array itself owns. It is a buffer and nothing more: np.asarray(array) is a view that keeps it,
 * and so the memory, alive.
 */
#include "core.h"

struct array {
    PyObject_HEAD const void *data;
    struct core_owner owner;
    Py_ssize_t item_bytes;
    Py_ssize_t bytes;
    Py_ssize_t shape[3], strides[3];
    int rank;
    char format[2];
};

const struct core_format CORE_UINT8 = {'B', 1};
const struct core_format CORE_UINT32 = {'I', 4};
/* NumPy's int64 is C's long where that has 64 bits. */
const struct core_format CORE_INT64 = {sizeof(long) == 8 ? 'l' : 'q', 8};
const struct core_format CORE_UINT64 = {sizeof(long) == 8 ? 'L' : 'Q', 8};
const struct core_format CORE_FLOAT16 = {'e', 2};
const struct core_format CORE_FLOAT64 = {'d', 8};

static const struct {
    const char *name;
    char code;
} DTYPES[] = {
    [HW_INT8] = {"int8", 'b'},       [HW_UINT8] = {"uint8", 'B'},
    [HW_UINT16] = {"uint16", 'H'},   [HW_INT32] = {"int32", 'i'},
    [HW_UINT32] = {"uint32", 'I'},   [HW_INT64] = {"int64", sizeof(long) == 8 ? 'l' : 'q'},
    [HW_FLOAT16] = {"float16", 'e'}, [HW_FLOAT32] = {"float32", 'f'},
};

struct core_format core_format_of(hw_dtype dtype) {
    return (struct core_format){DTYPES[dtype].code, (uint8_t)hw_dtype_bytes(dtype)};
}

const char *core_dtype_name(hw_dtype dtype) {
    return DTYPES[dtype].name;
}

void core_release_batch(void *batch) {
    hw_batch_release(batch);
}

void core_release_store(void *store) {
    hw_store_close(store);
}

PyObject *core_array(const struct core_state *state, const void *data, struct core_format format,
                     uint32_t rank, const uint64_t *shape, struct core_owner owner) {
    struct array *array = PyObject_GC_New(struct array, state->array_type);
    if (array == NULL) {
        owner.release(owner.object);
        return NULL;
    }
    array->data = data == NULL ? "" : data; /* an empty array still needs an address */
    array->owner = owner;
    array->format[0] = format.code;
    array->format[1] = 0;
    array->item_bytes = format.bytes;
    array->rank = (int)rank;
    array->bytes = format.bytes;
    for (int d = array->rank - 1; d >= 0; d--) {
        array->shape[d] = (Py_ssize_t)shape[d];
        array->strides[d] = array->bytes;
        array->bytes *= array->shape[d];
    }
    PyObject_GC_Track(array);
    return (PyObject *)array;
}

static int array_get_buffer(PyObject *self, Py_buffer *view, int flags) {
    struct array *array = (struct array *)self;
    if (flags & PyBUF_WRITABLE) {
        view->obj = NULL;
        PyErr_SetString(PyExc_BufferError, "the arrays of headwater are read-only");
        return -1;
    }
    *view = (Py_buffer){
        .buf = (void *)(uintptr_t)array->data,
        .obj = Py_NewRef(self),
        .len = array->bytes,
        .itemsize = array->item_bytes,
        .readonly = 1,
        .ndim = array->rank,
        .format = flags & PyBUF_FORMAT ? array->format : NULL,
        .shape = flags & PyBUF_ND ? array->shape : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? array->strides : NULL,
    };
    return 0;
}

static int array_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static void array_dealloc(PyObject *self) {
    struct array *array = (struct array *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    array->owner.release(array->owner.object);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(array_doc, "A read-only buffer with a shape and a format; use numpy.asarray on it.");

static PyType_Slot array_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)array_doc},
    {Py_bf_getbuffer, array_get_buffer},
    {Py_tp_traverse, array_traverse},
    {Py_tp_dealloc, array_dealloc},
    {0, NULL},
};

PyType_Spec core_array_spec = {
    .name = "headwater._core.Array",
    .basicsize = sizeof(struct array),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = array_slots,
};
