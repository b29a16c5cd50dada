/* Slabs of batches; see slab.h. */
#define _DEFAULT_SOURCE 1

#include "batch/slab.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/huge_pages.h"
#include "base/sized.h"

struct hw_batch {
    atomic_uint reference_count;
    struct hwi_pool *pool;
    uint8_t *slab;
    hw_batch_sizes sizes;
    hw_batch *next; /* guarded by the pool's mutex: in the list of unused ones */
};

struct hwi_pool {
    pthread_mutex_t mutex;
    pid_t pid; /* of the process that may lock the mutex: a forked child finds it in any state */
    struct hwi_field fields[HWI_FIELD_COUNT];
    uint32_t field_count;
    uint64_t slab_bytes;
    uint32_t kept_count;
    /* all guarded by mutex */
    hw_batch *unused;
    uint64_t unused_count;
    uint64_t slab_count; /* used and unused */
    int closed;
};

hw_status hwi_pool_open(const struct hwi_plan *plan, uint32_t kept_count, struct hwi_pool **pool,
                        hw_error *error) {
    struct hwi_pool *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return hwi_no_memory(error, "a pool of batches", sizeof *made);
    }
    if (pthread_mutex_init(&made->mutex, NULL) != 0) {
        free(made);
        return hwi_no_memory(error, "a mutex", sizeof made->mutex);
    }
    made->pid = getpid();
    memcpy(made->fields, plan->fields, sizeof made->fields);
    made->field_count = plan->field_count;
    made->slab_bytes = plan->slab_bytes;
    made->kept_count = kept_count;
    *pool = made;
    return HW_OK;
}

