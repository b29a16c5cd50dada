/*
 * Names and metadata.json; see described.h. It reads these parts of metadata.json:
 *
 *     tables[t].primary_key                               names of columns, or of other parts
 *     tables[t].foreign_keys[k].references.columns        the same of the parent
 *     columns[c].stats.categories                         texts, in the order of their numbers
 *
 * The numbers t, k and c are those of schema.bin.
 */
#define _DEFAULT_SOURCE 1

#include "store/described.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"

/* More than any that schema.bin has room for; only damaged runs of columns repeat them so often. */
#define MOST_NAME_BYTES ((uint64_t)1 << 40)

hw_status hwi_on_demand_open(struct hwi_on_demand **on_demand, hw_error *error) {
    *on_demand = calloc(1, sizeof **on_demand);
    return *on_demand != NULL ? HW_OK : hwi_no_memory(error, "a store's words", sizeof **on_demand);
}

static void close_described(struct hwi_described *described) {
    if (described == NULL) {
        return;
    }
    free(described->name_bytes);
    free(described->names);
    free(described->category_bytes);
    free(described->categories);
    free(described->parent_columns);
    free(described->primary_keys);
    free(described->primary_key_starts);
    free(described);
}

void hwi_on_demand_close(struct hwi_on_demand *on_demand) {
    if (on_demand == NULL) {
        return;
    }
    close_described(atomic_load(&on_demand->described));
    free(atomic_load(&on_demand->metadata));
    free(on_demand);
}

/* ---- metadata.json ----------------------------------------------------------------------- */

static hw_status read_file(const struct hwi_file *file, char *text, hw_error *error) {
    for (uint64_t done = 0; done < file->bytes;) {
        ssize_t count = pread(file->fd, text + done, (size_t)(file->bytes - done), (off_t)done);
        if (count > 0) {
            done += (uint64_t)count;
        } else if (count == 0) {
            return hwi_fail(error, HW_BAD_STORE,
                            "the file became shorter since the store was opened (in '%s', byte "
                            "%llu)",
                            file->path, (unsigned long long)done);
        } else if (errno != EINTR) {
            return hwi_fail(error, HW_IO, "cannot read '%s': %s", file->path, strerror(errno));
        }
    }
    text[file->bytes] = 0;
    return HW_OK;
}

/* metadata.json, which is listed last. */
static const struct hwi_file *metadata_file(const hw_store *store) {
    return &store->files[store->file_count - 1];
}

static hw_status read_metadata(const hw_store *store, const char **metadata, hw_error *error) {
    const struct hwi_file *file = metadata_file(store);
    char *kept = atomic_load(&store->on_demand->metadata);
    if (kept != NULL) {
        *metadata = kept;
        return HW_OK;
    }
    char *text = malloc((size_t)file->bytes + 1);
    if (text == NULL) {
        return hwi_no_memory(error, "metadata.json", file->bytes);
    }
    hw_status status = read_file(file, text, error);
    if (status == HW_OK &&
        hw_hash64(text, (size_t)file->bytes, 0) != store->listed[store->file_count - 2].checksum) {
        status = hwi_fail(error, HW_BAD_STORE, "the file has a wrong checksum (in '%s', byte 0)",
                          file->path);
    }
    if (status != HW_OK) {
        free(text);
    } else if (atomic_compare_exchange_strong(&store->on_demand->metadata, &kept, text)) {
        *metadata = text;
    } else { /* another thread was faster */
        free(text);
        *metadata = kept;
    }
    return status;
}

hw_status hw_store_metadata(const hw_store *store, const char **text, size_t *bytes,
                            hw_error *error) {
    HW_TRY(read_metadata(store, text, error));
    *bytes = (size_t)metadata_file(store)->bytes;
    return HW_OK;
}

/* ---- names ------------------------------------------------------------------------------- */

