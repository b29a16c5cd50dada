/* Contexts to batches of equal lengths; see level.h. */
#include "batch/level.h"

#include <stdlib.h>

uint32_t hwi_level_ranks(const struct hwi_plan *plan, uint32_t *rank) {
    int is_dealt = plan->options.shard == HW_SHARD_DEALT;
    *rank = is_dealt ? plan->options.rank : 0;
    return is_dealt ? plan->options.world_size : 1;
}

uint64_t hwi_level_step(const struct hwi_plan *plan) {
    uint32_t rank;
    return (uint64_t)hwi_level_ranks(plan, &rank) * plan->options.level_parts *
           plan->shape.batch_size;
}

/* ---- dealing ----------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Groups that have a place left: a heap of (cells so far, number of the group), the least first. */
struct emptiest {
    uint64_t *heap; /* cells in the upper 32 bits: a step has less than 2^31 */
    uint32_t *counts; /* by group: contexts so far */
    uint32_t size;
};

/* Moves the first entry to its place. */
static void sink(struct emptiest *groups) {
    uint64_t moved = groups->heap[0];
    uint32_t at = 0;
    for (uint32_t child = 1; child < groups->size; child = 2 * at + 1) {
        child += child + 1 < groups->size && groups->heap[child + 1] < groups->heap[child];
        if (moved <= groups->heap[child]) {
            break;
        }
        groups->heap[at] = groups->heap[child];
        at = child;
    }
    groups->heap[at] = moved;
}

/* Gives each of `count` contexts, members[i] or i, one of group_count groups of `each`: longest
 * first, of equals the first by place, to the group with the fewest cells, of equals the first. */
static void deal(const struct hwi_levelled *members, uint32_t count, uint32_t group_count,
                 uint32_t each, uint64_t *keys, struct emptiest groups, uint32_t *group_of) {
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = (uint64_t)(UINT32_MAX - members[i].limit.cells) << 32 | i;
    }
    qsort(keys, count, sizeof *keys, by_number);
    for (uint32_t g = 0; g < group_count; g++) {
        groups.heap[g] = g;
        groups.counts[g] = 0;
    }
    groups.size = group_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t member = (uint32_t)keys[i], best = (uint32_t)groups.heap[0];
        group_of[member] = best;
        if (++groups.counts[best] < each) {
            groups.heap[0] += (uint64_t)members[member].limit.cells << 32;
        } else {
            groups.heap[0] = groups.heap[--groups.size];
        }
        sink(&groups);
    }
}

/* Sorts members by group, each group in the order it had; `sorted` has room for them. */
static void sort_by_group(struct hwi_levelled *members, uint32_t count, uint32_t each,
                          const uint32_t *group_of, uint32_t *counts, uint32_t group_count,
                          struct hwi_levelled *sorted) {
    for (uint32_t g = 0; g < group_count; g++) {
        counts[g] = 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t g = group_of[i];
        sorted[(size_t)g * each + counts[g]++] = members[i];
    }
    for (uint32_t i = 0; i < count; i++) {
        members[i] = sorted[i];
    }
}

/* ---- cutting ----------------------------------------------------------------------------- */

static uint32_t *size_of(struct hwi_levelled *member, int of_rows) {
    return of_rows ? &member->limit.rows : &member->limit.cells;
}

/* Shortens the longest of some contexts, by no more than half at once, until together they have at
 * most so many cells or rows. */
static void cut(struct hwi_levelled *members, uint32_t count, uint32_t most, int of_rows) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += *size_of(&members[i], of_rows);
    }
    while (sum > most) {
        uint32_t longest = 0;
        for (uint32_t i = 1; i < count; i++) {
            if (*size_of(&members[i], of_rows) >= *size_of(&members[longest], of_rows)) {
                longest = i;
            }
        }
        uint32_t *size = size_of(&members[longest], of_rows);
        uint64_t excess = sum - most, half = (*size + 1) / 2;
        uint32_t less = (uint32_t)(excess < half ? excess : half);
        *size -= less;
        sum -= less;
    }
}

/* ---- a block ----------------------------------------------------------------------------- */

struct scratch {
    uint64_t *keys;
    struct emptiest groups;
    uint32_t *group_of;
    struct hwi_levelled *sorted;
};

/* Deals members, in groups of `each`, and sorts them by group. */
static void deal_out(struct hwi_levelled *members, uint32_t group_count, uint32_t each,
                     const struct scratch *scratch) {
    uint32_t count = group_count * each;
    if (group_count > 1) {
        deal(members, count, group_count, each, scratch->keys, scratch->groups, scratch->group_of);
        sort_by_group(members, count, each, scratch->group_of, scratch->groups.counts, group_count,
                      scratch->sorted);
    }
}

/* The batches of a step, and each over the ranks: which contexts a batch has does not depend on how
 * many ranks share it. */
static void level_step(struct hwi_levelled *members, const struct hwi_level_shape *shape,
                       const struct scratch *scratch) {
    uint32_t batch = shape->ranks * shape->each;
    cut(members, shape->parts * batch, shape->step_cells, 0);
    cut(members, shape->parts * batch, shape->step_rows, 1);
    deal_out(members, shape->parts, batch, scratch);
    for (uint32_t part = 0; part < shape->parts; part++) {
        struct hwi_levelled *own = members + (size_t)part * batch;
        deal_out(own, shape->ranks, shape->each, scratch);
        for (uint32_t rank = 0; rank < shape->ranks; rank++) {
            cut(own + (size_t)rank * shape->each, shape->each, shape->cells, 0);
            cut(own + (size_t)rank * shape->each, shape->each, shape->rows, 1);
        }
    }
}

hw_status hwi_level(const struct hwi_length *lengths, const struct hwi_level_shape *shape,
                    struct hwi_levelled *levelled, hw_error *error) {
    uint32_t step = shape->parts * shape->ranks * shape->each;
    size_t count = (size_t)shape->steps * step;
    size_t groups = shape->steps > shape->parts ? shape->steps : shape->parts;
    groups = groups > shape->ranks ? groups : shape->ranks;
    struct scratch scratch = {
        .keys = malloc(count * sizeof *scratch.keys),
        .groups = {.heap = calloc(groups, sizeof *scratch.groups.heap),
                   .counts = malloc(groups * sizeof *scratch.groups.counts)},
        .group_of = malloc(count * sizeof *scratch.group_of),
        .sorted = malloc(count * sizeof *scratch.sorted),
    };
    hw_status status = HW_OK;
    if (scratch.keys == NULL || scratch.groups.heap == NULL || scratch.groups.counts == NULL ||
        scratch.group_of == NULL || scratch.sorted == NULL) {
        status = hwi_no_memory(error, "the levelling of a block", count * 32);
    } else {
        for (uint32_t i = 0; i < count; i++) {
            levelled[i] = (struct hwi_levelled){.place = i, .limit = lengths[i]};
        }
        deal_out(levelled, shape->steps, step, &scratch);
        for (uint32_t i = 0; i < shape->steps; i++) {
            level_step(levelled + (size_t)i * step, shape, &scratch);
        }
    }
    free(scratch.keys);
    free(scratch.groups.heap);
    free(scratch.groups.counts);
    free(scratch.group_of);
    free(scratch.sorted);
    return status;
}
