/* Damaging and healing stores; see damage.h. */
#define _XOPEN_SOURCE 700

#include "support/damage.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/file_names.h"
#include "format/format.h"
#include "format/manifest.h"
#include "format/writer.h"
#include "store/store.h"
#include "support/read.h"

static void demand(int condition, const char *what) {
    if (!condition) {
        fprintf(stderr, "damage: %s\n", what);
        abort();
    }
}

uint8_t *damage_read_file(const char *path, size_t *size) {
    FILE *stream = fopen(path, "rb");
    demand(stream != NULL, path);
    fseek(stream, 0, SEEK_END);
    *size = (size_t)ftell(stream);
    rewind(stream);
    uint8_t *bytes = malloc(*size + 1);
    demand(bytes != NULL && fread(bytes, 1, *size, stream) == *size, path);
    fclose(stream);
    return bytes;
}

void damage_write_file(const char *path, const void *bytes, size_t size) {
    int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT, 0644);
    demand(fd >= 0 && write(fd, bytes, size) == (ssize_t)size, path);
    close(fd);
}

static void admit_file(struct patient *patient, uint32_t kind, uint32_t index) {
    char name[HWI_FILE_NAME_BYTES];
    demand(patient->file_count < PATIENT_MAX_FILES, "too many files");
    struct patient_file *file = &patient->files[patient->file_count++];
    hwi_file_name(kind, index, name);
    file->path = fixture_path(patient->build, name);
    file->kind = kind;
    file->index = index;
    file->bytes = damage_read_file(file->path, &file->size);
}

struct patient *patient_admit(hw_store *(*make)(const char *store_path)) {
    struct patient *patient = calloc(1, sizeof *patient);
    uint32_t kind = 0, index = 0;
    demand(patient != NULL, "out of memory");
    patient->directory = fixture_directory();
    hw_store *store = make(patient->directory);
    hw_store_counts counts = counts_of(store);
    patient->build = strdup(hw_store_directory(store));
    hw_store_close(store);
    admit_file(patient, HWI_FILE_SCHEMA, 0);
    for (uint32_t i = 0; hwi_file_at(counts.table_count, counts.task_count, i, &kind, &index);
         i++) {
        admit_file(patient, kind, index);
    }
    return patient;
}

void patient_discharge(struct patient *patient) {
    for (uint32_t i = 0; i < patient->file_count; i++) {
        free(patient->files[i].path);
        free(patient->files[i].bytes);
    }
    fixture_remove(patient->directory);
    free(patient->build);
    free(patient);
}

void patient_heal(const struct patient *patient) {
    for (uint32_t i = 0; i < patient->file_count; i++) {
        const struct patient_file *file = &patient->files[i];
        damage_write_file(file->path, file->bytes, file->size);
    }
}

/* Makes the checksums of sections and header right, as far as the section table makes sense. */
static uint64_t reseal_file(uint8_t *bytes, size_t size) {
    struct hwi_file_header header;
    memcpy(&header, bytes, sizeof header);
    struct hwi_section_info *sections = (void *)(bytes + sizeof header);
    if (header.section_count > (size - sizeof header) / sizeof *sections) {
        return 0;
    }
    for (uint32_t i = 0; i < header.section_count; i++) {
        uint64_t length = 0;
        if (!__builtin_mul_overflow(sections[i].count, sections[i].element_bytes, &length) &&
            sections[i].offset <= size && length <= size - sections[i].offset) {
            sections[i].checksum = hw_hash64(bytes + sections[i].offset, length, 0);
        }
    }
    header.header_checksum = hwi_header_checksum(&header, sections);
    memcpy(bytes, &header, sizeof header);
    return header.header_checksum;
}

/* Where FILES begins in an image of schema.bin, or NULL if it can no longer be found. */
static uint8_t *find_files(const struct patient *patient, uint8_t *schema) {
    const struct hwi_section_info *sections =
        (const void *)(schema + sizeof(struct hwi_file_header));
    size_t bytes = sizeof(struct hwi_file_info) * (patient->file_count - 1);
    for (uint32_t i = 0; i < 9; i++) {
        if (sections[i].id == HWI_SECTION(HWI_SECTION_FILES, 0) &&
            sections[i].offset <= patient->files[0].size - bytes) {
            return schema + sections[i].offset;
        }
    }
    return NULL;
}

