/*
 * Rows of a table from an Arrow stream into the spill, a column of a chunk at a time; texts go row
 * by row, because their numbers follow first appearance by (table, row, column).
 *
 * On the way each column's statistics are taken. Moments use what is known by stats_until: rows
 * whose time is at most that, which come in time order, so in every chunk those are a prefix, and
 * of a column that is known later those of them where it is known. If these are all equal, every
 * number of the column would be 0, a task's targets among them: then all of those rows count. All
 * sums are in row order and in double, so the result depends on the rows alone.
 */
#define _DEFAULT_SOURCE 1 /* strdup */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/sized.h"
#include "builder/arrow.h"
#include "builder/builder.h"

#define SUBJECT_BYTES 160u
#define MOMENT_COLUMNS 8u /* whose moments are added to at a time */

/* The stream of one table on its way in. */
struct rows_reader {
    hw_builder *b;
    struct hwi_build_table *table;
    char subject[SUBJECT_BYTES];
    struct hwi_arrow_field *fields;
    uint64_t field_count;
    struct cells *texts, *others; /* the text columns of the chunk, and those that are none */
    struct hwi_arrow arrow;
    uint64_t moment_count; /* rows of the chunk, from its start, that count for moments */
    int64_t last_time; /* of the rows before the chunk */
    uint8_t *rows; /* [HWI_ARROW_CHUNK_ROWS, spill_row_bytes] of the chunk */
    uint8_t times[8 * HWI_ARROW_CHUNK_ROWS];
    uint8_t key_ends[8 * HWI_ARROW_CHUNK_ROWS], key_hashes[8 * HWI_ARROW_CHUNK_ROWS];
};

int64_t hwi_build_row_time(const struct hwi_build_table *table, uint32_t row) {
    return (table->info.flags & HWI_TABLE_TEMPORAL)
               ? hwi_read_i64(table->times.data + 8 * (uint64_t)row)
               : INT64_MIN;
}

int64_t hwi_build_known_time(const hw_builder *b, const struct hwi_column_info *column,
                             int64_t row_time, const uint8_t *spilled_row) {
    int64_t told_us = INT64_MAX;
    if (column->known_kind == HWI_KNOWN_COLUMN) {
        const struct hwi_build_column *source = &b->columns[column->known_column];
        const uint8_t *nulls = spilled_row + b->tables[column->table].spill_null_offset;
        if (!hwi_bit(nulls, source->info.null_bit)) {
            told_us = hwi_read_i64(spilled_row + source->spill_offset);
        }
    }
    return hwi_known_time(column, row_time, told_us);
}

static uint32_t stored_count(const struct rows_reader *reader) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < reader->table->info.column_count; i++) {
        const struct hwi_build_column *column =
            &reader->b->columns[reader->table->info.column_start + i];
        count += column->info.null_bit != HWI_NONE;
    }
    return count;
}

static enum hwi_arrow_kind stype_kind(uint8_t stype) {
    switch ((hw_semantic_type)stype) {
    case HW_IDENTIFIER:
        return HWI_ARROW_PRESENCE;
    case HW_BOOLEAN:
        return HWI_ARROW_BOOL;
    case HW_NUMERICAL:
        return HWI_ARROW_NUMBER;
    case HW_TIMESTAMP:
    case HW_IGNORED:
        return HWI_ARROW_INT64;
    case HW_CATEGORICAL:
    case HW_TEXT:
        break;
    }
    return HWI_ARROW_TEXT;
}

/* What the stream must look like: time, key parts, stored columns. */
static hw_status list_fields(struct rows_reader *reader, hw_error *error) {
    const struct hwi_build_table *table = reader->table;
    uint64_t capacity = 1 + (uint64_t)table->key_part_count + table->info.column_count;
    reader->fields = calloc(capacity, sizeof *reader->fields);
    if (reader->fields == NULL) {
        return hwi_no_memory(error, "columns of a stream", capacity * sizeof *reader->fields);
    }
    struct hwi_arrow_field *field = reader->fields;
    if (table->info.flags & HWI_TABLE_TEMPORAL) {
        *field++ = (struct hwi_arrow_field){"(time)", HWI_ARROW_INT64};
    }
    for (uint32_t i = 0; i < table->key_part_count; i++) {
        *field++ = (struct hwi_arrow_field){"(primary key)", HWI_ARROW_KEY};
    }
    for (uint32_t i = 0; i < table->info.column_count; i++) {
        const struct hwi_build_column *column = &reader->b->columns[table->info.column_start + i];
        if (column->info.null_bit != HWI_NONE) {
            *field++ = (struct hwi_arrow_field){column->name, stype_kind(column->info.stype)};
        }
    }
    reader->field_count = (uint64_t)(field - reader->fields);
    return HW_OK;
}

