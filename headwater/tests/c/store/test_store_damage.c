/*
 * Damaged stores: each opens and proves clean only if nothing that is read differs, and none
 * crashes (the suite runs under ASan and UBSan).
 *
 * Three rounds over every byte of a small store: truncation to every length, a flip of every byte,
 * and a flip of every byte with all checksums and the build id made right again ("resealed"), which
 * takes the damage past the checksums to the checks behind them. Then a table of named wounds with
 * the messages that they must give.
 */
#define _XOPEN_SOURCE 700

#include <stdio.h>
#include <unistd.h>

#include "format/format.h"
#include "store/store.h"
#include "support/damage.h"
#include "support/unit_test.h"

static int admit(void **state) {
    *state = patient_admit(bookstore);
    return 0;
}

static int discharge(void **state) {
    patient_discharge(*state);
    return 0;
}

static void ignore_fault(void *context, const char *message) {
    assert_true(strlen(message) > 0);
}

static void every_truncation_is_found(void **state) {
    const struct patient *patient = *state;
    for (uint32_t i = 0; i < patient->file_count; i++) {
        for (size_t size = 0; size < patient->files[i].size; size++) {
            damage_write_file(patient->files[i].path, patient->files[i].bytes, size);
            assert_false(damage_seems_well(patient->build, size % 2 ? HW_LOAD_MMAP : HW_LOAD_RAM));
        }
        patient_heal(patient);
    }
    assert_true(damage_seems_well(patient->build, HW_LOAD_MMAP));
}

static void every_flipped_byte_is_found(void **state) {
    const struct patient *patient = *state;
    for (uint32_t i = 0; i < patient->file_count; i++) {
        for (size_t at = 0; at < patient->files[i].size; at++) {
            patient_flip(patient, i, at, at % 2 ? 0xff : 0x01, 0);
            if (damage_seems_well(patient->build, at % 3 ? HW_LOAD_MMAP : HW_LOAD_RAM)) {
                fail_msg("flipped byte %zu of '%s' was not found", at, patient->files[i].path);
            }
        }
        patient_heal(patient);
    }
}

static void resealed_flips_never_crash(void **state) {
    const struct patient *patient = *state;
    for (uint32_t i = 0; i < patient->file_count; i++) {
        for (size_t at = 0; at < patient->files[i].size; at++) {
            patient_flip(patient, i, at, at % 3 == 0 ? 0xff : at % 3 == 1 ? 0x01 : 0x80, 1);
            (void)damage_seems_well(patient->build, HW_LOAD_RAM); /* exact bounds under ASan */
        }
    }
    patient_heal(patient);
    assert_true(damage_seems_well(patient->build, HW_LOAD_MMAP));
}

/* ---- named wounds ------------------------------------------------------------------------ */

/* Files of the patient by number, sections by place in their file. */
enum { SCHEMA_FILE, AUTHORS_FILE, BOOKS_FILE, GRAPH_FILE, PRICE_FILE, RETURNS_FILE, TEXT_VECTORS };
enum { IN_HEADER = 100 };

struct wound {
    uint32_t file, section, element;
    size_t offset; /* in the element, or in the file with IN_HEADER */
    uint64_t value;
    uint32_t bytes;
    int is_resealed;
    const char *message; /* part of what open says */
};

#define HEADER(field) IN_HEADER, 0, offsetof(struct hwi_file_header, field)
#define STORE_INFO(field) 0, 0, offsetof(struct hwi_store_info, field)
#define TABLE_INFO(table, field) 1, table, offsetof(struct hwi_table_info, field)
#define COLUMN_INFO(column, field) 2, column, offsetof(struct hwi_column_info, field)
#define KEY_INFO(key, field) 3, key, offsetof(struct hwi_key_info, field)
#define TASK_INFO(task, field) 5, task, offsetof(struct hwi_task_info, field)

