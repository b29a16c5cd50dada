/* Arrow C streams in and out of Python: capsules of the published name. */
#include <stdlib.h>

#include "core.h"

static const char STREAM_NAME[] = "arrow_array_stream";

/* The capsule of an Arrow C stream: the object itself, or what it exports. New reference. */
static PyObject *find_capsule(PyObject *object) {
    if (PyCapsule_IsValid(object, STREAM_NAME)) {
        return Py_NewRef(object);
    }
    PyObject *export = PyObject_GetAttrString(object, "__arrow_c_stream__");
    if (export == NULL) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError,
                     "expected an Arrow C stream or an object that exports one, "
                     "found %R",
                     (PyObject *)Py_TYPE(object));
        return NULL;
    }
    PyObject *capsule = PyObject_CallNoArgs(export);
    Py_DECREF(export);
    return capsule;
}

PyObject *core_stream_capsule(PyObject *object, struct ArrowArrayStream **stream) {
    PyObject *capsule = find_capsule(object);
    *stream = capsule != NULL ? PyCapsule_GetPointer(capsule, STREAM_NAME) : NULL;
    if (*stream != NULL && (*stream)->release == NULL) {
        PyErr_SetString(PyExc_ValueError, "the Arrow stream was read already");
        *stream = NULL;
    }
    if (*stream == NULL) {
        Py_CLEAR(capsule);
    }
    return capsule;
}

static void free_capsule(PyObject *capsule) {
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, STREAM_NAME);
    if (stream != NULL && stream->release != NULL) {
        stream->release(stream);
    }
    free(stream);
}

PyObject *core_give_stream(struct ArrowArrayStream *given) {
    struct ArrowArrayStream *stream = malloc(sizeof *stream);
    if (stream == NULL) {
        given->release(given);
        return PyErr_NoMemory();
    }
    *stream = *given;
    PyObject *capsule = PyCapsule_New(stream, STREAM_NAME, free_capsule);
    if (capsule == NULL) {
        stream->release(stream);
        free(stream);
    }
    return capsule;
}
