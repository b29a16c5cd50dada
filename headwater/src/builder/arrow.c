/*
 * Reader of Arrow C streams; see arrow.h. The interface is published at
 * arrow.apache.org/docs/format/CDataInterface.html; `release` is called exactly once for every
 * schema and array that a producer hands out, on every path.
 */
#include "builder/arrow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/format.h"

/* Formats that serve a kind, and what to say when another one comes. */
static const char *kind_formats(enum hwi_arrow_kind kind) {
    switch (kind) {
    case HWI_ARROW_BOOL:
        return "b";
    case HWI_ARROW_INT64:
        return "l";
    case HWI_ARROW_INTEGER:
        return "iIlL";
    case HWI_ARROW_DOUBLE:
        return "g";
    case HWI_ARROW_NUMBER:
        return "gli";
    case HWI_ARROW_TEXT:
        return "uU";
    case HWI_ARROW_KEY:
        return "uUl";
    case HWI_ARROW_FIXED:
        return "bilg";
    case HWI_ARROW_PRESENCE:
        return "bilguU";
    }
    return "";
}

static hw_status stream_failed(struct hwi_arrow *arrow, const char *doing, int code,
                               hw_error *error) {
    const char *reason = NULL;
    if (arrow->stream->get_last_error != NULL) {
        reason = arrow->stream->get_last_error(arrow->stream);
    }
    if (code == ENOMEM) {
        return hwi_fail(error, HW_NO_MEMORY, "out of memory: stream of %s could not %s: %s",
                        arrow->subject, doing, reason != NULL ? reason : "no reason given");
    }
    return hwi_fail(error, HW_BAD_SOURCE, "stream of %s could not %s: %s (code %d)", arrow->subject,
                    doing, reason != NULL ? reason : "no reason given", code);
}

static hw_status check_schema(struct hwi_arrow *arrow, hw_error *error) {
    const struct ArrowSchema *schema = &arrow->schema;
    if (schema->format == NULL || strcmp(schema->format, "+s") != 0) {
        return hwi_fail(error, HW_BAD_SOURCE,
                        "stream of %s has format '%s', expected a struct '+s'", arrow->subject,
                        schema->format != NULL ? schema->format : "none");
    }
    if (schema->n_children < 0 || (uint64_t)schema->n_children != arrow->column_count) {
        return hwi_fail(error, HW_BAD_SOURCE, "stream of %s has %lld columns, expected %llu",
                        arrow->subject, (long long)schema->n_children,
                        (unsigned long long)arrow->column_count);
    }
    for (uint64_t i = 0; i < arrow->column_count; i++) {
        const struct ArrowSchema *child = schema->children[i];
        const char *format = child->format != NULL ? child->format : "none";
        const char *expected = kind_formats(arrow->fields[i].kind);
        if (format[0] == 0 || format[1] != 0 || strchr(expected, format[0]) == NULL ||
            child->dictionary != NULL) {
            return hwi_fail(error, HW_BAD_SOURCE,
                            "column '%s' of %s has Arrow format '%s'%s, expected one of '%s'",
                            arrow->fields[i].name, arrow->subject, format,
                            child->dictionary != NULL ? " with a dictionary" : "", expected);
        }
        arrow->columns[i].format = format[0];
    }
    return HW_OK;
}

hw_status hwi_arrow_open(struct hwi_arrow *arrow, struct ArrowArrayStream *stream,
                         const char *subject, const struct hwi_arrow_field *fields,
                         uint64_t column_count, hw_error *error) {
    *arrow = (struct hwi_arrow){
        .stream = stream, .subject = subject, .fields = fields, .column_count = column_count};
    if (stream == NULL || stream->release == NULL) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "stream of %s is missing or already released",
                        subject);
    }
    arrow->columns = calloc((size_t)column_count + 1, sizeof *arrow->columns);
    if (arrow->columns == NULL) {
        return hwi_no_memory(error, "columns of a stream", column_count);
    }
    int code = stream->get_schema(stream, &arrow->schema);
    if (code != 0) {
        arrow->schema.release = NULL;
        return stream_failed(arrow, "give its schema", code, error);
    }
    return check_schema(arrow, error);
}

