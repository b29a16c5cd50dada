/*
 * Reader of a table that hw_order_rows put in order; see ordered.h. Streams show the mapped file in
 * pieces of PIECE_ROWS rows, so a buffer starts at a whole byte of each bitmap. Whatever is out,
 * a stream or a column of a piece, keeps the map: a consumer may let go of them in any order and in
 * any thread.
 */
#define _DEFAULT_SOURCE 1

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"
#include "ordered.h"

#define PIECE_ROWS ((uint64_t)1 << 16)
#define ARROW_NULLABLE 2 /* of the interface */
#define NAME_BYTES 24u /* "c" and the number of a column */

struct hw_ordered {
    atomic_uint holder_count; /* the handle, streams, and columns of pieces */
    const uint8_t *data;
    uint64_t bytes;
    const struct hwi_ordered_header *header;
    const struct hwi_ordered_column *columns;
};

/* ---- the map ----------------------------------------------------------------------------- */

static void let_go(hw_ordered *rows) {
    if (atomic_fetch_sub(&rows->holder_count, 1) == 1) {
        munmap((void *)(uintptr_t)rows->data, (size_t)rows->bytes);
        free(rows);
    }
}

static hw_ordered *hold(hw_ordered *rows) {
    atomic_fetch_add(&rows->holder_count, 1);
    return rows;
}

static uint64_t value_bytes(uint8_t format, uint64_t row_count) {
    return format == 'b' ? (row_count + 7) / 8 : row_count * (format == 'i' ? 4 : 8);
}

static int lies_within(uint64_t start, uint64_t bytes, uint64_t end) {
    return start <= end && bytes <= end - start;
}

/* Whether header and columns are what hw_order_rows writes. */
static int is_whole(const hw_ordered *rows) {
    const struct hwi_ordered_header *header = rows->header;
    uint64_t room = rows->bytes - sizeof *header;
    if (header->magic != HWI_ORDERED_MAGIC || header->bytes != rows->bytes ||
        header->column_count == 0 || header->column_count > room / sizeof *rows->columns ||
        header->row_count > UINT32_MAX || header->column_count > UINT32_MAX) {
        return 0;
    }
    for (uint64_t c = 0; c < header->column_count; c++) {
        const struct hwi_ordered_column *column = &rows->columns[c];
        uint64_t bytes = value_bytes(column->format, header->row_count);
        if (column->format == 0 || strchr("bilg", column->format) == NULL ||
            !lies_within(column->values, bytes, rows->bytes) ||
            !lies_within(column->validity, (header->row_count + 7) / 8, rows->bytes)) {
            return 0;
        }
    }
    return 1;
}

static hw_status map_file(hw_ordered *rows, int fd, const char *path, hw_error *error) {
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return hwi_fail(error, HW_IO, "cannot read '%s': %s", path, strerror(errno));
    }
    if ((uint64_t)info.st_size < sizeof *rows->header) {
        return hwi_fail(error, HW_IO, "'%s' holds no rows in order: it is too short", path);
    }
    rows->bytes = (uint64_t)info.st_size;
    void *data = mmap(NULL, (size_t)rows->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        return hwi_fail(error, errno == ENOMEM ? HW_NO_MEMORY : HW_IO,
                        "cannot map %llu bytes of '%s': %s", (unsigned long long)rows->bytes, path,
                        strerror(errno));
    }
    rows->data = data;
    rows->header = data;
    rows->columns = (const struct hwi_ordered_column *)(rows->data + sizeof *rows->header);
    if (!is_whole(rows)) {
        munmap(data, (size_t)rows->bytes);
        return hwi_fail(error, HW_IO, "'%s' is not as it was written", path);
    }
    return HW_OK;
}