/* Parts of the primary key are called as the stream calls them; those that have no name of their
 * own by their place. */
static hw_status name_keys(struct rows_reader *reader, hw_error *error) {
    struct hwi_build_table *table = reader->table;
    uint64_t first = (table->info.flags & HWI_TABLE_TEMPORAL) ? 1 : 0;
    table->key_names = calloc((size_t)table->key_part_count + 1, sizeof *table->key_names);
    for (uint32_t i = 0; i < table->key_part_count && table->key_names != NULL; i++) {
        const char *given = reader->arrow.schema.children[first + i]->name;
        int is_name = given != NULL && given[0] != 0 && hwi_is_utf8(given, strlen(given));
        for (uint32_t before = 0; before < i && is_name; before++) {
            is_name = strcmp(table->key_names[before], given) != 0;
        }
        char place[16];
        snprintf(place, sizeof place, i > 0 ? "key%u" : "key", i + 1);
        table->key_names[i] = strdup(is_name ? given : place);
        if (table->key_names[i] == NULL) {
            return hwi_no_memory(error, "a name", strlen(is_name ? given : place));
        }
    }
    return table->key_names == NULL ? hwi_no_memory(error, "names", table->key_part_count) : HW_OK;
}

static hw_status make_chunk(struct rows_reader *reader, hw_error *error) {
    size_t bytes = (size_t)HWI_ARROW_CHUNK_ROWS * reader->table->spill_row_bytes;
    reader->last_time = INT64_MIN;
    reader->rows = malloc(bytes + 1);
    return reader->rows == NULL ? hwi_no_memory(error, "rows of a chunk", bytes) : HW_OK;
}

static hw_status open_spills(struct rows_reader *reader, hw_error *error) {
    struct hwi_build_table *table = reader->table;
    const hw_builder *b = reader->b;
    uint64_t zero = 0;
    HW_TRY(hwi_spill_open(&table->rows, b->directory, error));
    if (table->info.flags & HWI_TABLE_TEMPORAL) {
        HW_TRY(hwi_spill_open(&table->times, b->directory, error));
    }
    if (table->info.flags & HWI_TABLE_KEYED) {
        HW_TRY(hwi_spill_open(&table->key_offsets, b->directory, error));
        HW_TRY(hwi_spill_append(&table->key_offsets, &zero, sizeof zero, error));
        HW_TRY(hwi_spill_open(&table->key_bytes, b->directory, error));
        HW_TRY(hwi_spill_open(&table->key_hashes, b->directory, error));
    }
    return HW_OK;
}

/* Effective times: as given, and where NULL before all (visible) or after all (hidden). */
static hw_status take_times(struct rows_reader *reader, hw_error *error) {
    struct hwi_build_table *table = reader->table;
    const struct hwi_arrow_column *column = &reader->arrow.columns[0];
    uint64_t row_count = reader->arrow.row_count, first_row = reader->arrow.first_row;
    int is_visible = (table->info.flags & HWI_TABLE_NULL_TIME_VISIBLE) != 0;
    int64_t previous = reader->last_time;
    uint64_t null_count = 0;
    reader->moment_count = 0;
    for (uint64_t i = 0; i < row_count; i++) {
        int is_null = hwi_arrow_is_null(column, i);
        int64_t time = is_visible ? INT64_MIN : INT64_MAX;
        if (!is_null) {
            time = hwi_arrow_int64(column, i);
        }
        if (time < previous || (!is_null && (time == INT64_MIN || time == INT64_MAX))) {
            return hwi_fail(error, HW_BAD_SOURCE,
                            "row %llu of table '%s' has time %lld after time %lld, expected rows "
                            "by time ascending, rows without time %s",
                            (unsigned long long)(first_row + i), table->name, (long long)time,
                            (long long)previous, is_visible ? "first" : "last");
        }
        null_count += (uint64_t)is_null;
        reader->moment_count += time <= reader->b->stats_until_us;
        hwi_write_i64(reader->times + 8 * i, time);
        previous = time;
    }
    reader->last_time = previous;
    table->info.timed_start += is_visible ? (uint32_t)null_count : 0;
    table->info.timed_count += (uint32_t)(row_count - null_count);
    return hwi_spill_write(&table->times, reader->times, 8 * row_count, error);
}

