/*
 * Sampling damaged stores. Opening proves the structure of a store, not its contents, so a sampler
 * meets parents, children, texts, categories, anchors and times of any value: it must answer with a
 * status or with batches whose ids are in range (support/survey.h), never with a crash; the suite
 * runs under ASan and UBSan. All damage is resealed (support/damage.h): checksums hold it back from
 * nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "format/format.h"
#include "support/damage.h"
#include "support/league.h"
#include "support/survey.h"

static int admit(void **state, hw_store *(*make)(const char *store_path)) {
    char *directory = fixture_directory();
    hw_store_close(make(directory));
    *state = patient_admit(directory);
    return 0;
}

static int admit_bookstore(void **state) {
    return admit(state, bookstore);
}

static int admit_deliveries(void **state) {
    return admit(state, deliveries);
}

static int admit_league(void **state) {
    return admit(state, league);
}

static int admit_league_scored(void **state) {
    return admit(state, league_scored);
}

static int discharge(void **state) {
    patient_discharge(*state);
    return 0;
}

/* Files that a sampler reads ids from; those of vectors, keys and texts it only copies or skips. */
static int is_sampled(const struct patient_file *file) {
    return file->kind == HWI_FILE_SCHEMA || file->kind == HWI_FILE_TABLE ||
           file->kind == HWI_FILE_GRAPH || file->kind == HWI_FILE_TASK;
}

static void a_whole_store_is_sampled_without_a_failure(void **state) {
    const struct patient *patient = *state;
    for (uint32_t variant = 0; variant < SURVEY_VARIANTS; variant++) {
        struct survey survey = {0};
        survey_store(patient->build, variant, &survey);
        assert_int_equal(survey.opened, 1);
        assert_true(survey.batches > 0);
    }
}

/* Where the last sections end: what is behind a header and its section table. */
static size_t contents_start(const struct patient_file *file) {
    struct hwi_file_header header;
    memcpy(&header, file->bytes, sizeof header);
    return sizeof header + header.section_count * sizeof(struct hwi_section_info);
}

static void flips_of_every_byte_never_crash(void **state) {
    const struct patient *patient = *state;
    struct survey survey = {0};
    for (uint32_t i = 0; i < patient->file_count; i++) {
        const struct patient_file *file = &patient->files[i];
        if (!is_sampled(file)) {
            continue;
        }
        for (size_t at = contents_start(file); at < file->size; at++) {
            patient_flip(patient, i, at, at % 3 == 0 ? 0xff : at % 3 == 1 ? 0x01 : 0x80, 1);
            survey_store(patient->build, (uint32_t)at, &survey);
        }
    }
    patient_heal(patient);
    assert_true(survey.failed + survey.refused > 0);
    assert_true(survey.opened > 0);
}

/* Every aligned word of the data set to values that are one off, absent or extreme. */
static void extreme_words_never_crash(void **state) {
    static const uint32_t words[] = {0, 1, 0x7fffffff, 0xfffffffe, 0xffffffff};
    const struct patient *patient = *state;
    struct survey survey = {0};
    for (uint32_t i = 1; i < patient->file_count; i++) {
        const struct patient_file *file = &patient->files[i];
        if (!is_sampled(file)) {
            continue;
        }
        for (size_t at = contents_start(file); at + 4 <= file->size; at += 4) {
            uint32_t word = words[at / 4 % (sizeof words / sizeof *words)];
            patient_wound(patient, i, at, word, 4, 1);
            survey_store(patient->build, (uint32_t)(at / 4), &survey);
        }
    }
    patient_heal(patient);
    assert_true(survey.opened > 0);
}

/* ---- damage that must be named ----------------------------------------------------------- */

/* A batch of a split over league whose file has `bytes` of `value` at a place; the message it fails
 * with. */
