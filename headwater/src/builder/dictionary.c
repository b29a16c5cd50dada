/* Distinct strings in order of first appearance; see dictionary.h. */
#include "builder/dictionary.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/format.h"

#define FIRST_SLOTS 64u

hw_status hwi_dictionary_open(struct hwi_dictionary *dictionary, const char *directory,
                              hw_error *error) {
    uint64_t zero = 0;
    *dictionary = (struct hwi_dictionary){0};
    HW_TRY(hwi_spill_open(&dictionary->offsets, directory, error));
    HW_TRY(hwi_spill_open(&dictionary->bytes, directory, error));
    HW_TRY(hwi_spill_append(&dictionary->offsets, &zero, sizeof zero, error));
    dictionary->slots = calloc(FIRST_SLOTS, sizeof *dictionary->slots);
    if (dictionary->slots == NULL) {
        return hwi_no_memory(error, "a dictionary of strings", FIRST_SLOTS);
    }
    dictionary->slot_count = FIRST_SLOTS;
    return HW_OK;
}

void hwi_dictionary_close(struct hwi_dictionary *dictionary) {
    hwi_spill_close(&dictionary->offsets);
    hwi_spill_close(&dictionary->bytes);
    free(dictionary->slots);
    *dictionary = (struct hwi_dictionary){0};
}

const char *hwi_dictionary_text(const struct hwi_dictionary *dictionary, uint32_t index,
                                uint32_t *bytes) {
    const uint8_t *offsets = dictionary->offsets.data + 8 * (uint64_t)index;
    uint64_t start = hwi_read_u64(offsets);
    *bytes = (uint32_t)(hwi_read_u64(offsets + 8) - start);
    /* Before the first byte is appended there is no mapping to point into. */
    return *bytes != 0 ? (const char *)dictionary->bytes.data + start : "";
}

static uint32_t short_hash(const char *text, uint32_t bytes) {
    return (uint32_t)(hw_hash64(text, bytes, 0) >> 32);
}

/* The slot of the string, or the free one where it belongs. The table is never full. */
static struct hwi_dictionary_slot *probe(const struct hwi_dictionary *dictionary, const char *text,
                                         uint32_t bytes, uint32_t hash) {
    uint64_t mask = dictionary->slot_count - 1;
    for (uint64_t at = hash & mask;; at = (at + 1) & mask) {
        struct hwi_dictionary_slot *slot = &dictionary->slots[at];
        if (slot->index_plus_1 == 0) {
            return slot;
        }
        if (slot->hash == hash) {
            uint32_t held_bytes;
            const char *held = hwi_dictionary_text(dictionary, slot->index_plus_1 - 1, &held_bytes);
            if (held_bytes == bytes && memcmp(held, text, bytes) == 0) {
                return slot;
            }
        }
    }
}

static hw_status grow(struct hwi_dictionary *dictionary, hw_error *error) {
    uint64_t slot_count = dictionary->slot_count * 2;
    struct hwi_dictionary_slot *slots = calloc((size_t)slot_count, sizeof *slots);
    if (slots == NULL) {
        return hwi_no_memory(error,
                             "the dictionary of distinct texts (fewer text columns need "
                             "less)",
                             slot_count * sizeof *slots);
    }
    for (uint64_t i = 0; i < dictionary->slot_count; i++) {
        struct hwi_dictionary_slot slot = dictionary->slots[i];
        if (slot.index_plus_1 != 0) {
            uint64_t at = slot.hash & (slot_count - 1);
            while (slots[at].index_plus_1 != 0) {
                at = (at + 1) & (slot_count - 1);
            }
            slots[at] = slot;
        }
    }
    free(dictionary->slots);
    dictionary->slots = slots;
    dictionary->slot_count = slot_count;
    return HW_OK;
}

uint32_t hwi_dictionary_find(const struct hwi_dictionary *dictionary, const char *text,
                             uint32_t bytes) {
    return probe(dictionary, text, bytes, short_hash(text, bytes))->index_plus_1 - 1;
}

hw_status hwi_dictionary_add(struct hwi_dictionary *dictionary, const char *text, uint32_t bytes,
                             uint32_t *index, hw_error *error) {
    uint32_t hash = short_hash(text, bytes);
    struct hwi_dictionary_slot *slot = probe(dictionary, text, bytes, hash);
    if (slot->index_plus_1 != 0) {
        *index = slot->index_plus_1 - 1;
        return HW_OK;
    }
    if (dictionary->count >= HWI_NONE - 1) {
        return hwi_fail(error, HW_BAD_SOURCE, "more than %u distinct strings", HWI_NONE - 1);
    }
    if ((uint64_t)dictionary->count * 4 >= dictionary->slot_count * 3) {
        HW_TRY(grow(dictionary, error));
        slot = probe(dictionary, text, bytes, hash);
    }
    HW_TRY(hwi_spill_append(&dictionary->bytes, text, bytes, error));
    HW_TRY(hwi_spill_append(&dictionary->offsets, &dictionary->bytes.bytes, 8, error));
    *index = dictionary->count++;
    *slot = (struct hwi_dictionary_slot){.hash = hash, .index_plus_1 = dictionary->count};
    return HW_OK;
}

void hwi_dictionary_seal(struct hwi_dictionary *dictionary) {
    hwi_spill_seal(&dictionary->offsets);
    hwi_spill_seal(&dictionary->bytes);
}
