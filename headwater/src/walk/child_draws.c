/*
 * Groups of children of one hop. While hop h is drawn from, new groups have h + 1 hops or more, so
 * a hop is laid out once: under "uniform" as an array with each group as often as it has
 * draws left (an entry is drawn, the last takes its place); under "recent" as one region for each
 * key, a heap of groups by their newest undrawn child. Children of a group are drawn lazily: a
 * partial shuffle of positions where all fit the width, else by rejection among those drawn before.
 * Both give every prefix of the draws the uniform distribution.
 */
#include "walk/child_draws.h"

#include <string.h>

#include "walk/shown_edges.h"

void hwi_draw_reset(struct hwi_walk *walk) {
    walk->draws.group_count = walk->draws.entry_count = 0;
    walk->draws.bucket_count = walk->draws.turn_count = walk->draws.turn_next = 0;
    walk->draws.ahead_count = walk->draws.ahead_next = 0;
}

/* ---- groups ------------------------------------------------------------------------------ */

static struct hwi_group *add_group(struct hwi_walk *walk, uint32_t visible, uint32_t quota) {
    struct hwi_group *group = &walk->draws.groups[walk->draws.group_count++];
    group->visible = visible;
    group->quota = quota;
    group->drawn = 0;
    group->draws = HWI_NONE;
    return group;
}

/* Deals a row's width to its keys in turn; quota[slot] receives each one's part. */
static void deal_quota(uint32_t width, uint32_t slot_count, const uint32_t *visible,
                       uint32_t *quota) {
    uint32_t left = width, given = 1;
    memset(quota, 0, slot_count * sizeof *quota);
    while (left > 0 && given > 0) {
        given = 0;
        for (uint32_t slot = 0; slot < slot_count && left > 0; slot++) {
            if (quota[slot] < visible[slot]) {
                quota[slot]++;
                left--;
                given++;
            }
        }
    }
}

/* One group for the children of all keys; `place` of its counts in walk->hops.segments. */
static void add_pooled(struct hwi_walk *walk, const struct hwi_visit *visit, uint32_t start,
                       uint32_t place) {
    const struct hwi_table *table = &walk->plan->store->tables[visit->table];
    uint32_t sum = 0, width = walk->plan->options.child_width;
    for (uint32_t slot = 0; slot < table->child_slot_count; slot++) {
        sum += walk->hops.segments[place + slot];
    }
    if (sum > 0) {
        struct hwi_group *group = add_group(walk, sum, sum < width ? sum : width);
        group->children = table->children + start;
        group->times = NULL;
        group->key = HWI_NONE;
        group->row = (uint32_t)(visit - walk->context.visits);
        group->segments = place;
    }
}

/* One group for each key, with `quota` of its children, or with NULL the width's. */
static void add_by_key(struct hwi_walk *walk, const struct hwi_visit *visit, uint64_t start,
                       uint32_t place, const uint32_t *quota) {
    const struct hwi_table *table = &walk->plan->store->tables[visit->table];
    const uint8_t *counts = visit->record + table->child_offset + 4;
    uint32_t width = walk->plan->options.child_width;
    for (uint32_t slot = 0; slot < table->child_slot_count; slot++) {
        uint32_t count, visible = walk->hops.segments[place + slot];
        uint32_t part = quota != NULL ? quota[slot] : visible < width ? visible : width;
        memcpy(&count, counts + slot * sizeof count, sizeof count);
        if (part > 0) {
            struct hwi_group *group = add_group(walk, visible, part);
            group->children = table->children + start;
            group->times = table->child_times == NULL ? NULL : table->child_times + start;
            group->key = table->incoming[slot];
            group->segments = hwi_is_partly_shown(walk, group->key) ? place + slot : HWI_NONE;
        }
        start += count;
    }
}

static void add_groups(struct hwi_walk *walk) {
    const hw_sampler_options *options = &walk->plan->options;
    uint32_t place = 0;
    for (uint32_t local = walk->hops.first[walk->hops.current]; local != HWI_NONE;
         local = walk->context.visits[local].next) {
        const struct hwi_visit *visit = &walk->context.visits[local];
        const struct hwi_table *table = &walk->plan->store->tables[visit->table];
        uint32_t start;
        memcpy(&start, visit->record + table->child_offset, sizeof start);
        if (options->width_scope != HW_WIDTH_PER_ROW) {
            add_by_key(walk, visit, start, place, NULL);
        } else if (options->child_order == HW_CHILDREN_UNIFORM) {
            add_pooled(walk, visit, start, place);
        } else {
            deal_quota(options->child_width, table->child_slot_count, walk->hops.segments + place,
                       walk->draws.quotas);
            add_by_key(walk, visit, start, place, walk->draws.quotas);
        }
        place += table->child_slot_count;
    }
}

/* ---- drawing within a group -------------------------------------------------------------- */

