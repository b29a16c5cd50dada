/*
 * Sizes of flat batches; see flat_shape.h. The mean of a levelled block of K·n contexts differs
 * from that of all by cv / sqrt(K·n), and that of the sample by cv / sqrt(m): a batch has room for
 * two such deviations more than n mean contexts.
 */
#include "shape/flat_shape.h"

#include <math.h>
#include <stdlib.h>

#include "batch/level.h"
#include "batch/worker.h"
#include "plan/order.h"

enum {
    MOST_SAMPLED = 4096, /* contexts of each task, of the split that is trained */
    SAMPLED_FOR_PASSES = 1024, /* of the others */
    CELLS_STEP = 64,
    CELLS_STEP_OF_PARTS = 8, /* of ranks too: each has so few cells that 64 are many of them */
    ROWS_STEP = 16,
    ALIKE_PERCENT = 90, /* batches of streams that differ less share a size */
    PASSES_ALIKE_PERCENT = 98, /* and of passes */
    MOST_TRIED = 64, /* sizes of a pass */
};
#define DEVIATIONS 2.0 /* of the mean of a block */
#define LEAST_REST                                                                                 \
    0.05 /* of a variance, where a block or the sample has every seed: draws differ */
#define PASS_LEAST 0.75 /* of the cells of batch_size mean contexts, that a pass has */
#define WORTH_WHILE 0.99 /* of the positions of a pass, for more and smaller batches */
#define PART_MARGIN 0.01 /* beyond what the parts of steps had in the sample */
#define ROWS_MARGIN 0.06 /* the same of rows */

/* ---- the sample -------------------------------------------------------------------------- */

struct sample {
    const struct hwi_plan *plan;
    struct hwi_shard list; /* all seeds of the split */
    hw_split split;
    uint32_t task, count;
    struct hwi_length lengths[MOST_SAMPLED];
};

static struct hwi_seed seed_at(const void *context, uint32_t i) {
    const struct sample *sample = context;
    return hwi_order_seed(sample->plan, sample->split, sample->task, &sample->list, i);
}

/* The first contexts of a split's epoch 0. */
static hw_status take_sample(const struct hwi_plan *plan, uint32_t task, hw_split split,
                             struct hwi_worker *worker, struct sample *sample, hw_error *error) {
    uint32_t most = split == HW_TRAIN ? MOST_SAMPLED : SAMPLED_FOR_PASSES;
    sample->plan = plan;
    sample->task = task;
    sample->split = split;
    sample->list = hwi_order_list(plan, split, task);
    sample->count = sample->list.count < most ? sample->list.count : most;
    return hwi_measure_lengths(worker, seed_at, sample, sample->count, sample->lengths, error);
}

struct moments {
    double mean, cv; /* cv: deviation over mean */
};

static struct moments moments_of(const struct sample *sample, int of_rows) {
    double sum = 0, squares = 0, count = sample->count > 0 ? sample->count : 1;
    for (uint32_t i = 0; i < sample->count; i++) {
        double size = of_rows ? sample->lengths[i].rows : sample->lengths[i].cells;
        sum += size;
        squares += size * size;
    }
    double mean = sum / count, variance = squares / count - mean * mean;
    mean = mean < 1 ? 1 : mean;
    return (struct moments){mean, sqrt(variance > 0 ? variance : 0) / mean};
}

/* ---- the sizes --------------------------------------------------------------------------- */

/* The most that the steps of the sample, and their parts, have if it is levelled. */
struct found {
    uint64_t rows, step_rows, cells;
};

static void look_at(const struct hwi_levelled *step, const struct hwi_level_shape *shape,
                    struct found *found) {
    uint64_t step_rows = 0;
    for (uint32_t part = 0; part < shape->parts * shape->ranks; part++) {
        uint64_t rows = 0, cells = 0;
        for (uint32_t i = 0; i < shape->each; i++) {
            rows += step[part * shape->each + i].limit.rows;
            cells += step[part * shape->each + i].limit.cells;
        }
        step_rows += rows;
        found->rows = rows > found->rows ? rows : found->rows;
        found->cells = cells > found->cells ? cells : found->cells;
    }
    found->step_rows = step_rows > found->step_rows ? step_rows : found->step_rows;
}

