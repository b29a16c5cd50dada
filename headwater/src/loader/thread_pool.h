/*
 * Threads that serve samplers: the pool that all samplers of a process share, and pools of one
 * sampler that wants threads of its own.
 *
 * Thread i of a pool has context i (struct hwi_thread) of each sampler that the pool serves. It
 * takes one turn after the other, each for that sampler which it served longest ago among those
 * that may have work for it; if there is none it sleeps. A turn ends when a step (threads.h) finds
 * no work, or after about 2 ms: with shorter ones the caches would forget each sampler. A sampler
 * may have work for a thread until a step of that thread finds none, and then again from the next
 * hwi_thread_pool_call. So between two turns for a sampler that has work a thread takes at most one
 * for each of the others, however fast those are read, and none for those whose queues are full.
 * Choosing is O(samplers).
 *
 * The shared pool is the one thing that this library keeps between calls. Its threads start with
 * the first sampler and end with the last one, so nothing is left behind. A forked child has no
 * threads: there it starts anew.
 */
#ifndef HWI_THREAD_POOL_H
#define HWI_THREAD_POOL_H

#include "loader/loader.h"

/* Some work of a thread for a sampler, by its context there; 0: there was none. */
typedef int (*hwi_step)(struct hwi_thread *thread);

/* A pool of `count` threads; 0: the shared pool, of as many threads as the calling thread has
 * usable cores when the pool starts, at most 16. */
HWI_CHECK hw_status hwi_thread_pool_open(uint32_t count, hwi_step take_step,
                                         struct hwi_thread_pool **pool, hw_error *error);
/* Drops a pool; with the last sampler of it its threads end. */
void hwi_thread_pool_close(struct hwi_thread_pool *pool);
uint32_t hwi_thread_pool_size(const struct hwi_thread_pool *pool);
/* From here on the threads take turns for the sampler, which has a context for each of them. */
void hwi_thread_pool_serve(struct hwi_thread_pool *pool, hw_sampler *sampler);
/* The threads take no more turns for the sampler, and none is in one. The caller holds no lock of
 * the sampler that a turn takes. */
void hwi_thread_pool_dismiss(struct hwi_thread_pool *pool, hw_sampler *sampler);
/* The sampler may have work for every thread; wakes up to `count` of those that sleep. */
void hwi_thread_pool_call(struct hwi_thread_pool *pool, hw_sampler *sampler, uint32_t count);

#endif
