/* Small databases for the C tests; see fixtures.h. */
#define _XOPEN_SOURCE 700

#include "support/fixtures.h"
#include "support/read.h"
#include "support/scarce.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void fixture_check(hw_status status, const hw_error *error, const char *what) {
    if (status != HW_OK) {
        fprintf(stderr, "fixture: %s: status %d: %s\n", what, (int)status, error->message);
        abort();
    }
}

/* Where a test has memory run out (support/scarce.c), these keep that from its fixtures. */
__attribute__((weak)) void scarce_pause(void) {
}
__attribute__((weak)) void scarce_resume(void) {
}

static void *allocate(size_t bytes) {
    scarce_pause();
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    scarce_resume();
    if (memory == NULL) {
        abort();
    }
    return memory;
}

/* ---- streams ----------------------------------------------------------------------------- */

struct column_data {
    char *name;
    char format[2];
    uint8_t *validity, *values;
    char *text;
};

/* Buffers of a stream; chunks are slices of them, so they live until stream and chunks are gone. */
struct stream_data {
    uint32_t reference_count;
    uint32_t column_count;
    uint64_t row_count, chunk_rows, next_row;
    struct column_data *columns;
};

static void drop(struct stream_data *data) {
    if (--data->reference_count > 0) {
        return;
    }
    for (uint32_t i = 0; i < data->column_count; i++) {
        free(data->columns[i].name);
        free(data->columns[i].validity);
        free(data->columns[i].values);
        free(data->columns[i].text);
    }
    free(data->columns);
    free(data);
}

static void set_bit(uint8_t *bits, uint64_t i, unsigned bit) {
    bits[i / 8] = (uint8_t)(bits[i / 8] | bit << i % 8);
}

static void copy_text(struct column_data *column, const char *const *texts, uint64_t row_count) {
    size_t width = column->format[0] == 'U' ? 8 : 4, total = 0;
    for (uint64_t i = 0; i < row_count; i++) {
        total += texts[i] != NULL ? strlen(texts[i]) : 0;
    }
    column->text = allocate(total);
    column->values = allocate((row_count + 1) * 8);
    int64_t end = 0; /* little-endian: its first bytes are those of a shorter number */
    for (uint64_t i = 0; i < row_count; i++) {
        size_t bytes = texts[i] != NULL ? strlen(texts[i]) : 0;
        set_bit(column->validity, i, texts[i] != NULL);
        memcpy(column->text + end, texts[i] != NULL ? texts[i] : "", bytes);
        end += (int64_t)bytes;
        memcpy(column->values + (i + 1) * width, &end, width);
    }
}

static void copy_column(struct column_data *column, const struct fixture_column *given,
                        uint64_t row_count) {
    char format = given->format[0];
    column->name = allocate(strlen(given->name) + 1);
    memcpy(column->name, given->name, strlen(given->name));
    column->format[0] = format;
    column->validity = allocate(row_count / 8 + 1);
    if (format == 'u' || format == 'U') {
        copy_text(column, given->values, row_count);
        return;
    }
    column->values = allocate(row_count * 8 + 8);
    for (uint64_t i = 0; i < row_count; i++) {
        set_bit(column->validity, i, given->valid == NULL || given->valid[i]);
        if (format == 'b') {
            set_bit(column->values, i, ((const uint8_t *)given->values)[i]);
        }
    }
    if (format != 'b' && row_count > 0) {
        memcpy(column->values, given->values, row_count * (format == 'i' || format == 'I' ? 4 : 8));
    }
}

static void release_schema(struct ArrowSchema *schema) {
    for (int64_t i = 0; i < schema->n_children; i++) {
        free(schema->children[i]);
    }
    free(schema->children);
    struct stream_data *data = schema->private_data;
    drop(data);
    schema->release = NULL;
}

