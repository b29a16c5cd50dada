/* The hash embedder with its scratch outside, for many texts in a row; see hash_embed.c. */
#ifndef HWI_HASH_EMBED_H
#define HWI_HASH_EMBED_H

#include <stddef.h>
#include <stdint.h>

#define HWI_EMBED_TEXT_BYTES 65536u /* of a longer text only this much is read */

struct hwi_embed_scratch {
    uint8_t word[HWI_EMBED_TEXT_BYTES + 2]; /* '<', the word in lower case, '>' */
    int32_t sums[]; /* [text_dim] */
};

static inline size_t hwi_embed_scratch_bytes(uint32_t text_dim) {
    return sizeof(struct hwi_embed_scratch) + sizeof(int32_t) * (size_t)text_dim;
}

/* Writes float16 [text_dim]; text_dim >= 1. */
void hwi_embed(struct hwi_embed_scratch *scratch, const char *text, size_t bytes, uint32_t text_dim,
               void *vector);
/* Nearest float16, ties to even; infinite past 65504. */
uint16_t hwi_half(double value);

#endif
