/*
 * Texts of a batch: numbered within each sequence first, and batch-wide once all sequences are
 * there, so that sequences can be made in any order by any thread.
 *
 *     hwi_texts_number    each sequence, by its worker     store's number -> place in the sequence
 *     hwi_batch_merge     one thread, no vector touched    distinct texts of the batch, in order
 *     hwi_batch_gather    in parts, by any threads         vectors, place -> number in the batch
 *
 * Only the merge is serial, and only for its own batch: the other threads make the next ones. It
 * costs a look-up for each distinct text of each sequence; the gather moves 2 * D_t bytes for each
 * distinct text of the batch from anywhere in the store, which takes far longer.
 */
#ifndef HWI_TEXTS_H
#define HWI_TEXTS_H

#include "base/error.h"
#include "batch/flat.h"
#include "batch/id_set.h"
#include "walk/context.h"

struct hwi_counters; /* counters.h */
struct hwi_packing; /* pack.h */

/* A worker's part. */
struct hwi_texts {
    struct hwi_id_set sequence;
};

/* Scratch of one batch in production: the texts of each sequence until the batch is finished. */
struct hwi_batch_scratch {
    /* Per sequence: its distinct texts, and where its text cells stand. */
    uint32_t *texts; /* [B, text_quota] the store's numbers; after the merge the batch's */
    uint32_t *text_counts; /* [B] */
    uint16_t *text_cells; /* [B, S] */
    uint32_t *cell_counts; /* [B] */
    /* Of the merge. */
    struct hwi_id_set merged;
    uint32_t *rows; /* [U] the store's number of each row of vectors; rows[0] stands for none */
    uint32_t row_count; /* with row 0 */
    uint32_t dirty_count; /* rows that the slab's last batch used */
    uint32_t part_count;
    /* NULL without plan->staging; all the above is of the staging batch: */
    uint8_t *staging; /* [plan->staging->slab_bytes] a slab, zero at first */
    uint64_t staging_bytes;
    struct hwi_packing *packing; /* NULL without packing */
};

HWI_CHECK hw_status hwi_batch_scratch_open(const struct hwi_plan *plan,
                                           struct hwi_batch_scratch **scratch, hw_error *error);
void hwi_batch_scratch_close(struct hwi_batch_scratch *scratch);

HWI_CHECK hw_status hwi_texts_open(const struct hwi_plan *plan, struct hwi_texts *texts,
                                   hw_error *error);
void hwi_texts_release(struct hwi_texts *texts);

/* Numbers sequence b's texts from 1, over the store's numbers in its cells; those past the quota
 * become text 0 and are added to *over_budget. Resident texts become the store's number + 1.
 * HW_BAD_STORE if a number is out of range. */
HWI_CHECK hw_status hwi_texts_number(struct hwi_texts *texts, const struct hwi_plan *plan,
                                     uint8_t *slab, struct hwi_batch_scratch *scratch, uint32_t b,
                                     uint64_t *over_budget, hw_error *error);
/* Sequence b has no texts. */
void hwi_texts_none(struct hwi_batch_scratch *scratch, uint32_t b);
/* Distinct texts of a context in order of their cells, read from the records into
 * listed[context_length]; returns how many there are. */
uint32_t hwi_texts_list(struct hwi_texts *texts, const struct hwi_context *context,
                        uint32_t *listed);

/*
 * After all sequences: numbers the distinct texts of the batch and writes the [1] arrays. Returns
 * in how many parts the rest of the work may be claimed, at least one. sequence_count counts the
 * real sequences; task is an index into plan->tasks.
 */
uint32_t hwi_batch_merge(const struct hwi_plan *plan, uint8_t *slab,
                         struct hwi_batch_scratch *scratch, uint32_t task, uint32_t sequence_count);
/* One part: vectors of texts, and the numbers of texts in cells. Any threads at once. */
void hwi_batch_gather(const struct hwi_plan *plan, uint8_t *slab,
                      const struct hwi_batch_scratch *scratch, uint32_t part);
/* After the last part; this is where contexts are packed, or laid out flat in these sizes (else
 * NULL). Returns the sizes of the batch, for hwi_batch_set_sizes. */
hw_batch_sizes hwi_batch_finish(const struct hwi_plan *plan, uint8_t *slab,
                                struct hwi_batch_scratch *scratch, uint32_t sequence_count,
                                const struct hwi_flat_sizes *flat, struct hwi_counters *counters);

#endif
