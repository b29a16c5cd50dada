/*
 * What the files of the extension share: the state of the module, the way an hw_error becomes an
 * exception, and arrays over memory that someone else owns. The extension holds no logic: a method
 * parses its arguments, releases the GIL, calls one hw_ function and converts the result.
 *
 * Built for the stable ABI of Python 3.11, without NumPy: arrays leave by the buffer protocol.
 */
#ifndef HEADWATER_CORE_H
#define HEADWATER_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "headwater.h"

struct core_state {
    PyObject *status_errors; /* tuple of exception classes by hw_status */
    PyTypeObject *array_type;
    PyTypeObject *batch_type;
    PyTypeObject *builder_type;
    PyTypeObject *store_type;
    PyTypeObject *sampler_type;
    PyTypeObject *pass_type;
};

/* ---- module.c ---------------------------------------------------------------------------- */

/* State of the module that `type` was made in. */
struct core_state *core_state_of(PyTypeObject *type);
/* Raises what the table status -> class says; keeps an exception that is already set (a signal
 * handler's, a stream's). Always returns NULL. */
PyObject *core_raise(const struct core_state *state, const hw_error *error);
/* "O&" converters of integers, with OverflowError and TypeError as Python has them. */
int core_u32(PyObject *object, void *value);
int core_u64(PyObject *object, void *value);
int core_i64(PyObject *object, void *value);
/* A list of integers (or None: *values stays NULL) as a new array; free with PyMem_Free. */
int core_u32_list(PyObject *object, uint32_t **values, uint32_t *count);
/* A list of str as C strings without zero bytes in them, borrowed from the list's items. */
int core_string_list(PyObject *object, const char ***strings, uint32_t *count);

/* ---- array.c ----------------------------------------------------------------------------- */

/* Memory of an array and how to let go of it. */
struct core_owner {
    void *object;
    void (*release)(void *object); /* may run in any thread that holds the GIL */
};
/* One element: its format code and its size. */
struct core_format {
    char code;
    uint8_t bytes;
};
extern const struct core_format CORE_UINT8, CORE_UINT32, CORE_INT64, CORE_UINT64, CORE_FLOAT16,
    CORE_FLOAT64;
struct core_format core_format_of(hw_dtype dtype);
const char *core_dtype_name(hw_dtype dtype);
/* A read-only C-contiguous array; takes over one reference of the owner, also when it fails. */
PyObject *core_array(const struct core_state *state, const void *data, struct core_format format,
                     uint32_t rank, const uint64_t *shape, struct core_owner owner);
void core_release_batch(void *batch);
void core_release_store(void *store);

/* ---- capsule.c --------------------------------------------------------------------------- */

/* The capsule of a stream that was not read yet, of the object or of what it exports: a new
 * reference, and *stream inside it. NULL with an exception. */
PyObject *core_stream_capsule(PyObject *object, struct ArrowArrayStream **stream);
/* A capsule of the stream, which it takes over, also when it fails. */
PyObject *core_give_stream(struct ArrowArrayStream *given);
PyObject *core_steady_stream(PyObject *module, PyObject *object);

/* ---- rows.c ------------------------------------------------------------------- */

PyObject *core_pack_rows(PyObject *module, PyObject *args);

/* ---- one per type ------------------------------------------------------------------------ */

extern PyType_Spec core_array_spec, core_batch_spec, core_builder_spec, core_store_spec,
    core_sampler_spec, core_pass_spec;

/* Takes over one reference of the batch, also when it fails. */
PyObject *core_batch(const struct core_state *state, hw_batch *batch);
/* The open store of a Store object with a new reference; NULL with ValueError if it is closed. */
hw_store *core_store_handle(PyObject *store);
/* The sampler of a Sampler object, borrowed. */
hw_sampler *core_sampler_handle(PyObject *sampler);
/* Raises an error of a sampler; of memory, it names the settings to lower. Returns NULL. */
PyObject *core_raise_sampler(const struct core_state *state, const hw_error *error);
/* hw_interrupt_callback: context is the address of the PyThreadState that was saved. */
int core_interrupted(void *context);
/* Milliseconds of a timeout argument: None waits for ever. 0 with an exception on nonsense. */
int core_timeout(PyObject *object, void *timeout_ms);

#endif