static void free_pool(struct hwi_pool *pool) {
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

static void free_batch(hw_batch *batch, uint64_t slab_bytes) {
    hwi_pages_close(batch->slab, slab_bytes);
    free(batch);
}

void hwi_pool_close(struct hwi_pool *pool) {
    if (pool == NULL) {
        return;
    }
    pthread_mutex_lock(&pool->mutex);
    pool->closed = 1;
    hw_batch *unused = pool->unused;
    pool->unused = NULL;
    pool->slab_count -= pool->unused_count;
    pool->unused_count = 0;
    uint64_t slab_bytes = pool->slab_bytes;
    int empty = pool->slab_count == 0;
    pthread_mutex_unlock(&pool->mutex);
    while (unused != NULL) {
        hw_batch *next = unused->next;
        free_batch(unused, slab_bytes);
        unused = next;
    }
    if (empty) {
        free_pool(pool);
    }
}

static hw_batch *new_batch(struct hwi_pool *pool) {
    hw_batch *batch = calloc(1, sizeof *batch);
    if (batch == NULL) {
        return NULL;
    }
    batch->pool = pool;
    batch->slab = hwi_pages_open(pool->slab_bytes);
    if (batch->slab == NULL) {
        free(batch);
        return NULL;
    }
    return batch;
}

hw_status hwi_pool_take(struct hwi_pool *pool, hw_batch **batch, hw_error *error) {
    pthread_mutex_lock(&pool->mutex);
    hw_batch *taken = pool->unused;
    if (taken != NULL) {
        pool->unused = taken->next;
        pool->unused_count--;
    } else {
        pool->slab_count++;
    }
    pthread_mutex_unlock(&pool->mutex);
    if (taken == NULL) {
        taken = new_batch(pool);
    }
    if (taken == NULL) {
        pthread_mutex_lock(&pool->mutex);
        pool->slab_count--;
        pthread_mutex_unlock(&pool->mutex);
        return hwi_no_memory(error, "a batch", pool->slab_bytes);
    }
    atomic_store(&taken->reference_count, 1);
    taken->sizes = (hw_batch_sizes){0};
    *batch = taken;
    return HW_OK;
}

uint8_t *hwi_batch_slab(hw_batch *batch) {
    return batch->slab;
}

void hwi_batch_set_sizes(hw_batch *batch, hw_batch_sizes sizes) {
    batch->sizes = sizes;
}

void hwi_pool_measure(struct hwi_pool *pool, uint64_t *slab_count, uint64_t *slab_bytes) {
    pthread_mutex_lock(&pool->mutex);
    *slab_count = pool->slab_count;
    pthread_mutex_unlock(&pool->mutex);
    *slab_bytes = *slab_count * pool->slab_bytes;
}

/* ---- batches ----------------------------------------------------------------------------- */

hw_batch *hw_batch_retain(hw_batch *batch) {
    atomic_fetch_add(&batch->reference_count, 1);
    return batch;
}

void hw_batch_release(hw_batch *batch) {
    if (batch == NULL || atomic_fetch_sub(&batch->reference_count, 1) != 1) {
        return;
    }
    struct hwi_pool *pool = batch->pool;
    if (getpid() != pool->pid) {
        return; /* a forked child: its copy of the slab goes with the process */
    }
    pthread_mutex_lock(&pool->mutex);
    int kept = !pool->closed && pool->unused_count < pool->kept_count;
    if (kept) {
        batch->next = pool->unused;
        pool->unused = batch;
        pool->unused_count++;
    } else {
        pool->slab_count--;
    }
    uint64_t slab_bytes = pool->slab_bytes;
    int last = pool->closed && pool->slab_count == 0;
    pthread_mutex_unlock(&pool->mutex);
    if (!kept) {
        free_batch(batch, slab_bytes);
    }
    if (last) {
        free_pool(pool);
    }
}

uint32_t hw_batch_tensor_count(const hw_batch *batch) {
    return batch->pool->field_count;
}

/* Which dimension of an array has a size of the batch's own, and that; 0: none. */
static uint64_t own_size(const hw_batch *batch, const struct hwi_field *field, uint32_t *dim) {
    *dim = field->varies != HWI_VARIES_TEXTS;
    switch (field->varies) {
    case HWI_VARIES_TEXTS:
        return batch->sizes.texts;
    case HWI_VARIES_CELLS:
        return batch->sizes.cells;
    case HWI_VARIES_ROWS:
        return batch->sizes.rows;
    case HWI_VARIES_ROW_STARTS:
        return batch->sizes.rows == 0 ? 0 : (uint64_t)batch->sizes.rows + 1;
    case HWI_VARIES_NOT:
    default:
        return 0;
    }
}

hw_status hw_batch_get_sizes(const hw_batch *batch, hw_batch_sizes *sizes, hw_error *error) {
    return HWI_GIVE(hw_batch_sizes, sizes, &batch->sizes, error);
}

hw_status hw_batch_tensor(const hw_batch *batch, uint32_t index, hw_tensor *tensor,
                          hw_error *error) {
    if (index >= batch->pool->field_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "array %u of a batch with %u arrays", index,
                        batch->pool->field_count);
    }
    const struct hwi_field *field = &batch->pool->fields[index];
    hw_tensor full = {
        .name = field->format->name,
        .dtype = field->dtype,
        .rank = field->rank,
        .data = batch->slab + field->offset,
        .bytes = (size_t)field->bytes,
        .info = field->format->info,
    };
    memcpy(full.shape, field->shape, sizeof full.shape);
    uint32_t dim;
    uint64_t own = own_size(batch, field, &dim);
    if (own != 0) { /* dimensions before it are 1 */
        full.bytes = full.bytes / field->shape[dim] * own;
        full.shape[dim] = own;
    }
    return HWI_GIVE(hw_tensor, tensor, &full, error);
}

hw_status hw_batch_find(const hw_batch *batch, const char *name, hw_tensor *tensor,
                        hw_error *error) {
    if (name == NULL) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "the name of an array is NULL");
    }
    for (uint32_t i = 0; i < batch->pool->field_count; i++) {
        if (strcmp(batch->pool->fields[i].format->name, name) == 0) {
            return hw_batch_tensor(batch, i, tensor, error);
        }
    }
    for (uint32_t i = 0; i < hw_batch_field_count(); i++) {
        const hw_batch_field *field = hwi_batch_field(i);
        if (strcmp(field->name, name) == 0) {
            return hwi_fail(error, HW_BAD_ARGUMENT,
                            "this sampler's batches have no array '%s', which comes with %s", name,
                            field->when != NULL ? field->when : "other tasks");
        }
    }
    return hwi_fail(error, HW_BAD_ARGUMENT,
                    "no batch has an array '%.200s'; hw_batch_field_at lists all arrays", name);
}

const void *hw_batch_memory(const hw_batch *batch, size_t *bytes) {
    if (bytes != NULL) {
        *bytes = (size_t)batch->pool->slab_bytes;
    }
    return batch->slab;
}
