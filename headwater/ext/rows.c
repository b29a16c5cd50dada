/*
 * Rows of a database cursor (tuples of int, float, str, bytes and None) as one Arrow stream of
 * columns. A column's type is that of its values: it is found while they are read, so that a table
 * whose columns each hold one type is read once.
 *
 * Kinds: '?' only NULL so far, 'l' int64, 'g' float64 (integers that a double holds among them),
 * 'u' str, 'x' bytes as hexadecimal text. '!' marks a column whose values have no kind in common.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "headwater.h"

#define EXACT_INTEGER ((int64_t)1 << 53) /* as far as this a double holds every integer */
#define FIRST_TEXT_BYTES 4096u
#define MOST_TEXT_BYTES                                                                            \
    (64u << 20) /* a chunk ends after the row with which its texts pass this                       \
                 */
#define LARGE_TEXT "U"

static const char STREAM_NAME[] = "arrow_array_stream";

struct column {
    char kind;
    uint8_t *validity; /* [capacity / 8] */
    int64_t *values; /* [capacity + 1]: int64 or the bits of a float64; or offsets of text */
    uint8_t *text;
    int64_t text_bytes, text_capacity;
    const void *buffers[3]; /* for Arrow */
};

/* Rows on their way, owned by the stream. */
struct packed {
    int64_t row_count, column_count;
    struct column *columns;
    char given; /* the columns have left as an array */
};

static void free_column(struct column *column) {
    free(column->validity);
    free(column->values);
    free(column->text);
    *column = (struct column){.kind = column->kind};
}

static void free_packed(struct packed *packed) {
    for (int64_t j = 0; packed->columns != NULL && j < packed->column_count; j++) {
        free_column(&packed->columns[j]);
    }
    free(packed->columns);
    free(packed);
}

static struct packed *new_packed(const char *kinds, Py_ssize_t column_count, Py_ssize_t capacity) {
    struct packed *packed = calloc(1, sizeof *packed);
    if (packed == NULL) {
        return NULL;
    }
    packed->column_count = column_count;
    packed->columns = calloc((size_t)column_count + 1, sizeof *packed->columns);
    int is_whole = packed->columns != NULL;
    for (Py_ssize_t j = 0; j < column_count && is_whole; j++) {
        struct column *column = &packed->columns[j];
        column->kind = kinds[j];
        column->validity = calloc((size_t)capacity / 8 + 1, 1);
        column->values = calloc((size_t)capacity + 1, sizeof *column->values);
        column->text = malloc(FIRST_TEXT_BYTES);
        column->text_capacity = FIRST_TEXT_BYTES;
        is_whole = column->validity && column->values && column->text;
    }
    if (!is_whole) {
        free_packed(packed);
        return NULL;
    }
    return packed;
}

/* ---- values ------------------------------------------------------------------------------ */

