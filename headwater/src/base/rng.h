/*
 * Randomness that is a function of its key: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel
 * random numbers: as easy as 1, 2, 3", SC 2011). A sequence's stream is keyed by what the sequence
 * is (docs/reference/sampling.md, "Random draws"), never by who makes it, so any thread can make
 * it.
 */
#ifndef HWI_RNG_H
#define HWI_RNG_H

#include <stddef.h>
#include <stdint.h>

/* Blocks made at a time: their rounds are independent, so a processor works on all at once. */
#define HWI_RNG_BLOCKS 4u
#define HWI_RNG_WORDS (4 * HWI_RNG_BLOCKS)

struct hwi_rng {
    uint32_t key[2];
    uint32_t counter[4]; /* of the next block */
    uint32_t words[HWI_RNG_WORDS];
    uint32_t used; /* how many of them were taken */
};

static inline void hwi_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static inline struct hwi_rng hwi_rng_make(uint64_t seed, uint32_t index, uint32_t epoch,
                                          uint32_t stream) {
    struct hwi_rng rng = {
        .key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
        .counter = {0, index, epoch, stream},
        .used = HWI_RNG_WORDS,
    };
    return rng;
}

/* Blocks of the next counters, by the same rounds as hwi_philox. */
static inline void hwi_rng_fill(struct hwi_rng *rng) {
    for (uint32_t block = 0; block < HWI_RNG_BLOCKS; block++) {
        hwi_philox(rng->counter, rng->key, rng->words + 4 * (size_t)block);
        rng->counter[0]++;
    }
    rng->used = 0;
}

static inline uint32_t hwi_rng_next(struct hwi_rng *rng) {
    if (rng->used == HWI_RNG_WORDS) {
        hwi_rng_fill(rng);
    }
    return rng->words[rng->used++];
}

/* Uniform in [0, n), n >= 1, without bias; n = 1 takes no word. (Lemire, "Fast random integer
 * generation in an interval", TOMACS 2019.) */
static inline uint32_t hwi_rng_below(struct hwi_rng *rng, uint32_t n) {
    if (n == 1) {
        return 0;
    }
    uint64_t product = (uint64_t)hwi_rng_next(rng) * n;
    if ((uint32_t)product < n) {
        uint32_t threshold = (0u - n) % n;
        while ((uint32_t)product < threshold) {
            product = (uint64_t)hwi_rng_next(rng) * n;
        }
    }
    return (uint32_t)(product >> 32);
}

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014): one step of it mixes 64 bits. */
static inline uint64_t hwi_mix(uint64_t z) {
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

enum hwi_key_domain { HWI_KEY_EPOCH = 1, HWI_KEY_SCHEDULE = 2, HWI_KEY_DROPOUT = 3 };

static inline uint64_t hwi_key(uint64_t seed, enum hwi_key_domain domain, uint64_t a, uint64_t b) {
    return hwi_mix(hwi_mix(hwi_mix(seed ^ hwi_mix((uint64_t)domain)) ^ a) ^ b);
}

#endif