static const struct wound wounds[] = {
    {GRAPH_FILE, HEADER(magic), 'X', 1, 0, "wrong magic"},
    {GRAPH_FILE, HEADER(version), 3, 4, 0, "format version 3, this headwater reads version 2"},
    {SCHEMA_FILE, HEADER(version), 7, 4, 0, "format version 7"},
    {SCHEMA_FILE, HEADER(byte_order), 0x04030201, 4, 0, "another byte order"},
    {BOOKS_FILE, HEADER(build_id), 0x1234, 8, 0, "belongs to another build than schema.bin"},
    {SCHEMA_FILE, HEADER(build_id), 0x1234, 8, 0, "build id is not that of the contents"},
    {BOOKS_FILE, HEADER(kind), HWI_FILE_TASK, 4, 0, "another file of a store under a wrong name"},
    {BOOKS_FILE, HEADER(index), 0, 4, 0, "another file of a store under a wrong name"},
    {BOOKS_FILE, HEADER(file_bytes), 10, 8, 0, "its header has 10"},
    {BOOKS_FILE, HEADER(section_count), 1u << 30, 4, 0, "section table is longer than the file"},
    {BOOKS_FILE, HEADER(section_count), 1, 4, 0, "wrong checksum"},
    {BOOKS_FILE, HEADER(section_count), 1, 4, 1, "is missing"},
    /* the first section's entry: offset at 64 + 8, count at 64 + 16 */
    {BOOKS_FILE, IN_HEADER, 0, 72, 1u << 20, 8, 1, "outside of its place"},
    {BOOKS_FILE, IN_HEADER, 0, 72, 129, 8, 1, "outside of its place"},
    {BOOKS_FILE, IN_HEADER, 0, 80, UINT64_MAX, 8, 1, "impossible size"},
    {BOOKS_FILE, IN_HEADER, 0, 80, 5, 8, 1, "expected 16.0 with 6"},
    {BOOKS_FILE, IN_HEADER, 0, 68, 8, 4, 1, "found section 16.0"},
    {TEXT_VECTORS, IN_HEADER, 0, 64, 5, 4, 1, "expected 64.0"},
    {SCHEMA_FILE, STORE_INFO(table_count), 3, 4, 1, "expected 2.0 with 3"},
    {SCHEMA_FILE, STORE_INFO(row_count), 8, 4, 1, "do not follow those before"},
    {SCHEMA_FILE, STORE_INFO(row_count), 10, 4, 1, "left over"},
    {SCHEMA_FILE, STORE_INFO(text_dim), 0, 4, 1, "past its limit"},
    {SCHEMA_FILE, STORE_INFO(text_count), 7, 4, 1, "elements of 32 bytes, expected 64.0 with 7"},
    {SCHEMA_FILE, STORE_INFO(name), 1u << 20, 4, 1, "a name lies outside of NAMES"},
    {SCHEMA_FILE, STORE_INFO(category_count), 4, 4, 1, "categories are left over"},
    {SCHEMA_FILE, TABLE_INFO(1, row_start), 2, 4, 1, "do not follow those before"},
    {SCHEMA_FILE, TABLE_INFO(1, flags), 1u << 20, 4, 1, "unknown flag"},
    {SCHEMA_FILE, TABLE_INFO(1, flags), 0, 4, 1, "temporal column is not a column"},
    {SCHEMA_FILE, TABLE_INFO(1, record_bytes), 64, 4, 1, "where the format puts them"},
    {SCHEMA_FILE, TABLE_INFO(1, child_offset), 0, 4, 1, "where the format puts them"},
    {SCHEMA_FILE, TABLE_INFO(1, timed_count), 7, 4, 1, "rows with time lie outside"},
    {SCHEMA_FILE, TABLE_INFO(1, child_slot_count), 2, 4, 1, ""},
    {SCHEMA_FILE, TABLE_INFO(0, edge_count), 6, 8, 1, "not those of the keys"},
    {SCHEMA_FILE, TABLE_INFO(1, temporal_column), 2, 4, 1, "temporal column is not a column"},
    {SCHEMA_FILE, COLUMN_INFO(BOOKS_PRICE, lane_offset), 1u << 16, 4, 1, "where the format puts"},
    {SCHEMA_FILE, COLUMN_INFO(BOOKS_PRICE, stype), 9, 1, 1, "out of range"},
    {SCHEMA_FILE, COLUMN_INFO(BOOKS_PRICE, stype), HW_TIMESTAMP, 1, 1, "where the format puts"},
    {SCHEMA_FILE, COLUMN_INFO(BOOKS_PRICE, std), 0x7ff0000000000000u, 8, 1, "out of range"},
    {SCHEMA_FILE, COLUMN_INFO(BOOKS_GENRE, category_count), 9, 4, 1, "categories do not follow"},
    {SCHEMA_FILE, COLUMN_INFO(BOOKS_GENRE, table), 0, 4, 1, "belongs to another table"},
    {SCHEMA_FILE, COLUMN_INFO(BOOKS_PRICE, known_kind), HWI_KNOWN_COLUMN, 1, 1, "known_column"},
    {SCHEMA_FILE, COLUMN_INFO(RETURNS_TARGET, task), 5, 4, 1, "no table and no task"},
    {SCHEMA_FILE, KEY_INFO(0, parent_table), 2, 4, 1, "tables or slots"},
    {SCHEMA_FILE, KEY_INFO(0, child_slot), 1, 4, 1, "tables or slots"},
    {SCHEMA_FILE, KEY_INFO(1, parent_slot), 0, 4, 1, "tables or slots"},
    {SCHEMA_FILE, KEY_INFO(0, column_start), 9, 4, 1, "outside of KEY_COLUMNS"},
    {SCHEMA_FILE, KEY_INFO(0, known_late), 1, 4, 1, "times are missing"},
    {SCHEMA_FILE, 4, 0, 0, 0, 4, 1, "the column is not of the child table"},
    {SCHEMA_FILE, TASK_INFO(0, anchor_table), 2, 4, 1, "out of range"},
    {SCHEMA_FILE, TASK_INFO(0, target_column), 0, 4, 1, "not a column of the anchor table"},
    {SCHEMA_FILE, TASK_INFO(1, obs_time_column), 0, 4, 1, "own columns are not in their place"},
    {SCHEMA_FILE, TASK_INFO(1, target_stype), HW_NUMERICAL, 1, 1, "wrong type"},
    {SCHEMA_FILE, TASK_INFO(0, hidden_count), 1, 4, 1, "outside of HIDDEN"},
    {SCHEMA_FILE, TASK_INFO(0, name_hash), 1, 8, 1, "out of range"},
    {SCHEMA_FILE, TASK_INFO(0, seed_count), 5, 4, 1, "expected 48.0 with 5"},
};

