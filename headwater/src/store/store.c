/* Questions that an open store answers in passing; see store.h. */
#include "store/store.h"

#include <math.h>
#include <string.h>

hw_status hwi_store_check_sizes(const hw_store *store, hw_error *error) {
    for (uint32_t i = 0; i < store->file_count; i++) {
        HW_TRY(hwi_file_check_size(&store->files[i], store->directory_fd, error));
    }
    return HW_OK;
}

const char *hwi_store_name(const hw_store *store, struct hwi_name name, char *buffer,
                           size_t buffer_bytes) {
    size_t bytes = name.bytes < buffer_bytes ? name.bytes : buffer_bytes - 1;
    memcpy(buffer, store->names + name.offset, bytes);
    buffer[bytes] = 0;
    return buffer;
}

static double cell_number(const hw_cell *cell, const struct hwi_column_info *info) {
    switch (cell->stype) {
    case HW_NUMERICAL:
    case HW_BOOLEAN:
        return cell->number;
    case HW_TIMESTAMP:
    case HW_IGNORED:
        return (double)cell->time_us;
    case HW_CATEGORICAL:
        return cell->index - info->category_start;
    case HW_TEXT:
        return cell->index;
    case HW_IDENTIFIER:
        break;
    }
    return 1;
}

hw_status hwi_store_number(const hw_store *store, uint32_t row, uint32_t column, double *number,
                           hw_error *error) {
    hw_cell cell = {.struct_bytes = sizeof cell};
    HW_TRY(hw_store_cell(store, row, column, &cell, error));
    *number = cell.is_null ? (double)NAN : cell_number(&cell, &store->columns[column]);
    return HW_OK;
}
