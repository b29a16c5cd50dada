/* First-fit: which sequence a context goes into. What packing then copies is test_packing.py's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pack.h"

static struct hwi_fit open_fit(uint32_t batch_size) {
    struct hwi_fit fit = {0};
    hw_error error;
    assert_int_equal(hwi_fit_open(batch_size, &fit, &error), HW_OK);
    return fit;
}

/* 10 cells and 4 rows to a sequence, of which there are three. */
static const hw_shape SMALL = {
    .batch_size = 3,
    .sequence_length = 10,
    .max_rows = 4,
    .contexts_per_sequence = 3,
};

static void a_context_goes_into_the_first_sequence_with_room(void **state) {
    (void)state;
    struct hwi_fit fit = open_fit(SMALL.batch_size);
    assert_int_equal(hwi_fit_add(&fit, &SMALL, 6, 1), 0);
    assert_int_equal(hwi_fit_add(&fit, &SMALL, 7, 1), 1); /* 6 + 7 > 10 */
    assert_int_equal(hwi_fit_add(&fit, &SMALL, 4, 1), 0); /* just fits */
    assert_int_equal(hwi_fit_add(&fit, &SMALL, 3, 4), 2); /* cells of 1 would do, its rows do not */
    assert_int_equal(hwi_fit_add(&fit, &SMALL, 3, 3), 1);
    assert_int_equal(hwi_fit_add(&fit, &SMALL, 1, 1), HWI_NONE); /* 2 has cells, but no rows */
    assert_int_equal(fit.cells[0], 10);
    assert_int_equal(fit.rows[1], 4);
    assert_int_equal(fit.contexts[2], 1);
    hwi_fit_release(&fit);
}

static void a_sequence_holds_no_more_contexts_than_it_may(void **state) {
    (void)state;
    struct hwi_fit fit = open_fit(SMALL.batch_size);
    for (uint32_t b = 0; b < 3; b++) {
        for (uint32_t k = 0; k < 3; k++) {
            assert_int_equal(hwi_fit_add(&fit, &SMALL, 1, 1), b);
        }
    }
    assert_int_equal(hwi_fit_add(&fit, &SMALL, 1, 1), HWI_NONE);
    hwi_fit_clear(&fit, SMALL.batch_size);
    assert_int_equal(hwi_fit_add(&fit, &SMALL, 10, 4), 0);
    hwi_fit_release(&fit);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_goes_into_the_first_sequence_with_room),
        cmocka_unit_test(a_sequence_holds_no_more_contexts_than_it_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