/* Levels the sample block by block, round and round to the end of the last. */
static hw_status try_levelling(const struct sample *sample, const struct hwi_level_shape *shape,
                               struct found *found, hw_error *error) {
    size_t step = (size_t)shape->parts * shape->ranks * shape->each, block = step * shape->steps;
    struct hwi_length *lengths = calloc(block, sizeof *lengths);
    struct hwi_levelled *levelled = calloc(block, sizeof *levelled);
    hw_status status = lengths == NULL || levelled == NULL
                           ? hwi_no_memory(error, "a block of the sample", block * sizeof *levelled)
                           : HW_OK;
    for (size_t first = 0; first < sample->count && status == HW_OK; first += block) {
        for (size_t i = 0; i < block; i++) {
            lengths[i] = sample->lengths[(first + i) % sample->count];
        }
        status = hwi_level(lengths, shape, levelled, error);
        for (uint32_t i = 0; i < shape->steps && status == HW_OK; i++) {
            look_at(levelled + i * step, shape, found);
        }
    }
    free(lengths);
    free(levelled);
    return status;
}

/* At least `least`, a multiple of `step`, at most what `count` contexts of `most` have. */
static uint32_t rounded(double size, uint32_t step, uint32_t least, uint32_t count, uint32_t most) {
    double bound = (double)count * most;
    size = size < bound ? size : bound;
    size = size > least ? size : least;
    return (uint32_t)(ceil(size / step) * step);
}

