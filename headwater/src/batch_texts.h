/*
 * Texts of a batch: numbered within each sequence first, and batch-wide once all sequences are
 * there, so that sequences can be made in any order by any thread.
 */
#ifndef HWI_BATCH_TEXTS_H
#define HWI_BATCH_TEXTS_H

#include "error.h"
#include "walk.h"

/* Distinct ids in order of first appearance: open addressing, cleared by stamp. */
struct hwi_id_set {
    struct hwi_id_entry {
        uint32_t stamp, id, place;
    } *entries;
    uint32_t mask, stamp;
};

/* A worker's part. */
struct hwi_texts {
    struct hwi_id_set sequence, batch;
};

/* Per sequence: its distinct texts, and where its text cells stand. */
struct hwi_batch_scratch {
    uint32_t *texts; /* [B, text_quota] */
    uint32_t *text_counts; /* [B] */
    uint16_t *text_cells; /* [B, S] */
    uint32_t *cell_counts; /* [B] */
    struct hwi_packing *packing; /* with packing, when B is contexts_per_batch; else NULL */
};

HWI_CHECK hw_status hwi_texts_open(const struct hwi_plan *plan, struct hwi_texts *texts,
                                   hw_error *error);
void hwi_texts_release(struct hwi_texts *texts);

/* Numbers sequence b's texts from 1, over the store's numbers in its cells; those past the quota
 * become text 0 and are added to *over_budget. Resident texts become the store's number + 1.
 * HW_BAD_STORE if a number is out of range. */
HWI_CHECK hw_status hwi_texts_number(struct hwi_texts *texts, const struct hwi_plan *plan,
                                     uint8_t *slab, struct hwi_batch_scratch *scratch, uint32_t b,
                                     uint64_t *over_budget, hw_error *error);
/* Distinct texts of a walk, counted from the records. */
uint32_t hwi_texts_count(struct hwi_texts *texts, const struct hwi_walk *walk);
/* Not for resident texts: gives each distinct text of the batch the next row of vectors, and the
 * cells their batch-local numbers; returns how many rows are used. */
uint32_t hwi_texts_merge(struct hwi_texts *texts, const struct hwi_plan *plan, uint8_t *slab,
                         struct hwi_batch_scratch *scratch);

#endif
