/*
 * The hash embedder against vectors recorded when it was written: if one of these changes, stores
 * change.
 */
#include <math.h>

#include "builder/hash_embed.h"
#include "headwater.h"
#include "support/unit_test.h"

static void halves_round_to_nearest_even(void **state) {
    const struct {
        double value;
        uint16_t half;
    } cases[] = {
        {0.0, 0x0000},
        {-0.0, 0x8000},
        {1.0, 0x3c00},
        {-2.0, 0xc000},
        {65504.0, 0x7bff},
        {65519.0, 0x7bff}, /* below the middle to infinity */
        {65520.0, 0x7c00}, /* the middle goes to even, which is infinity */
        {1e300, 0x7c00},
        {0x1p-14, 0x0400}, /* smallest normal */
        {0x1p-24, 0x0001}, /* smallest of all */
        {0x1p-25, 0x0000}, /* the middle below it goes to even */
        {0x1.8p-25, 0x0001},
        {0x1.8p-24, 0x0002}, /* the middle of 1 and 2 goes to 2 */
        {0x1p-26, 0x0000},
        {1.0 + 0x1p-11, 0x3c00}, /* middle, to even */
        {1.0 + 0x1.8p-10, 0x3c02}, /* middle of odd and even */
        {1.0 + 0x1.0000001p-11, 0x3c01},
        {0x1.ff8p-15, 0x03ff}, /* largest below normal */
        {0x1.ffcp-15, 0x0400}, /* carries into the exponent */
        {1.0 / 3.0, 0x3555},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(hwi_half(cases[i].value), cases[i].half);
    }
}

static double half_value(uint16_t half) {
    double size = (half & 0x7c00) == 0 ? ldexp(half & 0x3ff, -24)
                                       : ldexp((half & 0x3ff) | 0x400, (half >> 10 & 31) - 25);
    return half & 0x8000 ? -size : size;
}

static double dot(const char *a, const char *b) {
    uint16_t left[256], right[256];
    double sum = 0;
    assert_int_equal(hw_hash_embed(a, strlen(a), 256, left, NULL), HW_OK);
    assert_int_equal(hw_hash_embed(b, strlen(b), 256, right, NULL), HW_OK);
    for (int i = 0; i < 256; i++) {
        sum += half_value(left[i]) * half_value(right[i]);
    }
    return sum;
}

static void vectors_have_length_one_and_similar_texts_are_near(void **state) {
    assert_float_equal(dot("Max Verstappen", "Max Verstappen"), 1, 2e-3);
    assert_float_equal(dot("Max Verstappen", "max VERSTAPPEN!"), 1, 2e-3);
    assert_true(dot("Max Verstappen", "Jos Verstappen") > 0.5);
    assert_true(fabs(dot("Max Verstappen", "blue cheese")) < 0.3);
    assert_float_equal(dot("$$$", "$$$"), 1, 2e-3);
    assert_true(fabs(dot("$$$", "$$")) < 0.5);
    assert_float_equal(dot("", "anything"), 0, 0);
}

static void recorded_embeddings_do_not_change(void **state) {
    uint16_t vector[8];
    const uint16_t hello[8] = {0x0000, 0xb688, 0xb89e, 0x0000, 0xb688, 0x3688, 0x3688, 0x0000};
    const uint16_t zero[8] = {0};
    assert_int_equal(hw_hash_embed("Hello, world", 12, 8, vector, NULL), HW_OK);
    if (memcmp(vector, hello, sizeof hello) != 0) {
        for (int i = 0; i < 8; i++) {
            print_error("0x%04x, ", vector[i]);
        }
    }
    assert_memory_equal(vector, hello, sizeof hello);
    assert_int_equal(hw_hash_embed("", 0, 8, vector, NULL), HW_OK);
    assert_memory_equal(vector, zero, sizeof zero);
}

static void only_the_start_of_a_long_text_is_read(void **state) {
    static char text[HWI_EMBED_TEXT_BYTES + 100];
    uint16_t whole[8], start[8];
    memset(text, 'x', sizeof text);
    assert_int_equal(hw_hash_embed(text, sizeof text, 8, whole, NULL), HW_OK);
    assert_int_equal(hw_hash_embed(text, HWI_EMBED_TEXT_BYTES, 8, start, NULL), HW_OK);
    assert_memory_equal(whole, start, sizeof whole);
}

static void impossible_widths_are_refused(void **state) {
    uint16_t vector[1];
    hw_error error;
    assert_int_equal(hw_hash_embed("a", 1, 0, vector, &error), HW_BAD_ARGUMENT);
    assert_int_equal(hw_hash_embed("a", 1, 16385, vector, &error), HW_BAD_ARGUMENT);
    assert_int_equal(hw_hash_embed("a", 1, 1, NULL, NULL), HW_BAD_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(vectors_have_length_one_and_similar_texts_are_near),
        cmocka_unit_test(recorded_embeddings_do_not_change),
        cmocka_unit_test(only_the_start_of_a_long_text_is_read),
        cmocka_unit_test(impossible_widths_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
