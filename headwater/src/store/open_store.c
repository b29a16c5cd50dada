/*
 * Opening a store: manifest, schema.bin, then every file it lists. Each file is mapped, its
 * structure proved (format/file.c) and bound to the views of store.h. Cost is O(files): of the data
 * only schema.bin is read.
 */
#define _DEFAULT_SOURCE 1

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "format/file.h"
#include "format/file_names.h"
#include "format/manifest.h"
#include "store/checksums.h"
#include "store/described.h"
#include "store/schema_check.h"
#include "store/store.h"

#define MANIFEST_HEAD_BYTES 4096u /* the fingerprint stands within these */
#define WARM_UP_MAX_THREADS 64u
#define PAGE_STRIDE 4096u
#define OPEN_TRIES 1000 /* each but the last met a build that was published meanwhile */

/* ---- which directory --------------------------------------------------------------------- */

static hw_status read_manifest(struct hwi_file *manifest, char head[MANIFEST_HEAD_BYTES + 1],
                               const char *store_path, hw_error *error) {
    int fd = hwi_open_to_read(AT_FDCWD, manifest->path);
    struct stat info;
    if (fd < 0 && errno != ENOENT && errno != ENOTDIR) {
        return hwi_fail(error, HW_IO, "cannot open '%s': %s", manifest->path, strerror(errno));
    }
    if (fd < 0 && stat(store_path, &info) != 0) {
        return hwi_fail(error, HW_BAD_STORE, "cannot open store '%s': %s", store_path,
                        strerror(errno));
    }
    if (fd < 0) {
        return hwi_fail(
            error, HW_BAD_STORE,
            "'%s' is not a headwater store: it has neither manifest.json nor schema.bin",
            store_path);
    }
    hw_status status = hwi_file_identify(manifest, fd, error);
    ssize_t count = status == HW_OK ? read(fd, head, MANIFEST_HEAD_BYTES) : 0;
    if (count < 0) {
        status = hwi_fail(error, HW_IO, "cannot read '%s': %s", manifest->path, strerror(errno));
    }
    close(fd);
    head[count < 0 ? 0 : count] = 0;
    return status;
}

/* The 32 hex digits after "fingerprint", in a manifest that C wrote and Python may have. */
static hw_status find_fingerprint(const char *path, const char *head, char fingerprint[33],
                                  hw_error *error) {
    const char *at = hwi_manifest_value(head, "fingerprint");
    if (at != NULL && *at == '"' && hwi_is_fingerprint(at + 1) && at[33] == '"') {
        memcpy(fingerprint, at + 1, 32);
        fingerprint[32] = 0;
        return HW_OK;
    }
    return hwi_fail(error, HW_BAD_STORE, "the manifest names no fingerprint (in '%s', byte %zu)",
                    path, at == NULL ? 0 : (size_t)(at - head));
}

/* Sets store->directory, and store->fingerprint if a manifest named it. */
static hw_status find_directory(hw_store *store, const char *path, hw_error *error) {
    char *file = NULL, *head = NULL;
    char **manifest = &store->manifest.path;
    struct stat info;
    hw_status status = hwi_path_join(path, "schema.bin", &file, error);
    if (status == HW_OK && stat(file, &info) == 0) {
        free(file);
        store->directory = strdup(path);
        return store->directory != NULL ? HW_OK : hwi_no_memory(error, "a path", strlen(path));
    }
    free(file);
    if (status == HW_OK) {
        status = hwi_path_join(path, "manifest.json", manifest, error);
    }
    head = malloc(MANIFEST_HEAD_BYTES + 1);
    if (status == HW_OK && head == NULL) {
        status = hwi_no_memory(error, "the manifest", MANIFEST_HEAD_BYTES);
    }
    if (status == HW_OK) {
        status = read_manifest(&store->manifest, head, path, error);
    }
    if (status == HW_OK) {
        status = find_fingerprint(*manifest, head, store->fingerprint, error);
    }
    if (status == HW_OK) {
        status = hwi_path_join(path, store->fingerprint, &store->directory, error);
    }
    free(head);
    return status;
}

static hw_status open_directory(hw_store *store, hw_error *error) {
    store->directory_fd = open(store->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->directory_fd < 0) {
        return hwi_fail(error, errno == ENOENT || errno == ENOTDIR ? HW_BAD_STORE : HW_IO,
                        "cannot open '%s': %s", store->directory, strerror(errno));
    }
    return HW_OK;
}