static void release_nothing(struct ArrowSchema *schema) {
    schema->release = NULL;
}

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    struct stream_data *data = stream->private_data;
    *out = (struct ArrowSchema){.format = "+s", .name = "", .n_children = data->column_count};
    out->children = allocate(sizeof *out->children * data->column_count);
    for (uint32_t i = 0; i < data->column_count; i++) {
        out->children[i] = allocate(sizeof **out->children);
        *out->children[i] = (struct ArrowSchema){
            .format = data->columns[i].format,
            .name = data->columns[i].name,
            .flags = 2,
            .release = release_nothing,
        };
    }
    data->reference_count++;
    out->private_data = data;
    out->release = release_schema;
    return 0;
}

static void release_child(struct ArrowArray *array) {
    array->release = NULL;
}

static void release_array(struct ArrowArray *array) {
    for (int64_t i = 0; i < array->n_children; i++) {
        free(array->children[i]->buffers);
        free(array->children[i]);
    }
    free(array->children);
    free(array->buffers);
    struct stream_data *data = array->private_data;
    drop(data);
    array->release = NULL;
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    struct stream_data *data = stream->private_data;
    *out = (struct ArrowArray){.release = NULL};
    if (data->next_row >= data->row_count) {
        return 0;
    }
    uint64_t left = data->row_count - data->next_row;
    uint64_t rows = data->chunk_rows > 0 && data->chunk_rows < left ? data->chunk_rows : left;
    out->length = (int64_t)rows;
    out->n_buffers = 1;
    out->buffers = allocate(sizeof *out->buffers);
    out->n_children = data->column_count;
    out->children = allocate(sizeof *out->children * data->column_count);
    for (uint32_t i = 0; i < data->column_count; i++) {
        const struct column_data *column = &data->columns[i];
        struct ArrowArray *child = allocate(sizeof *child);
        *child = (struct ArrowArray){
            .length = (int64_t)rows,
            .null_count = -1,
            .offset = (int64_t)data->next_row,
            .n_buffers = column->text != NULL ? 3 : 2,
            .release = release_child,
        };
        child->buffers = allocate(sizeof *child->buffers * 3);
        child->buffers[0] = column->validity;
        child->buffers[1] = column->values;
        child->buffers[2] = column->text;
        out->children[i] = child;
    }
    data->next_row += rows;
    data->reference_count++;
    out->private_data = data;
    out->release = release_array;
    return 0;
}

static const char *get_last_error(struct ArrowArrayStream *stream) {
    (void)stream;
    return NULL;
}

static void release_stream(struct ArrowArrayStream *stream) {
    struct stream_data *data = stream->private_data;
    drop(data);
    stream->release = NULL;
}

void fixture_stream(struct ArrowArrayStream *stream, const struct fixture_column *columns,
                    uint32_t column_count, uint64_t row_count, uint64_t chunk_rows) {
    struct stream_data *data = allocate(sizeof *data);
    data->reference_count = 1;
    data->column_count = column_count;
    data->row_count = row_count;
    data->chunk_rows = chunk_rows;
    data->columns = allocate(sizeof *data->columns * column_count);
    for (uint32_t i = 0; i < column_count; i++) {
        copy_column(&data->columns[i], &columns[i], row_count);
    }
    *stream = (struct ArrowArrayStream){
        .get_schema = get_schema,
        .get_next = get_next,
        .get_last_error = get_last_error,
        .release = release_stream,
        .private_data = data,
    };
}

void fixture_rows(hw_builder *b, uint32_t table, const struct fixture_column *columns,
                  uint32_t column_count, uint64_t row_count, uint64_t chunk_rows) {
    struct ArrowArrayStream stream;
    fixture_stream(&stream, columns, column_count, row_count, chunk_rows);
    MUST(hw_builder_write_rows(b, table, &stream, &error));
    stream.release(&stream);
}

