/* Threads that serve samplers; see thread_pool.h. */
#define _GNU_SOURCE 1 /* sched_getaffinity */
#include "loader/thread_pool.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

enum { MOST_SHARED_THREADS = 16, TURN_NS = 2000000 };

struct pool_thread {
    pthread_t id;
    struct hwi_thread_pool *pool; /* constant, as is its number */
    uint32_t number;
    uint64_t turn_count; /* guarded by the pool's mutex */
};

/* Its mutex guards all members without a comment on it, and those of samplers that loader.h names.
 */
struct hwi_thread_pool {
    pthread_mutex_t mutex;
    pthread_cond_t work; /* a sampler may have work, or it is over */
    pthread_cond_t outside; /* no thread is inside of some sampler */
    hw_sampler *samplers;
    uint32_t sleeping_count; /* threads that wait for work */
    int is_over;
    uint32_t reference_count; /* guarded by shared_mutex */
    hwi_step take_step; /* constant */
    uint32_t thread_count; /* constant once it is open: that run */
    struct pool_thread threads[];
};

/* The pool that the samplers of this process share, NULL while there are none. */
static pthread_mutex_t shared_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct hwi_thread_pool *shared; /* guarded by shared_mutex */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static int fork_failure; /* written once */

/* ---- forks ------------------------------------------------------------------------------- */

static void before_fork(void) {
    pthread_mutex_lock(&shared_mutex);
}

static void after_fork(void) {
    pthread_mutex_unlock(&shared_mutex);
}

/* The child has none of the threads: the pool's memory is the parent's samplers'. */
static void after_fork_in_child(void) {
    shared = NULL;
    pthread_mutex_unlock(&shared_mutex);
}

