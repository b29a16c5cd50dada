/*
 * Tables of numbers, put in order in a file: so that a database engine neither sorts rows that it
 * only hands on nor keeps a copy of them.
 *
 * Rows come as an Arrow stream, whose producer has no order to keep, and are written row by row as
 * records. Their numbers are sorted (radix sort, least significant column first, so that each pass
 * keeps the order of the one before), and the records are copied in that order into the columns of
 * the file, which streams then show without a copy. Rows that come in order are not sorted. Cost:
 * a row is written and read twice; a key takes a pass of a few ns per row for every 8 bits in
 * which its values differ.
 *
 *     header, infos of columns | values of column 0 | its validity | values of column 1 | ...
 *
 * The file is synced before it counts as done: what a build's database records must be there even
 * after a crash of the machine.
 *
 * Records and numbers are spills, which the kernel may move to disk. They are read at random, so a
 * table should fit in memory: whoever calls sees to that.
 */
#define _DEFAULT_SOURCE 1

#include "ordered.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrow.h"
#include "bytes.h"
#include "format.h"
#include "publish.h"
#include "spill.h"

#define DIGIT_BITS 8u /* so that the ends of all runs being written stay in a cache */
#define DIGIT_COUNT 4u /* of the 32 bits that are sorted by at a time */
#define DIGIT_VALUES (1u << DIGIT_BITS)

/* Where a column's value lies in a record. */
struct lane {
    char format; /* one of "bilg" */
    uint8_t bytes; /* of a value; a bool is a byte here and a bit in the file */
    uint8_t has_nulls;
    uint32_t offset;
};

/* A row on its way through the sort: small, as places are moved and records are not. */
struct place {
    uint32_t key, row;
};

/* What is known of the integers of a column. */
struct span {
    int64_t least;
    uint64_t width; /* from the least to the greatest */
    uint64_t step; /* divides the distance of any two; 0: there are no two */
    uint64_t null_count;
    int is_sorted; /* the rows come in the order of this column already */
};

/* One table on its way. */
struct orderer {
    const struct hw_ordering *ordering;
    struct hwi_arrow_field *fields;
    struct lane *lanes; /* [column_count] */
    uint32_t column_count, record_bytes, null_offset;
    struct hwi_arrow arrow;
    uint64_t row_count;
    uint8_t *chunk; /* [HWI_ARROW_CHUNK_ROWS, record_bytes] */
    struct hwi_spill records; /* [row_count, record_bytes] as they came */
    struct hwi_spill places[2]; /* [row_count] struct place: sorted so far, and room */
    int is_sorted; /* rows came in order: there are no places */
    int fd;
    struct hwi_ordered_column *columns; /* [column_count + 1] of the file */
};

/* ---- rows to records --------------------------------------------------------------------- */

static uint8_t format_bytes(char format) {
    return format == 'b' ? 1 : format == 'i' ? 4 : 8;
}

/* Lanes by falling width, so that each is aligned; then a bit per column: NULL. */
static void lay_out(struct orderer *o) {
    uint32_t offset = 0;
    for (uint8_t bytes = 8; bytes > 0; bytes /= 2) {
        for (uint32_t c = 0; c < o->column_count; c++) {
            char format = o->arrow.columns[c].format;
            if (format_bytes(format) == bytes) {
                o->lanes[c] = (struct lane){.format = format, .bytes = bytes, .offset = offset};
                offset += bytes;
            }
        }
    }
    o->null_offset = offset;
    o->record_bytes = (uint32_t)hwi_align_up(offset + (o->column_count + 7) / 8, 8);
}

static hw_status check_ordering(const struct orderer *o, hw_error *error) {
    for (uint32_t k = 0; k < o->ordering->column_count; k++) {
        uint32_t column = o->ordering->columns[k];
        if (column >= o->column_count || o->lanes[column].format == 'g' ||
            o->lanes[column].format == 'b') {
            return hwi_fail(error, HW_BAD_ARGUMENT,
                            "rows are ordered by column %u, expected one of %u columns that holds "
                            "integers",
                            column, o->column_count);
        }
    }
    return HW_OK;
}