void patient_write_resealed(const struct patient *patient, uint8_t *const images[]) {
    struct hwi_file_info listed[PATIENT_MAX_FILES] = {{0}};
    uint8_t build_id[16] = {0};
    uint8_t *files = find_files(patient, images[0]);
    for (uint32_t i = 1; i < patient->file_count; i++) {
        struct hwi_file_info *info = &listed[i - 1];
        if (files != NULL) {
            memcpy(info, files + sizeof *info * (i - 1), sizeof *info);
        }
        info->checksum = patient->files[i].kind == HWI_FILE_METADATA
                             ? hw_hash64(images[i], patient->files[i].size, 0)
                             : reseal_file(images[i], patient->files[i].size);
        if (files != NULL) {
            memcpy(files + sizeof *info * (i - 1), info, sizeof *info);
        }
        info->kind = patient->files[i].kind; /* the paths that the build id is made of */
        info->index = patient->files[i].index;
    }
    uint64_t schema_checksum = reseal_file(images[0], patient->files[0].size);
    hwi_fingerprint(listed, patient->file_count - 1, schema_checksum, build_id);
    for (uint32_t i = 0; i < patient->file_count; i++) {
        if (patient->files[i].kind != HWI_FILE_METADATA) {
            memcpy(images[i] + offsetof(struct hwi_file_header, build_id), build_id, 16);
        }
        damage_write_file(patient->files[i].path, images[i], patient->files[i].size);
    }
}

size_t patient_place(const struct patient *patient, uint32_t file, uint32_t section,
                     uint32_t element) {
    const struct hwi_section_info *sections =
        (const void *)(patient->files[file].bytes + sizeof(struct hwi_file_header));
    return sections[section].offset + sections[section].element_bytes * (size_t)element;
}

void patient_copy(const struct patient *patient, uint8_t *images[PATIENT_MAX_FILES]) {
    for (uint32_t i = 0; i < patient->file_count; i++) {
        images[i] = malloc(patient->files[i].size + 1);
        demand(images[i] != NULL, "out of memory");
        memcpy(images[i], patient->files[i].bytes, patient->files[i].size);
    }
}

void patient_free(const struct patient *patient, uint8_t *images[PATIENT_MAX_FILES]) {
    for (uint32_t i = 0; i < patient->file_count; i++) {
        free(images[i]);
    }
}

void patient_wound(const struct patient *patient, uint32_t file, size_t at, uint64_t value,
                   size_t bytes, int is_resealed) {
    uint8_t *images[PATIENT_MAX_FILES];
    patient_copy(patient, images);
    memcpy(images[file] + at, &value, bytes);
    if (is_resealed) {
        patient_write_resealed(patient, images);
    } else {
        damage_write_file(patient->files[file].path, images[file], patient->files[file].size);
    }
    patient_free(patient, images);
}

void patient_flip(const struct patient *patient, uint32_t file, size_t at, uint8_t bits,
                  int is_resealed) {
    patient_wound(patient, file, at, patient->files[file].bytes[at] ^ bits, 1, is_resealed);
}

static void read_row(const hw_store *store, const hw_store_counts *counts, uint32_t row) {
    hw_cell cell = {.struct_bytes = sizeof cell};
    int64_t time = 0;
    uint32_t out = 0, found = 0;
    size_t bytes = 0;
    const void *key = NULL;
    const uint32_t *children = NULL;
    for (uint32_t c = 0; c < counts->column_count; c++) {
        (void)!hw_store_cell(store, row, c, &cell, NULL);
    }
    for (uint32_t k = 0; k < counts->key_count; k++) {
        (void)!hw_store_parent(store, row, k, &out, NULL);
        if (hw_store_children(store, row, k, &children, &out, NULL) == HW_OK) {
            (void)hw_hash64(children, out * sizeof *children, 0); /* reads them all */
        }
    }
    (void)!hw_store_row_time(store, row, &time, NULL);
    const int64_t *times = NULL;
    uint32_t timed = 0;
    if (hw_store_row_times(store, row % 4, &times, &timed, NULL) == HW_OK && times != NULL) {
        (void)hw_hash64(times, timed * sizeof *times, 0); /* reads them all */
    }
    if (hw_store_row_key(store, row, &key, &bytes, NULL) == HW_OK) {
        for (uint32_t t = 0; t < counts->table_count; t++) {
            (void)!hw_store_find(store, t, key, bytes, &found, NULL);
        }
    }
}