static void assert_named(const struct patient *patient, hw_split split, uint32_t file, size_t at,
                         uint64_t value, size_t bytes, const char *message) {
    hw_sampler *sampler = NULL;
    hw_batch *batch = NULL;
    hw_error error = {.message = ""};
    hw_sampler_options options = {.struct_bytes = sizeof options,
                                  .split_ratios = {0.8, 0.1, 0.1},
                                  .batch_size = 8,
                                  .sequence_length = 64,
                                  .max_rows = 32,
                                  .text_budget = 9,
                                  .peer_labels = 2,
                                  .num_prefetch = 0};
    patient_wound(patient, file, at, value, bytes, 1);
    hw_store *store = fixture_open(patient->build, HW_LOAD_RAM);
    hw_status status = hw_sampler_open(store, &options, &sampler, &error);
    for (uint64_t k = 0; status == HW_OK && k < 8; k++) {
        status = hw_sampler_batch(sampler, split, k, &batch, &error);
        if (status == HW_OK) {
            hw_batch_release(batch);
        }
    }
    if (status != HW_BAD_STORE || strstr(error.message, message) == NULL) {
        fail_msg("status %d, '%s', expected '%s'", status, error.message, message);
    }
    hw_sampler_close(sampler);
    hw_store_close(store);
    patient_heal(patient);
}

static void ids_that_are_out_of_range_are_named(void **state) {
    enum { TEAMS_FILE = 1, MATCHES_FILE, GRAPH_FILE, SCORE_FILE, FORM_FILE };
    enum { ANCHORS, OBS_TIMES, TARGETS, STATES };
    static const struct {
        hw_split split;
        uint32_t file, section, element;
        size_t offset, bytes;
        uint64_t value;
        const char *message;
    } ids[] = {
        {HW_TRAIN, MATCHES_FILE, 0, 0, 0, 4, 99, /* match 2's home */
         "a parent is row 99, outside table 'teams' (rows 0 to 2)"},
        {HW_TRAIN, TEAMS_FILE, 0, 0, 4, 4, 1000, /* team 0's child_counts by home */
         "lists children up to"},
        {HW_TRAIN, GRAPH_FILE, 0, 0, 0, 4, 1, "a child is row 1"},
        {HW_TRAIN, SCORE_FILE, ANCHORS, 0, 0, 4, 1, "anchor row 1"},
        {HW_TRAIN, FORM_FILE, ANCHORS, 0, 0, 4, 7, "the anchor of seed 0 is row 7"},
        {HW_TRAIN, FORM_FILE, STATES, 0, 0, 1, 0x50, "has split 5"},
        {HW_TRAIN, FORM_FILE, TARGETS, 0, 0, 8, 2, "target of seed 0"}, /* a category */
        /* What val, seed 1, is shown of seed 2: its anchor, its answer. */
        {HW_VAL, FORM_FILE, ANCHORS, 2, 0, 4, 7,
         "the anchor of a label is row 7, outside table 'teams' (rows 0 to 2)"},
        {HW_VAL, FORM_FILE, TARGETS, 2, 0, 8, 2, "the target of seed 2"},
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        size_t at = patient_place(*state, ids[i].file, ids[i].section, ids[i].element);
        assert_named(*state, ids[i].split, ids[i].file, at + ids[i].offset, ids[i].value,
                     ids[i].bytes, ids[i].message);
    }
}

int main(void) {
#define ON(test, database) cmocka_unit_test_setup_teardown(test, admit_##database, discharge)
    const struct CMUnitTest tests[] = {
        ON(a_whole_store_is_sampled_without_a_failure, bookstore),
        ON(a_whole_store_is_sampled_without_a_failure, deliveries),
        ON(a_whole_store_is_sampled_without_a_failure, league),
        ON(a_whole_store_is_sampled_without_a_failure, league_scored),
        ON(flips_of_every_byte_never_crash, bookstore),
        ON(flips_of_every_byte_never_crash, deliveries),
        ON(flips_of_every_byte_never_crash, league),
        ON(flips_of_every_byte_never_crash, league_scored),
        ON(extreme_words_never_crash, bookstore),
        ON(extreme_words_never_crash, deliveries),
        ON(extreme_words_never_crash, league),
        ON(extreme_words_never_crash, league_scored),
        ON(ids_that_are_out_of_range_are_named, league),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
