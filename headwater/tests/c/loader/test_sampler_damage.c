/*
 * Sampling damaged stores. Opening proves the structure of a store, not its contents, so a sampler
 * meets parents, children, texts, categories, anchors and times of any value: it must answer with a
 * status or with batches whose ids are in range (support/survey.h), never with a crash; the suite
 * runs under ASan and UBSan. All damage is resealed (support/damage.h): checksums hold it back from
 * nothing.
 */
#include <stdio.h>

#include "format/format.h"
#include "support/damage.h"
#include "support/league.h"
#include "support/survey.h"
#include "support/unit_test.h"

/* A check of a patient with each database. */
static void with_each(void (*check)(const struct patient *patient)) {
    static hw_store *(*const makers[])(const char *) = {bookstore, deliveries, league,
                                                        league_scored};
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        struct patient *patient = patient_admit(makers[i]);
        check(patient);
        patient_discharge(patient);
    }
}

/* Files that a sampler reads ids from; those of vectors, keys and texts it only copies or skips. */
static int is_sampled(const struct patient_file *file) {
    return file->kind == HWI_FILE_SCHEMA || file->kind == HWI_FILE_TABLE ||
           file->kind == HWI_FILE_GRAPH || file->kind == HWI_FILE_TASK;
}

static void sample_whole(const struct patient *patient) {
    for (uint32_t variant = 0; variant < SURVEY_VARIANTS; variant++) {
        struct survey survey = {0};
        survey_store(patient->build, variant, &survey);
        assert_int_equal(survey.opened, 1);
        assert_true(survey.batches > 0);
    }
}

static void a_whole_store_is_sampled_without_a_failure(void **state) {
    with_each(sample_whole);
}

/* Not in a header, nor in what fills a section up, which no sampler reads. */
static int is_content(const struct patient_file *file, size_t at) {
    const struct hwi_file_header *header = (const void *)file->bytes;
    const struct hwi_section_info *sections = (const void *)(header + 1);
    for (uint32_t i = 0; i < header->section_count; i++) {
        if (at - sections[i].offset < sections[i].count * sections[i].element_bytes) {
            return 1;
        }
    }
    return 0;
}

/* A byte of every place, and every aligned word of the data, which is set to a value that is one
 * off, absent or extreme. */
static void sample_damaged(const struct patient *patient) {
    static const uint32_t words[] = {0, 1, 0x7fffffff, 0xfffffffe, 0xffffffff};
    struct survey flipped = {0}, extreme = {0};
    for (uint32_t i = 0; i < patient->file_count; i++) {
        const struct patient_file *file = &patient->files[i];
        for (size_t at = 0; is_sampled(file) && at < file->size; at++) {
            if (!is_content(file, at)) {
                continue;
            }
            patient_flip(patient, i, at, at % 3 == 0 ? 0xff : at % 3 == 1 ? 0x01 : 0x80, 1);
            survey_store(patient->build, (uint32_t)at, &flipped);
            if (i > 0 && at % 4 == 0 && at + 4 <= file->size) {
                uint32_t word = words[at / 4 % (sizeof words / sizeof *words)];
                patient_wound(patient, i, at, word, 4, 1);
                survey_store(patient->build, (uint32_t)(at / 4), &extreme);
            }
        }
    }
    assert_true(flipped.failed + flipped.refused > 0);
    assert_true(flipped.opened > 0 && extreme.opened > 0);
}

static void flipped_bytes_and_extreme_words_never_crash(void **state) {
    with_each(sample_damaged);
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
    struct patient *patient = patient_admit(league);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        size_t at = patient_place(patient, ids[i].file, ids[i].section, ids[i].element);
        assert_named(patient, ids[i].split, ids[i].file, at + ids[i].offset, ids[i].value,
                     ids[i].bytes, ids[i].message);
    }
    patient_discharge(patient);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_store_is_sampled_without_a_failure),
        cmocka_unit_test(flipped_bytes_and_extreme_words_never_crash),
        cmocka_unit_test(ids_that_are_out_of_range_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
