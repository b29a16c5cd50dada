/* Splits by hash; see hashed_split.h. */
#include "store/hashed_split.h"

#include <math.h>

enum { SPLIT_BUCKETS = 1000 };

/* Buckets below a share of all. */
static uint64_t buckets(double share) {
    return (uint64_t)llround((double)SPLIT_BUCKETS * share);
}

uint8_t hwi_hashed_split(const hw_sampler_options *options, uint64_t key_hash, uint64_t name_hash) {
    uint64_t words[3] = {key_hash, name_hash, options->split_seed};
    uint8_t bytes[sizeof words];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(words[i / 8] >> (8 * (i % 8)));
    }
    uint64_t bucket = hw_hash64(bytes, sizeof bytes, 0) % SPLIT_BUCKETS;
    const double *ratios = options->split_ratios;
    if (bucket < buckets(ratios[HW_TRAIN])) {
        return HW_TRAIN;
    }
    return bucket < buckets(ratios[HW_TRAIN] + ratios[HW_VAL]) ? HW_VAL : HW_TEST;
}
