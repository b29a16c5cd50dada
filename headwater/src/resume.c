/*
 * What a builder that is killed leaves for the next one: its spills as files of a folder, and a log
 * that says which of them are whole. A record is appended when the rows of a table or the edges of
 * a key are in place, and holds what the builder knows of them besides; and each time that the hash
 * vectors of some more texts are.
 *
 * The log begins with a digest of all that was declared; a builder that declares anything else
 * begins a new one. The kernel keeps what a killed process wrote, but not over a crash of its own:
 * so the digest also covers the number that Linux gives each boot.
 */
#define _DEFAULT_SOURCE 1

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "builder.h"
#include "bytes.h"
#include "hash.h"
#include "publish.h"

#define LOG_NAME "log"
#define CHECK_STEP_BYTES (1u << 20)
#define BOOT_FILE "/proc/sys/kernel/random/boot_id"

enum { TABLE_SPILLS = 5 };
enum record_kind { ROWS = 1, EDGES = 2, VECTORS = 3 };

struct record_header {
    uint32_t kind, index;
    uint64_t bytes; /* of the record behind this */
    uint64_t checksum;
};

struct rows_record {
    struct hwi_table_info info;
    uint64_t spill_bytes[TABLE_SPILLS];
    uint64_t text_bytes;
    uint32_t text_count;
    uint32_t column_count; /* struct column_record [column_count] follow */
};

struct column_record {
    struct hwi_column_info info;
    hw_column_stats stats;
    struct hwi_moments moments, row_moments;
};

struct edges_record {
    struct hwi_key_info info;
    uint64_t given_count, spill_bytes;
};

struct vectors_record { /* the index is text_dim */
    uint64_t count, checksum;
};

/* ---- what was declared ------------------------------------------------------------------- */

static void add_text(struct hwi_hash *hash, const char *text) {
    hwi_hash_update(hash, text, strlen(text) + 1);
}

static void add_boot(struct hwi_hash *hash) {
    char id[64];
    int fd = open(BOOT_FILE, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, id, sizeof id) : 0;
    hwi_hash_update(hash, id, bytes > 0 ? (size_t)bytes : 0);
    if (fd >= 0) {
        close(fd);
    }
}

static uint64_t digest(const hw_builder *b) {
    struct hwi_hash hash;
    hwi_hash_init(&hash, HWI_FORMAT_VERSION);
    add_boot(&hash);
    add_text(&hash, b->name);
    hwi_hash_update(&hash, &b->stats_until_us, sizeof b->stats_until_us);
    for (uint32_t i = 0; i < b->table_count; i++) {
        const struct hwi_build_table *table = &b->tables[i];
        add_text(&hash, table->name);
        hwi_hash_update(&hash, &table->info, sizeof table->info);
        hwi_hash_update(&hash, &table->key_part_count, sizeof table->key_part_count);
    }
    for (uint32_t i = 0; i < b->column_count; i++) {
        const struct hwi_build_column *column = &b->columns[i];
        add_text(&hash, column->name);
        hwi_hash_update(&hash, &column->info, sizeof column->info);
        hwi_hash_update(&hash, column->categories.offsets.data, column->categories.offsets.bytes);
        hwi_hash_update(&hash, column->categories.bytes.data, column->categories.bytes.bytes);
    }
    for (uint32_t i = 0; i < b->key_count; i++) {
        const struct hwi_build_key *key = &b->keys[i];
        hwi_hash_update(&hash, &key->info, sizeof key->info);
        hwi_hash_update(&hash, key->columns, sizeof *key->columns * key->info.column_count);
    }
    return hwi_hash_digest(&hash);
}

/* ---- spills by name ---------------------------------------------------------------------- */

static void list_spills(struct hwi_build_table *table, struct hwi_spill *spills[TABLE_SPILLS]) {
    struct hwi_spill *const list[TABLE_SPILLS] = {&table->rows, &table->times, &table->key_offsets,
                                                  &table->key_bytes, &table->key_hashes};
    memcpy(spills, list, sizeof list);
}

static void close_spills(struct hwi_spill *spills[TABLE_SPILLS]) {
    for (int i = 0; i < TABLE_SPILLS; i++) {
        hwi_spill_close(spills[i]);
    }
}

static hw_status open_named(const hw_builder *b, const char *kind, uint32_t index,
                            struct hwi_spill *spill, uint64_t bytes, hw_error *error) {
    char name[40];
    char *path = NULL;
    snprintf(name, sizeof name, "%s-%05u", kind, index);
    HW_TRY(hwi_path_join(b->spill_directory, name, &path, error));
    hw_status status = hwi_spill_open_file(spill, path, bytes, error);
    free(path);
    return status;
}

