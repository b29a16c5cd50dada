/*
 * Plain arrays of the caller as an Arrow stream of one struct array; see hw_arrays_open. Schemas
 * and arrays that are handed out own their descriptions, so they outlive the stream, and a consumer
 * may move a child out of its parent; the values stay the caller's.
 */
#define _DEFAULT_SOURCE 1 /* strdup */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define FORMATS "biIlLguU"
#define NULLABLE 2 /* ARROW_FLAG_NULLABLE */

struct column {
    char *name;
    char format[2];
    const void *values, *offsets, *validity;
};

struct arrays {
    int64_t row_count;
    struct column *columns; /* [column_count] */
    int64_t column_count;
    uint8_t is_read; /* its schema or rows were asked for */
    uint8_t is_at_end;
};

/* ---- schemas and arrays ---------------------------------------------------------------------- */

static void release_field(struct ArrowSchema *schema) {
    free(schema->private_data); /* name and format */
    schema->release = NULL;
}

static void release_schema(struct ArrowSchema *schema) {
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i]->release != NULL) {
            schema->children[i]->release(schema->children[i]);
        }
    }
    free(schema->private_data);
    schema->release = NULL;
}

static void release_values(struct ArrowArray *array) {
    free(array->private_data); /* buffers */
    array->release = NULL;
}

static void release_rows(struct ArrowArray *array) {
    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i]->release != NULL) {
            array->children[i]->release(array->children[i]);
        }
    }
    free(array->private_data);
    array->release = NULL;
}

static int fill_field(struct ArrowSchema *field, const struct column *column) {
    size_t name_bytes = strlen(column->name) + 1;
    char *texts = malloc(name_bytes + sizeof column->format);
    if (texts == NULL) {
        return ENOMEM;
    }
    memcpy(texts, column->name, name_bytes);
    memcpy(texts + name_bytes, column->format, sizeof column->format);
    *field = (struct ArrowSchema){
        .name = texts,
        .format = texts + name_bytes,
        .flags = column->validity != NULL ? NULLABLE : 0,
        .release = release_field,
        .private_data = texts,
    };
    return 0;
}

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    struct arrays *arrays = stream->private_data;
    size_t count = (size_t)arrays->column_count;
    struct ArrowSchema **children = calloc(count + 1, sizeof *children + sizeof **children);
    if (children == NULL) {
        return ENOMEM;
    }
    struct ArrowSchema *fields = (struct ArrowSchema *)(void *)(children + count + 1);
    *out = (struct ArrowSchema){.format = "+s",
                                .name = "",
                                .children = children,
                                .release = release_schema,
                                .private_data = children};
    for (size_t i = 0; i < count; i++) {
        children[i] = &fields[i];
        if (fill_field(&fields[i], &arrays->columns[i]) != 0) {
            release_schema(out);
            return ENOMEM;
        }
        out->n_children++;
    }
    arrays->is_read = 1;
    return 0;
}

static int fill_values(struct ArrowArray *array, const struct column *column, int64_t row_count) {
    const void **buffers = calloc(3, sizeof *buffers);
    if (buffers == NULL) {
        return ENOMEM;
    }
    int is_text = column->offsets != NULL;
    buffers[0] = column->validity;
    buffers[1] = is_text ? column->offsets : column->values;
    buffers[2] = is_text ? column->values : NULL;
    *array = (struct ArrowArray){
        .length = row_count,
        .null_count = column->validity != NULL ? -1 : 0,
        .n_buffers = is_text ? 3 : 2,
        .buffers = buffers,
        .release = release_values,
        .private_data = buffers,
    };
    return 0;
}

/* The struct array, in one piece of memory with its only buffer and its children. */
struct rows {
    const void *no_validity;
    struct ArrowArray *children[]; /* [column_count], then what they point at */
};

