/* Sequences: what one is made of, and who makes it. */
#ifndef HWI_WORKER_H
#define HWI_WORKER_H

#include "base/error.h"
#include "batch/counters.h"
#include "batch/flat.h"
#include "plan/order.h"

struct hwi_batch_scratch; /* texts.h */

/*
 * One sequence to make: sequence b of the batch in `slab` (plan->slab_bytes, 64-byte aligned, and
 * holding what slab.h promises: zeros, or what the last batch left). Different b of one batch may
 * be made by different workers at once.
 */
struct hwi_work {
    struct hwi_seed seed;
    int is_real; /* 0: an empty sequence, all padding, without a seed */
    uint8_t *slab;
    struct hwi_batch_scratch *scratch;
    struct hwi_length *length; /* not NULL: the seed is walked for its length, and nothing made */
    uint32_t b;
    void *owner; /* the caller's */
};

/*
 * A worker makes several works at once, in turns, so that one waits for memory while the others
 * compute; which ones they are never shows in what they become. One thread at a time. Allocates
 * everything it will ever need.
 */
struct hwi_worker;
HWI_CHECK hw_status hwi_worker_open(const struct hwi_plan *plan, struct hwi_worker **worker,
                                    hw_error *error);
void hwi_worker_close(struct hwi_worker *worker);
/* How many more works it can take. */
uint32_t hwi_worker_room(const struct hwi_worker *worker);
/* Takes a work in; needs room. */
void hwi_worker_start(struct hwi_worker *worker, const struct hwi_work *work);
/* Advances its works, of which there must be one, until one is finished, which leaves. After an
 * error they can only be abandoned. */
HWI_CHECK hw_status hwi_worker_advance(struct hwi_worker *worker, struct hwi_work *finished,
                                       hw_error *error);
/* Forgets its works. */
void hwi_worker_abandon(struct hwi_worker *worker);

/* Adds its counters to *sum and clears them. */
void hwi_worker_take_counters(struct hwi_worker *worker, struct hwi_counters *sum);

/* Walks seeds for their lengths [count], several at a time; the worker has no works. The store is
 * checked first to be of its size. */
typedef struct hwi_seed (*hwi_seed_at)(const void *context, uint32_t i);
HWI_CHECK hw_status hwi_measure_lengths(struct hwi_worker *worker, hwi_seed_at seed_at,
                                        const void *context, uint32_t count,
                                        struct hwi_length *lengths, hw_error *error);

#endif