void fixture_parents(hw_builder *b, uint32_t key, const int64_t *parents, uint64_t row_count,
                     uint64_t dangling_count) {
    struct ArrowArrayStream stream;
    int64_t *children = allocate(2 * row_count * sizeof *children), *found = children + row_count;
    uint64_t count = 0, edge_count = 0;
    for (uint64_t i = 0; i < row_count; i++) {
        if (parents[i] >= 0) {
            children[count] = (int64_t)i;
            found[count++] = parents[i];
        }
    }
    const struct fixture_column pairs[] = {{"child", "l", children, NULL},
                                           {"parent", "l", found, NULL}};
    fixture_stream(&stream, pairs, 2, count, 3);
    MUST(hw_builder_write_edges(b, key, &stream, row_count - count - dangling_count, &edge_count,
                                &error));
    stream.release(&stream);
    free(children);
}

void fixture_seeds(hw_builder *b, uint32_t task, const struct fixture_column *columns,
                   uint32_t column_count, uint64_t seed_count) {
    struct ArrowArrayStream stream;
    fixture_stream(&stream, columns, column_count, seed_count, 0);
    MUST(hw_builder_write_seeds(b, task, &stream, &error));
    stream.release(&stream);
}

static void write_names(hw_builder *b, hw_embedding_kind kind, uint32_t count, uint32_t text_dim) {
    uint16_t *vector = allocate(text_dim * sizeof *vector);
    for (uint32_t i = 0; i < count; i++) {
        char name[32];
        int bytes = snprintf(name, sizeof name, "kind %d name %u", (int)kind, i);
        MUST(hw_hash_embed(name, (size_t)bytes, text_dim, vector, &error));
        MUST(hw_builder_write_vectors(b, kind, vector, 1, &error));
    }
    free(vector);
}

static const char no_facts[] = "{\"name\": \"fixture\"}\n";

static void complete(hw_builder *b, uint32_t column_count, uint32_t category_count,
                     uint32_t text_dim, const char *metadata) {
    char fingerprint[33];
    MUST(hw_builder_set_embedder(b, "hash", text_dim, &error));
    write_names(b, HW_EMBED_COLUMNS, column_count, text_dim);
    write_names(b, HW_EMBED_CATEGORIES, category_count, text_dim);
    MUST(hw_builder_finish(b, metadata, strlen(metadata), fingerprint, &error));
}

void fixture_complete(hw_builder *b, uint32_t column_count, uint32_t category_count,
                      uint32_t text_dim) {
    complete(b, column_count, category_count, text_dim, no_facts);
}

void fixture_finish_as(hw_builder *b, uint32_t column_count, uint32_t category_count,
                       const char *metadata, const char *store_path) {
    complete(b, column_count, category_count, FIXTURE_TEXT_DIM, metadata);
    MUST(hw_builder_publish(b, store_path, &error));
}

void fixture_finish(hw_builder *b, uint32_t column_count, uint32_t category_count,
                    const char *store_path) {
    fixture_finish_as(b, column_count, category_count, no_facts, store_path);
}

/* ---- directories ------------------------------------------------------------------------- */

