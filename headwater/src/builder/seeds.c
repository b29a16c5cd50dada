/*
 * Seeds of a task from an Arrow stream into tasks/NNNNN.bin, which holds one section per field. The
 * stream comes row by row, so the rows are spilled and then written once per field.
 */
#include <math.h>
#include <stdio.h>

#include "base/bytes.h"
#include "builder/arrow.h"
#include "builder/builder.h"
#include "store/hashed_split.h"

enum seed_field { ANCHOR, OBS_TIME, TARGET, LABELLED, SPLIT, POSITION, KNOWN_AT, MOST_FIELDS };

struct seed {
    uint64_t target, hash;
    int64_t obs_time, label_time;
    uint32_t anchor, position;
    uint8_t state;
};

struct seeds_reader {
    hw_builder *b;
    const struct hwi_build_task *task;
    const struct hwi_build_table *anchor;
    struct hwi_build_column *target;
    char subject[200];
    struct hwi_arrow arrow;
    struct hwi_spill seeds; /* struct seed [count] */
    struct seed previous;
    uint64_t split_counts[HW_SPLIT_COUNT];
    uint64_t unlabelled_count;
    int64_t first_us, last_us;
    uint64_t count;
};

static hw_status bad_seed(const struct seeds_reader *reader, uint64_t row, const char *what,
                          hw_error *error) {
    return hwi_fail(error, HW_BAD_SOURCE, "seed %llu of %s %s",
                    (unsigned long long)(reader->arrow.first_row + row), reader->subject, what);
}

/* The label in the form of its semantic type; sets the label state. */
static hw_status take_target(struct seeds_reader *reader, uint64_t row, struct seed *seed,
                             hw_error *error) {
    const struct hwi_arrow_column *column = &reader->arrow.columns[TARGET];
    const struct hwi_arrow_column *labelled = &reader->arrow.columns[LABELLED];
    const char *text = NULL;
    uint32_t bytes = 0, index = 0;
    double number = 0;
    seed->state = HWI_LABEL_NONE;
    if (hwi_arrow_is_null(labelled, row) || !hwi_arrow_bool(labelled, row)) {
        return HW_OK;
    }
    seed->state = HWI_LABEL_NULL;
    if (hwi_arrow_is_null(column, row)) {
        return HW_OK;
    }
    switch (column->format) {
    case 'g':
        number = hwi_arrow_double(column, row);
        if (!isfinite(number)) {
            return HW_OK;
        }
        memcpy(&seed->target, &number, sizeof number);
        break;
    case 'l':
        seed->target = (uint64_t)hwi_arrow_int64(column, row);
        break;
    case 'b':
        seed->target = (uint64_t)hwi_arrow_bool(column, row);
        break;
    default:
        HW_TRY(hwi_arrow_text(&reader->arrow, TARGET, row, &text, &bytes, error));
        index = hwi_dictionary_find(&reader->target->categories, text, bytes);
        if (index == UINT32_MAX) {
            return hwi_fail(error, HW_BAD_SOURCE,
                            "seed %llu of %s has target '%.*s', which is not one of its %u "
                            "categories",
                            (unsigned long long)(reader->arrow.first_row + row), reader->subject,
                            bytes < 100 ? (int)bytes : 100, text, reader->target->categories.count);
        }
        seed->target = index;
        break;
    }
    seed->state = HWI_LABEL_VALUE;
    return HW_OK;
}

static int has_label_times(const struct seeds_reader *reader) {
    return (reader->task->info.flags & HWI_TASK_LABEL_TIMES) != 0;
}

/* How a sampler deals seeds by default: docs/reference/sampling.md, "Splits". */
static const hw_sampler_options DEFAULTS = {.split_ratios = {0.8, 0.1, 0.1}, .split_seed = 123};