static hw_status open_stream(struct orderer *o, struct ArrowArrayStream *stream, hw_error *error) {
    o->fields = calloc((size_t)o->column_count + 1, sizeof *o->fields);
    o->lanes = calloc((size_t)o->column_count + 1, sizeof *o->lanes);
    if (o->fields == NULL || o->lanes == NULL) {
        return hwi_no_memory(error, "columns of a stream", o->column_count * sizeof *o->lanes);
    }
    for (uint32_t c = 0; c < o->column_count; c++) {
        o->fields[c] = (struct hwi_arrow_field){"(value)", HWI_ARROW_FIXED};
    }
    HW_TRY(
        hwi_arrow_open(&o->arrow, stream, "rows to be ordered", o->fields, o->column_count, error));
    lay_out(o);
    HW_TRY(check_ordering(o, error));
    size_t bytes = (size_t)HWI_ARROW_CHUNK_ROWS * o->record_bytes;
    o->chunk = malloc(bytes + 1);
    return o->chunk == NULL ? hwi_no_memory(error, "rows of a chunk", bytes) : HW_OK;
}

/* Marks the rows of the chunk in which a column is NULL. */
static void take_nulls(struct orderer *o, uint32_t c) {
    const struct hwi_arrow_column *values = &o->arrow.columns[c];
    uint64_t row_count = values->validity == NULL ? 0 : o->arrow.row_count;
    for (uint64_t i = 0; i < row_count; i++) {
        if (hwi_arrow_is_null(values, i)) {
            hwi_set_bit(o->chunk + i * o->record_bytes + o->null_offset, c);
            o->lanes[c].has_nulls = 1;
        }
    }
}

/* A column of the chunk into the records of its rows; where it is NULL, whatever Arrow has there.
 */
static void take_column(struct orderer *o, uint32_t c) {
    const struct hwi_arrow_column *values = &o->arrow.columns[c];
    uint8_t *to = o->chunk + o->lanes[c].offset;
    uint64_t row_count = o->arrow.row_count, stride = o->record_bytes;
    const uint8_t *from = values->values + o->lanes[c].bytes * values->offset;
    switch (o->lanes[c].bytes) {
    case 8:
        for (uint64_t i = 0; i < row_count; i++) {
            hwi_write_u64(to + i * stride, hwi_read_u64(from + 8 * i));
        }
        break;
    case 4:
        for (uint64_t i = 0; i < row_count; i++) {
            hwi_write_u32(to + i * stride, hwi_read_u32(from + 4 * i));
        }
        break;
    default:
        for (uint64_t i = 0; i < row_count; i++) {
            to[i * stride] = (uint8_t)hwi_arrow_bool(values, i);
        }
        break;
    }
}

static hw_status take_rows(struct orderer *o, hw_error *error) {
    for (;;) {
        HW_TRY(hwi_arrow_next(&o->arrow, error));
        if (o->arrow.row_count == 0) {
            return HW_OK;
        }
        o->row_count += o->arrow.row_count;
        if (o->row_count > HWI_MAX_ROWS) {
            return hwi_fail(error, HW_BAD_SOURCE, "a table has more than %u rows", HWI_MAX_ROWS);
        }
        uint64_t bytes = o->arrow.row_count * o->record_bytes;
        memset(o->chunk, 0, (size_t)bytes);
        for (uint32_t c = 0; c < o->column_count; c++) {
            take_column(o, c);
            take_nulls(o, c);
        }
        HW_TRY(hwi_spill_write(&o->records, o->chunk, bytes, error));
    }
}

/* ---- order ------------------------------------------------------------------------------- */

static const uint8_t *record_of(const struct orderer *o, uint64_t row) {
    return o->records.data + row * o->record_bytes;
}

static int is_null(const struct orderer *o, const uint8_t *record, uint32_t column) {
    return hwi_bit(record + o->null_offset, column);
}

static int64_t integer_of(const struct orderer *o, const uint8_t *record, uint32_t column) {
    const struct lane *lane = &o->lanes[column];
    return lane->bytes == 8 ? hwi_read_i64(record + lane->offset)
                            : (int32_t)hwi_read_u32(record + lane->offset);
}

/* Below, at or above 0 as the first record comes before, with or after the second. */
static int compare(const struct orderer *o, const uint8_t *one, const uint8_t *two) {
    for (uint32_t k = 0; k < o->ordering->column_count; k++) {
        uint32_t column = o->ordering->columns[k];
        int one_null = is_null(o, one, column), two_null = is_null(o, two, column);
        if (one_null != two_null) {
            return (one_null != 0) == (o->ordering->nulls_first[k] != 0) ? -1 : 1;
        }
        int64_t a = integer_of(o, one, column), b = integer_of(o, two, column);
        if (!one_null && a != b) {
            return a < b ? -1 : 1;
        }
    }
    return 0;
}

static int came_in_order(const struct orderer *o) {
    for (uint64_t row = 1; row < o->row_count; row++) {
        if (compare(o, record_of(o, row - 1), record_of(o, row)) > 0) {
            return 0;
        }
    }
    return 1;
}