/* ---- schema ------------------------------------------------------------------------------ */

/* A file whose sections are taken in their order, up to the first that is not as it must be. */
struct taker {
    struct hwi_file *file;
    hw_error *error;
    hw_status status;
};

/* Section `kind` of element `index`; NULL from the first fault on. actual_count may be NULL. */
static const void *take_one(struct taker *taker, uint32_t kind, uint32_t index,
                            size_t element_bytes, uint64_t count, uint64_t *actual_count) {
    const void *data = NULL;
    if (taker->status == HW_OK) {
        taker->status =
            hwi_file_section(taker->file, HWI_SECTION(kind, index), (uint32_t)element_bytes, count,
                             &data, actual_count, taker->error);
    }
    return taker->status == HW_OK ? data : NULL;
}

static const void *take(struct taker *taker, uint32_t kind, size_t element_bytes, uint64_t count) {
    return take_one(taker, kind, 0, element_bytes, count, NULL);
}

/* A section that alone knows its count. */
static const void *take_all(struct taker *taker, uint32_t kind, size_t element_bytes,
                            uint64_t *actual_count) {
    return take_one(taker, kind, 0, element_bytes, HWI_ANY_COUNT, actual_count);
}

static hw_status take_schema(struct hwi_file *file, struct hwi_schema *schema, hw_error *error) {
    struct taker taker = {.file = file, .error = error};
    const struct hwi_store_info *info = take(&taker, HWI_SECTION_STORE, sizeof *info, 1);
    HW_TRY(taker.status);
    schema->path = file->path;
    schema->info = info;
    schema->tables = take(&taker, HWI_SECTION_TABLES, sizeof *schema->tables, info->table_count);
    schema->columns =
        take(&taker, HWI_SECTION_COLUMNS, sizeof *schema->columns, info->column_count);
    schema->keys = take(&taker, HWI_SECTION_KEYS, sizeof *schema->keys, info->key_count);
    schema->key_columns = take_all(&taker, HWI_SECTION_KEY_COLUMNS, 4, &schema->key_column_count);
    schema->tasks = take(&taker, HWI_SECTION_TASKS, sizeof *schema->tasks, info->task_count);
    schema->hidden = take_all(&taker, HWI_SECTION_HIDDEN, 4, &schema->hidden_count);
    schema->files = take_all(&taker, HWI_SECTION_FILES, sizeof *schema->files, &schema->file_count);
    schema->names = take_all(&taker, HWI_SECTION_NAMES, 1, &schema->names_bytes);
    HW_TRY(taker.status);
    return hwi_file_no_more(file, error);
}

/* The build id follows from the contents, and the manifest must mean this build. */
static hw_status check_fingerprint(hw_store *store, const struct hwi_file *file,
                                   const struct hwi_schema *schema, hw_error *error) {
    uint8_t build_id[16];
    char fingerprint[33];
    hwi_fingerprint(schema->files, (uint32_t)schema->file_count, file->header->header_checksum,
                    build_id);
    if (memcmp(build_id, file->header->build_id, sizeof build_id) != 0) {
        return hwi_fail(error, HW_BAD_STORE,
                        "the build id is not that of the contents (in '%s', byte %u)", file->path,
                        (unsigned)offsetof(struct hwi_file_header, build_id));
    }
    hwi_fingerprint_text(build_id, fingerprint);
    if (store->fingerprint[0] != 0 && strcmp(store->fingerprint, fingerprint) != 0) {
        return hwi_fail(error, HW_BAD_STORE,
                        "the manifest names build %s, the files are of build %s (in '%s')",
                        store->fingerprint, fingerprint, file->path);
    }
    memcpy(store->fingerprint, fingerprint, sizeof fingerprint);
    return HW_OK;
}

static hw_status open_schema(hw_store *store, struct hwi_file *file, struct hwi_schema *schema,
                             hw_load load, hw_error *error) {
    HW_TRY(hwi_file_open(file, store->directory, HWI_FILE_SCHEMA, 0, load, error));
    HW_TRY(hwi_file_check_contents(file, error));
    HW_TRY(take_schema(file, schema, error));
    HW_TRY(hwi_schema_check(schema, error));
    HW_TRY(check_fingerprint(store, file, schema, error));
    store->info = schema->info;
    store->columns = schema->columns;
    store->keys = schema->keys;
    store->key_columns = schema->key_columns;
    store->key_column_count = schema->key_column_count;
    store->tasks = schema->tasks;
    store->hidden = schema->hidden;
    store->names = schema->names;
    store->names_bytes = schema->names_bytes;
    return HW_OK;
}