static void named_wounds_are_named(void **state) {
    const struct patient *patient = *state;
    for (size_t i = 0; i < sizeof wounds / sizeof *wounds; i++) {
        const struct wound *wound = &wounds[i];
        size_t at = wound->offset;
        if (wound->section != IN_HEADER) {
            at += patient_place(patient, wound->file, wound->section, wound->element);
        }
        hw_store *store = NULL;
        hw_error error = {.status = HW_OK, .message = ""};
        patient_wound(patient, wound->file, at, wound->value, wound->bytes, wound->is_resealed);
        hw_status status = hw_store_open(patient->build, HW_LOAD_MMAP, &store, &error);
        if (status != HW_BAD_STORE || strstr(error.message, wound->message) == NULL) {
            fail_msg("wound %zu: status %d, '%s', expected '%s'", i, status, error.message,
                     wound->message);
        }
        patient_heal(patient);
    }
}

static void wounds_of_contents_are_found_by_verify(void **state) {
    const struct patient *patient = *state;
    const struct {
        uint32_t file, section, element;
        size_t offset;
        uint64_t value;
        uint32_t bytes;
    } faults[] = {
        {BOOKS_FILE, 0, 0, 0, 3, 4}, /* a parent in another table */
        {BOOKS_FILE, 0, 0, 8, 1, 4}, /* child_start */
        {BOOKS_FILE, 0, 0, 12, 9, 4}, /* a child count */
        {BOOKS_FILE, 1, 1, 0, 0, 8}, /* times descend */
        {GRAPH_FILE, 0, 0, 0, 4, 4}, /* a child twice */
        {GRAPH_FILE, 0, 0, 0, 77, 4}, /* a child that does not exist */
        {PRICE_FILE, 0, 0, 0, 0, 4}, /* an anchor in another table */
        {PRICE_FILE, 0, 0, 0, 6, 4}, /* anchors descend */
        {PRICE_FILE, 2, 0, 0, UINT64_MAX, 8}, /* a target that is no number */
        {PRICE_FILE, 3, 0, 0, 0x53, 1}, /* a state */
        {PRICE_FILE, 4, 0, 0, 1, 8}, /* a key hash */
        {TEXT_VECTORS, 0, 0, 0, 0x7c00, 2}, /* infinity */
        {10, 0, 1, 0, 999, 8}, /* an offset of a text */
        {9, 0, 1, 0, 1, 8}, /* an offset of a key */
        {9, 1, 4, 0, 'X', 1}, /* a byte of a key */
        {9, 2, 0, 0, 7, 4}, /* an order of keys */
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        uint64_t fault_count = 0;
        size_t at = patient_place(patient, faults[i].file, faults[i].section, faults[i].element);
        patient_wound(patient, faults[i].file, at + faults[i].offset, faults[i].value,
                      faults[i].bytes, 1);
        hw_store *store = fixture_open(patient->build, HW_LOAD_MMAP);
        MUST(hw_store_verify(store, ignore_fault, NULL, &fault_count, &error));
        if (fault_count == 0) {
            fail_msg("fault %zu was not found", i);
        }
        hw_store_close(store);
    }
    patient_heal(patient);
}