static int64_t bits_of(double number) {
    int64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static uint8_t *more_text(struct column *column, Py_ssize_t bytes) {
    int64_t needed = column->text_bytes + bytes, capacity = column->text_capacity;
    while (capacity < needed) {
        capacity *= 2;
    }
    if (capacity != column->text_capacity) {
        uint8_t *text = realloc(column->text, (size_t)capacity);
        if (text == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        column->text = text;
        column->text_capacity = capacity;
    }
    column->text_bytes += bytes;
    return column->text + column->text_bytes - bytes;
}

static int take_text(struct column *column, PyObject *value) {
    Py_ssize_t bytes;
    const char *text = PyUnicode_AsUTF8AndSize(value, &bytes);
    uint8_t *to = text != NULL ? more_text(column, bytes) : NULL;
    if (to == NULL) {
        return -1;
    }
    memcpy(to, text, (size_t)bytes);
    return 0;
}

static int take_bytes(struct column *column, PyObject *value) {
    static const char digits[] = "0123456789abcdef";
    char *data;
    Py_ssize_t bytes;
    uint8_t *to = NULL;
    if (PyBytes_AsStringAndSize(value, &data, &bytes) == 0) {
        to = more_text(column, 2 * bytes);
    }
    if (to == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < bytes; i++) {
        *to++ = (uint8_t)digits[(uint8_t)data[i] >> 4];
        *to++ = (uint8_t)digits[(uint8_t)data[i] & 15];
    }
    return 0;
}

static int is_exact(int64_t value) {
    return value >= -EXACT_INTEGER && value <= EXACT_INTEGER;
}

/* Integers that came before the first real number, as such; '!' if one would change. */
static void make_real(struct column *column, int64_t row_count) {
    column->kind = 'g';
    for (int64_t i = 0; i < row_count; i++) {
        if (!is_exact(column->values[i])) {
            column->kind = '!';
        }
        column->values[i] = bits_of((double)column->values[i]);
    }
}

/* One value of row `row`; 0, or -1 with an exception. `is_first`: no rows of the column have left,
 * so that its integers may still become real numbers. */
static int take_value(struct column *column, int64_t row, PyObject *value, int is_first) {
    char kind = PyLong_Check(value)      ? 'l'
                : PyFloat_Check(value)   ? 'g'
                : PyUnicode_Check(value) ? 'u'
                : PyBytes_Check(value)   ? 'x'
                                         : '!';
    if (column->kind == '?') {
        column->kind = kind;
    }
    if (kind == 'g' && column->kind == 'l' && is_first) {
        make_real(column, row);
    }
    int64_t integer = 0;
    if (kind == 'l') {
        integer = PyLong_AsLongLong(value);
        if (integer == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    if (kind == 'l' && column->kind == 'g' && is_exact(integer)) {
        column->values[row] = bits_of((double)integer);
        return 0;
    }
    if (kind != column->kind) {
        column->kind = '!';
        return 0;
    }
    switch (kind) {
    case 'l':
        column->values[row] = integer;
        return 0;
    case 'g':
        column->values[row] = bits_of(PyFloat_AsDouble(value));
        return 0;
    case 'u':
        return take_text(column, value);
    case 'x':
        return take_bytes(column, value);
    default:
        return 0;
    }
}

/* Whether the chunk is long enough: a text passed the limit, or a column has no kind. */
static int take_row(struct packed *packed, PyObject *row, const char *given) {
    int is_over = 0;
    int64_t text_bytes = 0;
    if (!PyTuple_Check(row) || PyTuple_Size(row) != (Py_ssize_t)packed->column_count) {
        PyErr_Format(PyExc_TypeError, "expected rows that are tuples of %zd",
                     (Py_ssize_t)packed->column_count);
        return -1;
    }
    int64_t number = packed->row_count++;
    for (int64_t j = 0; j < packed->column_count; j++) {
        struct column *column = &packed->columns[j];
        PyObject *value = PyTuple_GetItem(row, (Py_ssize_t)j);
        if (value != Py_None) {
            column->validity[number >> 3] |= (uint8_t)(1u << (number & 7));
            if (take_value(column, number, value, given[j] == '?') != 0) {
                return -1;
            }
        }
        if (column->kind == 'u' || column->kind == 'x') {
            column->values[number + 1] = column->text_bytes;
        }
        is_over |= column->kind == '!';
        text_bytes += column->text_bytes;
    }
    return is_over || text_bytes >= (int64_t)MOST_TEXT_BYTES;
}

/* ---- the Arrow stream -------------------------------------------------------------------- */

static const char *arrow_format(char kind) {
    return kind == 'l' || kind == '?' ? "l" : kind == 'g' ? "g" : LARGE_TEXT;
}

static void release_child_schema(struct ArrowSchema *schema) {
    schema->release = NULL;
}

static void release_schema(struct ArrowSchema *schema) {
    for (int64_t j = 0; j < schema->n_children; j++) {
        if (schema->children[j]->release != NULL) {
            schema->children[j]->release(schema->children[j]);
        }
    }
    free(schema->private_data);
    free(schema->children);
    schema->release = NULL;
}

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    const struct packed *packed = stream->private_data;
    size_t count = (size_t)packed->column_count;
    struct ArrowSchema *children = calloc(count + 1, sizeof *children);
    struct ArrowSchema **list = calloc(count + 1, sizeof *list);
    if (children == NULL || list == NULL) {
        free(children);
        free(list);
        return ENOMEM;
    }
    for (size_t j = 0; j < count; j++) {
        children[j] = (struct ArrowSchema){.format = arrow_format(packed->columns[j].kind),
                                           .name = "",
                                           .flags = 2, /* nullable */
                                           .release = release_child_schema};
        list[j] = &children[j];
    }
    *out = (struct ArrowSchema){.format = "+s",
                                .name = "",
                                .n_children = packed->column_count,
                                .children = list,
                                .release = release_schema,
                                .private_data = children};
    return 0;
}

/* Each child owns its column: a consumer may keep one longer than the others. */
static void release_child(struct ArrowArray *array) {
    free_column(array->private_data);
    free(array->private_data);
    array->release = NULL;
}

static void release_array(struct ArrowArray *array) {
    for (int64_t j = 0; j < array->n_children; j++) {
        if (array->children[j]->release != NULL) {
            array->children[j]->release(array->children[j]);
        }
    }
    free(array->children);
    free(array->private_data);
    array->release = NULL;
}

static int move_column(struct column *column, int64_t row_count, struct ArrowArray *out) {
    struct column *own = malloc(sizeof *own);
    if (own == NULL) {
        return -1;
    }
    *own = *column;
    *column = (struct column){.kind = own->kind};
    own->buffers[0] = own->validity;
    own->buffers[1] = own->values;
    own->buffers[2] = own->text;
    *out = (struct ArrowArray){.length = row_count,
                               .null_count = -1,
                               .n_buffers = arrow_format(own->kind)[0] == 'U' ? 3 : 2,
                               .buffers = own->buffers,
                               .release = release_child,
                               .private_data = own};
    return 0;
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    static const void *no_validity[1] = {NULL};
    struct packed *packed = stream->private_data;
    *out = (struct ArrowArray){.release = NULL};
    if (packed->given) {
        return 0;
    }
    size_t count = (size_t)packed->column_count;
    struct ArrowArray *children = calloc(count + 1, sizeof *children);
    struct ArrowArray **list = calloc(count + 1, sizeof *list);
    int is_whole = children != NULL && list != NULL;
    *out = (struct ArrowArray){.length = packed->row_count,
                               .n_buffers = 1,
                               .buffers = no_validity,
                               .children = list,
                               .release = release_array,
                               .private_data = children};
    for (size_t j = 0; j < count && is_whole; j++) {
        is_whole = move_column(&packed->columns[j], packed->row_count, &children[j]) == 0;
        list[j] = &children[j];
        out->n_children += is_whole;
    }
    if (!is_whole) {
        out->n_children = list != NULL ? out->n_children : 0;
        release_array(out);
        return ENOMEM;
    }
    packed->given = 1;
    return 0;
}

static const char *get_last_error(struct ArrowArrayStream *stream) {
    (void)stream;
    return "out of memory";
}

static void release_stream(struct ArrowArrayStream *stream) {
    free_packed(stream->private_data);
    stream->release = NULL;
}

static void free_capsule(PyObject *capsule) {
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, STREAM_NAME);
    if (stream != NULL && stream->release != NULL) {
        stream->release(stream);
    }
    free(stream);
}

static PyObject *give_stream(struct ArrowArrayStream *given) {
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

/* Takes over the rows, also when it fails. */
static PyObject *stream_of(struct packed *packed) {
    struct ArrowArrayStream stream = {.get_schema = get_schema,
                                      .get_next = get_next,
                                      .get_last_error = get_last_error,
                                      .release = release_stream,
                                      .private_data = packed};
    return give_stream(&stream);
}

/* ---- pack_rows --------------------------------------------------------------------------- */

/* Reads up to `limit` rows; 0, or -1 with an exception. */
static int take_rows(struct packed *packed, PyObject *rows, const char *given, Py_ssize_t limit) {
    int is_over = 0;
    while (!is_over && packed->row_count < limit) {
        PyObject *row = PyIter_Next(rows);
        if (row == NULL) {
            return PyErr_Occurred() ? -1 : 0;
        }
        is_over = take_row(packed, row, given);
        Py_DECREF(row);
    }
    return is_over < 0 ? -1 : 0;
}

static PyObject *pack_rows(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *rows, *iterator;
    const char *kinds;
    Py_ssize_t column_count, limit;
    if (!PyArg_ParseTuple(args, "Os#n", &rows, &kinds, &column_count, &limit)) {
        return NULL;
    }
    if (limit < 1 || strspn(kinds, "?lgux") != (size_t)column_count) {
        return PyErr_Format(PyExc_ValueError, "kinds '%s' or limit %zd", kinds, limit);
    }
    struct packed *packed = new_packed(kinds, column_count, limit);
    if (packed == NULL) {
        return PyErr_NoMemory();
    }
    iterator = PyObject_GetIter(rows);
    int failed = iterator == NULL || take_rows(packed, iterator, kinds, limit) != 0;
    Py_XDECREF(iterator);
    PyObject *found = failed ? NULL : PyBytes_FromStringAndSize(NULL, column_count);
    if (found == NULL) {
        free_packed(packed);
        return NULL;
    }
    char *letters = PyBytes_AsString(found);
    for (Py_ssize_t j = 0; j < column_count; j++) {
        letters[j] = packed->columns[j].kind;
    }
    Py_ssize_t row_count = (Py_ssize_t)packed->row_count;
    PyObject *stream = stream_of(packed);
    return stream != NULL ? Py_BuildValue("(NnN)", stream, row_count, found) : NULL;
}

PyDoc_STRVAR(pack_rows_doc,
             "pack_rows(rows: Iterable[tuple], kinds: str, limit: int) -> tuple[object, int, "
             "bytes]\n\nUp to `limit` rows of int, float, str, bytes and None as an Arrow C stream "
             "of columns, their number, and the kind of each column.");

static PyMethodDef methods[] = {
    {"pack_rows", pack_rows, METH_VARARGS, pack_rows_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "headwater._rows",
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__rows(void);

PyMODINIT_FUNC PyInit__rows(void) {
    return PyModuleDef_Init(&definition);
}
