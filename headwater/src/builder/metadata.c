/*
 * The metadata.json of a build whose caller gave none: what the builder knows, under the names that
 * Python reads (headwater/store/metadata_shape.py lists them). Equal builds give equal bytes: no
 * path, no clock, and numbers that do not depend on the locale.
 */
#define _DEFAULT_SOURCE 1 /* gmtime_r */

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "builder/builder.h"

#define SECOND_US INT64_C(1000000)
#define FIRST_US INT64_C(-62135596800000000) /* the years 1 to 9999, which ISO 8601 writes */
#define LAST_US INT64_C(253402300799999999)

static const char *const STYPES[] = {"identifier",  "numerical", "timestamp", "boolean",
                                     "categorical", "text",      "ignored"};
static const char *const LABELS[] = {"", "train", "none", "all"}; /* hw_context_labels */

/* A document as it grows. Memory that ran out is noticed at its end. */
struct json {
    char *text;
    size_t bytes, capacity, wanted; /* wanted: bytes that there were not, else 0 */
};

static void put_bytes(struct json *json, const char *bytes, size_t count) {
    size_t needed = json->bytes + count;
    if (needed > json->capacity && json->wanted == 0) {
        char *larger = realloc(json->text, 2 * needed);
        json->wanted = larger == NULL ? 2 * needed : 0;
        json->text = larger == NULL ? json->text : larger;
        json->capacity = larger == NULL ? json->capacity : 2 * needed;
    }
    if (json->wanted == 0) {
        memcpy(json->text + json->bytes, bytes, count);
        json->bytes = needed;
    }
}

static void put(struct json *json, const char *text) {
    put_bytes(json, text, strlen(text));
}

__attribute__((format(printf, 2, 3))) static void put_format(struct json *json, const char *format,
                                                             ...) {
    char text[160]; /* numbers and words of this file: always enough */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put(json, text);
}

/* Texts are UTF-8: what a builder takes is checked. */
static void put_escaped(struct json *json, const char *text, size_t bytes) {
    size_t start = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte < 0x20 || byte == '"' || byte == '\\') {
            put_bytes(json, text + start, i - start);
            put_format(json, byte < 0x20 ? "\\u%04x" : "\\%c", byte);
            start = i + 1;
        }
    }
    put_bytes(json, text + start, bytes - start);
}

static void put_string(struct json *json, const char *text) {
    put(json, "\"");
    put_escaped(json, text, strlen(text));
    put(json, "\"");
}

/* A double that reads as the same double, with a point in every locale. */
static void put_number(struct json *json, const char *name, double value) {
    char text[40];
    snprintf(text, sizeof text, "%.17g", value);
    put_format(json, ", \"%s\": ", name);
    for (const char *at = text; *at != 0; at++) {
        if (strchr("+-0123456789e", *at) != NULL) {
            put_bytes(json, at, 1);
        } else if (at == text || strchr("+-0123456789e", at[-1]) != NULL) {
            put(json, "."); /* once for a separator of several bytes */
        }
    }
}

