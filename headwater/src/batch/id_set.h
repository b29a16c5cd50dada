/* Distinct ids in order of first appearance: open addressing, cleared by stamp. */
#ifndef HWI_ID_SET_H
#define HWI_ID_SET_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct hwi_id_set {
    struct hwi_id_entry {
        uint32_t stamp, id, place;
    } *entries;
    uint32_t mask, stamp;
};

/* Empty, with room for `most` ids; 0 if there is no memory. */
static inline int hwi_id_set_open(struct hwi_id_set *set, uint64_t most) {
    uint64_t size = 16;
    while (size < 2 * most) {
        size *= 2;
    }
    set->mask = (uint32_t)(size - 1);
    set->stamp = 0;
    set->entries = calloc(size, sizeof *set->entries);
    return set->entries != NULL;
}

static inline void hwi_id_set_close(struct hwi_id_set *set) {
    free(set->entries);
    *set = (struct hwi_id_set){0};
}

static inline void hwi_id_set_clear(struct hwi_id_set *set) {
    if (++set->stamp == 0) {
        memset(set->entries, 0, ((size_t)set->mask + 1) * sizeof *set->entries);
        set->stamp = 1;
    }
}

static inline uint32_t hwi_id_set_start(const struct hwi_id_set *set, uint32_t id) {
    return (id * 2654435761u) & set->mask;
}

/* The entry of an id; its stamp is older if the id is new. */
static inline struct hwi_id_entry *hwi_id_set_find(struct hwi_id_set *set, uint32_t id) {
    uint32_t at = hwi_id_set_start(set, id);
    while (set->entries[at].stamp == set->stamp && set->entries[at].id != id) {
        at = (at + 1) & set->mask;
    }
    return &set->entries[at];
}

static inline void hwi_id_set_put(struct hwi_id_set *set, struct hwi_id_entry *entry, uint32_t id,
                                  uint32_t place) {
    *entry = (struct hwi_id_entry){.stamp = set->stamp, .id = id, .place = place};
}

#endif
