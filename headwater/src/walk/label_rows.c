/* Seeds of a task stand in the order of (anchor, obs_time): see label_rows.h. */
#include "walk/label_rows.h"

#include "base/search.h"
#include "plan/known_labels.h"

enum { PEER_POOL = 4 }; /* peers are drawn from so many times as many labels, the latest */

void hwi_labels_start(struct hwi_walk *walk) {
    const struct hwi_plan *plan = walk->plan;
    const hw_seeds *seeds = &plan->store->seeds[walk->view.task->task];
    walk->labels.count = walk->labels.next = 0;
    walk->labels.sought = (plan->options.label_rows > 0 || plan->options.peer_labels > 0) &&
                          !walk->view.is_cell && seeds->label_times != NULL &&
                          walk->deepest >= HWI_LABEL_DEPTH;
    if (walk->labels.sought && walk->context.seed.split != HWI_SPLIT_AD_HOC &&
        walk->context.seed.index > 0) {
        uint32_t before = walk->context.seed.index - 1;
        __builtin_prefetch(seeds->anchors + before);
        __builtin_prefetch(seeds->obs_times + before);
        __builtin_prefetch(seeds->label_times + before);
        __builtin_prefetch(seeds->states + before);
        __builtin_prefetch(walk->view.task->splits + before);
    }
}

static int is_shown(const struct hwi_walk *walk, const hw_seeds *seeds, uint32_t i) {
    return seeds->obs_times[i] < walk->context.seed.obs_time &&
           hwi_may_show_label(walk->plan, walk->view.task, seeds, i) &&
           hwi_view_passes(&walk->view, seeds->label_times[i], 0);
}

/* Earlier seeds of the anchor, the latest first. */
static void find_own(struct hwi_walk *walk, const hw_seeds *seeds) {
    uint32_t i = walk->context.seed.split != HWI_SPLIT_AD_HOC
                     ? walk->context.seed.index
                     : hwi_first_u32(seeds->anchors, seeds->count, walk->context.seed.anchor + 1);
    for (; i > 0 && seeds->anchors[i - 1] == walk->context.seed.anchor &&
           walk->labels.count < walk->plan->options.label_rows;
         i--) {
        if (is_shown(walk, seeds, i - 1)) {
            walk->labels.seeds[walk->labels.count++] = i - 1;
        }
    }
}

/* How many of the task's labels are known to the seed: the first ones. */
static uint32_t count_known(const struct hwi_walk *walk) {
    const struct hwi_task_plan *task = walk->view.task;
    uint32_t low = 0, high = walk->plan->options.peer_labels > 0 ? task->known_count : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (hwi_view_passes(&walk->view, task->known_labels[middle].known_at, 0)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Where the labels begin that peers are drawn from: the latest ones of `known`, and those that
 * became known with the first of them. */
static uint32_t pool_start(const struct hwi_walk *walk, uint32_t known) {
    const struct hwi_known_label *labels = walk->view.task->known_labels;
    uint32_t wanted = PEER_POOL * walk->plan->options.peer_labels;
    uint32_t low = 0, high = known > wanted ? known - wanted : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (labels[middle].known_at < labels[known - wanted].known_at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int holds(const uint32_t *drawn, uint32_t count, uint32_t place) {
    for (uint32_t i = 0; i < count; i++) {
        if (drawn[i] == place) {
            return 1;
        }
    }
    return 0;
}

/* `count` distinct ones of [0, size): all, the last first, or drawn uniformly. */
static void draw_places(struct hwi_rng *rng, uint32_t size, uint32_t count, uint32_t *drawn) {
    for (uint32_t k = 0; k < count; k++) {
        drawn[k] = size - 1 - k;
    }
    for (uint32_t k = 0; count < size && k < count; k++) {
        do {
            drawn[k] = hwi_rng_below(rng, size);
        } while (holds(drawn, k, drawn[k]));
    }
}

/* Labels of other anchors that became known last. One of the anchor itself is dropped. */
static void find_peers(struct hwi_walk *walk, const hw_seeds *seeds) {
    uint32_t known = count_known(walk);
    uint32_t start = pool_start(walk, known), size = known - start;
    uint32_t most = walk->plan->options.peer_labels, count = size < most ? size : most;
    uint32_t *drawn = walk->labels.seeds + walk->labels.count;
    draw_places(&walk->rng, size, count, drawn);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t i = walk->view.task->known_labels[start + drawn[k]].seed;
        if (seeds->anchors[i] != walk->context.seed.anchor &&
            seeds->obs_times[i] < walk->context.seed.obs_time) {
            walk->labels.seeds[walk->labels.count++] = i;
        }
    }
}

void hwi_labels_find(struct hwi_walk *walk) {
    const hw_seeds *seeds = &walk->plan->store->seeds[walk->view.task->task];
    walk->labels.sought = 0;
    find_own(walk, seeds);
    find_peers(walk, seeds);
}