/* ---- the other files --------------------------------------------------------------------- */

static void bind_table(struct taker *taker, hw_store *store, uint32_t t) {
    struct hwi_table *table = &store->tables[t];
    table->records = take(taker, HWI_SECTION_RECORDS, table->info->record_bytes, table->row_count);
    if (table->info->flags & HWI_TABLE_TEMPORAL) {
        table->times = take(taker, HWI_SECTION_TIMES, 8, table->row_count);
    }
}

static void bind_graph(struct taker *taker, hw_store *store) {
    for (uint32_t t = 0; t < store->info->table_count; t++) {
        struct hwi_table *table = &store->tables[t];
        uint64_t edge_count = table->info->edge_count;
        if (table->info->child_slot_count == 0) {
            continue;
        }
        table->children = take_one(taker, HWI_SECTION_CHILDREN, t, 4, edge_count, NULL);
        if (table->info->flags & HWI_TABLE_CHILD_TIMES) {
            table->child_times = take_one(taker, HWI_SECTION_CHILD_TIMES, t, 8, edge_count, NULL);
        }
    }
}

static void bind_task(struct taker *taker, hw_store *store, uint32_t k) {
    hw_seeds *seeds = &store->seeds[k];
    uint32_t count = store->tasks[k].seed_count;
    seeds->count = count;
    seeds->anchors = take(taker, HWI_SECTION_ANCHORS, 4, count);
    seeds->obs_times = take(taker, HWI_SECTION_OBS_TIMES, 8, count);
    seeds->targets = take(taker, HWI_SECTION_TARGETS, 8, count);
    seeds->states = take(taker, HWI_SECTION_STATES, 1, count);
    seeds->key_hashes = take(taker, HWI_SECTION_SEED_HASHES, 8, count);
    seeds->positions = take(taker, HWI_SECTION_POSITIONS, 4, count);
    if (store->tasks[k].flags & HWI_TASK_LABEL_TIMES) {
        seeds->label_times = take(taker, HWI_SECTION_LABEL_TIMES, 8, count);
    }
}

static void bind_keys(struct taker *taker, hw_store *store) {
    for (uint32_t t = 0; t < store->info->table_count; t++) {
        struct hwi_table *table = &store->tables[t];
        uint64_t count = table->info->row_count;
        if (!(table->info->flags & HWI_TABLE_KEYED)) {
            continue;
        }
        table->key_offsets = take_one(taker, HWI_SECTION_KEY_OFFSETS, t, 8, count + 1, NULL);
        table->key_bytes =
            take_one(taker, HWI_SECTION_KEY_BYTES, t, 1, HWI_ANY_COUNT, &table->key_bytes_count);
        table->key_order = take_one(taker, HWI_SECTION_KEY_ORDER, t, 4, count, NULL);
        table->key_hashes = take_one(taker, HWI_SECTION_KEY_HASHES, t, 8, count, NULL);
    }
}

static void bind_texts(struct taker *taker, hw_store *store) {
    store->text_offsets =
        take(taker, HWI_SECTION_TEXT_OFFSETS, 8, (uint64_t)store->info->text_count + 1);
    store->text_bytes = take_all(taker, HWI_SECTION_TEXT_BYTES, 1, &store->text_bytes_count);
}

static void bind_vectors(struct taker *taker, hw_store *store, uint32_t kind, uint64_t count) {
    store->vector_counts[kind] = count;
    store->vectors[kind] =
        take(taker, HWI_SECTION_VECTORS, 2 * (size_t)store->info->text_dim, count);
}

static hw_status bind_file(hw_store *store, struct hwi_file *file, hw_error *error) {
    struct taker taker = {.file = file, .error = error};
    switch ((enum hwi_file_kind)file->kind) {
    case HWI_FILE_TABLE:
        bind_table(&taker, store, file->index);
        break;
    case HWI_FILE_GRAPH:
        bind_graph(&taker, store);
        break;
    case HWI_FILE_TASK:
        bind_task(&taker, store, file->index);
        break;
    case HWI_FILE_TEXT_EMBEDDINGS:
        bind_vectors(&taker, store, HW_EMBED_TEXTS, store->info->text_count);
        break;
    case HWI_FILE_COLUMN_EMBEDDINGS:
        bind_vectors(&taker, store, HW_EMBED_COLUMNS, store->info->column_count);
        break;
    case HWI_FILE_CATEGORY_EMBEDDINGS:
        bind_vectors(&taker, store, HW_EMBED_CATEGORIES, store->info->category_count);
        break;
    case HWI_FILE_KEYS:
        bind_keys(&taker, store);
        break;
    case HWI_FILE_TEXTS:
        bind_texts(&taker, store);
        break;
    case HWI_FILE_SCHEMA:
    case HWI_FILE_METADATA:
        break;
    }
    HW_TRY(taker.status);
    return hwi_file_no_more(file, error);
}