static void watch_forks(void) {
    fork_failure = pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* ---- threads ----------------------------------------------------------------------------- */

/* The context of a thread that may have work and was served longest ago; NULL: there is none. */
static struct hwi_thread *choose_locked(const struct hwi_thread_pool *pool, uint32_t number) {
    struct hwi_thread *chosen = NULL;
    for (hw_sampler *sampler = pool->samplers; sampler != NULL; sampler = sampler->next_served) {
        struct hwi_thread *thread = &sampler->threads[number];
        if (thread->answered_call != sampler->call_count &&
            (chosen == NULL || thread->last_turn < chosen->last_turn)) {
            chosen = thread;
        }
    }
    return chosen;
}

static void serve_locked(struct pool_thread *self, struct hwi_thread *thread) {
    struct hwi_thread_pool *pool = self->pool;
    hw_sampler *sampler = thread->sampler;
    uint64_t call = sampler->call_count; /* the turn may miss those that come later */
    thread->last_turn = ++self->turn_count;
    sampler->inside_count++;
    pthread_mutex_unlock(&pool->mutex);
    int64_t end = hwi_now_ns() + TURN_NS;
    int has_worked = 0;
    do {
        has_worked = pool->take_step(thread);
    } while (has_worked && hwi_now_ns() < end);
    pthread_mutex_lock(&pool->mutex);
    if (!has_worked) {
        thread->answered_call = call;
    }
    if (--sampler->inside_count == 0) {
        pthread_cond_broadcast(&pool->outside);
    }
}

static void *run(void *argument) {
    struct pool_thread *self = argument;
    struct hwi_thread_pool *pool = self->pool;
    pthread_mutex_lock(&pool->mutex);
    while (!pool->is_over) {
        struct hwi_thread *thread = choose_locked(pool, self->number);
        if (thread != NULL) {
            serve_locked(self, thread);
        } else {
            pool->sleeping_count++;
            pthread_cond_wait(&pool->work, &pool->mutex);
            pool->sleeping_count--;
        }
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* ---- a pool ------------------------------------------------------------------------------ */

/* Ends the threads that were started. */
static void end_pool(struct hwi_thread_pool *pool) {
    pthread_mutex_lock(&pool->mutex);
    pool->is_over = 1;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    for (uint32_t i = 0; i < pool->thread_count; i++) {
        pthread_join(pool->threads[i].id, NULL);
    }
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->outside);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

/* Starts the threads with every signal blocked: signals are the caller's business. */
static hw_status start_threads(struct hwi_thread_pool *pool, uint32_t count, hw_error *error) {
    sigset_t all, before;
    int failed = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (uint32_t i = 0; i < count && !failed; i++) {
        struct pool_thread *thread = &pool->threads[i];
        thread->pool = pool;
        thread->number = i;
        failed = pthread_create(&thread->id, NULL, run, thread);
        pool->thread_count += !failed;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? hwi_fail(error, HW_IO, "cannot start thread %u of %u: %s",
                             pool->thread_count + 1, count, strerror(failed))
                  : HW_OK;
}

static hw_status start_pool(uint32_t count, hwi_step take_step, struct hwi_thread_pool **pool,
                            hw_error *error) {
    size_t bytes = sizeof(struct hwi_thread_pool) + count * sizeof(struct pool_thread);
    struct hwi_thread_pool *made = calloc(1, bytes);
    if (made == NULL) {
        return hwi_no_memory(error, "the threads", bytes);
    }
    if (pthread_mutex_init(&made->mutex, NULL) != 0 || pthread_cond_init(&made->work, NULL) != 0 ||
        pthread_cond_init(&made->outside, NULL) != 0) {
        free(made); /* the kinds of locks that can fail here hold nothing */
        return hwi_no_memory(error, "the locks of threads", sizeof made->mutex);
    }
    made->reference_count = 1;
    made->take_step = take_step;
    hw_status status = start_threads(made, count, error);
    if (status != HW_OK) {
        end_pool(made);
        return status;
    }
    *pool = made;
    return HW_OK;
}

static uint32_t usable_cores(void) {
    cpu_set_t cores;
    int count = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    return (uint32_t)(count < 1 ? 1 : count > MOST_SHARED_THREADS ? MOST_SHARED_THREADS : count);
}

hw_status hwi_thread_pool_open(uint32_t count, hwi_step take_step, struct hwi_thread_pool **pool,
                               hw_error *error) {
    pthread_once(&fork_once, watch_forks);
    if (fork_failure != 0) {
        return hwi_no_memory(error, "a watch for forks", sizeof(void *));
    }
    if (count > 0) {
        return start_pool(count, take_step, pool, error);
    }
    hw_status status = HW_OK;
    pthread_mutex_lock(&shared_mutex);
    if (shared != NULL) {
        shared->reference_count++;
    } else {
        status = start_pool(usable_cores(), take_step, &shared, error);
    }
    if (status == HW_OK) {
        *pool = shared;
    }
    pthread_mutex_unlock(&shared_mutex);
    return status;
}

void hwi_thread_pool_close(struct hwi_thread_pool *pool) {
    pthread_mutex_lock(&shared_mutex);
    int is_last = --pool->reference_count == 0;
    if (is_last && pool == shared) {
        shared = NULL;
    }
    pthread_mutex_unlock(&shared_mutex);
    if (is_last) {
        end_pool(pool);
    }
}

uint32_t hwi_thread_pool_size(const struct hwi_thread_pool *pool) {
    return pool->thread_count;
}

/* ---- samplers ---------------------------------------------------------------------------- */

void hwi_thread_pool_serve(struct hwi_thread_pool *pool, hw_sampler *sampler) {
    pthread_mutex_lock(&pool->mutex);
    sampler->call_count = 1; /* which no thread has answered */
    sampler->next_served = pool->samplers;
    pool->samplers = sampler;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
}

void hwi_thread_pool_dismiss(struct hwi_thread_pool *pool, hw_sampler *sampler) {
    pthread_mutex_lock(&pool->mutex);
    hw_sampler **link = &pool->samplers;
    while (*link != NULL && *link != sampler) {
        link = &(*link)->next_served;
    }
    if (*link != NULL) { /* else it was never served */
        *link = sampler->next_served;
    }
    while (sampler->inside_count > 0) {
        pthread_cond_wait(&pool->outside, &pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
}

void hwi_thread_pool_call(struct hwi_thread_pool *pool, hw_sampler *sampler, uint32_t count) {
    pthread_mutex_lock(&pool->mutex);
    sampler->call_count++;
    count = count < pool->sleeping_count ? count : pool->sleeping_count;
    pthread_mutex_unlock(&pool->mutex);
    for (uint32_t i = 0; i < count; i++) {
        pthread_cond_signal(&pool->work);
    }
}