/* Whole keys and columns, into memory of the sizes that the store names. */
static void read_in_bulk(const hw_store *store, const hw_store_counts *counts) {
    for (uint32_t k = 0; k < counts->key_count; k++) {
        uint32_t parents = 0;
        uint64_t edges = 0;
        demand(hw_store_edge_counts(store, k, &parents, &edges, NULL) == HW_OK, "edge counts");
        uint64_t *starts = malloc((parents + (size_t)1) * sizeof *starts);
        uint32_t *rows = malloc((edges + 1) * sizeof *rows);
        int64_t *times = malloc((edges + 1) * sizeof *times);
        demand(starts != NULL && rows != NULL && times != NULL, "out of memory");
        (void)!hw_store_edges(store, k, starts, rows, times, NULL);
        free(starts);
        free(rows);
        free(times);
    }
    for (uint32_t c = 0; c < counts->column_count; c++) {
        uint32_t row_count = 0;
        if (hw_store_column_rows(store, c, &row_count, NULL) == HW_OK) {
            double *numbers = malloc((row_count + (size_t)1) * sizeof *numbers);
            int64_t *times = malloc((row_count + (size_t)1) * sizeof *times);
            demand(numbers != NULL && times != NULL, "out of memory");
            (void)!hw_store_column(store, c, numbers, times, NULL);
            free(numbers);
            free(times);
        }
    }
}

static void read_words(const char *words, size_t bytes) {
    (void)hw_hash64(words, bytes, 0);
}

/* Names, and what metadata.json says, as far as it is told. */
static void read_names(const hw_store *store, const hw_store_counts *counts) {
    hw_table_info table = {.struct_bytes = sizeof table};
    hw_column_info column = {.struct_bytes = sizeof column};
    hw_key_info key = {.struct_bytes = sizeof key};
    hw_task_info task = {.struct_bytes = sizeof task};
    const char *text = NULL;
    size_t bytes = 0;
    uint32_t found = 0;
    for (uint32_t t = 0; t < counts->table_count; t++) {
        if (hw_store_table_info(store, t, &table, NULL) == HW_OK) {
            read_words((const void *)table.primary_key, 4 * (size_t)table.primary_key_count);
            (void)!hw_store_find_table(store, table.name, &found, NULL);
            (void)!hw_store_find_column(store, table.name, "no such column", &found, NULL);
        }
    }
    for (uint32_t c = 0; c < counts->column_count; c++) {
        if (hw_store_column_info(store, c, &column, NULL) == HW_OK) {
            read_words(column.name, strlen(column.name));
        }
    }
    for (uint32_t k = 0; k < counts->key_count; k++) {
        if (hw_store_key_info(store, k, &key, NULL) == HW_OK) {
            read_words((const void *)key.columns, 4 * (size_t)key.column_count);
            for (uint32_t i = 0; key.parent_columns != NULL && i < key.column_count; i++) {
                demand(key.parent_columns[i] < counts->column_count, "a column of a parent");
            }
            (void)!hw_store_find_key(store, key.name, &found, NULL);
        }
    }
    for (uint32_t k = 0; k < counts->task_count; k++) {
        if (hw_store_task_info(store, k, &task, NULL) == HW_OK) {
            read_words((const void *)task.hidden, 4 * (size_t)task.hidden_count);
            (void)!hw_store_find_task(store, task.name, &found, NULL);
        }
    }
    for (uint32_t c = 0; c < counts->category_count; c++) {
        if (hw_store_category(store, c, &text, &bytes, NULL) == HW_OK) {
            read_words(text, bytes);
        }
    }
    if (hw_store_metadata(store, &text, &bytes, NULL) == HW_OK) {
        read_words(text, bytes);
    }
}

void damage_read_everything(const hw_store *store) {
    hw_store_counts counts = counts_of(store);
    for (uint32_t row = 0; row < counts.row_count; row++) {
        read_row(store, &counts, row);
    }
    read_in_bulk(store, &counts);
    read_names(store, &counts);
    for (uint32_t i = 0; i < counts.text_count; i++) {
        const char *text = NULL;
        size_t bytes = 0;
        if (hw_store_text(store, i, &text, &bytes, NULL) == HW_OK) {
            (void)hw_hash64(text, bytes, 0);
        }
    }
}

static void check_fault(void *context, const char *message) {
    (void)context;
    demand(message[0] != 0, "a fault without a message");
}

int damage_seems_well(const char *path, hw_load load) {
    hw_store *store = NULL;
    hw_error error = {.status = HW_OK, .message = ""};
    uint64_t fault_count = 0;
    hw_status status = hw_store_open(path, load, &store, &error);
    if (status != HW_OK) {
        demand(status == HW_BAD_STORE && error.message[0] != 0 && store == NULL, error.message);
        return 0;
    }
    demand(hw_store_verify(store, check_fault, NULL, &fault_count, &error) == HW_OK, error.message);
    damage_read_everything(store);
    hw_store_close(store);
    return fault_count == 0;
}
