/* Which seeds make which batch; see batch_seeds.h. */
#include "loader/batch_seeds.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "batch/level.h"

static const char *const SPLIT_NAMES[HW_SPLIT_COUNT] = {"train", "val", "test"};

static const char *task_name(const struct hwi_plan *plan, uint32_t store_task, char *buffer,
                             size_t buffer_bytes) {
    uint32_t count = plan->store->info->task_count;
    struct hwi_name name = store_task < count ? plan->store->tasks[store_task].name
                                              : plan->store->tables[store_task - count].info->name;
    return hwi_store_name(plan->store, name, buffer, buffer_bytes);
}

hw_status hwi_stream_task(const struct hwi_plan *plan, uint32_t store_task, uint32_t *task,
                          hw_error *error) {
    for (uint32_t t = 0; t < plan->task_count; t++) {
        if (plan->tasks[t].task == store_task) {
            *task = t;
            return HW_OK;
        }
    }
    return hwi_fail(error, HW_BAD_ARGUMENT, "task %u is not among the %u tasks of this sampler",
                    store_task, plan->task_count);
}

struct hwi_seed hwi_stream_seed(const struct hwi_plan *plan, const struct hwi_batch_seeds *seeds,
                                uint32_t i) {
    assert(i < seeds->sequence_count);
    const struct hwi_pass_plan *given = seeds->given;
    uint64_t position = seeds->first + (uint64_t)i * seeds->step;
    if (given != NULL && given->chosen != NULL) { /* also of a levelled pass, which keeps places */
        return hwi_task_seed(plan, seeds->task, given->chosen[position], given->epochs[position]);
    }
    if (given == NULL) {
        struct hwi_shard shard = hwi_order_shard(plan, seeds->split, seeds->task);
        if (seeds->levelled != NULL) {
            position = hwi_block_position(plan, &seeds->range) + seeds->levelled[i].place;
        }
        return hwi_order_seed(plan, seeds->split, seeds->task, &shard, position);
    }
    return (struct hwi_seed){
        .task = seeds->task,
        .split = HWI_SPLIT_AD_HOC,
        .index = (uint32_t)position,
        .anchor = given->anchors[position],
        .obs_time = given->obs_times[position],
    };
}

/* ---- endless ----------------------------------------------------------------------------- */

uint64_t hwi_stream_step(const struct hwi_plan *plan) {
    return (uint64_t)plan->shape.contexts_per_batch * plan->options.world_size;
}

/* Batch of all ranks that begins at a position of their common list, as this rank has it: full. */
static struct hwi_batch_seeds batch_at(const struct hwi_plan *plan, hw_split split, uint32_t task,
                                       int is_dealt, uint64_t position) {
    uint32_t world = plan->options.world_size;
    return (struct hwi_batch_seeds){
        .task = task,
        .sequence_count = plan->shape.contexts_per_batch,
        .first = is_dealt ? position + plan->options.rank : position / world,
        .step = is_dealt ? world : 1,
        .split = split,
    };
}

/* ---- blocks ------------------------------------------------------------------------------ */

uint64_t hwi_block_position(const struct hwi_plan *plan, const struct hwi_block_range *range) {
    return range->first_step * hwi_level_step(plan);
}

/* The block of a batch. An epoch's steps are those that begin in it; they are cut into as many
 * blocks as come nearest to level_block steps each. */
static struct hwi_block_range block_of(const struct hwi_plan *plan, uint64_t seed_count,
                                       uint64_t batch) {
    uint64_t contexts = hwi_level_step(plan), parts = plan->options.level_parts;
    uint64_t step = batch / parts, epoch = step * contexts / seed_count;
    uint64_t start = (epoch * seed_count + contexts - 1) / contexts;
    uint64_t count = ((epoch + 1) * seed_count + contexts - 1) / contexts - start;
    uint64_t blocks = (count + plan->options.level_block / 2) / plan->options.level_block;
    blocks += blocks == 0;
    uint64_t block = ((step - start + 1) * blocks - 1) / count;
    uint64_t first = count * block / blocks, end = count * (block + 1) / blocks;
    return (struct hwi_block_range){.first_step = start + first,
                                    .step_count = (uint32_t)(end - first),
                                    .place = (uint32_t)(batch - (start + first) * parts)};
}