static uint32_t least_of(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t cells_step(const struct hwi_plan *plan) {
    uint32_t rank, ranks = hwi_level_ranks(plan, &rank);
    return ranks * plan->options.level_parts > 1 ? CELLS_STEP_OF_PARTS : CELLS_STEP;
}

/* By how much the mean of so many contexts, drawn from all of a list, differs from that of all,
 * in deviations of one context. */
static double spread_of(double count, const struct sample *sample) {
    double share = count / sample->list.count;
    double rest = share < 1 - LEAST_REST ? 1 - share : LEAST_REST;
    return rest / count;
}

/* Batches of the stream. */
static hw_status choose_sizes(const struct hwi_plan *plan, const struct sample *sample,
                              struct hwi_flat_task *flat, hw_error *error) {
    uint32_t most_cells = plan->shape.sequence_length, most_rows = plan->shape.max_rows;
    uint32_t rank, ranks = hwi_level_ranks(plan, &rank), each = plan->shape.batch_size;
    uint32_t parts = plan->options.level_parts, step = parts * ranks * each,
             steps = (sample->list.count + step - 1) / step;
    struct hwi_level_shape shape = {.steps = least_of(steps, plan->options.level_block),
                                    .parts = parts,
                                    .ranks = ranks,
                                    .each = each,
                                    .step_cells = UINT32_MAX,
                                    .step_rows = UINT32_MAX,
                                    .cells = UINT32_MAX,
                                    .rows = UINT32_MAX};
    struct found found = {0};
    HW_TRY(try_levelling(sample, &shape, &found, error));
    struct moments cells = moments_of(sample, 0);
    double deviation = cells.cv * sqrt(spread_of(sample->count, sample) +
                                       spread_of((double)shape.steps * step, sample));
    double share = each * cells.mean * (1 + DEVIATIONS * deviation);
    flat->step_cells =
        rounded((double)parts * ranks * share, CELLS_STEP, most_cells, step, most_cells);
    if (parts * ranks > 1) {
        /* More of it where few steps of few contexts tell little of another epoch's. */
        double margin = PART_MARGIN + (double)(parts * ranks) / sample->count;
        double part = (double)found.cells * (1 + margin);
        share = part > share ? part : share;
    }
    flat->shape.cells = rounded(share, cells_step(plan), most_cells, each, most_cells);
    flat->shape.rows =
        rounded((double)found.rows * (1 + ROWS_MARGIN), ROWS_STEP, most_rows, each, most_rows);
    flat->step_rows =
        rounded((double)found.step_rows * (1 + ROWS_MARGIN), ROWS_STEP, most_rows, step, most_rows);
    flat->shape.sampled = sample->count;
    for (uint32_t i = 0; i < sample->count; i++) {
        flat->shape.capped += sample->lengths[i].is_capped ? 1 : 0;
    }
    return HW_OK;
}

/* Batches that the passes of all ranks over the sample have. */
static uint32_t count_pass_batches(const struct sample *sample, uint32_t most_cells,
                                   uint32_t most_rows) {
    uint64_t ranks = sample->plan->options.world_size;
    uint32_t batches = 0;
    for (uint64_t rank = 0; rank < ranks && rank < sample->count; rank++) {
        uint32_t count = 0, cells = 0, rows = 0;
        for (uint64_t i = rank; i < sample->count; i += ranks) {
            struct hwi_length length = sample->lengths[i];
            if (count == 0 || count == sample->plan->shape.batch_size ||
                length.cells > most_cells - cells || length.rows > most_rows - rows) {
                batches++;
                count = cells = rows = 0;
            }
            count++;
            cells += length.cells;
            rows += length.rows;
        }
    }
    return batches;
}

/* The fewest cells with which a pass has no more batches: its last one is as full as the others. */
static uint32_t without_rest(const struct sample *sample, uint32_t cells, uint32_t rows) {
    uint32_t batches = count_pass_batches(sample, cells, rows), step = cells_step(sample->plan);
    uint32_t least = sample->plan->shape.sequence_length; /* it always does */
    while (cells >= least + step && count_pass_batches(sample, cells - step, rows) <= batches) {
        cells -= step;
    }
    return cells;
}

/* Rows for so many mean contexts, at most batch_size, with room for what they differ by. */
static uint32_t rows_for(double count, struct moments of_rows, const hw_shape *shape) {
    count = count < shape->batch_size ? count : shape->batch_size;
    count = count > 1 ? count : 1;
    return rounded(count * of_rows.mean * (1 + of_rows.cv / sqrt(count)), ROWS_STEP,
                   shape->max_rows, shape->batch_size, shape->max_rows);
}

/* Batches of passes over the split: of what a bit fewer than batch_size mean contexts have, up to
 * as many, that with which a pass over the sample has the fewest positions. Smaller ones have to be
 * worth their number. Of a split that the sample has all of, no more than its batches need. */
static void choose_pass_sizes(const struct hwi_plan *plan, const struct sample *sample,
                              hw_flat_shape *shape) {
    uint32_t most_cells = plan->shape.sequence_length, step = cells_step(plan);
    uint32_t each = plan->shape.batch_size;
    struct moments of_cells = moments_of(sample, 0), of_rows = moments_of(sample, 1);
    double mean = each * of_cells.mean, fewest = INFINITY;
    uint32_t least = rounded(PASS_LEAST * mean, step, most_cells, each, most_cells);
    uint32_t most = rounded(mean, step, most_cells, each, most_cells), best = most;
    step *= (most - least) / step / MOST_TRIED + 1;
    for (uint32_t i = 0; i <= (most - least) / step; i++) {
        uint32_t cells = most - i * step;
        uint32_t rows = rows_for(cells / of_cells.mean, of_rows, &plan->shape);
        double positions = (double)count_pass_batches(sample, cells, rows) * cells;
        if (positions < fewest * WORTH_WHILE) {
            best = cells;
            fewest = positions;
        }
    }
    uint32_t rows = rows_for(best / of_cells.mean, of_rows, &plan->shape);
    if (sample->count == sample->list.count) {
        best = without_rest(sample, best, rows);
    }
    shape->pass_cells[sample->split] = best;
    shape->pass_rows[sample->split] = rows;
}

/* ---- tasks and splits -------------------------------------------------------------------- */

/* Batches of a task's stream, or of its passes over a split. */
struct size {
    uint32_t *cells, *rows;
};

static void raise(uint32_t *size, uint32_t other) {
    *size = *size > other ? *size : other;
}

/* Gives sizes of at least so many percent of the largest of them this one: fewer shapes to compile.
 * Sorts them. */
static void share_sizes(struct size *sizes, size_t count, uint32_t percent) {
    for (size_t i = 1; i < count; i++) { /* largest first */
        struct size size = sizes[i];
        size_t place = i;
        for (; place > 0 && *sizes[place - 1].cells < *size.cells; place--) {
            sizes[place] = sizes[place - 1];
        }
        sizes[place] = size;
    }
    for (size_t first = 0, end; first < count; first = end) {
        uint32_t cells = *sizes[first].cells, rows = 0;
        uint64_t least = (uint64_t)cells * percent;
        for (end = first; end < count && (uint64_t)*sizes[end].cells * 100 >= least; end++) {
            raise(&rows, *sizes[end].rows);
        }
        for (size_t i = first; i < end; i++) {
            *sizes[i].cells = cells;
            *sizes[i].rows = rows;
        }
    }
}

static hw_status share_among_tasks(struct hwi_plan *plan, hw_error *error) {
    uint32_t count = plan->task_count;
    struct size *streams = calloc((size_t)count + 1, sizeof *streams);
    struct size *steps = calloc((size_t)count + 1, sizeof *steps);
    struct size *passes = calloc((size_t)count * HW_SPLIT_COUNT + 1, sizeof *passes);
    hw_status status = streams == NULL || steps == NULL || passes == NULL
                           ? hwi_no_memory(error, "the sizes of batches", count * sizeof *passes)
                           : HW_OK;
    size_t stream_count = 0, pass_count = 0; /* only tasks with train seeds have streams */
    for (uint32_t t = 0; t < count && status == HW_OK; t++) {
        struct hwi_flat_task *flat = &plan->flat[t];
        hw_flat_shape *shape = &flat->shape;
        if (flat->step_cells > 0) {
            streams[stream_count] = (struct size){&shape->cells, &shape->rows};
            steps[stream_count++] = (struct size){&flat->step_cells, &flat->step_rows};
        }
        for (int split = 0; split < HW_SPLIT_COUNT; split++) {
            passes[pass_count++] =
                (struct size){&shape->pass_cells[split], &shape->pass_rows[split]};
        }
    }
    if (status == HW_OK) {
        share_sizes(streams, stream_count, ALIKE_PERCENT);
        share_sizes(steps, stream_count, ALIKE_PERCENT);
        share_sizes(passes, pass_count, PASSES_ALIKE_PERCENT);
    }
    free(streams);
    free(steps);
    free(passes);
    return status;
}

/* Splits without seeds have the sizes of those that have some: seeds may be given to a pass. */
static void fill_splits(hw_flat_shape *shape, uint32_t least_cells, uint32_t least_rows) {
    for (int split = 0; split < HW_SPLIT_COUNT; split++) {
        raise(&least_cells, shape->pass_cells[split]);
        raise(&least_rows, shape->pass_rows[split]);
    }
    if (shape->cells == 0) {
        shape->cells = least_cells;
        shape->rows = least_rows;
    }
    for (int split = 0; split < HW_SPLIT_COUNT; split++) {
        if (shape->pass_cells[split] == 0) {
            shape->pass_cells[split] = least_cells;
            shape->pass_rows[split] = least_rows;
        }
    }
}

static hw_status plan_tasks(struct hwi_plan *plan, struct hwi_worker *worker, struct sample *sample,
                            hw_error *error) {
    hw_shape *shape = &plan->shape;
    for (uint32_t t = 0; t < plan->task_count; t++) {
        struct hwi_flat_task *flat = &plan->flat[t];
        for (int split = 0; split < HW_SPLIT_COUNT; split++) {
            HW_TRY(take_sample(plan, t, (hw_split)split, worker, sample, error));
            if (sample->count > 0 && split == HW_TRAIN) {
                HW_TRY(choose_sizes(plan, sample, flat, error));
            }
            if (sample->count > 0) {
                choose_pass_sizes(plan, sample, &flat->shape);
            }
        }
        fill_splits(&flat->shape,
                    rounded(0, CELLS_STEP, shape->sequence_length, 1, shape->sequence_length),
                    rounded(0, ROWS_STEP, shape->max_rows, 1, shape->max_rows));
    }
    HW_TRY(share_among_tasks(plan, error));
    for (uint32_t t = 0; t < plan->task_count; t++) {
        const hw_flat_shape *own = &plan->flat[t].shape;
        raise(&shape->cells_per_batch, own->cells);
        raise(&shape->rows_per_batch, own->rows);
        for (int split = 0; split < HW_SPLIT_COUNT; split++) {
            raise(&shape->cells_per_batch, own->pass_cells[split]);
            raise(&shape->rows_per_batch, own->pass_rows[split]);
        }
    }
    return HW_OK;
}

hw_status hwi_flat_plan(struct hwi_plan *plan, hw_error *error) {
    struct hwi_worker *worker = NULL;
    struct sample *sample = malloc(sizeof *sample);
    plan->flat = calloc((size_t)plan->task_count + 1, sizeof *plan->flat);
    hw_status status = sample == NULL || plan->flat == NULL
                           ? hwi_no_memory(error, "the sample of contexts", sizeof *sample)
                           : hwi_worker_open(plan, &worker, error);
    if (status == HW_OK) {
        status = plan_tasks(plan, worker, sample, error);
    }
    hwi_worker_close(worker);
    free(sample);
    return status;
}
