/*
 * Distinct strings numbered by first appearance. The strings and their offsets are spilled; memory
 * holds only an open-addressing table of 8-byte slots (10 to 21 bytes per distinct string). A slot
 * keeps 32 bits of the hash, so that a lookup touches the strings only where it will find one.
 */
#ifndef HWI_DICTIONARY_H
#define HWI_DICTIONARY_H

#include "base/error.h"
#include "base/spill.h"

struct hwi_dictionary_slot {
    uint32_t hash;
    uint32_t index_plus_1; /* 0: free */
};

struct hwi_dictionary {
    struct hwi_spill offsets; /* uint64 [count + 1] */
    struct hwi_spill bytes;
    struct hwi_dictionary_slot *slots; /* [slot_count], a power of two */
    uint64_t slot_count;
    uint32_t count;
};

HWI_CHECK hw_status hwi_dictionary_open(struct hwi_dictionary *dictionary, const char *directory,
                                        hw_error *error);
void hwi_dictionary_close(struct hwi_dictionary *dictionary);
/* Number of the string, or UINT32_MAX. */
uint32_t hwi_dictionary_find(const struct hwi_dictionary *dictionary, const char *text,
                             uint32_t bytes);
/* Number of the string, added if new. */
HWI_CHECK hw_status hwi_dictionary_add(struct hwi_dictionary *dictionary, const char *text,
                                       uint32_t bytes, uint32_t *index, hw_error *error);
/* String `index` (< count); valid until the next add. */
const char *hwi_dictionary_text(const struct hwi_dictionary *dictionary, uint32_t index,
                                uint32_t *bytes);
/* No more strings will come. */
void hwi_dictionary_seal(struct hwi_dictionary *dictionary);

#endif