static void put_time(struct json *json, int64_t time_us) {
    time_us = time_us < FIRST_US ? FIRST_US : time_us > LAST_US ? LAST_US : time_us;
    int64_t us = (time_us % SECOND_US + SECOND_US) % SECOND_US;
    time_t seconds = (time_t)((time_us - us) / SECOND_US);
    struct tm date = {0};
    gmtime_r(&seconds, &date);
    put_format(json, "\"%04d-%02d-%02dT%02d:%02d:%02d", date.tm_year + 1900, date.tm_mon + 1,
               date.tm_mday, date.tm_hour, date.tm_min, date.tm_sec);
    if (us != 0) {
        put_format(json, ".%06d", (int)us);
    }
    put(json, "Z\"");
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void put_key_names(struct json *json, const struct hwi_build_table *table) {
    put(json, "[");
    for (uint32_t i = 0; i < table->key_part_count; i++) {
        put(json, i > 0 ? ", " : "");
        put_string(json, table->key_names[i]);
    }
    put(json, "]");
}

static void put_key(struct json *json, const hw_builder *b, const struct hwi_build_key *key) {
    const struct hwi_build_table *parent = &b->tables[key->info.parent_table];
    put(json, "{\"columns\": [");
    for (uint32_t i = 0; i < key->info.column_count; i++) {
        put(json, i > 0 ? ", " : "");
        put_string(json, b->columns[key->columns[i]].name);
    }
    put(json, "], \"references\": {\"table\": ");
    put_string(json, parent->name);
    put(json, ", \"columns\": ");
    put_key_names(json, parent);
    put_format(json, "}, \"edges\": %llu, \"dangling\": %llu, \"nulls\": %llu}",
               (unsigned long long)key->info.edge_count,
               (unsigned long long)key->info.dangling_count,
               (unsigned long long)key->info.null_count);
}

static void put_table(struct json *json, const hw_builder *b, const struct hwi_build_table *table) {
    const struct hwi_table_info *info = &table->info;
    int is_timed = (info->flags & HWI_TABLE_TEMPORAL) != 0;
    put(json, "{\"name\": ");
    put_string(json, table->name);
    put_format(json, ", \"row_range\": [%u, %u], \"column_range\": [%u, %u], \"primary_key\": ",
               info->row_start, info->row_start + info->row_count, info->column_start,
               info->column_start + info->column_count);
    put_key_names(json, table);
    put(json, ", \"temporal_column\": ");
    if (is_timed) {
        put_string(json, b->columns[info->temporal_column].name);
    } else {
        put(json, "null");
    }
    put_format(json, ", \"time_resolution\": \"%s\", \"null_time\": \"%s\", \"foreign_keys\": [",
               info->flags & HWI_TABLE_DAYS ? "day" : "instant",
               info->flags & HWI_TABLE_NULL_TIME_VISIBLE ? "visible" : "hidden");
    for (uint32_t i = 0; i < info->key_count; i++) {
        put(json, i > 0 ? ",\n   " : "\n   ");
        put_key(json, b, &b->keys[info->key_start + i]);
    }
    put_format(json,
               "], \"untimed\": %u, \"duplicates_dropped\": 0, \"null_values\": 0, "
               "\"conversions\": []}",
               is_timed ? info->row_count - info->timed_count : 0);
}

/* ---- columns --------------------------------------------------------------------------------- */

static void put_offset(struct json *json, int64_t offset_us) {
    static const struct {
        const char *name;
        int64_t us;
    } units[] = {{"day", 86400 * SECOND_US}, {"hour", 3600 * SECOND_US}, {"minute", 60 * SECOND_US},
                 {"second", SECOND_US},      {"millisecond", 1000},      {"microsecond", 1}};
    uint32_t unit = 0;
    while (offset_us % units[unit].us != 0) {
        unit++;
    }
    long long count = offset_us / units[unit].us;
    put_format(json, "\"%+lld %s%s\"", count, units[unit].name,
               count == 1 || count == -1 ? "" : "s");
}

static void put_known(struct json *json, const hw_builder *b, const struct hwi_column_info *info) {
    if (info->known_kind == HWI_KNOWN_CREATION) {
        return;
    }
    put(json, ", \"known_at\": ");
    if (info->known_kind == HWI_KNOWN_COLUMN) {
        put_string(json, b->columns[info->known_column].name);
    } else if (info->known_kind == HWI_KNOWN_OFFSET) {
        put_offset(json, info->known_offset_us);
    } else {
        put(json, "\"never\"");
    }
}

static void put_categories(struct json *json, const struct hwi_build_column *column) {
    put_format(json, ", \"cat_emb_start\": %u, \"categories\": [", column->info.category_start);
    for (uint32_t i = 0; i < column->info.category_count; i++) {
        uint32_t bytes = 0;
        const char *text = hwi_dictionary_text(&column->categories, i, &bytes);
        put(json, i > 0 ? ", \"" : "\"");
        put_escaped(json, text, bytes);
        put(json, "\"");
    }
    put(json, "]");
}

/* Statistics; the columns of a task have no cells. */
static void put_stats(struct json *json, const struct hwi_build_column *column) {
    const hw_column_stats *stats = &column->stats;
    put_format(json, "{\"count\": %llu, \"nulls\": %llu", (unsigned long long)stats->value_count,
               (unsigned long long)stats->null_count);
    if (column->info.stype == HW_NUMERICAL) {
        put_number(json, "mean", stats->mean);
        put_number(json, "std", stats->std);
        put_number(json, "min", stats->min);
        put_number(json, "max", stats->max);
    } else if (column->info.stype == HW_TIMESTAMP && stats->value_count > 0) {
        put(json, ", \"min\": ");
        put_time(json, stats->min_us);
        put(json, ", \"max\": ");
        put_time(json, stats->max_us);
    } else if (column->info.stype == HW_BOOLEAN && column->info.table != HWI_NONE) {
        put_format(json, ", \"true\": %llu, \"false\": %llu", (unsigned long long)stats->true_count,
                   (unsigned long long)(stats->value_count - stats->true_count));
    } else if (column->info.stype == HW_CATEGORICAL) {
        put_categories(json, column);
    }
    put(json, "}");
}

static void put_column(struct json *json, const hw_builder *b,
                       const struct hwi_build_column *column) {
    put(json, "{\"table\": ");
    if (column->info.table != HWI_NONE) {
        put_string(json, b->tables[column->info.table].name);
    } else {
        put(json, "null, \"task\": ");
        put_string(json, b->tasks[column->info.task].name);
    }
    put(json, ", \"name\": ");
    put_string(json, column->name);
    put_format(json, ", \"stype\": \"%s\"", STYPES[column->info.stype]);
    if (column->description != NULL) {
        put(json, ", \"description\": ");
        put_string(json, column->description);
    }
    put_known(json, b, &column->info);
    put(json, ", \"stats\": ");
    put_stats(json, column);
    put(json, "}");
}

/* ---- tasks ----------------------------------------------------------------------------------- */

/* As a sampler takes it by default. */
static const char *label_rule(const hw_builder *b, const struct hwi_task_info *info) {
    int is_key = 0;
    for (uint32_t k = 0; k < b->key_count && (info->flags & HWI_TASK_CELL); k++) {
        for (uint32_t i = 0; i < b->keys[k].info.column_count; i++) {
            is_key |= b->keys[k].columns[i] == info->target_column;
        }
    }
    hw_context_labels rule = is_key ? HW_LABELS_NONE : HW_LABELS_TRAIN;
    return LABELS[info->context_labels != HW_LABELS_DEFAULT ? info->context_labels : rule];
}

static void put_seeds(struct json *json, const struct hwi_build_task *task) {
    put_format(json, "{\"train\": %llu, \"val\": %llu, \"test\": %llu, \"unlabelled\": %llu}",
               (unsigned long long)task->split_counts[HW_TRAIN],
               (unsigned long long)task->split_counts[HW_VAL],
               (unsigned long long)task->split_counts[HW_TEST],
               (unsigned long long)task->unlabelled_count);
    put(json, ", \"obs_time_range\": ");
    if (task->first_us <= task->last_us) {
        put(json, "[");
        put_time(json, task->first_us);
        put(json, ", ");
        put_time(json, task->last_us);
        put(json, "]");
    } else {
        put(json, "null");
    }
}

static void put_task(struct json *json, const hw_builder *b, const struct hwi_build_task *task) {
    const struct hwi_task_info *info = &task->info;
    int is_cell = (info->flags & HWI_TASK_CELL) != 0;
    put(json, "{\"name\": ");
    put_string(json, task->name);
    put_format(json, ", \"kind\": \"%s\", \"anchor_table\": ", is_cell ? "cell" : "derived");
    put_string(json, b->tables[info->anchor_table].name);
    put(json, ", \"target_column\": ");
    put_string(json, b->columns[info->target_column].name);
    put_format(json, ", \"target_stype\": \"%s\", \"target_column_id\": %u, \"seeds\": ",
               STYPES[info->target_stype], info->target_column);
    put_seeds(json, task);
    put_format(json,
               ", \"split\": \"%s\", \"cutoff\": \"%s\", \"context_labels\": \"%s\", "
               "\"hidden_columns\": [",
               info->flags & HWI_TASK_GIVEN_SPLIT ? "given" : "hash",
               info->flags & HWI_TASK_EXCLUSIVE ? "exclusive" : "inclusive", label_rule(b, info));
    for (uint32_t i = 0; i < info->hidden_count; i++) {
        const struct hwi_build_column *column = &b->columns[task->hidden[i]];
        const char *table = b->tables[column->info.table].name;
        put(json, i > 0 ? ", \"" : "\"");
        put_escaped(json, table, strlen(table));
        put(json, ".");
        put_escaped(json, column->name, strlen(column->name));
        put(json, "\"");
    }
    put_format(json,
               "], \"sees_everything\": false, \"allow_future_anchor\": false, \"query\": null, "
               "\"rows\": %u, \"dropped\": {}, \"open_windows\": null, \"bad_targets\": 0}",
               info->seed_count);
}

/* ---- the document ---------------------------------------------------------------------------- */

static void put_document(struct json *json, const hw_builder *b) {
    put(json, "{\"name\": ");
    put_string(json, b->name);
    put_format(json, ", \"format_version\": %d, \"text\": {\"embedder\": ", HW_FORMAT_VERSION);
    put_string(json, b->embedder);
    put_format(json, ", \"dim\": %u, \"count\": %u}, \"stats_until\": ", b->text_dim,
               b->texts.count);
    if (b->stats_until_us == INT64_MAX) {
        put(json, "null");
    } else {
        put_time(json, b->stats_until_us);
    }
    put(json, ", \"csv_bytes\": 0, \"undecodable\": 0,\n \"tables\": [");
    for (uint32_t i = 0; i < b->table_count; i++) {
        put(json, i > 0 ? ",\n  " : "\n  ");
        put_table(json, b, &b->tables[i]);
    }
    put(json, "],\n \"columns\": [");
    for (uint32_t i = 0; i < b->column_count; i++) {
        put(json, i > 0 ? ",\n  " : "\n  ");
        put_column(json, b, &b->columns[i]);
    }
    put(json, "],\n \"tasks\": [");
    for (uint32_t i = 0; i < b->task_count; i++) {
        put(json, i > 0 ? ",\n  " : "\n  ");
        put_task(json, b, &b->tasks[i]);
    }
    put(json, "]}\n");
}

hw_status hwi_build_metadata(const hw_builder *b, char **text, size_t *bytes, hw_error *error) {
    struct json json = {.text = NULL};
    put_document(&json, b);
    if (json.wanted != 0) {
        free(json.text);
        return hwi_no_memory(error, "metadata.json", json.wanted);
    }
    *text = json.text;
    *bytes = json.bytes;
    return HW_OK;
}

/* ---- UTF-8 ----------------------------------------------------------------------------------- */

/* Bytes of the character that begins here; 0 if none does. */
static size_t character_bytes(const uint8_t *at, size_t left) {
    /* By the number of bytes: the least character that needs as many. */
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t bytes = at[0] < 0x80 ? 1 : at[0] < 0xc0 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (bytes == 0 || bytes > left || at[0] >= 0xf8) {
        return 0;
    }
    uint32_t character = bytes == 1 ? at[0] : at[0] & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
        character = character << 6 | (at[i] & 0x3f);
    }
    int is_surrogate = character >= 0xd800 && character < 0xe000;
    return character < least[bytes] || character > 0x10ffff || is_surrogate ? 0 : bytes;
}

int hwi_is_utf8(const char *text, size_t bytes) {
    const uint8_t *at = (const uint8_t *)text;
    while (bytes > 0) {
        size_t taken = character_bytes(at, bytes);
        if (taken == 0) {
            return 0;
        }
        at += taken;
        bytes -= taken;
    }
    return 1;
}
