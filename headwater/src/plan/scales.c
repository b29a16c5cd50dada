/*
 * The scales of a sampler that splits by time: of what was known at the cutoff, as if the store had
 * been built with stats_until there. The store holds z-scores by what is known later; these are
 * scaled once more, z by z. One pass over the rows up to the cutoff.
 */
#include "plan/scales.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/search.h"

/* Of one column, or of all timestamps. */
struct column_moments {
    struct hwi_moments known; /* of what is known by the cutoff */
    struct hwi_moments late; /* of a column known later than its row: of all rows till then */
};

/* Rows of a table whose time is no later; all, where it has no times. */
static uint32_t rows_until(const struct hwi_table *table, int64_t until) {
    if (table->times == NULL || until == INT64_MAX) {
        return table->row_count;
    }
    return hwi_first_i64(table->times, table->row_count, until + 1);
}

static int has_moments(const struct hwi_column_info *column) {
    return column->stype == HW_NUMERICAL || column->stype == HW_TIMESTAMP;
}

/* Row by row, so that each record is read once. moments: [column_count of the table] */
static void measure_rows(const hw_store *store, const struct hwi_table *table, int64_t until,
                         struct column_moments *moments) {
    const struct hwi_table_info *info = table->info;
    const struct hwi_column_info *columns = store->columns + info->column_start;
    uint32_t count = rows_until(table, until);
    for (uint32_t local = 0; local < count; local++) {
        const uint8_t *record = table->records + (uint64_t)local * table->record_bytes;
        for (uint32_t c = 0; c < info->column_count; c++) {
            const struct hwi_column_info *column = &columns[c];
            if (!has_moments(column) || hwi_bit(record + info->null_offset, column->null_bit)) {
                continue;
            }
            const uint8_t *lane = record + column->lane_offset;
            double value = column->stype == HW_NUMERICAL ? (double)hwi_read_f32(lane)
                                                         : (double)hwi_read_i64(lane);
            if (column->known_kind == HWI_KNOWN_CREATION) {
                hwi_moments_add(&moments[c].known, value);
                continue;
            }
            hwi_moments_add(&moments[c].late, value);
            if (hwi_cell_known_time(store, table, local, column) <= until) {
                hwi_moments_add(&moments[c].known, value);
            }
        }
    }
}

/* Of what is known by then, unless that is all equal: then of all rows till then. */
static void take_result(const struct column_moments *moments, double *mean, double *std) {
    hwi_moments_result(&moments->known, mean, std);
    if (!(*std > 0) && moments->late.count > 0) {
        hwi_moments_result(&moments->late, mean, std);
    }
}

static void take_scale(const struct hwi_column_info *column, const struct column_moments *moments,
                       struct hwi_scale *scale) {
    take_result(moments, &scale->z_mean, &scale->z_std);
    if (moments->known.count + moments->late.count > 0) {
        scale->mean = column->mean + column->std * scale->z_mean;
        scale->std = column->std * scale->z_std;
    }
}

hw_status hwi_plan_scales(struct hwi_plan *plan, hw_error *error) {
    const hw_store *store = plan->store;
    const struct hwi_store_info *info = store->info;
    plan->time_mean_us = info->time_mean_us;
    plan->time_std_us = info->time_std_us;
    if (!plan->is_split_by_time || plan->time_split[0] >= info->stats_until_us) {
        return HW_OK;
    }
    struct column_moments *moments = calloc((size_t)info->column_count + 1, sizeof *moments);
    struct column_moments times = {.known = {.count = 0}};
    plan->scales = calloc((size_t)info->column_count + 1, sizeof *plan->scales);
    if (moments == NULL || plan->scales == NULL) {
        free(moments);
        return hwi_no_memory(error, "the scales of the columns",
                             info->column_count * sizeof *moments);
    }
    for (uint32_t t = 0; t < info->table_count; t++) {
        uint32_t start = store->tables[t].info->column_start;
        measure_rows(store, &store->tables[t], plan->time_split[0], moments + start);
    }
    for (uint32_t c = 0; c < info->column_count; c++) {
        if (store->columns[c].stype == HW_NUMERICAL) {
            take_scale(&store->columns[c], &moments[c], &plan->scales[c]);
        } else if (store->columns[c].stype == HW_TIMESTAMP) {
            hwi_moments_merge(&times.known, &moments[c].known);
            hwi_moments_merge(&times.late, &moments[c].late);
        }
    }
    take_result(&times, &plan->time_mean_us, &plan->time_std_us);
    free(moments);
    return HW_OK;
}

void hwi_column_scale(const struct hwi_plan *plan, uint32_t column, double *mean, double *std) {
    *mean = plan->scales != NULL ? plan->scales[column].mean : plan->store->columns[column].mean;
    *std = plan->scales != NULL ? plan->scales[column].std : plan->store->columns[column].std;
}