char *fixture_directory(void) {
    const char *parent = getenv("TMPDIR");
    char *path = fixture_path(parent != NULL ? parent : "/tmp", "headwater-test-XXXXXX");
    if (mkdtemp(path) == NULL) {
        perror("mkdtemp");
        abort();
    }
    return path;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) {
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

void fixture_remove(char *directory) {
    nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(directory);
}

char *fixture_path(const char *directory, const char *name) {
    size_t bytes = strlen(directory) + strlen(name) + 2;
    char *path = allocate(bytes);
    snprintf(path, bytes, "%s/%s", directory, name);
    return path;
}

uint32_t fixture_entries(const char *path) {
    DIR *folder = opendir(path);
    uint32_t count = 0;
    if (folder == NULL) {
        perror(path);
        abort();
    }
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count - 2;
}

/* ---- stores and batches ------------------------------------------------------------------ */

hw_store *fixture_open(const char *path, hw_load load) {
    hw_store *store = NULL;
    MUST(hw_store_open(path, load, &store, &error));
    return store;
}

static void print_fault(void *context, const char *message) {
    (void)context;
    fprintf(stderr, "fault: %s\n", message);
}

void fixture_sound(const hw_store *store) {
    uint64_t fault_count = 1;
    MUST(hw_store_verify(store, print_fault, NULL, &fault_count, &error));
    if (fault_count > 0) {
        abort();
    }
}

hw_store *fixture_store(const char *directory, const char *name,
                        hw_store *(*make)(const char *store_path)) {
    char *path = fixture_path(directory, name);
    hw_store *store = make(path);
    free(path);
    return store;
}

int fixture_setup(void **state, hw_store *(*make)(const char *store_path)) {
    struct shelf *shelf = allocate(sizeof *shelf);
    shelf->directory = fixture_directory();
    shelf->store = fixture_store(shelf->directory, "shelf.hw", make);
    *state = shelf;
    return 0;
}

int open_bookstore(void **state) {
    return fixture_setup(state, bookstore);
}

int open_deliveries(void **state) {
    return fixture_setup(state, deliveries);
}

int open_letters(void **state) {
    return fixture_setup(state, letters);
}

int close_shelf(void **state) {
    struct shelf *shelf = *state;
    hw_store_close(shelf->store);
    fixture_remove(shelf->directory);
    free(shelf);
    return 0;
}

hw_store *store_of(void **state) {
    return ((struct shelf *)*state)->store;
}

hw_sampler *fixture_sampler(hw_store *store, const hw_sampler_options *options) {
    hw_sampler *sampler = NULL;
    MUST(hw_sampler_open(store, options, &sampler, &error));
    return sampler;
}

hw_batch *fixture_next(hw_sampler *sampler, hw_split split) {
    hw_batch *batch = NULL;
    MUST(hw_sampler_next(sampler, split, -1, NULL, NULL, &batch, &error));
    return batch;
}

const void *fixture_array(const hw_batch *batch, const char *name) {
    for (uint32_t i = 0; i < hw_batch_tensor_count(batch); i++) {
        hw_tensor tensor = tensor_of(batch, i);
        if (strcmp(tensor.name, name) == 0) {
            return tensor.data;
        }
    }
    return NULL;
}

uint64_t fixture_digest(hw_batch *batch) {
    uint64_t hash = 0;
    size_t bytes = 0;
    const uint8_t *memory = hw_batch_memory(batch, &bytes);
    for (uint32_t i = 0; i < hw_batch_tensor_count(batch); i++) {
        hw_tensor tensor = tensor_of(batch, i);
        size_t place = (size_t)((const uint8_t *)tensor.data - memory);
        if (place > bytes || tensor.bytes > bytes - place) {
            fprintf(stderr, "fixture: '%s' lies outside its batch\n", tensor.name);
            abort();
        }
        hash = hw_hash64(&place, sizeof place, hash);
        hash = hw_hash64(tensor.data, tensor.bytes, hash);
    }
    hw_batch_release(batch);
    return hash;
}

void fixture_threads_agree(hw_store *store, hw_sampler_options options, hw_split split) {
    enum { COMPARED = 12 };
    static const struct {
        uint32_t threads;
        int32_t prefetch;
    } settings[] = {{0, 0}, {1, 1}, {2, 3}, {8, 5}, {4, 1}, {0, 3}};
    uint64_t expected[COMPARED];
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        options.num_threads = settings[i].threads;
        options.num_prefetch = settings[i].prefetch;
        hw_sampler *sampler = fixture_sampler(store, &options);
        for (uint64_t k = 0; k < COMPARED; k++) {
            hw_batch *batch = NULL;
            MUST(hw_sampler_batch(sampler, split, k, &batch, &error));
            uint64_t alone = fixture_digest(batch);
            expected[k] = i == 0 ? alone : expected[k];
            if (alone != expected[k] ||
                fixture_digest(fixture_next(sampler, split)) != expected[k]) {
                fprintf(stderr, "fixture: batch %d is another one in threads\n", (int)k);
                abort();
            }
        }
        hw_sampler_close(sampler);
    }
}