static uint64_t common_step(uint64_t step, uint64_t distance) {
    while (distance != 0) {
        uint64_t rest = step % distance;
        step = distance;
        distance = rest;
    }
    return step;
}

/* One column of the rows in the order of the places. */
static struct span measure(const struct orderer *o, uint32_t k, const struct place *places) {
    uint32_t column = o->ordering->columns[k];
    struct span span = {.least = INT64_MAX, .is_sorted = 1};
    int64_t greatest = INT64_MIN, before = INT64_MIN;
    int nulls_first = o->ordering->nulls_first[k] != 0, last_null = nulls_first;
    for (uint64_t i = 0; i < o->row_count; i++) {
        const uint8_t *record = record_of(o, places[i].row);
        int null = is_null(o, record, column);
        span.is_sorted &= null == last_null || null != nulls_first;
        last_null = null;
        if (null) {
            span.null_count++;
            continue;
        }
        int64_t value = integer_of(o, record, column);
        uint64_t distance = (uint64_t)value - (uint64_t)before;
        if (span.step != 1 && i > span.null_count) {
            distance = value < before ? 0 - distance : distance;
            span.step = common_step(distance, span.step);
        }
        span.is_sorted &= value >= before;
        span.least = value < span.least ? value : span.least;
        greatest = value > greatest ? value : greatest;
        before = value;
    }
    span.width = span.least <= greatest ? (uint64_t)greatest - (uint64_t)span.least : 0;
    return span;
}

/* Keys of a column for the places as they stand: 32 bits of its number of steps from the least. */
static void read_keys(const struct orderer *o, uint32_t column, const struct span *span,
                      uint32_t shift, struct place *places) {
    for (uint64_t i = 0; i < o->row_count; i++) {
        const uint8_t *record = record_of(o, places[i].row);
        uint64_t distance = (uint64_t)integer_of(o, record, column) - (uint64_t)span->least;
        uint64_t key = is_null(o, record, column) ? 0 : distance / span->step;
        places[i].key = (uint32_t)(key >> shift);
    }
}

/* How many keys have which digit, for all digits at once. */
static void count_digits(const struct place *places, uint64_t row_count,
                         uint32_t counts[DIGIT_COUNT][DIGIT_VALUES]) {
    memset(counts, 0, DIGIT_COUNT * sizeof counts[0]);
    for (uint64_t i = 0; i < row_count; i++) {
        for (uint32_t digit = 0; digit < DIGIT_COUNT; digit++) {
            counts[digit][places[i].key >> (digit * DIGIT_BITS) & (DIGIT_VALUES - 1)]++;
        }
    }
}

/* One stable pass; `counts` become the ends of the runs. */
static void sort_digit(const struct place *from, struct place *to, uint64_t row_count,
                       uint32_t digit, uint32_t counts[DIGIT_VALUES]) {
    uint32_t shift = digit * DIGIT_BITS, next = 0;
    for (uint32_t value = 0; value < DIGIT_VALUES; value++) {
        uint32_t count = counts[value];
        counts[value] = next;
        next += count;
    }
    for (uint64_t i = 0; i < row_count; i++) {
        to[counts[from[i].key >> shift & (DIGIT_VALUES - 1)]++] = from[i];
    }
}

static void swap_places(struct orderer *o) {
    struct hwi_spill places = o->places[0];
    o->places[0] = o->places[1];
    o->places[1] = places;
}

static void sort_keys(struct orderer *o) {
    uint32_t counts[DIGIT_COUNT][DIGIT_VALUES];
    count_digits((const struct place *)o->places[0].data, o->row_count, counts);
    for (uint32_t digit = 0; digit < DIGIT_COUNT; digit++) {
        const struct place *places = (const struct place *)o->places[0].data;
        uint32_t first = places[0].key >> (digit * DIGIT_BITS) & (DIGIT_VALUES - 1);
        if (counts[digit][first] != o->row_count) {
            sort_digit(places, (struct place *)o->places[1].data, o->row_count, digit,
                       counts[digit]);
            swap_places(o);
        }
    }
}

/* Rows without a value to the front or the back, the others in their order. */
static void part_nulls(struct orderer *o, uint32_t k, uint64_t null_count) {
    const struct place *from = (const struct place *)o->places[0].data;
    struct place *to = (struct place *)o->places[1].data;
    int nulls_first = o->ordering->nulls_first[k];
    uint64_t null_at = nulls_first ? 0 : o->row_count - null_count;
    uint64_t value_at = nulls_first ? null_count : 0;
    for (uint64_t i = 0; i < o->row_count; i++) {
        int null = is_null(o, record_of(o, from[i].row), o->ordering->columns[k]);
        to[null ? null_at++ : value_at++] = from[i];
    }
    swap_places(o);
}

