/*
 * The file between a source and the builder in which a table of numbers lies in its order
 * (hw_order_rows): columns as Arrow has them, so that hw_ordered_stream hands out what is mapped.
 * It lives as long as a build, on the machine that wrote it.
 */
#ifndef HWI_ORDERED_H
#define HWI_ORDERED_H

#include <assert.h>
#include <stdint.h>

#include "error.h"
#include "headwater.h"

#define HWI_ORDERED_MAGIC UINT64_C(0x31305357524f5748) /* "HWORWS01" */
#define HWI_ORDERED_ALIGNMENT 64u

struct hwi_ordered_header {
    uint64_t magic;
    uint64_t bytes; /* of the file */
    uint64_t row_count;
    uint64_t column_count; /* the last one, format l, holds the rows' numbers */
};
static_assert(sizeof(struct hwi_ordered_header) == 32, "no padding");

struct hwi_ordered_column {
    uint8_t format; /* of Arrow: b, i, l or g */
    uint8_t padding[7];
    uint64_t values; /* where they start in the file */
    uint64_t validity; /* the same of its bits; 0: nothing is NULL */
};
static_assert(sizeof(struct hwi_ordered_column) == 24, "no padding");

/* A column as it is mapped. */
struct hwi_ordered_view {
    char format;
    uint64_t row_count;
    const uint8_t *values;
    const uint8_t *validity; /* NULL: nothing is NULL */
};

/* Valid as long as the rows are open; HW_BAD_ARGUMENT if there is no such column. */
HWI_CHECK hw_status hwi_ordered_view(const hw_ordered *rows, uint32_t column,
                                     struct hwi_ordered_view *view, hw_error *error);

#endif
