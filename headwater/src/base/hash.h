/*
 * XXH64 over bytes that come in pieces: the checksum of a section while it is written. hw_hash64 is
 * the same function over bytes that lie together.
 */
#ifndef HWI_HASH_H
#define HWI_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hwi_hash {
    uint64_t lanes[4];
    uint64_t seed;
    uint64_t total_bytes;
    uint8_t tail[32]; /* the last total_bytes % 32 bytes */
};

void hwi_hash_init(struct hwi_hash *hash, uint64_t seed);
void hwi_hash_update(struct hwi_hash *hash, const void *data, size_t bytes);
uint64_t hwi_hash_digest(const struct hwi_hash *hash);

#endif