/* Key of one row: per part its length as uint32 and its bytes. */
static hw_status take_key(struct rows_reader *reader, uint64_t first_field, uint64_t row,
                          hw_error *error) {
    struct hwi_build_table *table = reader->table;
    struct hwi_spill *bytes = &table->key_bytes;
    uint64_t start = bytes->bytes;
    char digits[HWI_INTEGER_TEXT_BYTES];
    for (uint32_t part = 0; part < table->key_part_count; part++) {
        const char *text = NULL;
        uint32_t text_bytes = 0;
        uint8_t *at = NULL;
        if (hwi_arrow_is_null(&reader->arrow.columns[first_field + part], row)) {
            return hwi_fail(error, HW_BAD_SOURCE,
                            "row %llu of table '%s' has NULL in part %u of its primary key",
                            (unsigned long long)(reader->arrow.first_row + row), table->name, part);
        }
        HW_TRY(hwi_arrow_key(&reader->arrow, first_field + part, row, digits, &text, &text_bytes,
                             error));
        HW_TRY(hwi_spill_extend(bytes, sizeof text_bytes + (uint64_t)text_bytes, &at, error));
        hwi_write_u32(at, text_bytes);
        memcpy(at + sizeof text_bytes, text, text_bytes);
    }
    if (bytes->bytes - start > HWI_MAX_TEXT_BYTES) {
        return hwi_fail(error, HW_BAD_SOURCE,
                        "the key of row %llu of table '%s' has %llu bytes, "
                        "at most %u",
                        (unsigned long long)(reader->arrow.first_row + row), table->name,
                        (unsigned long long)(bytes->bytes - start), HWI_MAX_TEXT_BYTES);
    }
    return HW_OK;
}

static hw_status take_keys(struct rows_reader *reader, uint64_t first_field, hw_error *error) {
    struct hwi_build_table *table = reader->table;
    uint64_t row_count = reader->arrow.row_count;
    for (uint64_t i = 0; i < row_count; i++) {
        uint64_t start = table->key_bytes.bytes;
        HW_TRY(take_key(reader, first_field, i, error));
        uint64_t end = table->key_bytes.bytes;
        hwi_write_u64(reader->key_ends + 8 * i, end);
        hwi_write_u64(reader->key_hashes + 8 * i,
                      hw_hash64(table->key_bytes.data + start, (size_t)(end - start), 0));
    }
    HW_TRY(hwi_spill_write(&table->key_offsets, reader->key_ends, 8 * row_count, error));
    return hwi_spill_write(&table->key_hashes, reader->key_hashes, 8 * row_count, error);
}

/* ---- cells of one column of a chunk ------------------------------------------------------ */

/* One column of the chunk and where its values go: row i at lanes + i * stride. */
struct cells {
    struct rows_reader *reader;
    struct hwi_build_column *column;
    const struct hwi_arrow_column *values;
    uint64_t field, row_count;
    uint8_t *lanes, *nulls;
    uint64_t stride;
};

static inline void set_null(struct cells *cells, uint64_t row) {
    hwi_set_bit(cells->nulls + row * cells->stride, cells->column->info.null_bit);
    cells->column->stats.null_count++;
}

static void take_identifiers(struct cells *cells) {
    int is_bool = cells->values->format == 'b';
    for (uint64_t i = 0; i < cells->row_count; i++) {
        if (hwi_arrow_is_null(cells->values, i) || (is_bool && !hwi_arrow_bool(cells->values, i))) {
            set_null(cells, i);
        }
    }
}

static void take_numbers(struct cells *cells) {
    hw_column_stats stats = cells->column->stats;
    if (stats.value_count == 0) {
        stats.min = INFINITY;
        stats.max = -INFINITY;
    }
    for (uint64_t i = 0; i < cells->row_count; i++) {
        double value =
            hwi_arrow_is_null(cells->values, i) ? NAN : hwi_arrow_number(cells->values, i);
        if (!isfinite(value)) {
            hwi_set_bit(cells->nulls + i * cells->stride, cells->column->info.null_bit);
            stats.null_count++;
            continue;
        }
        hwi_write_f64(cells->lanes + i * cells->stride, value);
        stats.min = value < stats.min ? value : stats.min;
        stats.max = value > stats.max ? value : stats.max;
        stats.value_count++;
    }
    if (stats.value_count == 0) {
        stats.min = stats.max = 0;
    }
    cells->column->stats = stats;
}