static void sort_column(struct orderer *o, uint32_t k) {
    struct span span = measure(o, k, (const struct place *)o->places[0].data);
    uint64_t steps = span.step > 0 ? span.width / span.step : 0;
    if (span.is_sorted) {
        return;
    }
    for (uint32_t shift = 0; shift < 64 && steps >> shift != 0; shift += 32) {
        read_keys(o, o->ordering->columns[k], &span, shift, (struct place *)o->places[0].data);
        sort_keys(o);
    }
    if (span.null_count > 0) {
        part_nulls(o, k, span.null_count);
    }
}

static hw_status sort_rows(struct orderer *o, const char *directory, hw_error *error) {
    for (uint32_t side = 0; side < 2; side++) {
        uint8_t *room = NULL;
        HW_TRY(hwi_spill_open(&o->places[side], directory, error));
        HW_TRY(
            hwi_spill_extend(&o->places[side], o->row_count * sizeof(struct place), &room, error));
    }
    struct place *places = (struct place *)o->places[0].data;
    for (uint64_t row = 0; row < o->row_count; row++) {
        places[row].row = (uint32_t)row;
    }
    for (uint32_t k = o->ordering->column_count; k > 0; k--) {
        sort_column(o, k - 1);
    }
    return HW_OK;
}

/* ---- records to columns ------------------------------------------------------------------ */

static hw_status write_at(int fd, const void *data, uint64_t bytes, uint64_t offset,
                          hw_error *error) {
    const uint8_t *at = data;
    while (bytes > 0) {
        ssize_t written = pwrite(fd, at, (size_t)bytes, (off_t)offset);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return hwi_fail(error, HW_IO, "cannot write the rows of a table in order: %s",
                            strerror(errno));
        }
        at += written;
        offset += (uint64_t)written;
        bytes -= (uint64_t)written;
    }
    return HW_OK;
}

/* Where each column goes; the last one holds the rows' numbers. Returns the end of the file. */
static uint64_t place_columns(struct orderer *o) {
    uint64_t bitmap_bytes = hwi_align_up((o->row_count + 7) / 8, HWI_ORDERED_ALIGNMENT);
    uint64_t end =
        hwi_align_up(sizeof(struct hwi_ordered_header) + (o->column_count + 1) * sizeof *o->columns,
                     HWI_ORDERED_ALIGNMENT);
    for (uint32_t c = 0; c <= o->column_count; c++) {
        struct hwi_ordered_column *column = &o->columns[c];
        char format = c < o->column_count ? o->lanes[c].format : 'l';
        *column = (struct hwi_ordered_column){.format = (uint8_t)format, .values = end};
        end += format == 'b'
                   ? bitmap_bytes
                   : hwi_align_up(o->row_count * format_bytes(format), HWI_ORDERED_ALIGNMENT);
        if (c < o->column_count && o->lanes[c].has_nulls) {
            column->validity = end;
            end += bitmap_bytes;
        }
    }
    return end;
}

/* Values of one column of the records. */
static void gather(const struct lane *lane, const uint8_t *const *records, uint64_t count,
                   uint8_t *values) {
    switch (lane->bytes) {
    case 8:
        for (uint64_t i = 0; i < count; i++) {
            hwi_write_u64(values + 8 * i, hwi_read_u64(records[i] + lane->offset));
        }
        break;
    case 4:
        for (uint64_t i = 0; i < count; i++) {
            hwi_write_u32(values + 4 * i, hwi_read_u32(records[i] + lane->offset));
        }
        break;
    default:
        memset(values, 0, (size_t)((count + 7) / 8));
        for (uint64_t i = 0; i < count; i++) {
            if (records[i][lane->offset] != 0) {
                hwi_set_bit(values, i);
            }
        }
        break;
    }
}

/* Bits of the records in which a column has a value. */
static void gather_validity(const struct orderer *o, uint32_t c, const uint8_t *const *records,
                            uint64_t count, uint8_t *bits) {
    memset(bits, 0, (size_t)((count + 7) / 8));
    for (uint64_t i = 0; i < count; i++) {
        if (!is_null(o, records[i], c)) {
            hwi_set_bit(bits, i);
        }
    }
}