/* The position of the group's next child, uniform among those not drawn yet. */
static uint32_t draw_position(struct hwi_walk *walk, struct hwi_group *group) {
    uint32_t width = walk->plan->options.child_width, k = group->drawn++;
    if (group->draws == HWI_NONE) {
        group->draws = walk->draws.entry_count;
        walk->draws.entry_count += group->visible < width ? group->visible : width;
        if (group->visible <= width) {
            for (uint32_t i = 0; i < group->visible; i++) {
                walk->draws.entries[group->draws + i] = i;
            }
        }
    }
    uint32_t *draws = walk->draws.entries + group->draws;
    if (group->visible <= width) {
        uint32_t j = k + hwi_rng_below(&walk->rng, group->visible - k);
        uint32_t position = draws[j];
        draws[j] = draws[k];
        draws[k] = position;
        return position;
    }
    for (;;) {
        uint32_t position = hwi_rng_below(&walk->rng, group->visible), i = 0;
        while (i < k && draws[i] != position) {
            i++;
        }
        if (i == k) {
            draws[k] = position;
            return position;
        }
    }
}

/* Where a group's list names the child at a position among those that may be drawn. */
static const uint32_t *child_at(const struct hwi_walk *walk, const struct hwi_group *group,
                                uint32_t position) {
    if (group->segments != HWI_NONE) {
        return hwi_shown_edges_child(walk, group->children, group->segments, position);
    }
    return &group->children[position];
}

/* A pooled position counts through the visible children of all keys. */
static void locate_pooled(const struct hwi_walk *walk, const struct hwi_group *group,
                          uint32_t position, struct hwi_drawn *drawn) {
    const struct hwi_visit *visit = &walk->context.visits[group->row];
    const struct hwi_table *table = &walk->plan->store->tables[visit->table];
    const uint8_t *counts = visit->record + table->child_offset + 4;
    const uint32_t *children = group->children, *visible = walk->hops.segments + group->segments;
    uint32_t slot = 0;
    while (position >= visible[slot]) {
        uint32_t count;
        memcpy(&count, counts + slot * sizeof count, sizeof count);
        children += count;
        position -= visible[slot++];
    }
    drawn->key = table->incoming[slot];
    drawn->child = hwi_is_partly_shown(walk, drawn->key)
                       ? hwi_shown_edges_child(walk, children, group->segments + slot, position)
                       : &children[position];
}

static void draw_uniform(struct hwi_walk *walk, struct hwi_group *group, struct hwi_drawn *drawn) {
    uint32_t position = draw_position(walk, group);
    if (group->key == HWI_NONE) {
        locate_pooled(walk, group, position, drawn);
    } else {
        drawn->key = group->key;
        drawn->child = child_at(walk, group, position);
    }
}

/* Takes one of `count` entries of an array of groups; the last entry takes its place. */
static struct hwi_group *draw_entry(struct hwi_walk *walk, uint32_t *entries, uint32_t count) {
    uint32_t j = hwi_rng_below(&walk->rng, count);
    struct hwi_group *group = &walk->draws.groups[entries[j]];
    entries[j] = entries[count - 1];
    return group;
}

/* ---- uniform order ----------------------------------------------------------------------- */

static void lay_out_bucket(struct hwi_walk *walk) {
    uint32_t *bucket = walk->draws.bucket, count = 0;
    for (uint32_t g = 0; g < walk->draws.group_count; g++) {
        for (uint32_t i = 0; i < walk->draws.groups[g].quota; i++) {
            bucket[count++] = g;
        }
    }
    walk->draws.bucket_count = count;
}

/* ---- recent order ------------------------------------------------------------------------ */

/* The newest child of a group that was not drawn yet. */
static const uint32_t *newest_of(const struct hwi_walk *walk, const struct hwi_group *group) {
    return child_at(walk, group, group->visible - 1 - group->drawn);
}

/* 1 if the next child of group a is newer than that of group b (of the same key). */
static int is_newer(const struct hwi_walk *walk, uint32_t a, uint32_t b) {
    const struct hwi_group *x = &walk->draws.groups[a], *y = &walk->draws.groups[b];
    const uint32_t *i = newest_of(walk, x), *j = newest_of(walk, y);
    if (x->times != NULL && x->times[i - x->children] != y->times[j - y->children]) {
        return x->times[i - x->children] > y->times[j - y->children];
    }
    return *i > *j;
}

static void sift_down(const struct hwi_walk *walk, uint32_t *heap, uint32_t count, uint32_t at) {
    for (;;) {
        uint32_t best = at, left = 2 * at + 1;
        for (uint32_t child = left; child < count && child < left + 2; child++) {
            best = is_newer(walk, heap[child], heap[best]) ? child : best;
        }
        if (best == at) {
            return;
        }
        uint32_t group = heap[at];
        heap[at] = heap[best];
        heap[best] = group;
        at = best;
    }
}

