/*
 * A strict reader of the Arrow C stream interface, for the builder: struct streams whose columns
 * are of the formats b (bool), i I l L (32 and 64 bit integers), g (float64), u U (utf8), with
 * validity bitmaps, offsets and sliced arrays. Everything else is HW_BAD_SOURCE naming the column.
 *
 * The producer is another library in the same process, so pointers are trusted as the interface
 * demands, but counts, nulls and text offsets are checked. One array is held at a time and released
 * before the next one is asked for, and by hwi_arrow_close. The stream itself stays the caller's.
 *
 * Producers give arrays of up to a million rows. They are read in chunks of at most
 * HWI_ARROW_CHUNK_ROWS, so that what the caller makes of a chunk, column after column, stays in a
 * cache.
 */
#ifndef HWI_ARROW_H
#define HWI_ARROW_H

#include "base/bytes.h"
#include "base/error.h"
#include "headwater.h"

#define HWI_ARROW_CHUNK_ROWS 2048u

enum hwi_arrow_kind {
    HWI_ARROW_BOOL, /* b */
    HWI_ARROW_INT64, /* l: times */
    HWI_ARROW_INTEGER, /* i, I, l or L: row numbers, positions, splits */
    HWI_ARROW_DOUBLE, /* g */
    HWI_ARROW_NUMBER, /* g, l or i */
    HWI_ARROW_TEXT, /* u or U */
    HWI_ARROW_KEY, /* u or U, or l: an integer, which is its decimal digits */
    HWI_ARROW_FIXED, /* b, i, l or g: whatever of a fixed width it is */
    HWI_ARROW_PRESENCE, /* b, i, l, g, u or U: only whether there is a value counts */
};

/* What the caller expects of one column of the stream. */
struct hwi_arrow_field {
    const char *name; /* for messages */
    enum hwi_arrow_kind kind;
};

struct hwi_arrow_column {
    char format; /* one of "biIlLguU" */
    uint64_t offset; /* of row 0 of the chunk in the buffers */
    const uint8_t *validity; /* NULL: nothing is NULL */
    const uint8_t *values; /* offsets of text */
    const char *text;
};

struct hwi_arrow {
    struct ArrowArrayStream *stream;
    const char *subject; /* "table 'orders'", for messages */
    const struct hwi_arrow_field *fields;
    struct hwi_arrow_column *columns; /* [column_count] of the chunk */
    uint64_t column_count;
    uint64_t first_row; /* rows before this chunk */
    uint64_t row_count; /* of this chunk; 0 at the end */
    uint64_t array_row; /* rows of the array that were given, this chunk included */
    struct ArrowSchema schema;
    struct ArrowArray array;
};

/* Reads the schema and proves that it has exactly these columns. `subject` and `fields` must live
 * as long as the reader. Close it whatever the status. */
HWI_CHECK hw_status hwi_arrow_open(struct hwi_arrow *arrow, struct ArrowArrayStream *stream,
                                   const char *subject, const struct hwi_arrow_field *fields,
                                   uint64_t column_count, hw_error *error);
/* The next chunk that has rows; row_count is 0 at the end of the stream. */
HWI_CHECK hw_status hwi_arrow_next(struct hwi_arrow *arrow, hw_error *error);
void hwi_arrow_close(struct hwi_arrow *arrow);

/* Values of row `row` of the chunk (row < row_count). */
static inline int hwi_arrow_is_null(const struct hwi_arrow_column *column, uint64_t row) {
    return column->validity != NULL && !hwi_bit(column->validity, column->offset + row);
}

static inline int hwi_arrow_bool(const struct hwi_arrow_column *column, uint64_t row) {
    return hwi_bit(column->values, column->offset + row);
}

static inline int64_t hwi_arrow_int64(const struct hwi_arrow_column *column, uint64_t row) {
    return hwi_read_i64(column->values + 8 * (column->offset + row));
}

static inline double hwi_arrow_double(const struct hwi_arrow_column *column, uint64_t row) {
    return hwi_read_f64(column->values + 8 * (column->offset + row));
}

/* Of the kind HWI_ARROW_NUMBER. */
static inline double hwi_arrow_number(const struct hwi_arrow_column *column, uint64_t row) {
    switch (column->format) {
    case 'i':
        return (int32_t)hwi_read_u32(column->values + 4 * (column->offset + row));
    case 'l':
        return (double)hwi_arrow_int64(column, row);
    default:
        return hwi_arrow_double(column, row);
    }
}

/* An integer of any width; HW_BAD_SOURCE outside [0, limit). Not NULL. */
HWI_CHECK hw_status hwi_arrow_index(const struct hwi_arrow *arrow, uint64_t column, uint64_t row,
                                    uint64_t limit, uint32_t *index, hw_error *error);
#define HWI_INTEGER_TEXT_BYTES 20u /* of INT64_MIN */

/* A part of a key as its canonical text: a text as it is, an integer in `digits`. Not NULL. */
HWI_CHECK hw_status hwi_arrow_key(const struct hwi_arrow *arrow, uint64_t column, uint64_t row,
                                  char digits[HWI_INTEGER_TEXT_BYTES], const char **text,
                                  uint32_t *bytes, hw_error *error);
/* A text; valid until the next chunk. Not NULL. */
HWI_CHECK hw_status hwi_arrow_text(const struct hwi_arrow *arrow, uint64_t column, uint64_t row,
                                   const char **text, uint32_t *bytes, hw_error *error);

#endif
