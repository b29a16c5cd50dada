/* Memory of batches: zeros at first, then what was left; how much of it a batch shows; and pages
 * behind them. */
#include "base/huge_pages.h"
#include "batch/slab.h"
#include "support/read.h"
#include "support/unit_test.h"

static const uint64_t SIZES[] = {1, 64, 4097, (uint64_t)3 << 20}; /* heap, heap, heap, huge pages */
enum { SIZE_COUNT = 4 };

static struct hwi_pool *open_pool(uint64_t slab_bytes, uint32_t kept_count) {
    struct hwi_plan plan = {.slab_bytes = slab_bytes};
    struct hwi_pool *pool = NULL;
    hw_error error;
    assert_int_equal(hwi_pool_open(&plan, kept_count, &pool, &error), HW_OK);
    return pool;
}

static hw_batch *take(struct hwi_pool *pool) {
    hw_batch *batch = NULL;
    hw_error error;
    assert_int_equal(hwi_pool_take(pool, &batch, &error), HW_OK);
    return batch;
}

static void assert_filled(const uint8_t *slab, uint64_t bytes, uint8_t value) {
    for (uint64_t i = 0; i < bytes; i++) {
        if (slab[i] != value) {
            fail_msg("byte %llu is %u, expected %u", (unsigned long long)i, slab[i], value);
        }
    }
}

static void a_new_slab_is_zero_and_a_used_one_keeps_what_was_left(void **state) {
    for (int i = 0; i < SIZE_COUNT; i++) {
        struct hwi_pool *pool = open_pool(SIZES[i], 1);
        hw_batch *first = take(pool), *second = take(pool);
        assert_int_equal((uintptr_t)hwi_batch_slab(first) % 64, 0);
        assert_filled(hwi_batch_slab(first), SIZES[i], 0);
        assert_filled(hwi_batch_slab(second), SIZES[i], 0);
        memset(hwi_batch_slab(first), 7, (size_t)SIZES[i]);
        hw_batch_release(first);
        first = take(pool);
        assert_filled(hwi_batch_slab(first), SIZES[i], 7);
        hw_batch_release(first);
        hw_batch_release(second);
        hwi_pool_close(pool);
    }
}

/* Vectors [9, 4] of float16 behind one number. A batch of 5 texts shows 5 rows; the next one over
 * the same slab shows all again. */
static void a_batch_shows_as_many_texts_as_its_sizes_say(void **state) {
    static const hw_batch_field formats[] = {
        {.name = "count", .dtype = HW_UINT32, .dims = {"1"}},
        {.name = "vectors", .dtype = HW_FLOAT16, .dims = {"U", "D_t"}}};
    struct hwi_plan plan = {.slab_bytes = 256, .field_count = 2};
    plan.fields[0] = (struct hwi_field){.format = &formats[0], .bytes = 4, .shape = {1}, .rank = 1};
    plan.fields[1] = (struct hwi_field){.format = &formats[1],
                                        .offset = 64,
                                        .bytes = 72,
                                        .shape = {9, 4},
                                        .rank = 2,
                                        .varies = HWI_VARIES_TEXTS};
    struct hwi_pool *pool = NULL;
    hw_error error;
    assert_int_equal(hwi_pool_open(&plan, 1, &pool, &error), HW_OK);
    for (int turn = 0; turn < 2; turn++) {
        hw_batch *batch = take(pool);
        assert_int_equal(sizes_of(batch).texts, 0);
        assert_int_equal(tensor_of(batch, 1).shape[0], 9);
        assert_int_equal(tensor_of(batch, 1).bytes, 72);
        hwi_batch_set_sizes(batch, (hw_batch_sizes){.texts = 5});
        assert_int_equal(sizes_of(batch).texts, 5);
        assert_int_equal(tensor_of(batch, 0).shape[0], 1);
        assert_int_equal(tensor_of(batch, 0).bytes, 4);
        assert_int_equal(tensor_of(batch, 1).shape[0], 5);
        assert_int_equal(tensor_of(batch, 1).shape[1], 4);
        assert_int_equal(tensor_of(batch, 1).bytes, 40);
        hw_batch_release(batch);
    }
    hwi_pool_close(pool);
}

static void pages_are_zero_and_writable(void **state) {
    for (int i = 0; i < SIZE_COUNT; i++) {
        uint8_t *pages = hwi_pages_open(SIZES[i]);
        assert_filled(pages, SIZES[i], 0);
        memset(pages, 1, (size_t)SIZES[i]);
        hwi_pages_close(pages, SIZES[i]);
    }
    hwi_pages_close(NULL, SIZES[3]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_slab_is_zero_and_a_used_one_keeps_what_was_left),
        cmocka_unit_test(a_batch_shows_as_many_texts_as_its_sizes_say),
        cmocka_unit_test(pages_are_zero_and_writable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