hw_status hwi_builder_spill(const hw_builder *b, const char *kind, uint32_t index,
                            struct hwi_spill *spill, hw_error *error) {
    if (b->spill_directory == NULL) {
        return hwi_spill_open(spill, b->directory, error);
    }
    return open_named(b, kind, index, spill, 0, error);
}

/* A spill that was kept: *is_there says whether it is as it was left. What there is no memory for
 * now may be there the next time, so that is a failure. */
static hw_status open_kept(const hw_builder *b, const char *kind, uint32_t index,
                           struct hwi_spill *spill, uint64_t bytes, int *is_there,
                           hw_error *error) {
    hw_error reason;
    hw_status status = open_named(b, kind, index, spill, bytes, &reason);
    *is_there = status == HW_OK;
    return status == HW_NO_MEMORY ? hwi_fail(error, status, "%s", reason.message) : HW_OK;
}

/* ---- records ----------------------------------------------------------------------------- */

static hw_status append(hw_builder *b, struct record_header header, const void *record,
                        hw_error *error) {
    size_t bytes = sizeof header + (size_t)header.bytes;
    uint8_t *whole = malloc(bytes);
    if (whole == NULL) {
        return hwi_no_memory(error, "a record of what is done", bytes);
    }
    header.checksum = hw_hash64(record, (size_t)header.bytes, header.kind);
    memcpy(whole, &header, sizeof header);
    memcpy(whole + sizeof header, record, (size_t)header.bytes);
    ssize_t written = write(b->log_fd, whole, bytes);
    free(whole);
    if (written != (ssize_t)bytes) {
        return hwi_fail(error, HW_IO, "cannot write what is done to '%s': %s", b->spill_directory,
                        strerror(errno));
    }
    return HW_OK;
}

hw_status hwi_builder_record_rows(hw_builder *b, uint32_t index, hw_error *error) {
    if (b->spill_directory == NULL) {
        return HW_OK;
    }
    struct hwi_build_table *table = &b->tables[index];
    uint32_t column_count = table->info.column_count;
    size_t bytes = sizeof(struct rows_record) + sizeof(struct column_record) * (size_t)column_count;
    struct rows_record *record = calloc(1, bytes);
    if (record == NULL) {
        return hwi_no_memory(error, "a record of what is done", bytes);
    }
    struct hwi_spill *spills[TABLE_SPILLS];
    list_spills(table, spills);
    *record = (struct rows_record){.info = table->info,
                                   .text_bytes = b->texts.bytes.bytes,
                                   .text_count = b->texts.count,
                                   .column_count = column_count};
    for (int i = 0; i < TABLE_SPILLS; i++) {
        record->spill_bytes[i] = spills[i]->bytes;
    }
    struct column_record *columns = (struct column_record *)(void *)(record + 1);
    for (uint32_t i = 0; i < column_count; i++) {
        const struct hwi_build_column *column = &b->columns[table->info.column_start + i];
        columns[i].info = column->info;
        columns[i].stats = column->stats;
        columns[i].moments = column->moments;
        columns[i].row_moments = column->row_moments;
    }
    hw_status status = append(
        b, (struct record_header){.kind = ROWS, .index = index, .bytes = bytes}, record, error);
    free(record);
    return status;
}

hw_status hwi_builder_record_edges(hw_builder *b, uint32_t index, uint64_t given_count,
                                   hw_error *error) {
    if (b->spill_directory == NULL) {
        return HW_OK;
    }
    const struct hwi_build_key *key = &b->keys[index];
    struct edges_record record = {
        .info = key->info, .given_count = given_count, .spill_bytes = key->parents.bytes};
    return append(b, (struct record_header){.kind = EDGES, .index = index, .bytes = sizeof record},
                  &record, error);
}

hw_status hwi_builder_record_vectors(hw_builder *b, uint32_t count, const struct hwi_hash *hash,
                                     hw_error *error) {
    struct vectors_record record = {.count = count, .checksum = hwi_hash_digest(hash)};
    return append(
        b, (struct record_header){.kind = VECTORS, .index = b->text_dim, .bytes = sizeof record},
        &record, error);
}

/* ---- taking up --------------------------------------------------------------------------- */