static hw_status take_seed(struct seeds_reader *reader, uint64_t row, hw_error *error) {
    const struct hwi_arrow_column *columns = reader->arrow.columns;
    const struct hwi_build_table *anchor = reader->anchor;
    struct seed seed = {.obs_time = INT64_MAX, .label_time = INT64_MAX};
    uint32_t local = 0, split = HWI_SPLIT_HASHED;
    if (hwi_arrow_is_null(&columns[ANCHOR], row) || hwi_arrow_is_null(&columns[POSITION], row)) {
        return bad_seed(reader, row, "has no anchor or no position", error);
    }
    HW_TRY(hwi_arrow_index(&reader->arrow, ANCHOR, row, anchor->info.row_count, &local, error));
    HW_TRY(hwi_arrow_index(&reader->arrow, POSITION, row, HWI_NONE, &seed.position, error));
    HW_TRY(take_target(reader, row, &seed, error));
    if (!hwi_arrow_is_null(&columns[SPLIT], row)) {
        HW_TRY(hwi_arrow_index(&reader->arrow, SPLIT, row, HW_SPLIT_COUNT, &split, error));
    }
    if (!hwi_arrow_is_null(&columns[OBS_TIME], row)) {
        seed.obs_time = hwi_arrow_int64(&columns[OBS_TIME], row);
    }
    if (has_label_times(reader) && !hwi_arrow_is_null(&columns[KNOWN_AT], row)) {
        seed.label_time = hwi_arrow_int64(&columns[KNOWN_AT], row);
    }
    seed.anchor = anchor->info.row_start + local;
    seed.state = (uint8_t)(seed.state | split << 4);
    /* Without a primary key the row number stands in for it. */
    uint64_t number = local;
    seed.hash = (anchor->info.flags & HWI_TABLE_KEYED)
                    ? hwi_read_u64(anchor->key_hashes.data + 8 * (uint64_t)local)
                    : hw_hash64(&number, sizeof number, 0);
    if (split == HWI_SPLIT_HASHED) {
        split = hwi_hashed_split(&DEFAULTS, seed.hash, reader->task->info.name_hash);
    }
    reader->split_counts[split]++;
    reader->unlabelled_count += (seed.state & 15) == HWI_LABEL_NONE;
    if (seed.obs_time != INT64_MAX) {
        reader->first_us = seed.obs_time < reader->first_us ? seed.obs_time : reader->first_us;
        reader->last_us = seed.obs_time > reader->last_us ? seed.obs_time : reader->last_us;
    }
    if (reader->count > 0 &&
        (seed.anchor < reader->previous.anchor ||
         (seed.anchor == reader->previous.anchor && seed.obs_time < reader->previous.obs_time))) {
        return bad_seed(reader, row, "comes after a later one, expected order by (anchor, time)",
                        error);
    }
    if (reader->count >= HWI_NONE) {
        return bad_seed(reader, row, "is one too many", error);
    }
    reader->previous = seed;
    reader->count++;
    return hwi_spill_append(&reader->seeds, &seed, sizeof seed, error);
}

static hw_status take_stream(struct seeds_reader *reader, struct ArrowArrayStream *stream,
                             hw_error *error) {
    struct hwi_arrow_field fields[MOST_FIELDS] = {
        [ANCHOR] = {"anchor", HWI_ARROW_INTEGER},   [OBS_TIME] = {"obs_time", HWI_ARROW_INT64},
        [TARGET] = {"target", HWI_ARROW_DOUBLE},    [LABELLED] = {"labelled", HWI_ARROW_BOOL},
        [SPLIT] = {"split", HWI_ARROW_INTEGER},     [POSITION] = {"position", HWI_ARROW_INTEGER},
        [KNOWN_AT] = {"known_at", HWI_ARROW_INT64},
    };
    switch ((hw_semantic_type)reader->task->info.target_stype) {
    case HW_TIMESTAMP:
        fields[TARGET].kind = HWI_ARROW_INT64;
        break;
    case HW_BOOLEAN:
        fields[TARGET].kind = HWI_ARROW_BOOL;
        break;
    case HW_CATEGORICAL:
        fields[TARGET].kind = HWI_ARROW_TEXT;
        break;
    case HW_IDENTIFIER:
    case HW_NUMERICAL:
    case HW_TEXT:
    case HW_IGNORED:
        break;
    }
    uint32_t field_count = has_label_times(reader) ? MOST_FIELDS : KNOWN_AT;
    hw_status status =
        hwi_arrow_open(&reader->arrow, stream, reader->subject, fields, field_count, error);
    while (status == HW_OK) {
        status = hwi_arrow_next(&reader->arrow, error);
        if (status != HW_OK || reader->arrow.row_count == 0) {
            break;
        }
        for (uint64_t i = 0; i < reader->arrow.row_count && status == HW_OK; i++) {
            status = take_seed(reader, i, error);
        }
    }
    hwi_arrow_close(&reader->arrow);
    return status;
}