static hw_status write_chunk(const struct orderer *o, uint64_t first, uint64_t count,
                             const uint8_t *const *records, uint8_t *values, hw_error *error) {
    for (uint32_t c = 0; c < o->column_count; c++) {
        const struct hwi_ordered_column *column = &o->columns[c];
        int is_bool = column->format == 'b';
        uint64_t bytes = is_bool ? (count + 7) / 8 : count * o->lanes[c].bytes;
        uint64_t before = is_bool ? first / 8 : first * o->lanes[c].bytes;
        gather(&o->lanes[c], records, count, values);
        HW_TRY(write_at(o->fd, values, bytes, column->values + before, error));
        if (column->validity != 0) {
            gather_validity(o, c, records, count, values);
            HW_TRY(write_at(o->fd, values, (count + 7) / 8, column->validity + first / 8, error));
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        hwi_write_u64(values + 8 * i, first + i);
    }
    return write_at(o->fd, values, 8 * count, o->columns[o->column_count].values + 8 * first,
                    error);
}

static hw_status write_rows(const struct orderer *o, hw_error *error) {
    const uint8_t *records[HWI_ARROW_CHUNK_ROWS];
    uint8_t values[8 * HWI_ARROW_CHUNK_ROWS];
    const struct place *places = o->is_sorted ? NULL : (const struct place *)o->places[0].data;
    for (uint64_t first = 0; first < o->row_count; first += HWI_ARROW_CHUNK_ROWS) {
        uint64_t left = o->row_count - first;
        uint64_t count = left < HWI_ARROW_CHUNK_ROWS ? left : HWI_ARROW_CHUNK_ROWS;
        for (uint64_t i = 0; i < count; i++) {
            records[i] = record_of(o, places != NULL ? places[first + i].row : first + i);
            __builtin_prefetch(records[i]);
        }
        HW_TRY(write_chunk(o, first, count, records, values, error));
    }
    return HW_OK;
}

static hw_status write_file(struct orderer *o, const char *path, hw_error *error) {
    o->columns = calloc((size_t)o->column_count + 1, sizeof *o->columns);
    if (o->columns == NULL) {
        return hwi_no_memory(error, "columns of a file", o->column_count);
    }
    o->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (o->fd < 0) {
        return hwi_fail(error, HW_IO, "cannot create '%s': %s", path, strerror(errno));
    }
    struct hwi_ordered_header header = {.magic = HWI_ORDERED_MAGIC,
                                        .bytes = place_columns(o),
                                        .row_count = o->row_count,
                                        .column_count = o->column_count + 1};
    if (ftruncate(o->fd, (off_t)header.bytes) != 0) {
        return hwi_fail(error, HW_IO, "cannot make '%s' of %llu bytes: %s", path,
                        (unsigned long long)header.bytes, strerror(errno));
    }
    HW_TRY(write_at(o->fd, &header, sizeof header, 0, error));
    HW_TRY(write_at(o->fd, o->columns, (o->column_count + 1) * sizeof *o->columns, sizeof header,
                    error));
    HW_TRY(write_rows(o, error));
    if (fsync(o->fd) != 0) {
        return hwi_fail(error, HW_IO, "cannot sync '%s': %s", path, strerror(errno));
    }
    return HW_OK;
}

/* ---- all of it --------------------------------------------------------------------------- */

static hw_status order_rows(struct orderer *o, const char *path, const char *directory,
                            struct ArrowArrayStream *stream, hw_error *error) {
    HW_TRY(hwi_spill_open(&o->records, directory, error));
    HW_TRY(open_stream(o, stream, error));
    HW_TRY(take_rows(o, error));
    o->is_sorted = came_in_order(o);
    if (!o->is_sorted) {
        HW_TRY(sort_rows(o, directory, error));
    }
    HW_TRY(write_file(o, path, error));
    return hwi_sync_path(directory, error);
}

hw_status hw_order_rows(const char *path, struct ArrowArrayStream *stream, uint32_t column_count,
                        const hw_ordering *ordering, uint64_t *row_count, hw_error *error) {
    struct orderer o = {.ordering = ordering, .column_count = column_count, .fd = -1};
    const char *slash = strrchr(path, '/');
    char *directory = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
    hw_status status = HW_OK;
    if (directory == NULL) {
        status = hwi_no_memory(error, "a path", strlen(path));
    } else {
        status = order_rows(&o, path, directory, stream, error);
    }
    *row_count = o.row_count;
    if (o.fd >= 0) {
        close(o.fd);
    }
    if (o.fd >= 0 && status != HW_OK) {
        unlink(path);
    }
    hwi_arrow_close(&o.arrow);
    hwi_spill_close(&o.records);
    hwi_spill_close(&o.places[0]);
    hwi_spill_close(&o.places[1]);
    free(o.fields);
    free(o.lanes);
    free(o.chunk);
    free(o.columns);
    free(directory);
    return status;
}