/* ---- directories ------------------------------------------------------------------------- */

static void assert_open_fails(const char *path, const char *message) {
    hw_store *store = NULL;
    hw_error error = {.status = HW_OK, .message = ""};
    assert_int_equal(hw_store_open(path, HW_LOAD_MMAP, &store, &error), HW_BAD_STORE);
    if (strstr(error.message, message) == NULL) {
        fail_msg("'%s', expected '%s'", error.message, message);
    }
}

static void a_flipped_manifest_opens_the_same_build_or_nothing(void **state) {
    const struct patient *patient = *state;
    char *path = fixture_path(patient->directory, "manifest.json");
    size_t size = 0;
    uint8_t *bytes = damage_read_file(path, &size);
    for (size_t at = 0; at < size; at++) {
        hw_store *store = NULL;
        bytes[at] ^= 0x01;
        damage_write_file(path, bytes, at % 2 ? size : at);
        bytes[at] ^= 0x01;
        if (hw_store_open(patient->directory, HW_LOAD_MMAP, &store, NULL) == HW_OK) {
            assert_string_equal(hw_store_directory(store), patient->build);
            hw_store_close(store);
        }
    }
    damage_write_file(path, bytes, size);
    assert_true(damage_seems_well(patient->directory, HW_LOAD_MMAP));
    free(bytes);
    free(path);
}

static void missing_files_and_directories_are_named(void **state) {
    const struct patient *patient = *state;
    char *nowhere = fixture_path(patient->directory, "nowhere");
    assert_open_fails(nowhere, "cannot open store");
    char *empty = fixture_directory();
    assert_open_fails(empty, "is not a headwater store");
    char *manifest = fixture_path(empty, "manifest.json");
    damage_write_file(manifest, "{}", 2);
    assert_open_fails(empty, "names no fingerprint");
    static const char absent[] = "{\"fingerprint\": \"0123456789abcdef0123456789abcdef\"}";
    damage_write_file(manifest, absent, sizeof absent - 1);
    assert_open_fails(empty, "schema.bin");
    for (uint32_t i = 1; i < patient->file_count; i++) {
        assert_int_equal(unlink(patient->files[i].path), 0);
        assert_open_fails(patient->directory, patient->files[i].path);
        patient_heal(patient);
    }
    free(manifest);
    free(nowhere);
    fixture_remove(empty);
}