/* One field of all seeds as a section. */
static hw_status write_field(const struct seeds_reader *reader, struct hwi_writer *writer,
                             uint32_t section_kind, size_t offset, uint32_t bytes,
                             hw_error *error) {
    HW_TRY(hwi_writer_begin(writer, HWI_SECTION(section_kind, 0), bytes, error));
    for (uint64_t i = 0; i < reader->count; i++) {
        const uint8_t *seed = reader->seeds.data + i * sizeof(struct seed);
        HW_TRY(hwi_writer_append(writer, seed + offset, bytes, error));
    }
    return hwi_writer_end(writer, error);
}

static hw_status write_fields(const struct seeds_reader *reader, struct hwi_writer *writer,
                              hw_error *error) {
    HW_TRY(
        write_field(reader, writer, HWI_SECTION_ANCHORS, offsetof(struct seed, anchor), 4, error));
    HW_TRY(write_field(reader, writer, HWI_SECTION_OBS_TIMES, offsetof(struct seed, obs_time), 8,
                       error));
    HW_TRY(
        write_field(reader, writer, HWI_SECTION_TARGETS, offsetof(struct seed, target), 8, error));
    HW_TRY(write_field(reader, writer, HWI_SECTION_STATES, offsetof(struct seed, state), 1, error));
    HW_TRY(write_field(reader, writer, HWI_SECTION_SEED_HASHES, offsetof(struct seed, hash), 8,
                       error));
    HW_TRY(write_field(reader, writer, HWI_SECTION_POSITIONS, offsetof(struct seed, position), 4,
                       error));
    return has_label_times(reader) ? write_field(reader, writer, HWI_SECTION_LABEL_TIMES,
                                                 offsetof(struct seed, label_time), 8, error)
                                   : HW_OK;
}

hw_status hw_builder_seed_splits(const hw_builder *b, uint32_t task, uint64_t counts[3],
                                 hw_error *error) {
    if (task >= b->task_count || !b->tasks[task].written) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "seeds of task %u of %u, which are not written",
                        task, b->task_count);
    }
    memcpy(counts, b->tasks[task].split_counts, sizeof b->tasks[task].split_counts);
    return HW_OK;
}

hw_status hw_builder_write_seeds(hw_builder *b, uint32_t task, struct ArrowArrayStream *stream,
                                 hw_error *error) {
    HW_TRY(hwi_builder_start_write(b, error));
    if (task >= b->task_count || b->tasks[task].written) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "seeds of task %u of %u, each once", task,
                        b->task_count);
    }
    struct hwi_build_task *target = &b->tasks[task];
    struct seeds_reader reader = {
        .b = b,
        .task = target,
        .anchor = &b->tables[target->info.anchor_table],
        .target = &b->columns[target->info.target_column],
        .first_us = INT64_MAX,
        .last_us = INT64_MIN,
    };
    if (!reader.anchor->written) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "seeds of task '%s' are written before the rows of table '%s'",
                        target->name, reader.anchor->name);
    }
    struct hwi_writer writer = {.fd = -1};
    snprintf(reader.subject, sizeof reader.subject, "task '%s'", target->name);
    hw_status status = hwi_spill_open(&reader.seeds, b->directory, error);
    if (status == HW_OK) {
        status = take_stream(&reader, stream, error);
    }
    if (status == HW_OK) {
        uint32_t section_count = has_label_times(&reader) ? 7 : 6;
        status = hwi_writer_open(&writer, b->directory, HWI_FILE_TASK, task, section_count, error);
    }
    if (status == HW_OK) {
        status = write_fields(&reader, &writer, error);
    }
    status = hwi_writer_close(&writer, status, &target->file, error);
    target->info.seed_count = (uint32_t)reader.count;
    memcpy(target->split_counts, reader.split_counts, sizeof target->split_counts);
    target->unlabelled_count = reader.unlabelled_count;
    target->first_us = reader.first_us;
    target->last_us = reader.last_us;
    target->written = status == HW_OK;
    hwi_spill_close(&reader.seeds);
    return hwi_builder_latch(b, status);
}