/* The bytes of a key's name, "orders.customer_id+line": a table, and its columns. */
static uint64_t key_name_bytes(const hw_store *store, const struct hwi_key_info *key) {
    uint64_t bytes = (uint64_t)store->tables[key->child_table].info->name.bytes;
    for (uint32_t i = 0; i < key->column_count && bytes < MOST_NAME_BYTES; i++) {
        bytes += 1 + (uint64_t)store->columns[store->key_columns[key->column_start + i]].name.bytes;
    }
    return bytes;
}

static uint64_t all_name_bytes(const hw_store *store) {
    const struct hwi_store_info *info = store->info;
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < info->table_count; t++) {
        bytes += 1 + (uint64_t)store->tables[t].info->name.bytes;
    }
    for (uint32_t c = 0; c < info->column_count; c++) {
        bytes += 1 + (uint64_t)store->columns[c].name.bytes;
    }
    for (uint32_t k = 0; k < info->key_count && bytes < MOST_NAME_BYTES; k++) {
        bytes += 1 + key_name_bytes(store, &store->keys[k]);
    }
    for (uint32_t k = 0; k < info->task_count; k++) {
        bytes += 1 + (uint64_t)store->tasks[k].name.bytes;
    }
    return bytes;
}

static char *append(const hw_store *store, char *at, struct hwi_name name, char end) {
    memcpy(at, store->names + name.offset, name.bytes);
    at[name.bytes] = end;
    return at + name.bytes + 1;
}

static char *append_key(const hw_store *store, char *at, const struct hwi_key_info *key) {
    at = append(store, at, store->tables[key->child_table].info->name, '.');
    for (uint32_t i = 0; i < key->column_count; i++) {
        uint32_t column = store->key_columns[key->column_start + i];
        at = append(store, at, store->columns[column].name, i + 1 < key->column_count ? '+' : 0);
    }
    return at;
}

static hw_status make_names(const hw_store *store, struct hwi_described *made, hw_error *error) {
    const struct hwi_store_info *info = store->info;
    size_t count =
        (size_t)info->table_count + info->column_count + info->key_count + info->task_count;
    uint64_t bytes = all_name_bytes(store);
    char *at = made->name_bytes = bytes < MOST_NAME_BYTES ? malloc((size_t)bytes + 1) : NULL;
    const char **name = made->names = calloc(count + 1, sizeof *made->names);
    if (at == NULL || name == NULL) {
        return hwi_no_memory(error, "the names of a store", bytes);
    }
    made->table_names = name;
    for (uint32_t t = 0; t < info->table_count; t++) {
        *name++ = at;
        at = append(store, at, store->tables[t].info->name, 0);
    }
    made->column_names = name;
    for (uint32_t c = 0; c < info->column_count; c++) {
        *name++ = at;
        at = append(store, at, store->columns[c].name, 0);
    }
    made->key_names = name;
    for (uint32_t k = 0; k < info->key_count; k++) {
        *name++ = at;
        at = append_key(store, at, &store->keys[k]);
    }
    made->task_names = name;
    for (uint32_t k = 0; k < info->task_count; k++) {
        *name++ = at;
        at = append(store, at, store->tasks[k].name, 0);
    }
    return HW_OK;
}

/* ---- facts of metadata.json -------------------------------------------------------------- */

struct reading {
    const hw_store *store;
    struct hwi_described *made;
    struct hwi_json json;
    char *strings; /* room for the next string, in category_bytes */
    uint32_t primary_count; /* of made->primary_keys */
};

static void contradict(struct reading *r, const char *expected) {
    if (r->json.fault == NULL) {
        r->json.fault = expected;
    }
}

/* The number of the column of a table whose name is read here; HWI_NONE if it has none of that
 * name, as a builder's key need not be a column, and after a fault. */
