/*
 * The `hash` embedder: texts to vectors without a model.
 *
 * Features are words and the character 3-grams of "<word>", so that both equal words and similar
 * spellings meet ("Verstappen", "verstappen's"). A word is a run of ASCII letters, digits and bytes
 * of 0x80 and more (any other script), in ASCII lower case; a text without words, like "$$$", is
 * one feature whole. Each feature adds +weight or -weight, by one bit of its XXH64, to the place
 * that its upper half chooses; a word weighs 2, a 3-gram 1. The vector is
 *
 *     sign(v_i) sqrt(|v_i| / sum |v|),
 *
 * of length 1, with bursts of one word dampened. The sums are integers and sqrt and division are
 * exact in IEEE 754, so every machine makes the same bits. The empty text gives zeros.
 */
#include "builder/hash_embed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/format.h"

#define WORD_WEIGHT 2
#define GRAM_WEIGHT 1
#define GRAM_BYTES 3u

enum feature_seed { WORD_SEED = 1, GRAM_SEED = 2, WHOLE_SEED = 3 };

static void add_feature(int32_t *sums, uint32_t text_dim, const uint8_t *feature, size_t bytes,
                        enum feature_seed seed, int32_t weight) {
    uint64_t hash = hw_hash64(feature, bytes, (uint64_t)seed);
    uint32_t place = (uint32_t)((hash >> 32) * text_dim >> 32);
    sums[place] += (hash & 1) ? weight : -weight;
}

static int is_word_byte(uint8_t byte) {
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
           (byte >= 'A' && byte <= 'Z') || byte >= 0x80;
}

static uint8_t lower(uint8_t byte) {
    return byte >= 'A' && byte <= 'Z' ? (uint8_t)(byte + ('a' - 'A')) : byte;
}

/* `word` is framed: '<', bytes, '>'. */
static void add_word(int32_t *sums, uint32_t text_dim, const uint8_t *word, size_t framed_bytes) {
    add_feature(sums, text_dim, word + 1, framed_bytes - 2, WORD_SEED, WORD_WEIGHT);
    for (size_t i = 0; i + GRAM_BYTES <= framed_bytes; i++) {
        add_feature(sums, text_dim, word + i, GRAM_BYTES, GRAM_SEED, GRAM_WEIGHT);
    }
}

static void normalise(const int32_t *sums, uint32_t text_dim, uint8_t *vector) {
    double total = 0; /* exact: an integer far below 2^53 */
    for (uint32_t i = 0; i < text_dim; i++) {
        total += fabs((double)sums[i]);
    }
    for (uint32_t i = 0; i < text_dim; i++) {
        double size = total > 0 ? sqrt(fabs((double)sums[i]) / total) : 0;
        uint16_t half = hwi_half(sums[i] < 0 ? -size : size);
        memcpy(vector + 2 * (size_t)i, &half, sizeof half);
    }
}

void hwi_embed(struct hwi_embed_scratch *scratch, const char *text, size_t bytes, uint32_t text_dim,
               void *vector) {
    size_t end = bytes < HWI_EMBED_TEXT_BYTES ? bytes : HWI_EMBED_TEXT_BYTES;
    size_t word_bytes = 0;
    int has_words = 0;
    memset(scratch->sums, 0, sizeof *scratch->sums * text_dim);
    scratch->word[0] = '<';
    for (size_t i = 0; i <= end; i++) {
        uint8_t byte = i < end ? (uint8_t)text[i] : ' ';
        if (is_word_byte(byte)) {
            scratch->word[++word_bytes] = lower(byte);
        } else if (word_bytes > 0) {
            scratch->word[word_bytes + 1] = '>';
            add_word(scratch->sums, text_dim, scratch->word, word_bytes + 2);
            word_bytes = 0;
            has_words = 1;
        }
    }
    if (!has_words && end > 0) {
        add_feature(scratch->sums, text_dim, (const uint8_t *)text, end, WHOLE_SEED, WORD_WEIGHT);
    }
    normalise(scratch->sums, text_dim, vector);
}

uint16_t hwi_half(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 48 & 0x8000u);
    int exponent = (int)(bits >> 52 & 0x7ffu) - 1023;
    uint64_t mantissa = (bits & 0xfffffffffffffu) | (uint64_t)1 << 52;
    if (exponent < -25) {
        return sign; /* less than half of the smallest */
    }
    if (exponent > 15) {
        return (uint16_t)(sign | 0x7c00u);
    }
    /* 11 bits of a normal number stay, fewer below 2^-14, where the spacing is fixed. */
    int shift = exponent >= -14 ? 42 : 42 + (-14 - exponent);
    uint64_t kept = mantissa >> shift;
    uint64_t rest = mantissa & (((uint64_t)1 << shift) - 1);
    uint64_t middle = (uint64_t)1 << (shift - 1);
    kept += rest > middle || (rest == middle && (kept & 1));
    /* `kept` has the hidden bit, which carries into the exponent as it should, up to infinity. */
    uint64_t biased = exponent >= -14 ? (uint64_t)(exponent + 14) << 10 : 0;
    return (uint16_t)(sign | (biased + kept));
}

hw_status hw_hash_embed(const char *text, size_t bytes, uint32_t text_dim, void *vector,
                        hw_error *error) {
    if (text_dim == 0 || text_dim > HWI_MAX_TEXT_DIM || vector == NULL ||
        (text == NULL && bytes > 0)) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "a text of %llu bytes cannot be embedded in %u numbers, expected 1 to %u",
                        (unsigned long long)bytes, text_dim, HWI_MAX_TEXT_DIM);
    }
    struct hwi_embed_scratch *scratch = malloc(hwi_embed_scratch_bytes(text_dim));
    if (scratch == NULL) {
        return hwi_no_memory(error, "an embedding", hwi_embed_scratch_bytes(text_dim));
    }
    hwi_embed(scratch, text, bytes, text_dim, vector);
    free(scratch);
    return HW_OK;
}
