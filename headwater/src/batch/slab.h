/*
 * Memory of batches. A batch is a reference count and one slab: 64-byte aligned, or on huge pages
 * where it is large (base/huge_pages.h). When the last reference goes the slab returns to its pool
 * for the next batch; the pool grows while a caller keeps batches, frees what is surplus on return,
 * and is itself counted, so that batches outlive their sampler.
 *
 * What a slab holds when it is taken: zeros in every byte if it is new, else what its last batch
 * left there. Sequences are written whole, whatever stood in their place; of the vectors of texts
 * only the rows that `num_texts` of the slab names may be in use, and only those are cleared.
 */
#ifndef HWI_SLAB_H
#define HWI_SLAB_H

#include "base/error.h"
#include "plan/plan.h"

struct hwi_pool;

/* A pool of slabs for the plan's batches (whose fields it copies) that keeps up to `kept_count`
 * unused ones. */
HWI_CHECK hw_status hwi_pool_open(const struct hwi_plan *plan, uint32_t kept_count,
                                  struct hwi_pool **pool, hw_error *error);
/* No more batches will be taken; those handed out stay valid and free the pool as they go. */
void hwi_pool_close(struct hwi_pool *pool);
/* A batch with one reference, over zeros or what the slab's last batch left. Any thread. */
HWI_CHECK hw_status hwi_pool_take(struct hwi_pool *pool, hw_batch **batch, hw_error *error);
/* The slab while the batch is made; its only reference must be the maker's. */
uint8_t *hwi_batch_slab(hw_batch *batch);
/* How much of the slab is shown, by the maker when the batch is finished; all of it without. */
void hwi_batch_set_sizes(hw_batch *batch, hw_batch_sizes sizes);
/* Slabs that exist, used or not, and their bytes. Any thread. */
void hwi_pool_measure(struct hwi_pool *pool, uint64_t *slab_count, uint64_t *slab_bytes);

#endif