/* ---- declaring --------------------------------------------------------------------------- */

hw_builder *fixture_builder(const char *name, const char *store_path, int64_t stats_until_us) {
    hw_builder *b = NULL;
    hw_builder_options options = {sizeof options, name, stats_until_us};
    mkdir(store_path, 0777);
    char *directory = fixture_path(store_path, ".building-fixture");
    MUST(hw_builder_open(directory, &options, &b, &error));
    free(directory);
    return b;
}

void fixture_table(hw_builder *b, hw_table_spec spec) {
    uint32_t index;
    spec.struct_bytes = sizeof spec;
    MUST(hw_builder_add_table(b, &spec, &index, &error));
}

void fixture_add_column(hw_builder *b, uint32_t table, hw_column_spec spec) {
    uint32_t index;
    spec.struct_bytes = sizeof spec;
    MUST(hw_builder_add_column(b, table, &spec, &index, &error));
}

void fixture_key(hw_builder *b, uint32_t child, uint32_t parent, uint32_t column) {
    uint32_t index;
    hw_key_spec spec = {.struct_bytes = sizeof spec,
                        .child_table = child,
                        .parent_table = parent,
                        .columns = &column,
                        .column_count = 1};
    MUST(hw_builder_add_key(b, &spec, &index, &error));
}

void fixture_task(hw_builder *b, hw_task_spec spec) {
    uint32_t index;
    spec.struct_bytes = sizeof spec;
    MUST(hw_builder_add_task(b, &spec, &index, &error));
}

/* ---- bookstore --------------------------------------------------------------------------- */

static void declare_bookstore(hw_builder *b) {
    static const char *const genres[] = {"crime", "poetry", "travel"};
    fixture_table(b, (hw_table_spec){.name = "authors", .key_part_count = 1});
    fixture_table(b, (hw_table_spec){.name = "books", .key_part_count = 1, .temporal = 1});
    fixture_add_column(b, AUTHORS, (hw_column_spec){.name = "id", .stype = HW_IDENTIFIER});
    fixture_add_column(b, AUTHORS, (hw_column_spec){.name = "name", .stype = HW_TEXT});
    fixture_add_column(b, AUTHORS, (hw_column_spec){.name = "rating", .stype = HW_NUMERICAL});
    fixture_add_column(b, BOOKS, (hw_column_spec){.name = "id", .stype = HW_IDENTIFIER});
    fixture_add_column(b, BOOKS, (hw_column_spec){.name = "author_id", .stype = HW_IDENTIFIER});
    fixture_add_column(b, BOOKS, (hw_column_spec){.name = "sequel_of", .stype = HW_IDENTIFIER});
    fixture_add_column(b, BOOKS, (hw_column_spec){.name = "title", .stype = HW_TEXT});
    fixture_add_column(b, BOOKS, (hw_column_spec){.name = "genre", .stype = HW_CATEGORICAL});
    fixture_add_column(b, BOOKS, (hw_column_spec){.name = "price", .stype = HW_NUMERICAL});
    fixture_add_column(b, BOOKS, (hw_column_spec){.name = "in_print", .stype = HW_BOOLEAN});
    fixture_add_column(b, BOOKS,
                       (hw_column_spec){.name = "published", .stype = HW_TIMESTAMP, .temporal = 1});
    MUST(hw_builder_set_categories(b, BOOKS_GENRE, genres, 3, &error));
    fixture_key(b, BOOKS, AUTHORS, BOOKS_AUTHOR_ID);
    fixture_key(b, BOOKS, BOOKS, BOOKS_SEQUEL_OF);
    fixture_task(b, (hw_task_spec){.name = "price",
                                   .anchor_table = BOOKS,
                                   .target_column = BOOKS_PRICE,
                                   .exclusive = 1});
    fixture_task(b, (hw_task_spec){.name = "returns",
                                   .anchor_table = AUTHORS,
                                   .target_column = UINT32_MAX,
                                   .target_name = "returns",
                                   .target_stype = HW_BOOLEAN,
                                   .given_split = 1});
}