static void release_array(struct hwi_arrow *arrow) {
    if (arrow->array.release != NULL) {
        arrow->array.release(&arrow->array);
    }
    arrow->array.release = NULL;
}

static hw_status bad_array(const struct hwi_arrow *arrow, const char *name, const char *what,
                           hw_error *error) {
    return hwi_fail(error, HW_BAD_SOURCE, "column '%s' of %s has a malformed Arrow array: %s", name,
                    arrow->subject, what);
}

/* Resolves one child array whose parent struct starts at `offset` and has `length` rows. */
static hw_status bind_column(struct hwi_arrow *arrow, uint64_t i, uint64_t offset, uint64_t length,
                             hw_error *error) {
    const struct ArrowArray *child = arrow->array.children[i];
    struct hwi_arrow_column *column = &arrow->columns[i];
    const char *name = arrow->fields[i].name;
    int is_text = column->format == 'u' || column->format == 'U';
    if (child == NULL || child->release == NULL) {
        return bad_array(arrow, name, "it is missing or released", error);
    }
    if (child->length < 0 || child->offset < 0 || (uint64_t)child->offset > UINT64_MAX / 16 ||
        (uint64_t)child->length < offset || (uint64_t)child->length - offset < length) {
        return bad_array(arrow, name, "its length or offset does not cover its struct", error);
    }
    if (child->n_buffers != (is_text ? 3 : 2) || child->dictionary != NULL) {
        return bad_array(arrow, name, "wrong number of buffers, or a dictionary", error);
    }
    if (child->buffers[1] == NULL) {
        return bad_array(arrow, name, "it has rows but no values", error);
    }
    column->offset = (uint64_t)child->offset + offset;
    column->validity = child->null_count == 0 ? NULL : child->buffers[0];
    column->values = child->buffers[1];
    column->text = is_text ? child->buffers[2] : NULL;
    return HW_OK;
}

/* What of an array holds for all of its rows. */
static hw_status check_array(const struct hwi_arrow *arrow, hw_error *error) {
    const struct ArrowArray *array = &arrow->array;
    if (array->length < 0) {
        return bad_array(arrow, "(struct)", "its length is negative", error);
    }
    if (array->length == 0) {
        return HW_OK;
    }
    if (array->n_children < 0 || (uint64_t)array->n_children != arrow->column_count ||
        array->offset < 0 || (uint64_t)array->offset > UINT64_MAX / 16) {
        return bad_array(arrow, "(struct)", "wrong number of children, or a bad offset", error);
    }
    if (array->null_count != 0 && array->n_buffers > 0 && array->buffers[0] != NULL) {
        const uint8_t *validity = array->buffers[0];
        for (uint64_t i = 0; i < (uint64_t)array->length; i++) {
            if (!hwi_bit(validity, (uint64_t)array->offset + i)) {
                return bad_array(arrow, "(struct)", "a row is NULL as a whole", error);
            }
        }
    }
    return HW_OK;
}

/* The rows of the array that follow those given. */
static hw_status bind_chunk(struct hwi_arrow *arrow, hw_error *error) {
    uint64_t left = (uint64_t)arrow->array.length - arrow->array_row;
    uint64_t first = (uint64_t)arrow->array.offset + arrow->array_row;
    arrow->row_count = left < HWI_ARROW_CHUNK_ROWS ? left : HWI_ARROW_CHUNK_ROWS;
    arrow->array_row += arrow->row_count;
    for (uint64_t i = 0; i < arrow->column_count; i++) {
        HW_TRY(bind_column(arrow, i, first, arrow->row_count, error));
    }
    return HW_OK;
}