hw_status hw_ordered_open(const char *path, hw_ordered **rows, hw_error *error) {
    hw_ordered *opened = calloc(1, sizeof *opened);
    *rows = NULL;
    if (opened == NULL) {
        return hwi_no_memory(error, "rows in order", sizeof *opened);
    }
    atomic_init(&opened->holder_count, 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    hw_status status = HW_OK;
    if (fd < 0) {
        status = hwi_fail(error, HW_IO, "cannot open '%s': %s", path, strerror(errno));
    } else {
        status = map_file(opened, fd, path, error);
        close(fd);
    }
    if (status != HW_OK) {
        free(opened);
        return status;
    }
    *rows = opened;
    return HW_OK;
}

void hw_ordered_close(hw_ordered *rows) {
    if (rows != NULL) {
        let_go(rows);
    }
}

uint32_t hw_ordered_column_count(const hw_ordered *rows) {
    return (uint32_t)rows->header->column_count;
}

hw_status hwi_ordered_view(const hw_ordered *rows, uint32_t column, struct hwi_ordered_view *view,
                           hw_error *error) {
    if (column >= rows->header->column_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "column %u of rows in order, which have %llu",
                        column, (unsigned long long)rows->header->column_count);
    }
    const struct hwi_ordered_column *found = &rows->columns[column];
    *view = (struct hwi_ordered_view){
        .format = (char)found->format,
        .row_count = rows->header->row_count,
        .values = rows->data + found->values,
        .validity = found->validity != 0 ? rows->data + found->validity : NULL,
    };
    return HW_OK;
}

/* ---- Arrow ------------------------------------------------------------------------------- */

/* What a stream is at. */
struct reading {
    hw_ordered *rows;
    uint64_t next_row, column_count;
    uint32_t columns[]; /* [column_count] of the file */
};

/* A column of a piece that is out. */
struct shown {
    hw_ordered *rows;
    const void *buffers[2];
};

/* Children of a schema or an array, and the list of them that Arrow asks for. */
struct schema_children {
    struct ArrowSchema **list;
    struct ArrowSchema items[];
};

struct array_children {
    struct ArrowArray **list;
    struct ArrowArray items[];
};

static void release_column_schema(struct ArrowSchema *schema) {
    free(schema->private_data); /* its name */
    schema->release = NULL;
}

static void release_schema(struct ArrowSchema *schema) {
    struct schema_children *children = schema->private_data;
    for (int64_t c = 0; c < schema->n_children; c++) {
        if (children->items[c].release != NULL) {
            children->items[c].release(&children->items[c]);
        }
    }
    free(children->list);
    free(children);
    schema->release = NULL;
}

static const char *format_of(const struct reading *reading, uint64_t place) {
    uint8_t format = reading->rows->columns[reading->columns[place]].format;
    return format == 'b' ? "b" : format == 'i' ? "i" : format == 'l' ? "l" : "g";
}

/* Consumers look columns up by name, so each has its own, also where it is moved away. */
static int show_schema(const struct reading *reading, uint64_t place, struct ArrowSchema *out) {
    char *name = malloc(NAME_BYTES);
    if (name == NULL) {
        return -1;
    }
    snprintf(name, NAME_BYTES, "c%llu", (unsigned long long)place);
    *out = (struct ArrowSchema){.format = format_of(reading, place),
                                .name = name,
                                .flags = ARROW_NULLABLE,
                                .release = release_column_schema,
                                .private_data = name};
    return 0;
}

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    const struct reading *reading = stream->private_data;
    uint64_t count = reading->column_count;
    struct schema_children *children =
        calloc(1, sizeof *children + (size_t)count * sizeof children->items[0]);
    struct ArrowSchema **list = calloc((size_t)count, sizeof(void *));
    if (children == NULL || list == NULL) {
        free(children);
        free(list);
        return ENOMEM;
    }
    children->list = list;
    *out = (struct ArrowSchema){.format = "+s",
                                .name = "",
                                .children = list,
                                .release = release_schema,
                                .private_data = children};
    for (uint64_t c = 0; c < count; c++) {
        if (show_schema(reading, c, &children->items[c]) != 0) {
            release_schema(out);
            return ENOMEM;
        }
        list[c] = &children->items[c];
        out->n_children++;
    }
    return 0;
}

