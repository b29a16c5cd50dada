/*
 * The words of a store: its names, each with a zero behind it, and the facts that stand in
 * metadata.json alone. They are made when they are first asked for, and live as long as the store.
 * Several threads may make them at once, and the first to be ready is kept: a lock could be held
 * for ever in a child of fork().
 */
#ifndef HWI_DESCRIBED_H
#define HWI_DESCRIBED_H

#include <stdatomic.h>

#include "store/store.h"

struct hwi_words {
    const char *text; /* NULL: unknown */
    size_t bytes;
};

struct hwi_described {
    char *name_bytes; /* storage of the names */
    const char **names; /* of the tables, columns, keys and tasks, one after the other */
    const char *const *table_names, *const *column_names, *const *key_names, *const *task_names;
    /* By metadata.json: */
    char *category_bytes;
    struct hwi_words *categories; /* [category_count] */
    uint32_t *parent_columns; /* [key_column_count] as key_columns has those of the child; HWI_NONE:
                                 unknown */
    uint32_t *primary_keys; /* [column_count] columns, runs of the tables */
    uint32_t *primary_key_starts; /* [table_count + 1] */
};

/* NULL until they are made. */
struct hwi_on_demand {
    _Atomic(char *) metadata; /* the bytes of the file, and a zero */
    _Atomic(struct hwi_described *) described;
};

HWI_CHECK hw_status hwi_on_demand_open(struct hwi_on_demand **on_demand, hw_error *error);
void hwi_on_demand_close(struct hwi_on_demand *on_demand);
/* HW_BAD_STORE if the build wrote another metadata.json, or if it contradicts schema.bin. Facts
 * that it lacks are unknown. */
HWI_CHECK hw_status hwi_store_described(const hw_store *store,
                                        const struct hwi_described **described, hw_error *error);

#endif
