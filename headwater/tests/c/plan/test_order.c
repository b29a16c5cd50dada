/* Random numbers and the keyed permutation: published vectors, and properties over small sizes. */
#include "base/rng.h"
#include "plan/order.h"
#include "support/unit_test.h"

/* Known answers published with Random123 for philox4x32, 10 rounds. */
static void philox_gives_the_published_words(void **state) {
    static const struct {
        uint32_t counter[4], key[2], words[4];
    } vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        uint32_t words[4];
        hwi_philox(vectors[i].counter, vectors[i].key, words);
        assert_memory_equal(words, vectors[i].words, sizeof words);
    }
}

static void splitmix_gives_the_published_first_word(void **state) {
    assert_int_equal(hwi_mix(0), UINT64_C(0xE220A8397B1DCDAF));
}

static void streams_of_different_seeds_splits_and_epochs_differ(void **state) {
    struct hwi_rng streams[] = {
        hwi_rng_make(1, 0, 0, 0), hwi_rng_make(2, 0, 0, 0), hwi_rng_make(1, 1, 0, 0),
        hwi_rng_make(1, 0, 1, 0), hwi_rng_make(1, 0, 0, 1), hwi_rng_make(1, 0, 0, 4),
    };
    enum { COUNT = sizeof streams / sizeof streams[0] };
    uint32_t first[COUNT];
    for (int i = 0; i < COUNT; i++) {
        first[i] = hwi_rng_next(&streams[i]);
        for (int j = 0; j < i; j++) {
            assert_int_not_equal(first[i], first[j]);
        }
    }
}

/* How far counts of draws are from equal ones. */
static double chi_square(const uint32_t *counts, int size, double draws) {
    double chi = 0;
    for (int i = 0; i < size; i++) {
        double away = (double)counts[i] - draws / size;
        chi += away * away / (draws / size);
    }
    return chi;
}

static void below_is_in_range_and_about_uniform(void **state) {
    struct hwi_rng rng = hwi_rng_make(7, 0, 0, 0);
    uint32_t counts[6] = {0};
    enum { DRAWS = 60000 };
    for (int i = 0; i < DRAWS; i++) {
        uint32_t draw = hwi_rng_below(&rng, 6);
        assert_true(draw <= 5);
        counts[draw]++;
    }
    assert_true(chi_square(counts, 6, DRAWS) < 20.5); /* 5 degrees of freedom, p = 0.001 */
}

static void below_one_takes_no_word(void **state) {
    struct hwi_rng rng = hwi_rng_make(7, 0, 0, 0), other = rng;
    assert_int_equal(hwi_rng_below(&rng, 1), 0);
    assert_int_equal(hwi_rng_next(&rng), hwi_rng_next(&other));
}

static void permutations_of_every_small_size_are_bijections(void **state) {
    uint8_t seen[300];
    for (uint32_t count = 1; count <= 300; count++) {
        memset(seen, 0, sizeof seen);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t place = hwi_permute(count * 31, count, i);
            assert_true(place < count);
            assert_false(seen[place]);
            seen[place] = 1;
        }
    }
}

static void permutations_reach_the_largest_size(void **state) {
    uint32_t count = UINT32_MAX - 1;
    for (uint32_t i = 0; i < 1000; i++) {
        assert_true(hwi_permute(5, count, i * 4000037u % count) < count);
    }
}

static void each_place_of_a_small_permutation_is_about_equally_likely(void **state) {
    enum { SIZE = 5, KEYS = 20000 };
    uint32_t counts[SIZE] = {0};
    for (uint64_t key = 0; key < KEYS; key++) {
        counts[hwi_permute(hwi_key(9, HWI_KEY_EPOCH, 0, key), SIZE, 2)]++;
    }
    assert_true(chi_square(counts, SIZE, KEYS) < 18.5); /* 4 degrees of freedom, p = 0.001 */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_words),
        cmocka_unit_test(splitmix_gives_the_published_first_word),
        cmocka_unit_test(streams_of_different_seeds_splits_and_epochs_differ),
        cmocka_unit_test(below_is_in_range_and_about_uniform),
        cmocka_unit_test(below_one_takes_no_word),
        cmocka_unit_test(permutations_of_every_small_size_are_bijections),
        cmocka_unit_test(permutations_reach_the_largest_size),
        cmocka_unit_test(each_place_of_a_small_permutation_is_about_equally_likely),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