static void take_timestamps(struct cells *cells) {
    hw_column_stats *stats = &cells->column->stats;
    for (uint64_t i = 0; i < cells->row_count; i++) {
        if (hwi_arrow_is_null(cells->values, i)) {
            set_null(cells, i);
            continue;
        }
        int64_t time = hwi_arrow_int64(cells->values, i);
        hwi_write_i64(cells->lanes + i * cells->stride, time);
        stats->min_us = stats->value_count == 0 || time < stats->min_us ? time : stats->min_us;
        stats->max_us = stats->value_count == 0 || time > stats->max_us ? time : stats->max_us;
        stats->value_count++;
    }
}

static inline void add_moment(struct hwi_moments *moments, const struct cells *cells,
                              uint64_t row) {
    const uint8_t *lane = cells->lanes + row * cells->stride;
    if (!hwi_bit(cells->nulls + row * cells->stride, cells->column->info.null_bit)) {
        hwi_moments_add(moments, cells->column->info.stype == HW_NUMERICAL
                                     ? hwi_read_f64(lane)
                                     : (double)hwi_read_i64(lane));
    }
}

/* Adds the first rows of the chunk to the moments of its numbers and times, row by row: a column's
 * next step waits for its last one, those of its neighbours need not. */
static void add_moments(struct cells *cells, uint32_t count) {
    struct hwi_moments moments[MOMENT_COLUMNS];
    for (uint32_t c = 0; c < count; c++) {
        moments[c] = cells[c].column->moments;
    }
    uint64_t row_count = count > 0 ? cells->reader->moment_count : 0;
    for (uint64_t i = 0; i < row_count; i++) {
        for (uint32_t c = 0; c < count; c++) {
            add_moment(&moments[c], &cells[c], i);
        }
    }
    for (uint32_t c = 0; c < count; c++) {
        cells[c].column->moments = moments[c];
    }
}

/* As add_moments, of a column that is known later than its row: of the rows where it is known. */
static void add_known_moments(struct cells *cells) {
    const struct rows_reader *reader = cells->reader;
    int is_temporal = (reader->table->info.flags & HWI_TABLE_TEMPORAL) != 0;
    for (uint64_t i = 0; i < reader->moment_count; i++) {
        int64_t row_time = is_temporal ? hwi_read_i64(reader->times + 8 * i) : INT64_MIN;
        if (hwi_build_known_time(reader->b, &cells->column->info, row_time,
                                 reader->rows + i * cells->stride) <= reader->b->stats_until_us) {
            add_moment(&cells->column->moments, cells, i);
        }
        add_moment(&cells->column->row_moments, cells, i);
    }
}

static void take_booleans(struct cells *cells) {
    for (uint64_t i = 0; i < cells->row_count; i++) {
        if (hwi_arrow_is_null(cells->values, i)) {
            set_null(cells, i);
            continue;
        }
        uint32_t value = (uint32_t)hwi_arrow_bool(cells->values, i);
        hwi_write_u32(cells->lanes + i * cells->stride, value);
        cells->column->stats.true_count += value;
    }
}

static hw_status take_category(struct cells *cells, uint64_t row, hw_error *error) {
    const struct rows_reader *reader = cells->reader;
    const char *text = NULL;
    uint32_t bytes = 0;
    HW_TRY(hwi_arrow_text(&reader->arrow, cells->field, row, &text, &bytes, error));
    uint32_t index = hwi_dictionary_find(&cells->column->categories, text, bytes);
    if (index == UINT32_MAX) {
        return hwi_fail(error, HW_BAD_SOURCE,
                        "column '%s.%s' holds '%.*s' in row %llu, which is not one of its %u "
                        "categories",
                        reader->table->name, cells->column->name, bytes < 100 ? (int)bytes : 100,
                        text, (unsigned long long)(reader->arrow.first_row + row),
                        cells->column->categories.count);
    }
    hwi_write_u32(cells->lanes + row * cells->stride, cells->column->info.category_start + index);
    return HW_OK;
}