/* Opens a listed file and proves that it is the one that schema.bin means. */
static hw_status open_listed(hw_store *store, struct hwi_file *file,
                             const struct hwi_file_info *listed, const struct hwi_file *schema,
                             hw_error *error) {
    HW_TRY(hwi_file_open(file, store->directory, listed->kind, listed->index, schema->load, error));
    if (file->bytes != listed->file_bytes) {
        return hwi_fail(
            error, HW_BAD_STORE, "the file has %llu bytes, schema.bin lists it with %llu (in '%s')",
            (unsigned long long)file->bytes, (unsigned long long)listed->file_bytes, file->path);
    }
    if (file->data == NULL) {
        return HW_OK; /* metadata.json: its contents are for verify */
    }
    if (memcmp(file->header->build_id, schema->header->build_id, sizeof schema->header->build_id) ||
        file->header->header_checksum != listed->checksum) {
        return hwi_fail(error, HW_BAD_STORE,
                        "the file belongs to another build than schema.bin (in '%s', byte %u)",
                        file->path, (unsigned)offsetof(struct hwi_file_header, build_id));
    }
    return bind_file(store, file, error);
}

/* Views of the tables without their data, and incoming keys by child slot. */
static hw_status make_views(hw_store *store, const struct hwi_schema *schema, hw_error *error) {
    const struct hwi_store_info *info = schema->info;
    store->tables = calloc((size_t)info->table_count + 1, sizeof *store->tables);
    store->seeds = calloc((size_t)info->task_count + 1, sizeof *store->seeds);
    store->incoming = calloc((size_t)info->key_count + 1, sizeof *store->incoming);
    if (store->tables == NULL || store->seeds == NULL || store->incoming == NULL) {
        return hwi_no_memory(error, "the views of a store",
                             (uint64_t)info->table_count * sizeof *store->tables);
    }
    uint32_t *incoming = store->incoming;
    for (uint32_t t = 0; t < info->table_count; t++) {
        const struct hwi_table_info *table = &schema->tables[t];
        store->tables[t] = (struct hwi_table){
            .info = table,
            .row_start = table->row_start,
            .row_count = table->row_count,
            .record_bytes = table->record_bytes,
            .child_offset = table->child_offset,
            .key_start = table->key_start,
            .key_count = table->key_count,
            .child_slot_count = table->child_slot_count,
            .incoming = incoming,
        };
        incoming += table->child_slot_count;
    }
    for (uint32_t k = 0; k < info->key_count; k++) {
        const struct hwi_key_info *key = &schema->keys[k];
        uint64_t first = (uint64_t)(store->tables[key->parent_table].incoming - store->incoming);
        store->incoming[first + key->child_slot] = k;
    }
    return HW_OK;
}

static hw_status open_files(hw_store *store, struct hwi_file *schema_file, hw_load load,
                            hw_error *error) {
    struct hwi_schema schema = {0};
    HW_TRY(open_schema(store, schema_file, &schema, load, error));
    HW_TRY(make_views(store, &schema, error));
    store->files = calloc((size_t)schema.file_count + 1, sizeof *store->files);
    if (store->files == NULL) {
        return hwi_no_memory(error, "the files of a store",
                             schema.file_count * sizeof *store->files);
    }
    /* schema.bin moves into the list, which closes it from now on. */
    store->listed = schema.files;
    store->files[0] = *schema_file;
    *schema_file = (struct hwi_file){.fd = -1};
    store->file_count = 1;
    for (uint32_t i = 0; i < schema.file_count; i++) {
        struct hwi_file *file = &store->files[store->file_count++];
        HW_TRY(open_listed(store, file, &schema.files[i], &store->files[0], error));
    }
    return HW_OK;
}

/* Whether another manifest is there than the one that named the build. A build that was published
 * meanwhile removes the one before it, also under whoever opens its files. */
