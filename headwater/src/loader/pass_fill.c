/* Flat batches of a pass; see pass_fill.h. */
#include "loader/pass_fill.h"

#include <stdlib.h>

#include "base/error.h"

enum { WALKED_AT_ONCE = 1024 };

struct fill {
    const struct hwi_plan *plan;
    struct hwi_worker *worker;
    const atomic_int *is_over;
    struct hwi_pass_plan *pass;
    uint64_t room; /* of pass->batches */
    struct hwi_length used; /* of the last batch */
};

/* Part of a pass's seeds, for hwi_measure_lengths. */
struct seeds {
    const struct hwi_plan *plan;
    const struct hwi_batch_seeds *all;
    uint32_t first;
};

static struct hwi_seed seed_at(const void *context, uint32_t i) {
    const struct seeds *seeds = context;
    return hwi_stream_seed(seeds->plan, seeds->all, seeds->first + i);
}

static hw_status add_batch(struct fill *fill, uint32_t first, hw_error *error) {
    struct hwi_pass_plan *pass = fill->pass;
    if (pass->batch_count == fill->room) {
        fill->room = 2 * fill->room + 16;
        void *larger = realloc(pass->batches, fill->room * sizeof *pass->batches);
        if (larger == NULL) {
            return hwi_no_memory(error, "the batches of a pass",
                                 fill->room * sizeof *pass->batches);
        }
        pass->batches = larger;
    }
    pass->batches[pass->batch_count++] = (struct hwi_pass_batch){.first = first};
    fill->used = (struct hwi_length){0};
    return HW_OK;
}

/* Puts context i of a part into its last batch, or into a new one. */
static hw_status place(struct fill *fill, const struct hwi_flat_sizes *sizes, uint32_t i,
                       struct hwi_length length, int is_new, hw_error *error) {
    struct hwi_pass_batch *last = NULL;
    if (!is_new) {
        last = &fill->pass->batches[fill->pass->batch_count - 1];
        is_new = last->count == fill->plan->shape.batch_size ||
                 length.cells > sizes->cells - fill->used.cells ||
                 length.rows > sizes->rows - fill->used.rows;
    }
    if (is_new) {
        HW_TRY(add_batch(fill, i, error));
        last = &fill->pass->batches[fill->pass->batch_count - 1];
    }
    last->count++;
    fill->used.cells += length.cells;
    fill->used.rows += length.rows;
    return HW_OK;
}

static hw_status fill_part(struct fill *fill, uint32_t part, hw_error *error) {
    struct hwi_batch_seeds all = hwi_pass_part_seeds(fill->plan, fill->pass, part);
    const struct hwi_flat_sizes sizes = hwi_stream_sizes(fill->plan, &all);
    struct hwi_length lengths[WALKED_AT_ONCE];
    for (uint32_t first = 0; first < all.sequence_count; first += WALKED_AT_ONCE) {
        uint32_t left = all.sequence_count - first;
        uint32_t count = left < WALKED_AT_ONCE ? left : WALKED_AT_ONCE;
        struct seeds seeds = {.plan = fill->plan, .all = &all, .first = first};
        HW_TRY(atomic_load(fill->is_over)
                   ? hwi_fail(error, HW_SHUT_DOWN, "the sampler was shut down")
                   : HW_OK);
        HW_TRY(hwi_measure_lengths(fill->worker, seed_at, &seeds, count, lengths, error));
        for (uint32_t i = 0; i < count; i++) {
            HW_TRY(place(fill, &sizes, first + i, lengths[i], first + i == 0, error));
        }
    }
    return HW_OK;
}

hw_status hwi_pass_fill(const struct hwi_plan *plan, struct hwi_worker *worker,
                        const atomic_int *is_over, struct hwi_pass_plan *pass, hw_error *error) {
    struct fill fill = {.plan = plan, .worker = worker, .is_over = is_over, .pass = pass};
    pass->batch_count = 0;
    for (uint32_t part = 0; part < pass->part_count; part++) {
        HW_TRY(fill_part(&fill, part, error));
        pass->parts[part].batch_end = pass->batch_count;
    }
    if (pass->batch_count == 0 && pass->anchors == NULL) { /* as many as in other layouts: one */
        HW_TRY(add_batch(&fill, 0, error));
        pass->parts[pass->part_count - 1].batch_end = 1;
    }
    return HW_OK;
}
