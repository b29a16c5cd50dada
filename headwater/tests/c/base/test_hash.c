/* XXH64 against published vectors, and in pieces against the whole. */
#include "base/hash.h"
#include "headwater.h"
#include "support/unit_test.h"

static void published_vectors_of_xxh64_hold(void **state) {
    static const char spam[] = "Nobody inspects the spammish repetition";
    assert_true(hw_hash64(NULL, 0, 0) == 0xEF46DB3751D8E999u);
    assert_true(hw_hash64("a", 1, 0) == 0xD24EC4F1A98C6E5Bu);
    assert_true(hw_hash64("abc", 3, 0) == 0x44BC2CF5AD770999u);
    assert_true(hw_hash64(spam, sizeof spam - 1, 0) == 0xFBCEA83C8A378BF1u);
}

/* The buffer and values of xxHash's own sanity test. */
static void the_sanity_buffer_of_xxhash_hashes_as_published(void **state) {
    const uint64_t prime32 = 2654435761u, prime64 = 11400714785074694797u;
    const struct {
        size_t bytes;
        uint64_t seed, hash;
    } vectors[] = {
        {0, 0, 0xEF46DB3751D8E999u},         {0, prime32, 0xAC75FDA2929B17EFu},
        {1, 0, 0xE934A84ADB052768u},         {1, prime32, 0x5014607643A9B4C3u},
        {4, 0, 0x9136A0DCA57457EEu},         {14, 0, 0x8282DCC4994E35C8u},
        {14, prime32, 0xC3BD6BF63DEB6DF0u},  {222, 0, 0xB641AE8CB691C174u},
        {222, prime32, 0x20CB8AB7AE10C14Au},
    };
    uint8_t buffer[222];
    uint64_t generator = prime32;
    for (size_t i = 0; i < sizeof buffer; i++) {
        buffer[i] = (uint8_t)(generator >> 56);
        generator *= prime64;
    }
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        assert_true(hw_hash64(buffer, vectors[i].bytes, vectors[i].seed) == vectors[i].hash);
    }
}

static void pieces_hash_like_the_whole(void **state) {
    uint8_t buffer[200];
    for (size_t i = 0; i < sizeof buffer; i++) {
        buffer[i] = (uint8_t)(i * 37 + 11);
    }
    for (size_t bytes = 0; bytes <= sizeof buffer; bytes++) {
        for (size_t piece = 1; piece <= 67; piece += 11) {
            struct hwi_hash hash;
            hwi_hash_init(&hash, 7);
            for (size_t at = 0; at < bytes; at += piece) {
                hwi_hash_update(&hash, buffer + at, bytes - at < piece ? bytes - at : piece);
            }
            assert_true(hwi_hash_digest(&hash) == hw_hash64(buffer, bytes, 7));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_vectors_of_xxh64_hold),
        cmocka_unit_test(the_sanity_buffer_of_xxhash_hashes_as_published),
        cmocka_unit_test(pieces_hash_like_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