static int make_rows(const struct arrays *arrays, struct ArrowArray *out) {
    size_t count = (size_t)arrays->column_count;
    struct rows *rows =
        calloc(1, sizeof *rows + count * (sizeof *rows->children + sizeof **rows->children));
    if (rows == NULL) {
        return ENOMEM;
    }
    struct ArrowArray *values = (struct ArrowArray *)(void *)(rows->children + count);
    *out = (struct ArrowArray){.length = arrays->row_count,
                               .n_buffers = 1,
                               .buffers = &rows->no_validity,
                               .children = rows->children,
                               .release = release_rows,
                               .private_data = rows};
    for (size_t i = 0; i < count; i++) {
        rows->children[i] = &values[i];
        if (fill_values(&values[i], &arrays->columns[i], arrays->row_count) != 0) {
            release_rows(out);
            return ENOMEM;
        }
        out->n_children++;
    }
    return 0;
}

/* ---- the stream ------------------------------------------------------------------------------ */

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    struct arrays *arrays = stream->private_data;
    *out = (struct ArrowArray){.release = NULL};
    arrays->is_read = 1;
    int code = arrays->is_at_end || arrays->row_count == 0 ? 0 : make_rows(arrays, out);
    arrays->is_at_end |= code == 0;
    return code;
}

static const char *get_last_error(struct ArrowArrayStream *stream) {
    (void)stream;
    return "out of memory"; /* nothing else fails */
}

static void release_stream(struct ArrowArrayStream *stream) {
    struct arrays *arrays = stream->private_data;
    for (int64_t i = 0; i < arrays->column_count; i++) {
        free(arrays->columns[i].name);
    }
    free(arrays->columns);
    free(arrays);
    stream->release = NULL;
}

hw_status hw_arrays_open(uint64_t row_count, struct ArrowArrayStream *stream, hw_error *error) {
    if (stream == NULL || row_count > INT64_MAX) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "no stream, or %llu rows",
                        (unsigned long long)row_count);
    }
    struct arrays *arrays = calloc(1, sizeof *arrays);
    if (arrays == NULL) {
        return hwi_no_memory(error, "a stream", sizeof *arrays);
    }
    arrays->row_count = (int64_t)row_count;
    *stream = (struct ArrowArrayStream){
        .get_schema = get_schema,
        .get_next = get_next,
        .get_last_error = get_last_error,
        .release = release_stream,
        .private_data = arrays,
    };
    return HW_OK;
}

static hw_status check_column(const struct arrays *arrays, const char *name,
                              const struct column *column, const char *format, hw_error *error) {
    int is_text = column->format[0] == 'u' || column->format[0] == 'U';
    if (column->format[0] == 0 || format[1] != 0 || strchr(FORMATS, column->format[0]) == NULL) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "column '%s' has Arrow format '%s', expected one of '%s'", name, format,
                        FORMATS);
    }
    if (arrays->row_count > 0 && (column->offsets != NULL) != is_text) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "column '%s' of format '%s' has %s", name, format,
                        is_text ? "no offsets" : "offsets, which only texts have");
    }
    if (arrays->row_count > 0 && column->values == NULL) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "column '%s' has %lld rows and no values", name,
                        (long long)arrays->row_count);
    }
    return HW_OK;
}

hw_status hw_arrays_add(struct ArrowArrayStream *stream, const char *name, const char *format,
                        const void *values, const void *offsets, const void *validity,
                        hw_error *error) {
    if (stream == NULL || stream->release != release_stream || name == NULL || format == NULL) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "a column needs a stream of hw_arrays_open, a name and a format");
    }
    struct arrays *arrays = stream->private_data;
    struct column column = {
        .format = {format[0], 0}, .values = values, .offsets = offsets, .validity = validity};
    if (arrays->is_read) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "column '%s' is added to a stream that was read already", name);
    }
    HW_TRY(check_column(arrays, name, &column, format, error));
    size_t bytes = ((size_t)arrays->column_count + 1) * sizeof column;
    struct column *columns = realloc(arrays->columns, bytes);
    arrays->columns = columns != NULL ? columns : arrays->columns;
    column.name = strdup(name);
    if (columns == NULL || column.name == NULL) {
        free(column.name);
        return hwi_no_memory(error, "columns of a stream", bytes);
    }
    columns[arrays->column_count++] = column;
    return HW_OK;
}
