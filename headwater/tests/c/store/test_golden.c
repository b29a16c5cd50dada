/*
 * The golden store: tests/data/golden is the bookstore of support/fixtures.h as it was built when
 * the format version was fixed. Usage: test_golden tests/data/golden
 *
 * It must open and sample, and the same rows must still build to the same bytes. If a test here
 * fails and the bytes were meant to change, stores in the field no longer match: raise
 * HW_FORMAT_VERSION, say so in docs/reference/store-format.md, and commit the next store, which the
 * test leaves in $GOLDEN_OUT if that is set. If only the sampling was meant to change, say so in
 * docs/reference/sampling.md and replace the digest below.
 */
#define _XOPEN_SOURCE 700

#include <stdio.h>

#include "format/format.h"
#include "support/damage.h"
#include "support/read.h"
#include "support/unit_test.h"

static const char *golden_path;

static void the_golden_store_opens_and_verifies(void **state) {
    hw_store *store = fixture_open(golden_path, HW_LOAD_MMAP);
    fixture_sound(store);
    damage_read_everything(store);
    hw_store_close(store);
}

static void assert_golden_bytes(const char *directory, const char *name, const uint8_t *found,
                                size_t found_size) {
    char *path = fixture_path(directory, name);
    size_t size = 0;
    uint8_t *bytes = damage_read_file(path, &size);
    if (size != found_size || memcmp(bytes, found, size) != 0) {
        fail_msg("'%s' is built with other bytes; see the head of test_golden.c", path);
    }
    free(bytes);
    free(path);
}

static void the_same_rows_build_to_the_same_bytes(void **state) {
    if (getenv("GOLDEN_OUT") != NULL) {
        hw_store_close(bookstore(getenv("GOLDEN_OUT")));
    }
    hw_store *store = fixture_open(golden_path, HW_LOAD_MMAP);
    struct patient *rebuilt = patient_admit(bookstore);
    const char *fingerprint = hw_store_fingerprint(store);
    assert_string_equal(strrchr(rebuilt->build, '/') + 1, fingerprint);
    for (uint32_t i = 0; i < rebuilt->file_count; i++) {
        assert_golden_bytes(hw_store_directory(store),
                            rebuilt->files[i].path + strlen(rebuilt->build) + 1,
                            rebuilt->files[i].bytes, rebuilt->files[i].size);
    }
    char *path = fixture_path(rebuilt->directory, "manifest.json");
    size_t size = 0;
    uint8_t *manifest = damage_read_file(path, &size);
    assert_golden_bytes(golden_path, "manifest.json", manifest, size);
    free(manifest);
    free(path);
    hw_store_close(store);
    patient_discharge(rebuilt);
}

/* Rows, columns, texts and seeds of batches drawn from it: what a run with these options trained
 * on, it trains on again, with any compiler on any machine. */
static void batches_of_the_golden_store_never_change(void **state) {
    static const char *const names[] = {"row_ids", "column_ids", "text_embed_ids", "seed_index",
                                        "out_perm"};
    hw_store *store = fixture_open(golden_path, HW_LOAD_MMAP);
    hw_sampler_options options = {.struct_bytes = sizeof options,
                                  .split_ratios = {1, 0, 0},
                                  .seed = 20240607,
                                  .batch_size = 4,
                                  .sequence_length = 40,
                                  .max_rows = 8,
                                  .text_budget = 33,
                                  .child_width = 2,
                                  .num_prefetch = 0,
                                  .with_rows = 1};
    uint64_t digest = 0;
    hw_sampler *sampler = fixture_sampler(store, &options);
    for (uint64_t k = 0; k < 50; k++) {
        hw_batch *batch = NULL;
        MUST(hw_sampler_batch(sampler, HW_TRAIN, k, &batch, &error));
        for (uint32_t i = 0; i < hw_batch_tensor_count(batch); i++) {
            hw_tensor tensor = tensor_of(batch, i);
            for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
                if (strcmp(tensor.name, names[n]) == 0) {
                    digest = hw_hash64(tensor.data, tensor.bytes, digest);
                }
            }
        }
        hw_batch_release(batch);
    }
    hw_sampler_close(sampler);
    hw_store_close(store);
    if (digest != UINT64_C(0xa85137868dc823d0)) {
        fail_msg("the digest is 0x%016llx; see the head of test_golden.c",
                 (unsigned long long)digest);
    }
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_golden_store_opens_and_verifies),
        cmocka_unit_test(the_same_rows_build_to_the_same_bytes),
        cmocka_unit_test(batches_of_the_golden_store_never_change),
    };
    if (argument_count != 2) {
        fprintf(stderr, "usage: test_golden tests/data/golden\n");
        return 2;
    }
    golden_path = arguments[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