static void release_column(struct ArrowArray *array) {
    struct shown *shown = array->private_data;
    let_go(shown->rows); /* NOLINT(clang-analyzer-unix.Malloc): it does not count the holders */
    free(shown);
    array->release = NULL;
}

static void release_piece(struct ArrowArray *array) {
    struct array_children *children = array->private_data;
    for (int64_t c = 0; c < array->n_children; c++) {
        if (children->items[c].release != NULL) {
            children->items[c].release(&children->items[c]);
        }
    }
    free(children->list);
    free(children);
    array->release = NULL;
}

static int show_column(hw_ordered *rows, uint32_t c, uint64_t first, uint64_t row_count,
                       struct ArrowArray *out) {
    const struct hwi_ordered_column *column = &rows->columns[c];
    struct shown *shown = malloc(sizeof *shown);
    if (shown == NULL) {
        return -1;
    }
    shown->rows = hold(rows);
    shown->buffers[0] = column->validity != 0 ? rows->data + column->validity + first / 8 : NULL;
    shown->buffers[1] = rows->data + column->values + value_bytes(column->format, first);
    *out = (struct ArrowArray){.length = (int64_t)row_count,
                               .null_count = column->validity != 0 ? -1 : 0,
                               .n_buffers = 2,
                               .buffers = shown->buffers,
                               .release = release_column,
                               .private_data = shown};
    return 0;
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    static const void *no_validity[1] = {NULL};
    struct reading *reading = stream->private_data;
    hw_ordered *rows = reading->rows;
    uint64_t left = rows->header->row_count - reading->next_row, first = reading->next_row;
    uint64_t row_count = left < PIECE_ROWS ? left : PIECE_ROWS;
    uint64_t count = reading->column_count;
    *out = (struct ArrowArray){.release = NULL};
    if (row_count == 0) {
        return 0;
    }
    struct array_children *children =
        calloc(1, sizeof *children + (size_t)count * sizeof children->items[0]);
    struct ArrowArray **list = calloc((size_t)count, sizeof(void *));
    if (children == NULL || list == NULL) {
        free(children);
        free(list);
        return ENOMEM;
    }
    children->list = list;
    *out = (struct ArrowArray){.length = (int64_t)row_count,
                               .n_buffers = 1,
                               .buffers = no_validity,
                               .children = list,
                               .release = release_piece,
                               .private_data = children};
    for (uint64_t c = 0; c < count; c++) {
        if (show_column(rows, reading->columns[c], first, row_count, &children->items[c]) != 0) {
            release_piece(out);
            return ENOMEM;
        }
        list[c] = &children->items[c];
        out->n_children++;
    }
    reading->next_row += row_count;
    return 0;
}

static const char *get_last_error(struct ArrowArrayStream *stream) {
    (void)stream;
    return "out of memory";
}

static void release_stream(struct ArrowArrayStream *stream) {
    struct reading *reading = stream->private_data;
    let_go(reading->rows);
    free(reading);
    stream->release = NULL;
}

hw_status hw_ordered_stream(hw_ordered *rows, const uint32_t *columns, uint32_t column_count,
                            struct ArrowArrayStream *stream, hw_error *error) {
    uint64_t bytes = sizeof(struct reading) + column_count * sizeof *columns;
    *stream = (struct ArrowArrayStream){.release = NULL};
    struct hwi_ordered_view view;
    for (uint32_t c = 0; c < column_count; c++) {
        HW_TRY(hwi_ordered_view(rows, columns[c], &view, error));
    }
    struct reading *reading = malloc((size_t)bytes);
    if (reading == NULL) {
        return hwi_no_memory(error, "a stream", bytes);
    }
    *reading = (struct reading){.rows = hold(rows), .column_count = column_count};
    for (uint32_t c = 0; c < column_count; c++) {
        reading->columns[c] = columns[c];
    }
    *stream = (struct ArrowArrayStream){.get_schema = get_schema,
                                        .get_next = get_next,
                                        .get_last_error = get_last_error,
                                        .release = release_stream,
                                        .private_data = reading};
    return HW_OK;
}