hw_status hwi_arrow_next(struct hwi_arrow *arrow, hw_error *error) {
    arrow->first_row += arrow->row_count;
    arrow->row_count = 0;
    while (arrow->array.release == NULL || arrow->array_row >= (uint64_t)arrow->array.length) {
        release_array(arrow);
        arrow->array_row = 0;
        int code = arrow->stream->get_next(arrow->stream, &arrow->array);
        if (code != 0) {
            arrow->array.release = NULL;
            return stream_failed(arrow, "give its next rows", code, error);
        }
        if (arrow->array.release == NULL) {
            return HW_OK; /* the end */
        }
        HW_TRY(check_array(arrow, error));
    }
    return bind_chunk(arrow, error);
}

void hwi_arrow_close(struct hwi_arrow *arrow) {
    release_array(arrow);
    if (arrow->schema.release != NULL) {
        arrow->schema.release(&arrow->schema);
    }
    arrow->schema.release = NULL;
    free(arrow->columns);
    arrow->columns = NULL;
}

hw_status hwi_arrow_index(const struct hwi_arrow *arrow, uint64_t column, uint64_t row,
                          uint64_t limit, uint32_t *index, hw_error *error) {
    const struct hwi_arrow_column *values = &arrow->columns[column];
    uint64_t at = values->offset + row;
    uint64_t value = 0;
    switch (values->format) {
    case 'i':
        value = (uint64_t)(int64_t)(int32_t)hwi_read_u32(values->values + 4 * at);
        break;
    case 'I':
        value = hwi_read_u32(values->values + 4 * at);
        break;
    default: /* l, L: a negative value is past any limit */
        value = hwi_read_u64(values->values + 8 * at);
        break;
    }
    if (value >= limit) {
        return hwi_fail(error, HW_BAD_SOURCE,
                        "column '%s' of %s holds %lld in row %llu, expected 0 or more and less "
                        "than %llu",
                        arrow->fields[column].name, arrow->subject, (long long)value,
                        (unsigned long long)(arrow->first_row + row), (unsigned long long)limit);
    }
    *index = (uint32_t)value;
    return HW_OK;
}

hw_status hwi_arrow_text(const struct hwi_arrow *arrow, uint64_t column, uint64_t row,
                         const char **text, uint32_t *bytes, hw_error *error) {
    const struct hwi_arrow_column *values = &arrow->columns[column];
    uint64_t at = values->offset + row;
    int64_t start, end;
    if (values->format == 'u') {
        start = (int32_t)hwi_read_u32(values->values + 4 * at);
        end = (int32_t)hwi_read_u32(values->values + 4 * at + 4);
    } else {
        start = hwi_read_i64(values->values + 8 * at);
        end = hwi_read_i64(values->values + 8 * at + 8);
    }
    if (start < 0 || end < start || (values->text == NULL && end > start)) {
        return bad_array(arrow, arrow->fields[column].name, "its text offsets run backwards",
                         error);
    }
    if ((uint64_t)(end - start) > HWI_MAX_TEXT_BYTES) {
        return hwi_fail(error, HW_BAD_SOURCE,
                        "column '%s' of %s holds a text of %lld bytes in row %llu, at most %u",
                        arrow->fields[column].name, arrow->subject, (long long)(end - start),
                        (unsigned long long)(arrow->first_row + row), HWI_MAX_TEXT_BYTES);
    }
    *text = values->text != NULL ? values->text + start : "";
    *bytes = (uint32_t)(end - start);
    return HW_OK;
}

hw_status hwi_arrow_key(const struct hwi_arrow *arrow, uint64_t column, uint64_t row,
                        char digits[HWI_INTEGER_TEXT_BYTES], const char **text, uint32_t *bytes,
                        hw_error *error) {
    const struct hwi_arrow_column *values = &arrow->columns[column];
    if (values->format != 'l') {
        return hwi_arrow_text(arrow, column, row, text, bytes, error);
    }
    int64_t value = hwi_arrow_int64(values, row);
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    char *at = digits + HWI_INTEGER_TEXT_BYTES;
    do {
        *--at = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0) {
        *--at = '-';
    }
    *text = at;
    *bytes = (uint32_t)(digits + HWI_INTEGER_TEXT_BYTES - at);
    return HW_OK;
}