/* The spills of a table's rows, all of them or none. */
static hw_status open_rows(hw_builder *b, uint32_t index, const struct rows_record *record,
                           int *is_there, hw_error *error) {
    static const char *const kinds[TABLE_SPILLS] = {"rows", "times", "key_offsets", "key_bytes",
                                                    "key_hashes"};
    struct hwi_spill *spills[TABLE_SPILLS];
    hw_status status = HW_OK;
    list_spills(&b->tables[index], spills);
    *is_there = 1;
    for (int i = 0; i < TABLE_SPILLS && *is_there; i++) {
        if (record->spill_bytes[i] > 0) {
            status =
                open_kept(b, kinds[i], index, spills[i], record->spill_bytes[i], is_there, error);
        }
        hwi_spill_seal(spills[i]);
    }
    if (!*is_there) {
        close_spills(spills);
    }
    return status;
}

/* Sets *is_taken to 1 if the rows are there as the record says. */
static hw_status take_rows(hw_builder *b, uint32_t index, const uint8_t *data, uint64_t bytes,
                           int *is_taken, hw_error *error) {
    struct rows_record record;
    if (index >= b->table_count || index != b->written_table_count || bytes < sizeof record) {
        return HW_OK;
    }
    memcpy(&record, data, sizeof record);
    struct hwi_build_table *table = &b->tables[index];
    if (record.column_count != table->info.column_count ||
        bytes != sizeof record + sizeof(struct column_record) * (uint64_t)record.column_count) {
        return HW_OK;
    }
    HW_TRY(open_rows(b, index, &record, is_taken, error));
    if (!*is_taken) {
        return HW_OK;
    }
    table->info = record.info;
    for (uint32_t i = 0; i < record.column_count; i++) {
        struct column_record column;
        memcpy(&column, data + sizeof record + sizeof column * (uint64_t)i, sizeof column);
        struct hwi_build_column *target = &b->columns[table->info.column_start + i];
        target->info = column.info;
        target->stats = column.stats;
        target->moments = column.moments;
        target->row_moments = column.row_moments;
    }
    table->written = 1;
    b->row_count += table->info.row_count;
    b->written_table_count++;
    b->resumed_text_count = record.text_count;
    b->resumed_text_bytes = record.text_bytes;
    return HW_OK;
}

static hw_status take_edges(hw_builder *b, uint32_t index, const uint8_t *data, uint64_t bytes,
                            int *is_taken, hw_error *error) {
    struct edges_record record;
    if (index >= b->key_count || b->keys[index].written || bytes != sizeof record) {
        return HW_OK;
    }
    memcpy(&record, data, sizeof record);
    struct hwi_build_key *key = &b->keys[index];
    *is_taken = 1;
    if (record.spill_bytes > 0) {
        HW_TRY(open_kept(b, "parents", index, &key->parents, record.spill_bytes, is_taken, error));
    }
    if (!*is_taken) {
        return HW_OK;
    }
    hwi_spill_seal(&key->parents);
    key->info = record.info;
    key->given_count = record.given_count;
    key->written = 1;
    return HW_OK;
}

/* Only remembered: they are looked at when it is known whether vectors of this width are wanted. */
static int note_vectors(hw_builder *b, uint32_t text_dim, const uint8_t *data, uint64_t bytes) {
    struct vectors_record record;
    if (bytes != sizeof record) {
        return 0;
    }
    memcpy(&record, data, sizeof record);
    b->kept_vector_count = record.count;
    b->kept_vector_checksum = record.checksum;
    b->kept_vector_dim = text_dim;
    return 1;
}

/* Hashes the kept vectors; 1 if they are those of the record. */
static int check_vectors(const hw_builder *b, struct hwi_spill *spill, struct hwi_hash *hash) {
    for (uint64_t done = 0; done < spill->bytes;) {
        uint64_t left = spill->bytes - done;
        uint64_t step = left < CHECK_STEP_BYTES ? left : CHECK_STEP_BYTES;
        hwi_hash_update(hash, spill->data + done, (size_t)step);
        done += step;
        hwi_spill_pass(spill, done);
    }
    return hwi_hash_digest(hash) == b->kept_vector_checksum;
}

hw_status hwi_builder_take_vectors(const hw_builder *b, struct hwi_spill *spill,
                                   struct hwi_hash *hash, uint32_t *count, hw_error *error) {
    uint64_t kept = b->kept_vector_dim == b->text_dim ? b->kept_vector_count : 0;
    int is_there = 0;
    hwi_hash_init(hash, 0);
    *count = 0;
    if (kept > 0 && kept <= b->texts.count) {
        HW_TRY(
            open_kept(b, "vectors", 0, spill, 2 * (uint64_t)b->text_dim * kept, &is_there, error));
    }
    if (is_there) {
        if (check_vectors(b, spill, hash)) {
            *count = (uint32_t)kept;
            return HW_OK;
        }
        hwi_spill_close(spill);
        hwi_hash_init(hash, 0);
    }
    return open_named(b, "vectors", 0, spill, 0, error);
}