static hw_status take_text(struct cells *cells, uint64_t row, hw_error *error) {
    const struct rows_reader *reader = cells->reader;
    const char *text = NULL;
    uint32_t bytes = 0, index = 0;
    HW_TRY(hwi_arrow_text(&reader->arrow, cells->field, row, &text, &bytes, error));
    HW_TRY(hwi_dictionary_add(&reader->b->texts, text, bytes, &index, error));
    hwi_write_u32(cells->lanes + row * cells->stride, index);
    return HW_OK;
}

static hw_status take_categories(struct cells *cells, hw_error *error) {
    for (uint64_t i = 0; i < cells->row_count; i++) {
        if (hwi_arrow_is_null(cells->values, i)) {
            set_null(cells, i);
        } else {
            HW_TRY(take_category(cells, i, error));
        }
    }
    return HW_OK;
}

static hw_status take_column(struct cells *cells, hw_error *error) {
    hw_column_stats *stats = &cells->column->stats;
    uint64_t null_count = stats->null_count;
    switch ((hw_semantic_type)cells->column->info.stype) {
    case HW_IDENTIFIER:
        take_identifiers(cells);
        break;
    case HW_NUMERICAL:
        take_numbers(cells);
        return HW_OK;
    case HW_TIMESTAMP:
    case HW_IGNORED:
        take_timestamps(cells);
        return HW_OK;
    case HW_BOOLEAN:
        take_booleans(cells);
        break;
    case HW_CATEGORICAL:
        HW_TRY(take_categories(cells, error));
        break;
    case HW_TEXT: /* take_texts */
        return HW_OK;
    }
    stats->value_count += cells->row_count - (stats->null_count - null_count);
    return HW_OK;
}

/* The text columns of the chunk together, row by row. */
static hw_status take_texts(struct cells *texts, uint32_t text_column_count, uint64_t row_count,
                            hw_error *error) {
    for (uint64_t i = 0; i < row_count; i++) {
        for (uint32_t c = 0; c < text_column_count; c++) {
            if (hwi_arrow_is_null(texts[c].values, i)) {
                set_null(&texts[c], i);
            } else {
                texts[c].column->stats.value_count++;
                HW_TRY(take_text(&texts[c], i, error));
            }
        }
    }
    return HW_OK;
}

static int has_moments(const struct hwi_build_column *column) {
    return column->info.stype == HW_NUMERICAL || column->info.stype == HW_TIMESTAMP ||
           column->info.stype == HW_IGNORED;
}

/* Of all columns of the chunk, once all are in its rows: when one is known may stand in another. */
static void take_moments(struct cells *cells, uint32_t column_count) {
    struct cells spreads[MOMENT_COLUMNS];
    uint32_t spread_count = 0;
    for (uint32_t i = 0; i < column_count; i++) {
        if (!has_moments(cells[i].column)) {
            continue;
        }
        if (cells[i].column->info.known_kind != HWI_KNOWN_CREATION) {
            add_known_moments(&cells[i]);
            continue;
        }
        spreads[spread_count++] = cells[i];
        if (spread_count == MOMENT_COLUMNS) {
            add_moments(spreads, spread_count);
            spread_count = 0;
        }
    }
    add_moments(spreads, spread_count);
}

static hw_status take_cells(struct rows_reader *reader, uint64_t first_field, hw_error *error) {
    struct hwi_build_table *table = reader->table;
    uint64_t row_count = reader->arrow.row_count, field = first_field;
    uint32_t other_count = 0, text_column_count = 0;
    uint64_t rows_bytes = row_count * table->spill_row_bytes;
    memset(reader->rows, 0, (size_t)rows_bytes);
    for (uint32_t i = 0; i < table->info.column_count; i++) {
        struct hwi_build_column *column = &reader->b->columns[table->info.column_start + i];
        if (column->info.null_bit == HWI_NONE) {
            continue;
        }
        struct cells cells = {
            .reader = reader,
            .column = column,
            .values = &reader->arrow.columns[field],
            .field = field,
            .row_count = row_count,
            .lanes = reader->rows + column->spill_offset,
            .nulls = reader->rows + table->spill_null_offset,
            .stride = table->spill_row_bytes,
        };
        field++;
        if (column->info.stype == HW_TEXT) {
            reader->texts[text_column_count++] = cells;
            continue;
        }
        HW_TRY(take_column(&cells, error));
        reader->others[other_count++] = cells;
    }
    take_moments(reader->others, other_count);
    HW_TRY(take_texts(reader->texts, text_column_count, row_count, error));
    return hwi_spill_write(&table->rows, reader->rows, rows_bytes, error);
}