/* The turn of a key at this hop, kept in key order; a new one has no entries yet. */
static struct hwi_turn *turn_of(struct hwi_walk *walk, uint32_t key) {
    uint32_t i = walk->draws.turn_count;
    while (i > 0 && walk->draws.turns[i - 1].key > key) {
        i--;
    }
    if (i > 0 && walk->draws.turns[i - 1].key == key) {
        return &walk->draws.turns[i - 1];
    }
    memmove(&walk->draws.turns[i + 1], &walk->draws.turns[i],
            (walk->draws.turn_count - i) * sizeof *walk->draws.turns);
    walk->draws.turn_count++;
    const hw_store *store = walk->plan->store;
    uint32_t table = store->keys[key].child_table;
    walk->draws.turns[i] =
        (struct hwi_turn){.key = key, .timed = store->tables[table].times != NULL};
    return &walk->draws.turns[i];
}

static void lay_out_turns(struct hwi_walk *walk) {
    uint32_t start = 0;
    walk->draws.turn_count = walk->draws.turn_next = 0;
    for (uint32_t g = 0; g < walk->draws.group_count; g++) {
        struct hwi_turn *turn = turn_of(walk, walk->draws.groups[g].key);
        turn->count += turn->timed ? 1 : walk->draws.groups[g].quota;
    }
    for (uint32_t i = 0; i < walk->draws.turn_count; i++) {
        walk->draws.turns[i].start = start;
        start += walk->draws.turns[i].count;
        walk->draws.turns[i].count = 0;
    }
    for (uint32_t g = 0; g < walk->draws.group_count; g++) {
        struct hwi_turn *turn = turn_of(walk, walk->draws.groups[g].key);
        uint32_t copies = turn->timed ? 1 : walk->draws.groups[g].quota;
        for (uint32_t i = 0; i < copies; i++) {
            walk->draws.bucket[turn->start + turn->count++] = g;
        }
    }
    for (uint32_t i = 0; i < walk->draws.turn_count; i++) {
        struct hwi_turn *turn = &walk->draws.turns[i];
        for (uint32_t at = turn->count / 2; turn->timed && at-- > 0;) {
            sift_down(walk, walk->draws.bucket + turn->start, turn->count, at);
        }
    }
}

/* Takes the newest child of the key whose turn it is. */
static void draw_newest(struct hwi_walk *walk, struct hwi_turn *turn, struct hwi_drawn *drawn) {
    uint32_t *heap = walk->draws.bucket + turn->start;
    struct hwi_group *group = &walk->draws.groups[heap[0]];
    drawn->key = group->key;
    drawn->child = newest_of(walk, group);
    group->drawn++;
    if (group->drawn == group->quota) {
        heap[0] = heap[--turn->count];
    }
    sift_down(walk, heap, turn->count, 0);
}

static void draw_turn(struct hwi_walk *walk, struct hwi_drawn *drawn) {
    if (walk->draws.turn_next >= walk->draws.turn_count) {
        walk->draws.turn_next = 0;
    }
    struct hwi_turn *turn = &walk->draws.turns[walk->draws.turn_next];
    if (turn->timed) {
        draw_newest(walk, turn, drawn);
    } else {
        draw_uniform(walk, draw_entry(walk, walk->draws.bucket + turn->start, turn->count), drawn);
        turn->count--;
    }
    if (turn->count > 0) {
        walk->draws.turn_next++;
    } else {
        walk->draws.turn_count--;
        memmove(turn, turn + 1, (walk->draws.turn_count - walk->draws.turn_next) * sizeof *turn);
    }
}

/* ---- the next children ------------------------------------------------------------------- */

void hwi_draw_lay_out(struct hwi_walk *walk) {
    hwi_draw_reset(walk);
    if (walk->view.task->hides_edges) {
        hwi_shown_edges_filter(walk);
    }
    add_groups(walk);
    if (walk->plan->options.child_order == HW_CHILDREN_RECENT) {
        lay_out_turns(walk);
    } else {
        lay_out_bucket(walk);
    }
}

static void draw_one(struct hwi_walk *walk, struct hwi_drawn *drawn) {
    drawn->depth = walk->hops.current;
    if (walk->draws.turn_count > 0) {
        draw_turn(walk, drawn);
    } else {
        draw_uniform(walk, draw_entry(walk, walk->draws.bucket, walk->draws.bucket_count), drawn);
        walk->draws.bucket_count--;
    }
}

uint32_t hwi_draw_ahead(struct hwi_walk *walk) {
    walk->draws.ahead_count = walk->draws.ahead_next = 0;
    while (walk->draws.ahead_count < HWI_DRAWS_AHEAD &&
           (walk->draws.bucket_count > 0 || walk->draws.turn_count > 0)) {
        struct hwi_drawn *drawn = &walk->draws.ahead[walk->draws.ahead_count++];
        draw_one(walk, drawn);
        __builtin_prefetch(drawn->child);
    }
    return walk->draws.ahead_count;
}