static uint32_t read_column(struct reading *r, uint32_t table) {
    const struct hwi_table_info *info = r->store->tables[table].info;
    size_t bytes = 0;
    if (!hwi_json_string(&r->json, r->strings, &bytes)) {
        return HWI_NONE;
    }
    for (uint32_t c = info->column_start; c < info->column_start + info->column_count; c++) {
        struct hwi_name name = r->store->columns[c].name;
        if (name.bytes == bytes && memcmp(r->store->names + name.offset, r->strings, bytes) == 0) {
            return c;
        }
    }
    return HWI_NONE;
}

/* Unknown if a part of it is not a column. */
static void read_primary_key(struct reading *r, uint32_t table) {
    uint32_t first = r->primary_count, is_known = 1;
    hwi_json_enter(&r->json, '[');
    while (hwi_json_next(&r->json, ']')) {
        uint32_t column = read_column(r, table);
        is_known = is_known && column != HWI_NONE;
        if (is_known && r->primary_count == r->store->info->column_count) {
            contradict(r, "no column more than there are");
        } else if (is_known) {
            r->made->primary_keys[r->primary_count++] = column;
        }
    }
    r->primary_count = is_known ? r->primary_count : first;
}

static void read_references(struct reading *r, const struct hwi_key_info *key) {
    uint32_t *columns = r->made->parent_columns + key->column_start, count = 0, is_known = 1;
    hwi_json_enter(&r->json, '{');
    while (hwi_json_next(&r->json, '}')) {
        if (!hwi_json_is(&r->json, "columns")) {
            hwi_json_skip(&r->json);
            continue;
        }
        hwi_json_enter(&r->json, '[');
        while (hwi_json_next(&r->json, ']')) {
            if (count == key->column_count) {
                contradict(r, "as many columns as the key has");
            } else {
                columns[count] = read_column(r, key->parent_table);
                is_known = is_known && columns[count] != HWI_NONE;
                count++;
            }
        }
    }
    if (count != 0 && count != key->column_count) {
        contradict(r, "as many columns as the key has");
    }
    for (uint32_t i = 0; i < count && !is_known; i++) {
        columns[i] = HWI_NONE;
    }
}

static void read_keys(struct reading *r, const struct hwi_table_info *table) {
    uint32_t k = table->key_start;
    hwi_json_enter(&r->json, '[');
    while (hwi_json_next(&r->json, ']')) {
        if (k == table->key_start + table->key_count) {
            contradict(r, "as many foreign keys as the table has");
        }
        hwi_json_enter(&r->json, '{');
        while (hwi_json_next(&r->json, '}')) {
            if (hwi_json_is(&r->json, "references")) {
                read_references(r, &r->store->keys[k]);
            } else {
                hwi_json_skip(&r->json);
            }
        }
        k++;
    }
}

static void read_tables(struct reading *r) {
    uint32_t t = 0;
    hwi_json_enter(&r->json, '[');
    for (; hwi_json_next(&r->json, ']'); t++) {
        if (t == r->store->info->table_count) {
            contradict(r, "as many tables as the store has");
        }
        hwi_json_enter(&r->json, '{');
        while (hwi_json_next(&r->json, '}')) {
            if (hwi_json_is(&r->json, "primary_key")) {
                read_primary_key(r, t);
            } else if (hwi_json_is(&r->json, "foreign_keys")) {
                read_keys(r, r->store->tables[t].info);
            } else {
                hwi_json_skip(&r->json);
            }
        }
        if (r->json.fault == NULL) {
            r->made->primary_key_starts[t + 1] = r->primary_count;
        }
    }
    for (; t < r->store->info->table_count; t++) {
        r->made->primary_key_starts[t + 1] = r->primary_count;
    }
}

static void read_categories(struct reading *r, const struct hwi_column_info *column) {
    struct hwi_words *words = r->made->categories + column->category_start;
    uint32_t count = 0;
    size_t bytes = 0;
    hwi_json_enter(&r->json, '[');
    while (hwi_json_next(&r->json, ']')) {
        if (count == column->category_count) {
            contradict(r, "as many categories as the column has");
        } else if (hwi_json_string(&r->json, r->strings, &bytes)) {
            words[count++] = (struct hwi_words){.text = r->strings, .bytes = bytes};
            r->strings += bytes + 1;
        }
    }
    if (count != column->category_count) {
        contradict(r, "as many categories as the column has");
    }
}