static void write_bookstore_rows(hw_builder *b) {
    const uint8_t yes[6] = {1, 1, 1, 1, 1, 1};
    const struct fixture_column authors[] = {
        {"key", "u", (const char *[]){"1", "2", "3"}, NULL},
        {"id", "b", yes, NULL},
        {"name", "U", (const char *[]){"Ann", "Bob", "Cy"}, NULL},
        {"rating", "g", (double[]){1, 2, 3}, NULL},
    };
    const int64_t published[6] = {10 * DAY_US, 20 * DAY_US, 20 * DAY_US,
                                  30 * DAY_US, 40 * DAY_US, 0};
    const uint8_t has_time[6] = {1, 1, 1, 1, 1, 0};
    const struct fixture_column books[] = {
        {"time", "l", published, has_time},
        {"key", "u", (const char *[]){"b1", "b2", "b3", "b4", "b5", "b6"}, NULL},
        {"id", "b", yes, NULL},
        {"author_id", "b", yes, NULL},
        {"sequel_of", "b", yes, (uint8_t[]){0, 1, 0, 1, 0, 1}},
        {"title", "u", (const char *[]){"Fog", "Fog II", "Ann", "", "Fog", NULL}, NULL},
        {"genre", "u", (const char *[]){"crime", "crime", "poetry", "travel", NULL, "poetry"},
         NULL},
        {"price", "g", (double[]){10, 20, 0, 30, 40, 50}, (uint8_t[]){1, 1, 0, 1, 1, 1}},
        {"in_print", "b", (uint8_t[]){1, 0, 0, 1, 1, 0}, (uint8_t[]){1, 1, 0, 1, 1, 1}},
        {"published", "l", published, has_time},
    };
    fixture_rows(b, AUTHORS, authors, 4, 3, 0);
    fixture_rows(b, BOOKS, books, 10, 6, 4);
    fixture_parents(b, BOOKS_AUTHOR, (int64_t[]){0, 0, 1, -1, 1, 0}, 6, 1);
    fixture_parents(b, BOOKS_SEQUEL, (int64_t[]){-1, 0, -1, 1, -1, 2}, 6, 0);
}

static void write_bookstore_seeds(hw_builder *b) {
    const uint8_t none[4] = {0, 0, 0, 0};
    const struct fixture_column price[6] = {
        {"anchor", "l", (int64_t[]){0, 1, 3, 4}, NULL},
        {"obs_time", "l", (int64_t[]){10 * DAY_US, 20 * DAY_US, 30 * DAY_US, 40 * DAY_US}, NULL},
        {"target", "g", (double[]){10, 20, 30, 40}, NULL},
        {"labelled", "b", (uint8_t[]){1, 1, 1, 1}, NULL},
        {"split", "i", (int32_t[]){0, 0, 0, 0}, none},
        {"position", "i", (int32_t[]){3, 2, 1, 0}, NULL},
    };
    const struct fixture_column returns[6] = {
        {"anchor", "I", (uint32_t[]){0, 0, 1, 2}, NULL},
        {"obs_time", "l", (int64_t[]){25 * DAY_US, 45 * DAY_US, 25 * DAY_US, 25 * DAY_US}, NULL},
        {"target", "b", (uint8_t[]){1, 0, 0, 0}, (uint8_t[]){1, 1, 0, 0}},
        {"labelled", "b", (uint8_t[]){1, 1, 1, 0}, NULL},
        {"split", "i", (int32_t[]){0, 1, 0, 2}, NULL},
        {"position", "L", (uint64_t[]){0, 1, 2, 3}, NULL},
    };
    fixture_seeds(b, TASK_PRICE, price, 6, 4);
    fixture_seeds(b, TASK_RETURNS, returns, 6, 4);
}

