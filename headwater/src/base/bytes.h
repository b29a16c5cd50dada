/*
 * Raw reads and writes of fixed-width little-endian values at any address. Every value that is not
 * part of a 64-byte aligned section goes through these, so that alignment and aliasing are decided
 * here once. The code runs on little-endian machines only; a store of the other order is refused by
 * its header.
 */
#ifndef HWI_BYTES_H
#define HWI_BYTES_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

/* What a processor fetches at once. */
#define HWI_LINE_BYTES 64u

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "stores are little-endian, unswapped");

static inline uint32_t hwi_read_u32(const void *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint64_t hwi_read_u64(const void *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline int64_t hwi_read_i64(const void *at) {
    int64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline float hwi_read_f32(const void *at) {
    float value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline double hwi_read_f64(const void *at) {
    double value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline void hwi_write_u32(void *at, uint32_t value) {
    memcpy(at, &value, sizeof value);
}

static inline void hwi_write_u64(void *at, uint64_t value) {
    memcpy(at, &value, sizeof value);
}

static inline void hwi_write_i64(void *at, int64_t value) {
    memcpy(at, &value, sizeof value);
}

static inline void hwi_write_f32(void *at, float value) {
    memcpy(at, &value, sizeof value);
}

static inline void hwi_write_f64(void *at, double value) {
    memcpy(at, &value, sizeof value);
}

/* Bit `index` of a bitmap whose bit k is bit k % 8 of byte k / 8. */
static inline int hwi_bit(const uint8_t *bits, uint64_t index) {
    return bits[index >> 3] >> (index & 7) & 1;
}

static inline void hwi_set_bit(uint8_t *bits, uint64_t index) {
    bits[index >> 3] = (uint8_t)(bits[index >> 3] | 1u << (index & 7));
}

/* The next multiple of a power of two; the caller knows that it does not overflow. */
static inline uint64_t hwi_align_up(uint64_t value, uint64_t alignment) {
    return (value + alignment - 1) & ~(alignment - 1);
}

#endif