static int is_published_anew(const struct hwi_file *manifest) {
    struct stat info;
    struct hwi_file now = {.fd = -1};
    if (manifest->path == NULL || manifest->inode == 0 || stat(manifest->path, &info) != 0) {
        return 0;
    }
    hwi_file_tell_apart(&now, &info);
    return now.device != manifest->device || now.inode != manifest->inode ||
           now.changed_ns != manifest->changed_ns;
}

static hw_status open_once(const char *path, hw_load load, hw_store **store, int *is_outdated,
                           hw_error *error) {
    struct hwi_file schema_file = {.fd = -1};
    hw_store *opened = calloc(1, sizeof *opened);
    if (opened == NULL) {
        return hwi_no_memory(error, "a store", sizeof *opened);
    }
    atomic_init(&opened->reference_count, 1);
    opened->directory_fd = -1;
    opened->manifest.fd = -1;
    hw_status status = find_directory(opened, path, error);
    if (status == HW_OK) {
        status = hwi_on_demand_open(&opened->on_demand, error);
    }
    if (status == HW_OK) {
        status = open_files(opened, &schema_file, load, error);
    }
    if (status == HW_OK) {
        status = open_directory(opened, error);
    }
    hwi_file_close(&schema_file);
    if (status != HW_OK) {
        *is_outdated = is_published_anew(&opened->manifest);
        hw_store_close(opened);
        return status;
    }
    *store = opened;
    return HW_OK;
}

hw_status hw_store_open(const char *path, hw_load load, hw_store **store, hw_error *error) {
    hw_status status = HW_OK;
    if (path == NULL || store == NULL || (unsigned)load > HW_LOAD_RAM) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "hw_store_open: no path, no output or load %u",
                        (unsigned)load);
    }
    for (int tries = 0; tries < OPEN_TRIES; tries++) {
        int is_outdated = 0;
        status = open_once(path, load, store, &is_outdated, error);
        if (status == HW_OK || !is_outdated) {
            break;
        }
    }
    return status;
}

void hw_store_close(hw_store *store) {
    if (store == NULL || atomic_fetch_sub(&store->reference_count, 1) != 1) {
        return;
    }
    for (uint32_t i = 0; i < store->file_count; i++) {
        hwi_file_close(&store->files[i]);
    }
    if (store->directory_fd >= 0) {
        close(store->directory_fd);
    }
    hwi_file_close(&store->manifest);
    hwi_on_demand_close(store->on_demand);
    free(store->files);
    free(store->tables);
    free(store->seeds);
    free(store->incoming);
    free(store->directory);
    free(store);
}

hw_store *hw_store_retain(hw_store *store) {
    atomic_fetch_add(&store->reference_count, 1);
    return store;
}

/* ---- warm-up ----------------------------------------------------------------------------- */

/* Threads take pages of each file in turn: thread i page i, i + n, ... */
struct warmer {
    const hw_store *store;
    uint32_t index, thread_count;
    uint64_t sum; /* so that the reads are not left out */
};

static void *warm_pages(void *context) {
    struct warmer *warmer = context;
    uint64_t step = (uint64_t)PAGE_STRIDE * warmer->thread_count;
    for (uint32_t i = 0; i < warmer->store->file_count; i++) {
        const struct hwi_file *file = &warmer->store->files[i];
        const volatile uint8_t *data = file->data;
        uint64_t start = (uint64_t)PAGE_STRIDE * warmer->index;
        for (uint64_t at = start; data != NULL && at < file->bytes; at += step) {
            warmer->sum += data[at];
        }
    }
    return NULL;
}

hw_status hw_store_warm_up(const hw_store *store, uint32_t threads, hw_error *error) {
    struct warmer warmers[WARM_UP_MAX_THREADS];
    pthread_t ids[WARM_UP_MAX_THREADS];
    uint32_t started = 0;
    threads = threads == 0 ? 1 : threads < WARM_UP_MAX_THREADS ? threads : WARM_UP_MAX_THREADS;
    HW_TRY(hwi_store_check_sizes(store, error));
    for (uint32_t i = 0; i < threads; i++) {
        warmers[i] = (struct warmer){.store = store, .index = i, .thread_count = threads};
    }
    while (started + 1 < threads &&
           pthread_create(&ids[started], NULL, warm_pages, &warmers[started]) == 0) {
        started++;
    }
    for (uint32_t i = started; i < threads; i++) {
        (void)warm_pages(&warmers[i]); /* the last share, and those that got no thread */
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(ids[i], NULL);
    }
    return HW_OK;
}
