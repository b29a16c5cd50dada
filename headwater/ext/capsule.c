/* Arrow C streams in and out of Python: capsules of the published name. */
#define _DEFAULT_SOURCE 1 /* strdup */
#include <stdlib.h>
#include <string.h>

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

/* ---- a stream that stays failed ------------------------------------------------------------ */

struct steady {
    struct ArrowArrayStream source;
    int failure; /* of get_next, 0 before one */
    char *message; /* of the failure; NULL without one */
};

static int steady_schema(struct ArrowArrayStream *stream, struct ArrowSchema *schema) {
    struct steady *steady = stream->private_data;
    return steady->source.get_schema(&steady->source, schema);
}

static int steady_next(struct ArrowArrayStream *stream, struct ArrowArray *array) {
    struct steady *steady = stream->private_data;
    if (steady->failure == 0) {
        steady->failure = steady->source.get_next(&steady->source, array);
        if (steady->failure != 0) {
            const char *message = steady->source.get_last_error(&steady->source);
            steady->message = message != NULL ? strdup(message) : NULL;
        }
    }
    return steady->failure;
}

static const char *steady_error(struct ArrowArrayStream *stream) {
    struct steady *steady = stream->private_data;
    return steady->failure != 0 ? steady->message : steady->source.get_last_error(&steady->source);
}

static void steady_release(struct ArrowArrayStream *stream) {
    struct steady *steady = stream->private_data;
    steady->source.release(&steady->source);
    free(steady->message);
    free(steady);
    stream->release = NULL;
}

PyObject *core_steady_stream(PyObject *Py_UNUSED(module), PyObject *object) {
    struct ArrowArrayStream *stream;
    PyObject *capsule = core_stream_capsule(object, &stream);
    if (capsule == NULL) {
        return NULL;
    }
    struct steady *steady = malloc(sizeof *steady);
    if (steady == NULL) {
        Py_DECREF(capsule);
        return PyErr_NoMemory();
    }
    *steady = (struct steady){.source = *stream};
    stream->release = NULL; /* moved, as the interface allows */
    Py_DECREF(capsule);
    return core_give_stream(&(struct ArrowArrayStream){
        .get_schema = steady_schema,
        .get_next = steady_next,
        .get_last_error = steady_error,
        .release = steady_release,
        .private_data = steady,
    });
}