void bookstore_build(const char *store_path) {
    hw_builder *b = fixture_builder("bookstore", store_path, INT64_MAX);
    declare_bookstore(b);
    write_bookstore_rows(b);
    write_bookstore_seeds(b);
    fixture_finish(b, BOOKSTORE_COLUMNS, 3, store_path);
    hw_builder_close(b);
}

hw_store *bookstore(const char *store_path) {
    bookstore_build(store_path);
    return fixture_open(store_path, HW_LOAD_MMAP);
}

/* ---- deliveries -------------------------------------------------------------------------- */

static void declare_deliveries(hw_builder *b) {
    enum { COURIERS, PARCELS };
    fixture_table(b, (hw_table_spec){.name = "couriers", .key_part_count = 1});
    fixture_table(b, (hw_table_spec){.name = "parcels", .key_part_count = 1, .temporal = 1});
    fixture_add_column(b, COURIERS, (hw_column_spec){.name = "id", .stype = HW_IDENTIFIER});
    fixture_add_column(b, PARCELS, (hw_column_spec){.name = "id", .stype = HW_IDENTIFIER});
    fixture_add_column(b, PARCELS,
                       (hw_column_spec){.name = "courier_id",
                                        .stype = HW_IDENTIFIER,
                                        .known = HW_KNOWN_COLUMN,
                                        .known_column = PARCELS_ASSIGNED});
    fixture_add_column(
        b, PARCELS,
        (hw_column_spec){.name = "lost_by", .stype = HW_IDENTIFIER, .known = HW_KNOWN_NEVER});
    fixture_add_column(b, PARCELS,
                       (hw_column_spec){.name = "assigned", .stype = HW_IGNORED, .stored = 1});
    fixture_add_column(b, PARCELS,
                       (hw_column_spec){.name = "weight",
                                        .stype = HW_NUMERICAL,
                                        .known = HW_KNOWN_OFFSET,
                                        .known_offset_us = 2 * DAY_US});
    fixture_add_column(b, PARCELS,
                       (hw_column_spec){.name = "sent", .stype = HW_TIMESTAMP, .temporal = 1});
    fixture_key(b, PARCELS, COURIERS, PARCELS_COURIER_ID);
    fixture_key(b, PARCELS, COURIERS, PARCELS_LOST_BY);
    fixture_task(b, (hw_task_spec){
                        .name = "heavy", .anchor_table = PARCELS, .target_column = PARCELS_WEIGHT});
}

hw_store *deliveries(const char *store_path) {
    const uint8_t yes[5] = {1, 1, 1, 1, 1};
    const int64_t sent[5] = {DAY_US, 2 * DAY_US, 3 * DAY_US, 4 * DAY_US, 5 * DAY_US};
    const struct fixture_column couriers[] = {
        {"key", "u", (const char *[]){"c0", "c1"}, NULL},
        {"id", "b", yes, NULL},
    };
    const struct fixture_column parcels[] = {
        {"time", "l", sent, NULL},
        {"key", "u", (const char *[]){"p0", "p1", "p2", "p3", "p4"}, NULL},
        {"id", "b", yes, NULL},
        {"courier_id", "b", yes, NULL},
        {"lost_by", "b", yes, NULL},
        {"assigned", "l", (int64_t[]){9 * DAY_US, 3 * DAY_US, 0, 4 * DAY_US, 3 * DAY_US},
         (uint8_t[]){1, 1, 0, 1, 1}},
        {"weight", "g", (double[]){1, 2, 3, 4, 5}, NULL},
        {"sent", "l", sent, NULL},
    };
    const struct fixture_column heavy[6] = {
        {"anchor", "l", (int64_t[]){2}, NULL}, {"obs_time", "l", (int64_t[]){3 * DAY_US}, NULL},
        {"target", "g", (double[]){3}, NULL},  {"labelled", "b", yes, NULL},
        {"split", "i", (int32_t[]){0}, NULL},  {"position", "l", (int64_t[]){0}, NULL},
    };
    const int64_t parents[5] = {0, 0, 1, 0, 0};
    hw_builder *b = fixture_builder("deliveries", store_path, INT64_MAX);
    declare_deliveries(b);
    fixture_rows(b, 0, couriers, 2, 2, 0);
    fixture_rows(b, 1, parcels, 8, 5, 2);
    fixture_parents(b, PARCELS_COURIER, parents, 5, 0);
    fixture_parents(b, PARCELS_LOST, parents, 5, 0);
    fixture_seeds(b, 0, heavy, 6, 1);
    fixture_finish(b, DELIVERIES_COLUMNS, 0, store_path);
    hw_builder_close(b);
    return fixture_open(store_path, HW_LOAD_MMAP);
}