static hw_status place_in_block(const struct hwi_plan *plan, uint64_t position, uint64_t seed_count,
                                struct hwi_batch_seeds *seeds, hw_error *error) {
    uint64_t step = hwi_stream_step(plan);
    if (position % step != 0) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "position %llu is within a batch of %llu contexts: with layout 'flat' a "
                        "stream is continued with the batch_size and world_size of its batches",
                        (unsigned long long)position, (unsigned long long)step);
    }
    seeds->range = block_of(plan, seed_count, position / step);
    return HW_OK;
}

/* Of a pass: seeds that the caller gave may be like those of any split. */
static struct hwi_flat_sizes pass_sizes(const hw_flat_shape *shape,
                                        const struct hwi_batch_seeds *seeds) {
    struct hwi_flat_sizes sizes = {.cells = shape->pass_cells[seeds->split],
                                   .rows = shape->pass_rows[seeds->split]};
    for (int split = 0; seeds->given != NULL && split < HW_SPLIT_COUNT; split++) {
        if (shape->pass_cells[split] > sizes.cells) {
            sizes.cells = shape->pass_cells[split];
        }
        if (shape->pass_rows[split] > sizes.rows) {
            sizes.rows = shape->pass_rows[split];
        }
    }
    return sizes;
}

struct hwi_flat_sizes hwi_stream_sizes(const struct hwi_plan *plan,
                                       const struct hwi_batch_seeds *seeds) {
    if (plan->flat == NULL) {
        return (struct hwi_flat_sizes){0};
    }
    const hw_flat_shape *shape = &plan->flat[seeds->task].shape;
    if (seeds->is_filled) {
        return pass_sizes(shape, seeds);
    }
    return (struct hwi_flat_sizes){
        .cells = shape->cells, .rows = shape->rows, .contexts = seeds->levelled};
}

hw_status hwi_stream_endless(const struct hwi_plan *plan, hw_split split, uint32_t task,
                             uint64_t position, struct hwi_batch_seeds *seeds, hw_error *error) {
    int is_dealt = plan->options.shard == HW_SHARD_DEALT;
    uint64_t last = 0, world = plan->options.world_size;
    uint64_t count = hwi_order_shard(plan, split, task).count;
    if (!is_dealt && position % world != 0) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "position %llu of split '%s' is not a multiple of world_size, %llu",
                        (unsigned long long)position, SPLIT_NAMES[split],
                        (unsigned long long)world);
    }
    *seeds = batch_at(plan, split, task, is_dealt, position);
    if (count == 0) {
        seeds->sequence_count = 0;
        return HW_OK;
    }
    if (__builtin_add_overflow(position, hwi_stream_step(plan), &last) ||
        last / (is_dealt ? 1 : world) / count > UINT32_MAX) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "position %llu of split '%s' is past the last epoch, 2^32 - 1",
                        (unsigned long long)position, SPLIT_NAMES[split]);
    }
    return plan->flat == NULL ? HW_OK : place_in_block(plan, position, count, seeds, error);
}

/* ---- passes ------------------------------------------------------------------------------ */

/* Ranks that share the seeds of a pass. */
static uint32_t rank_count(const struct hwi_plan *plan, const struct hwi_pass_plan *pass) {
    return pass->chosen == NULL ? plan->options.world_size : 1;
}

static void add_part(const struct hwi_plan *plan, struct hwi_pass_plan *pass, uint32_t task,
                     uint32_t count) {
    uint64_t step = (uint64_t)plan->shape.contexts_per_batch * rank_count(plan, pass);
    pass->batch_count += (count + step - 1) / step;
    pass->parts[pass->part_count++] =
        (struct hwi_pass_part){.task = task, .count = count, .batch_end = pass->batch_count};
}

static hw_status allocate_parts(struct hwi_pass_plan *pass, uint32_t count, hw_error *error) {
    pass->parts = calloc((size_t)count + 1, sizeof *pass->parts);
    if (pass->parts == NULL) {
        return hwi_no_memory(error, "the parts of a pass", count * sizeof *pass->parts);
    }
    return HW_OK;
}