static void read_stats(struct reading *r, const struct hwi_column_info *column) {
    hwi_json_enter(&r->json, '{');
    while (hwi_json_next(&r->json, '}')) {
        if (hwi_json_is(&r->json, "categories")) {
            read_categories(r, column);
        } else {
            hwi_json_skip(&r->json);
        }
    }
}

static void read_columns(struct reading *r) {
    hwi_json_enter(&r->json, '[');
    for (uint32_t c = 0; hwi_json_next(&r->json, ']'); c++) {
        if (c == r->store->info->column_count) {
            contradict(r, "as many columns as the store has");
        }
        hwi_json_enter(&r->json, '{');
        while (hwi_json_next(&r->json, '}')) {
            if (hwi_json_is(&r->json, "stats")) {
                read_stats(r, &r->store->columns[c]);
            } else {
                hwi_json_skip(&r->json);
            }
        }
    }
}

static hw_status make_lists(const hw_store *store, struct hwi_described *made, hw_error *error) {
    const struct hwi_store_info *info = store->info;
    size_t metadata_bytes = (size_t)metadata_file(store)->bytes;
    made->category_bytes = malloc(metadata_bytes + 1);
    made->categories = calloc((size_t)info->category_count + 1, sizeof *made->categories);
    made->parent_columns = malloc(((size_t)store->key_column_count + 1) * sizeof(uint32_t));
    made->primary_keys = calloc((size_t)info->column_count + 1, sizeof(uint32_t));
    made->primary_key_starts = calloc((size_t)info->table_count + 1, sizeof(uint32_t));
    if (made->category_bytes == NULL || made->categories == NULL || made->parent_columns == NULL ||
        made->primary_keys == NULL || made->primary_key_starts == NULL) {
        return hwi_no_memory(error, "the categories of a store", metadata_bytes);
    }
    memset(made->parent_columns, 0xff, store->key_column_count * sizeof(uint32_t));
    return HW_OK;
}

static hw_status describe(const hw_store *store, struct hwi_described *made, hw_error *error) {
    struct reading r = {.store = store, .made = made};
    HW_TRY(read_metadata(store, &r.json.text, error));
    HW_TRY(make_names(store, made, error));
    HW_TRY(make_lists(store, made, error));
    r.json.bytes = (size_t)metadata_file(store)->bytes;
    r.strings = made->category_bytes;
    hwi_json_enter(&r.json, '{');
    while (hwi_json_next(&r.json, '}')) {
        if (hwi_json_is(&r.json, "tables")) {
            read_tables(&r);
        } else if (hwi_json_is(&r.json, "columns")) {
            read_columns(&r);
        } else {
            hwi_json_skip(&r.json);
        }
    }
    return r.json.fault == NULL ? HW_OK
                                : hwi_fail(error, HW_BAD_STORE, "expected %s (in '%s', byte %zu)",
                                           r.json.fault, metadata_file(store)->path, r.json.at);
}

hw_status hwi_store_described(const hw_store *store, const struct hwi_described **described,
                              hw_error *error) {
    struct hwi_described *kept = atomic_load(&store->on_demand->described);
    if (kept != NULL) {
        *described = kept;
        return HW_OK;
    }
    struct hwi_described *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return hwi_no_memory(error, "the description of a store", sizeof *made);
    }
    hw_status status = describe(store, made, error);
    if (status != HW_OK) {
        close_described(made);
    } else if (atomic_compare_exchange_strong(&store->on_demand->described, &kept, made)) {
        *described = made;
    } else { /* another thread was faster */
        close_described(made);
        *described = kept;
    }
    return status;
}
