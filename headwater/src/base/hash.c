/*
 * XXH64, written from its public specification (github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
 *
 * Input is taken in stripes of 32 bytes, 8 bytes to each of four independent lanes, which is what
 * makes it fast: about 10 GB/s on one core, so checksums cost less than reading the file. The last
 * 0 to 31 bytes are mixed one word at a time into the merged lanes.
 */
#include "base/hash.h"

#include "base/bytes.h"
#include "headwater.h"

static const uint64_t prime_1 = 0x9E3779B185EBCA87u;
static const uint64_t prime_2 = 0xC2B2AE3D27D4EB4Fu;
static const uint64_t prime_3 = 0x165667B19E3779F9u;
static const uint64_t prime_4 = 0x85EBCA77C2B2AE63u;
static const uint64_t prime_5 = 0x27D4EB2F165667C5u;

static inline uint64_t rotate_left(uint64_t value, unsigned bits) {
    return value << bits | value >> (64 - bits);
}

static inline uint64_t round_lane(uint64_t lane, uint64_t word) {
    return rotate_left(lane + word * prime_2, 31) * prime_1;
}

/* Whole stripes only: `bytes` is a multiple of 32. */
static void eat_stripes(uint64_t lanes[4], const uint8_t *data, size_t bytes) {
    uint64_t a = lanes[0], b = lanes[1], c = lanes[2], d = lanes[3];
    for (const uint8_t *end = data + bytes; data < end; data += 32) {
        a = round_lane(a, hwi_read_u64(data));
        b = round_lane(b, hwi_read_u64(data + 8));
        c = round_lane(c, hwi_read_u64(data + 16));
        d = round_lane(d, hwi_read_u64(data + 24));
    }
    lanes[0] = a, lanes[1] = b, lanes[2] = c, lanes[3] = d;
}

static uint64_t merge_lanes(const uint64_t lanes[4]) {
    uint64_t hash = rotate_left(lanes[0], 1) + rotate_left(lanes[1], 7) +
                    rotate_left(lanes[2], 12) + rotate_left(lanes[3], 18);
    for (int i = 0; i < 4; i++) {
        hash = (hash ^ round_lane(0, lanes[i])) * prime_1 + prime_4;
    }
    return hash;
}

/* Mixes the last bytes (fewer than 32) and spreads every bit over the result. */
static uint64_t finish(uint64_t hash, const uint8_t *tail, size_t bytes) {
    for (; bytes >= 8; tail += 8, bytes -= 8) {
        hash = rotate_left(hash ^ round_lane(0, hwi_read_u64(tail)), 27) * prime_1 + prime_4;
    }
    if (bytes >= 4) {
        hash = rotate_left(hash ^ hwi_read_u32(tail) * prime_1, 23) * prime_2 + prime_3;
        tail += 4;
        bytes -= 4;
    }
    for (; bytes > 0; tail++, bytes--) {
        hash = rotate_left(hash ^ *tail * prime_5, 11) * prime_1;
    }
    hash = (hash ^ hash >> 33) * prime_2;
    hash = (hash ^ hash >> 29) * prime_3;
    return hash ^ hash >> 32;
}

void hwi_hash_init(struct hwi_hash *hash, uint64_t seed) {
    *hash = (struct hwi_hash){
        .lanes = {seed + prime_1 + prime_2, seed + prime_2, seed, seed - prime_1},
        .seed = seed,
    };
}

void hwi_hash_update(struct hwi_hash *hash, const void *data, size_t bytes) {
    if (bytes == 0) {
        return;
    }
    const uint8_t *at = data;
    size_t held = (size_t)(hash->total_bytes & 31);
    hash->total_bytes += bytes;
    if (held > 0) {
        size_t taken = bytes < 32 - held ? bytes : 32 - held;
        memcpy(hash->tail + held, at, taken);
        at += taken;
        bytes -= taken;
        if (held + taken < 32) {
            return;
        }
        eat_stripes(hash->lanes, hash->tail, 32);
    }
    size_t whole = bytes & ~(size_t)31;
    eat_stripes(hash->lanes, at, whole);
    memcpy(hash->tail, at + whole, bytes - whole);
}

uint64_t hwi_hash_digest(const struct hwi_hash *hash) {
    uint64_t merged = hash->total_bytes >= 32 ? merge_lanes(hash->lanes) : hash->seed + prime_5;
    return finish(merged + hash->total_bytes, hash->tail, (size_t)(hash->total_bytes & 31));
}

uint64_t hw_hash64(const void *data, size_t size, uint64_t seed) {
    struct hwi_hash hash;
    hwi_hash_init(&hash, seed);
    if (size < 32) {
        return finish(seed + prime_5 + size, data, size);
    }
    const uint8_t *at = data;
    size_t whole = size & ~(size_t)31;
    eat_stripes(hash.lanes, at, whole);
    return finish(merge_lanes(hash.lanes) + size, at + whole, size - whole);
}