hw_status hwi_pass_plan_epoch(const struct hwi_plan *plan, hw_split split, uint32_t task,
                              uint32_t index, struct hwi_pass_plan *pass, hw_error *error) {
    HW_TRY(hwi_order_check_split(split, error));
    uint32_t only = UINT32_MAX;
    if (task != UINT32_MAX) {
        HW_TRY(hwi_stream_task(plan, task, &only, error));
    }
    pass->split = split;
    pass->index = index;
    HW_TRY(allocate_parts(pass, plan->task_count, error));
    for (uint32_t t = 0; t < plan->task_count; t++) {
        if ((only == UINT32_MAX || only == t) && plan->tasks[t].lists[split].count > 0) {
            add_part(plan, pass, t, plan->tasks[t].lists[split].count);
        }
    }
    if (pass->part_count == 0 && only != UINT32_MAX) {
        char name[64];
        return hwi_fail(error, HW_BAD_TASK, "split '%s' of task '%s' has no seeds",
                        SPLIT_NAMES[split], task_name(plan, task, name, sizeof name));
    }
    if (pass->part_count == 0) {
        return hwi_fail(error, HW_BAD_TASK,
                        "split '%s' has no seeds in any of the %u selected tasks",
                        SPLIT_NAMES[split], plan->task_count);
    }
    return HW_OK;
}

static hw_status copy_seeds(struct hwi_pass_plan *pass, const uint32_t *anchors,
                            const int64_t *obs_times, uint32_t count, hw_error *error) {
    pass->anchors = malloc(((size_t)count + 1) * sizeof *pass->anchors);
    pass->obs_times = malloc(((size_t)count + 1) * sizeof *pass->obs_times);
    if (pass->anchors == NULL || pass->obs_times == NULL) {
        return hwi_no_memory(error, "the seeds of a pass", (uint64_t)count * 12);
    }
    if (count > 0) {
        memcpy(pass->anchors, anchors, count * sizeof *anchors);
        memcpy(pass->obs_times, obs_times, count * sizeof *obs_times);
    }
    return HW_OK;
}

hw_status hwi_pass_plan_seeds(const struct hwi_plan *plan, uint32_t task, const uint32_t *anchors,
                              const int64_t *obs_times, uint32_t count, struct hwi_pass_plan *pass,
                              hw_error *error) {
    uint32_t selected = 0;
    HW_TRY(hwi_stream_task(plan, task, &selected, error));
    const struct hwi_table *table = &plan->store->tables[plan->tasks[selected].info->anchor_table];
    for (uint32_t i = 0; i < count; i++) {
        if (!hwi_table_has(table, anchors[i])) {
            return hwi_fail(error, HW_BAD_ARGUMENT,
                            "anchors[%u] is row %u, outside the anchor table's rows %u to %u", i,
                            anchors[i], table->info->row_start,
                            table->info->row_start + table->info->row_count);
        }
    }
    HW_TRY(allocate_parts(pass, 1, error));
    HW_TRY(copy_seeds(pass, anchors, obs_times, count, error));
    add_part(plan, pass, selected, count);
    return HW_OK;
}

/* HW_BAD_ARGUMENT unless seeds[i] is a seed of some split. */
static hw_status check_chosen(const struct hwi_plan *plan, const struct hwi_task_plan *task,
                              const uint32_t *seeds, uint32_t i, hw_error *error) {
    char name[64];
    uint32_t count = task->info->seed_count;
    if (seeds[i] >= count) {
        task_name(plan, task->task, name, sizeof name);
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "seeds[%u] is %u, expected less than %u, the seeds of '%s'", i, seeds[i],
                        count, name);
    }
    if (task->splits[seeds[i]] == HW_SPLIT_NONE) {
        task_name(plan, task->task, name, sizeof name);
        return hwi_fail(error, HW_BAD_ARGUMENT, "seeds[%u] is %u, which is in no split of '%s': %s",
                        i, seeds[i], name,
                        task->seed_table == HWI_NONE
                            ? "time_split leaves it out"
                            : "it has no time, or time_split or visible_until leaves it out");
    }
    return HW_OK;
}