static hw_status take_chunk(struct rows_reader *reader, hw_error *error) {
    struct hwi_build_table *table = reader->table;
    uint64_t field = 0, row_count = reader->arrow.row_count;
    if (row_count > HWI_MAX_ROWS - reader->b->row_count - table->info.row_count) {
        return hwi_fail(error, HW_BAD_SOURCE, "the store has more than %u rows, at table '%s'",
                        HWI_MAX_ROWS, table->name);
    }
    reader->moment_count = row_count;
    if (table->info.flags & HWI_TABLE_TEMPORAL) {
        HW_TRY(take_times(reader, error));
        field++;
    }
    if (table->key_part_count > 0) {
        HW_TRY(take_keys(reader, field, error));
        field += table->key_part_count;
    }
    HW_TRY(take_cells(reader, field, error));
    table->info.row_count += (uint32_t)row_count;
    return HW_OK;
}

static hw_status take_stream(struct rows_reader *reader, struct ArrowArrayStream *stream,
                             hw_error *error) {
    HW_TRY(list_fields(reader, error));
    HW_TRY(make_chunk(reader, error));
    HW_TRY(open_spills(reader, error));
    size_t column_count = stored_count(reader);
    reader->texts = calloc(2 * column_count + 1, sizeof *reader->texts);
    if (reader->texts == NULL) {
        return hwi_no_memory(error, "columns of a stream",
                             (2 * column_count + 1) * sizeof *reader->texts);
    }
    reader->others = reader->texts + column_count;
    hw_status status = hwi_arrow_open(&reader->arrow, stream, reader->subject, reader->fields,
                                      reader->field_count, error);
    if (status == HW_OK) {
        status = name_keys(reader, error);
    }
    while (status == HW_OK) {
        status = hwi_arrow_next(&reader->arrow, error);
        if (status != HW_OK || reader->arrow.row_count == 0) {
            break;
        }
        status = take_chunk(reader, error);
    }
    hwi_arrow_close(&reader->arrow);
    return status;
}

static void finish_table(struct rows_reader *reader) {
    hw_builder *b = reader->b;
    struct hwi_build_table *table = reader->table;
    for (uint32_t i = 0; i < table->info.column_count; i++) {
        struct hwi_build_column *column = &b->columns[table->info.column_start + i];
        column->info.value_count = column->stats.value_count;
        column->info.null_count = column->stats.null_count;
        if (column->info.stype == HW_NUMERICAL) {
            hwi_moments_result(&column->moments, &column->info.mean, &column->info.std);
            if (column->info.known_kind != HWI_KNOWN_CREATION && !(column->info.std > 0)) {
                hwi_moments_result(&column->row_moments, &column->info.mean, &column->info.std);
            }
            column->stats.mean = column->info.mean;
            column->stats.std = column->info.std;
        }
    }
    hwi_spill_seal(&table->rows);
    hwi_spill_seal(&table->times);
    hwi_spill_seal(&table->key_offsets);
    hwi_spill_seal(&table->key_bytes);
    hwi_spill_seal(&table->key_hashes);
    b->row_count += table->info.row_count;
    b->written_table_count++;
    table->written = 1;
}

hw_status hw_builder_write_rows(hw_builder *b, uint32_t table, struct ArrowArrayStream *stream,
                                hw_error *error) {
    HW_TRY(hwi_builder_start_write(b, error));
    if (table >= b->table_count || table != b->written_table_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "rows of table %u are written, expected table %u: tables come in declared "
                        "order, each once",
                        table, b->written_table_count);
    }
    struct rows_reader reader = {.b = b, .table = &b->tables[table]};
    reader.table->info.row_start = b->row_count;
    snprintf(reader.subject, sizeof reader.subject, "table '%s'", reader.table->name);
    hw_status status = take_stream(&reader, stream, error);
    free(reader.fields);
    free(reader.texts);
    free(reader.rows);
    if (status == HW_OK) {
        finish_table(&reader);
    }
    return hwi_builder_latch(b, status);
}

hw_status hw_builder_column_stats(const hw_builder *b, uint32_t column, hw_column_stats *stats,
                                  hw_error *error) {
    if (column >= b->column_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "statistics of column %u of %u", column,
                        b->column_count);
    }
    return HWI_GIVE(hw_column_stats, stats, &b->columns[column].stats, error);
}