static hw_status take_record(hw_builder *b, const struct record_header *header,
                             const uint8_t *record, int *is_taken, hw_error *error) {
    switch (header->kind) {
    case ROWS:
        return take_rows(b, header->index, record, header->bytes, is_taken, error);
    case EDGES:
        return take_edges(b, header->index, record, header->bytes, is_taken, error);
    case VECTORS:
        *is_taken = note_vectors(b, header->index, record, header->bytes);
        break;
    default:
        break;
    }
    return HW_OK;
}

/* Takes up what the records say; *good receives the bytes of the log that are. */
static hw_status take_records(hw_builder *b, const uint8_t *log, uint64_t bytes, uint64_t *good,
                              hw_error *error) {
    uint64_t at = sizeof(uint64_t);
    struct record_header header;
    while (bytes - at >= sizeof header) {
        int is_taken = 0;
        memcpy(&header, log + at, sizeof header);
        const uint8_t *record = log + at + sizeof header;
        if (header.bytes > bytes - at - sizeof header ||
            hw_hash64(record, (size_t)header.bytes, header.kind) != header.checksum) {
            break;
        }
        HW_TRY(take_record(b, &header, record, &is_taken, error));
        if (!is_taken) {
            break;
        }
        at += sizeof header + header.bytes;
    }
    *good = at;
    return HW_OK;
}

/* *log is NULL, or malloc'ed with as many bytes of the log as could be read. */
static hw_status read_log(int fd, uint8_t **log, uint64_t *bytes, hw_error *error) {
    off_t end = lseek(fd, 0, SEEK_END);
    if (end <= 0) {
        return HW_OK;
    }
    *log = malloc((size_t)end);
    if (*log == NULL) {
        return hwi_no_memory(error, "the records of what is done", (uint64_t)end);
    }
    *bytes = pread(fd, *log, (size_t)end, 0) == (ssize_t)end ? (uint64_t)end : 0;
    return HW_OK;
}

static hw_status start_log(hw_builder *b, uint64_t expected, uint64_t good, hw_error *error) {
    hw_status status = HW_OK;
    if (ftruncate(b->log_fd, (off_t)good) != 0 || lseek(b->log_fd, 0, SEEK_END) < 0 ||
        (good == 0 && write(b->log_fd, &expected, sizeof expected) != sizeof expected)) {
        status = hwi_fail(error, HW_IO, "cannot write what is done to '%s': %s", b->spill_directory,
                          strerror(errno));
    }
    return status;
}

hw_status hwi_builder_take_up(hw_builder *b, hw_error *error) {
    char *path = NULL;
    if (b->spill_directory == NULL) {
        return HW_OK;
    }
    HW_TRY(hwi_path_join(b->spill_directory, LOG_NAME, &path, error));
    b->log_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    free(path);
    if (b->log_fd < 0) {
        return hwi_fail(error, HW_IO, "cannot open what is done in '%s': %s", b->spill_directory,
                        strerror(errno));
    }
    uint64_t bytes = 0, found = 0, expected = digest(b), good = 0;
    uint8_t *log = NULL;
    HW_TRY(read_log(b->log_fd, &log, &bytes, error));
    hw_status status = HW_OK;
    if (bytes >= sizeof found) {
        memcpy(&found, log, sizeof found);
        status = found == expected ? take_records(b, log, bytes, &good, error) : HW_OK;
    }
    free(log);
    HW_TRY(status);
    HW_TRY(start_log(b, expected, good, error));
    hwi_dictionary_close(&b->texts);
    struct hwi_spill offsets = {0}, texts = {0};
    status = open_named(b, "text_offsets", 0, &offsets,
                        b->resumed_text_count > 0 ? 8 * (b->resumed_text_count + 1) : 0, error);
    if (status == HW_OK) {
        status = open_named(b, "text_bytes", 0, &texts, b->resumed_text_bytes, error);
    }
    return hwi_dictionary_take(&b->texts, offsets, texts, status, error);
}

hw_status hw_builder_resume(hw_builder *b, uint32_t *table_count, hw_error *error) {
    HW_TRY(hwi_builder_start_write(b, error));
    *table_count = b->written_table_count;
    return HW_OK;
}

int hw_builder_has_edges(const hw_builder *b, uint32_t key, uint64_t *edge_count) {
    if (key >= b->key_count || !b->keys[key].written) {
        return 0;
    }
    *edge_count = b->keys[key].given_count;
    return 1;
}