hw_status hwi_pass_plan_chosen(const struct hwi_plan *plan, uint32_t task, const uint32_t *seeds,
                               const uint32_t *epochs, uint32_t count, struct hwi_pass_plan *pass,
                               hw_error *error) {
    uint32_t selected = 0;
    HW_TRY(hwi_stream_task(plan, task, &selected, error));
    for (uint32_t i = 0; i < count; i++) {
        HW_TRY(check_chosen(plan, &plan->tasks[selected], seeds, i, error));
    }
    HW_TRY(allocate_parts(pass, 1, error));
    pass->chosen = malloc(((size_t)count + 1) * sizeof *pass->chosen);
    pass->epochs = calloc((size_t)count + 1, sizeof *pass->epochs);
    if (pass->chosen == NULL || pass->epochs == NULL) {
        return hwi_no_memory(error, "the seeds of a pass", (uint64_t)count * 8);
    }
    if (count > 0) {
        memcpy(pass->chosen, seeds, count * sizeof *seeds);
    }
    if (count > 0 && epochs != NULL) {
        memcpy(pass->epochs, epochs, count * sizeof *epochs);
    }
    add_part(plan, pass, selected, count);
    if (count == 0) {
        pass->batch_count = pass->parts[0].batch_end = 1;
    }
    return HW_OK;
}

void hwi_pass_plan_release(struct hwi_pass_plan *pass) {
    free(pass->parts);
    free(pass->anchors);
    free(pass->obs_times);
    free(pass->chosen);
    free(pass->epochs);
    free(pass->batches);
    *pass = (struct hwi_pass_plan){0};
}

/* Whether this rank has every world_size-th seed of a pass, from its own number on. */
static int is_dealt_pass(const struct hwi_plan *plan, const struct hwi_pass_plan *pass) {
    return pass->chosen == NULL && (plan->options.shard == HW_SHARD_DEALT || pass->anchors != NULL);
}

/* Seeds of a part that this rank's are among. */
static uint64_t listed_count(const struct hwi_plan *plan, const struct hwi_pass_plan *pass,
                             const struct hwi_pass_part *part) {
    int is_given = pass->anchors != NULL || pass->chosen != NULL;
    return is_dealt_pass(plan, pass) || is_given
               ? part->count
               : hwi_order_shard(plan, pass->split, part->task).count;
}

static uint64_t left_from(const struct hwi_batch_seeds *seeds, uint64_t count) {
    return seeds->first < count ? (count - seeds->first + seeds->step - 1) / seeds->step : 0;
}

/* Goes from places in a list of `count` seeds to those of the pass's epoch. */
static void place_in_pass(const struct hwi_pass_plan *pass, uint64_t count,
                          struct hwi_batch_seeds *seeds) {
    seeds->first += (uint64_t)pass->index * count;
    seeds->given = pass->anchors != NULL || pass->chosen != NULL ? pass : NULL;
}

struct hwi_batch_seeds hwi_pass_part_seeds(const struct hwi_plan *plan,
                                           const struct hwi_pass_plan *pass, uint32_t part) {
    const struct hwi_pass_part *whole = &pass->parts[part];
    uint64_t count = listed_count(plan, pass, whole);
    struct hwi_batch_seeds seeds =
        batch_at(plan, pass->split, whole->task, is_dealt_pass(plan, pass), 0);
    seeds.sequence_count = (uint32_t)left_from(&seeds, count);
    seeds.is_filled = 1;
    place_in_pass(pass, count, &seeds);
    return seeds;
}

struct hwi_batch_seeds hwi_stream_pass(const struct hwi_plan *plan,
                                       const struct hwi_pass_plan *pass, uint64_t n) {
    assert(n < pass->batch_count);
    uint32_t p = 0;
    while (pass->parts[p].batch_end <= n) {
        p++;
    }
    const struct hwi_pass_part *part = &pass->parts[p];
    if (pass->batches != NULL) {
        struct hwi_batch_seeds seeds = hwi_pass_part_seeds(plan, pass, p);
        seeds.first += (uint64_t)pass->batches[n].first * seeds.step;
        seeds.sequence_count = pass->batches[n].count;
        return seeds;
    }
    uint64_t before = p == 0 ? 0 : pass->parts[p - 1].batch_end;
    uint64_t count = listed_count(plan, pass, part);
    struct hwi_batch_seeds seeds =
        batch_at(plan, pass->split, part->task, is_dealt_pass(plan, pass),
                 (n - before) * hwi_stream_step(plan));
    uint64_t left = left_from(&seeds, count);
    if (left < seeds.sequence_count) {
        seeds.sequence_count = (uint32_t)left;
    }
    if (plan->flat != NULL && seeds.sequence_count > 0) {
        seeds.range = (struct hwi_block_range){.first_step = n, .step_count = 1};
    }
    place_in_pass(pass, count, &seeds);
    return seeds;
}