/* ---- letters ----------------------------------------------------------------------------- */

enum { LETTER_NAME_BYTES = 16 };

/* Columns over one number, text and key per letter; the memory is the caller's. */
struct letter_rows {
    char names[LETTERS_COUNT][LETTER_NAME_BYTES];
    const char *texts[LETTERS_COUNT];
    double weights[LETTERS_COUNT];
    int64_t anchors[LETTERS_COUNT], times[LETTERS_COUNT];
    uint8_t yes[LETTERS_COUNT];
    int32_t splits[LETTERS_COUNT];
};

static void write_letters(hw_builder *b, struct letter_rows *rows) {
    for (int i = 0; i < LETTERS_COUNT; i++) {
        snprintf(rows->names[i], sizeof rows->names[i], "letter %d", i);
        rows->texts[i] = rows->names[i];
        rows->weights[i] = i;
        rows->anchors[i] = i;
        rows->times[i] = INT64_MAX;
        rows->yes[i] = 1;
    }
    const struct fixture_column letters[] = {
        {"key", "u", rows->texts, NULL},
        {"id", "b", rows->yes, NULL},
        {"body", "u", rows->texts, NULL},
        {"weight", "g", rows->weights, NULL},
    };
    const struct fixture_column seeds[6] = {
        {"anchor", "l", rows->anchors, NULL}, {"obs_time", "l", rows->times, NULL},
        {"target", "g", rows->weights, NULL}, {"labelled", "b", rows->yes, NULL},
        {"split", "i", rows->splits, NULL},   {"position", "l", rows->anchors, NULL},
    };
    fixture_rows(b, 0, letters, 4, LETTERS_COUNT, 0);
    fixture_seeds(b, 0, seeds, 6, LETTERS_COUNT);
}

hw_store *letters(const char *store_path) {
    hw_builder *b = fixture_builder("letters", store_path, INT64_MAX);
    struct letter_rows *rows = allocate(sizeof *rows);
    fixture_table(b, (hw_table_spec){.name = "letters", .key_part_count = 1});
    fixture_add_column(b, 0, (hw_column_spec){.name = "id", .stype = HW_IDENTIFIER});
    fixture_add_column(b, 0, (hw_column_spec){.name = "body", .stype = HW_TEXT});
    fixture_add_column(b, 0, (hw_column_spec){.name = "weight", .stype = HW_NUMERICAL});
    fixture_task(b, (hw_task_spec){
                        .name = "weigh", .anchor_table = 0, .target_column = 2, .given_split = 1});
    write_letters(b, rows);
    fixture_complete(b, 3, 0, LETTERS_TEXT_DIM);
    MUST(hw_builder_publish(b, store_path, &error));
    hw_builder_close(b);
    free(rows);
    return fixture_open(store_path, HW_LOAD_MMAP);
}