static void a_file_of_another_store_does_not_open(void **state) {
    const struct patient *patient = *state;
    char *other_directory = fixture_directory();
    hw_store *other = deliveries(other_directory);
    char *texts = fixture_path(hw_store_directory(other), "texts.bin");
    size_t size = 0;
    uint8_t *bytes = damage_read_file(texts, &size);
    hw_store_close(other);
    damage_write_file(patient->files[10].path, bytes, size);
    assert_false(damage_seems_well(patient->directory, HW_LOAD_MMAP));
    patient_heal(patient);
    free(bytes);
    free(texts);
    fixture_remove(other_directory);
}

static void a_file_that_shrinks_while_open_is_noticed(void **state) {
    const struct patient *patient = *state;
    hw_store *store = fixture_open(patient->directory, HW_LOAD_MMAP);
    hw_error error = {.status = HW_OK, .message = ""};
    char *moved = fixture_path(patient->directory, "moved"); /* which alone changes nothing */
    assert_int_equal(rename(patient->build, moved), 0);
    assert_int_equal(hwi_store_check_sizes(store, &error), HW_OK);
    char *graph = fixture_path(moved, "graph.bin");
    assert_int_equal(truncate(graph, 100), 0);
    assert_int_equal(hwi_store_check_sizes(store, &error), HW_BAD_STORE);
    assert_non_null(strstr(error.message, "graph.bin"));
    assert_int_equal(rename(moved, patient->build), 0);
    hw_store_close(store);
    patient_heal(patient);
    free(moved);
    free(graph);
    /* In memory it is of no concern. */
    store = fixture_open(patient->directory, HW_LOAD_RAM);
    assert_int_equal(truncate(patient->files[GRAPH_FILE].path, 100), 0);
    assert_int_equal(hwi_store_check_sizes(store, &error), HW_OK);
    damage_read_everything(store);
    hw_store_close(store);
    patient_heal(patient);
}

/* As when a newer build is published: what is mapped stays whole. */
static void a_file_that_is_removed_or_replaced_while_open_stays_readable(void **state) {
    const struct patient *patient = *state;
    const char *path = patient->files[GRAPH_FILE].path;
    hw_store *store = fixture_open(patient->directory, HW_LOAD_MMAP);
    hw_error error = {.status = HW_OK, .message = ""};
    assert_int_equal(unlink(path), 0);
    assert_int_equal(hwi_store_check_sizes(store, &error), HW_OK);
    damage_write_file(path, (const uint8_t *)"short", 5);
    assert_int_equal(hwi_store_check_sizes(store, &error), HW_OK);
    damage_read_everything(store);
    hw_store_close(store);
    patient_heal(patient);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_truncation_is_found),
        cmocka_unit_test(every_flipped_byte_is_found),
        cmocka_unit_test(resealed_flips_never_crash),
        cmocka_unit_test(named_wounds_are_named),
        cmocka_unit_test(wounds_of_contents_are_found_by_verify),
        cmocka_unit_test(a_flipped_manifest_opens_the_same_build_or_nothing),
        cmocka_unit_test(missing_files_and_directories_are_named),
        cmocka_unit_test(a_file_of_another_store_does_not_open),
        cmocka_unit_test(a_file_that_shrinks_while_open_is_noticed),
        cmocka_unit_test(a_file_that_is_removed_or_replaced_while_open_stays_readable),
    };
    return cmocka_run_group_tests(tests, admit, discharge);
}
