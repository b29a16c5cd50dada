/*
 * Groups of children, by hops. While hop h is drawn from, new groups have h + 1 hops or more, so
 * the current hop is laid out once: under "uniform" as an array with each group as often as it has
 * draws left (an entry is drawn, the last takes its place); under "recent" as one region for each
 * key, a heap of groups by their newest undrawn child. Children of a group are drawn lazily: a
 * partial shuffle of positions where all fit the width, else by rejection among those drawn before.
 * Both give every prefix of the draws the uniform distribution.
 */
#include "draw.h"

#include <assert.h>
#include <string.h>

void hwi_draw_reset(struct hwi_walk *walk) {
    for (uint32_t hop = 0; hop < walk->hop_end; hop++) {
        walk->hop_first[hop] = HWI_NONE;
    }
    walk->group_count = walk->draws_count = walk->segment_count = 0;
    walk->hop = walk->hop_end = 0;
    walk->bucket_count = walk->turn_count = walk->turn_next = 0;
    walk->ahead_count = walk->ahead_next = 0;
}

/* ---- adding groups ----------------------------------------------------------------------- */

static void append_group(struct hwi_walk *walk, uint32_t hop, struct hwi_group group) {
    uint32_t index = walk->group_count++;
    group.draws = group.next = HWI_NONE;
    walk->groups[index] = group;
    if (walk->hop_first[hop] == HWI_NONE) {
        walk->hop_first[hop] = index;
    } else {
        walk->groups[walk->hop_last[hop]].next = index;
    }
    walk->hop_last[hop] = index;
    walk->hop_end = hop >= walk->hop_end ? hop + 1 : walk->hop_end;
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

static void add_pooled(struct hwi_walk *walk, const struct hwi_visit *visit, uint64_t start,
                       const uint32_t *visible) {
    const struct hwi_table *table = &walk->plan->store->tables[visit->table];
    uint32_t slot_count = table->info->child_slot_count, sum = 0;
    for (uint32_t slot = 0; slot < slot_count; slot++) {
        sum += visible[slot];
    }
    if (sum == 0) {
        return;
    }
    uint32_t width = walk->plan->options.child_width;
    struct hwi_group group = {
        .children = table->children + start,
        .key = HWI_NONE,
        .row = (uint32_t)(visit - walk->visits),
        .visible = sum,
        .quota = sum < width ? sum : width,
        .segments = walk->segment_count,
    };
    walk->segment_count += slot_count;
    append_group(walk, visit->depth + 1, group);
}

void hwi_draw_add(struct hwi_walk *walk, const struct hwi_visit *visit, uint64_t start,
                  const uint8_t *list_counts, const uint32_t *visible) {
    const struct hwi_table *table = &walk->plan->store->tables[visit->table];
    const hw_sampler_options *options = &walk->plan->options;
    uint32_t slot_count = table->info->child_slot_count, width = options->child_width;
    uint32_t *quota = NULL;
    if (options->width_scope == HW_WIDTH_PER_ROW) {
        if (options->child_order == HW_CHILDREN_UNIFORM) {
            add_pooled(walk, visit, start, visible);
            return;
        }
        quota = walk->quotas;
        deal_quota(width, slot_count, visible, quota);
    }
    for (uint32_t slot = 0; slot < slot_count; slot++) {
        uint32_t count;
        memcpy(&count, list_counts + slot * sizeof count, sizeof count);
        struct hwi_group group = {
            .children = table->children + start,
            .times = table->child_times == NULL ? NULL : table->child_times + start,
            .key = table->incoming[slot],
            .visible = visible[slot],
            .quota = quota != NULL           ? quota[slot]
                     : visible[slot] < width ? visible[slot]
                                             : width,
        };
        if (group.quota > 0) {
            append_group(walk, visit->depth + 1, group);
        }
        start += count;
    }
}

/* ---- drawing within a group -------------------------------------------------------------- */

/* The position of the group's next child, uniform among those not drawn yet. */
static uint32_t draw_position(struct hwi_walk *walk, struct hwi_group *group) {
    uint32_t width = walk->plan->options.child_width, k = group->drawn++;
    if (group->draws == HWI_NONE) {
        group->draws = walk->draws_count;
        walk->draws_count += group->visible < width ? group->visible : width;
        if (group->visible <= width) {
            for (uint32_t i = 0; i < group->visible; i++) {
                walk->draws[group->draws + i] = i;
            }
        }
    }
    uint32_t *draws = walk->draws + group->draws;
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

/* A pooled position counts through the visible children of all keys. */
static void locate_pooled(const struct hwi_walk *walk, const struct hwi_group *group,
                          uint32_t position, struct hwi_drawn *drawn) {
    const struct hwi_visit *visit = &walk->visits[group->row];
    const struct hwi_table *table = &walk->plan->store->tables[visit->table];
    const uint8_t *counts = visit->record + table->info->child_offset + 4;
    const uint32_t *children = group->children, *visible = walk->segments + group->segments;
    uint32_t slot = 0;
    while (position >= visible[slot]) {
        uint32_t count;
        memcpy(&count, counts + slot * sizeof count, sizeof count);
        children += count;
        position -= visible[slot++];
    }
    drawn->key = table->incoming[slot];
    drawn->child = &children[position];
}

static void draw_uniform(struct hwi_walk *walk, struct hwi_group *group, struct hwi_drawn *drawn) {
    uint32_t position = draw_position(walk, group);
    if (group->key == HWI_NONE) {
        locate_pooled(walk, group, position, drawn);
    } else {
        drawn->key = group->key;
        drawn->child = &group->children[position];
    }
}

/* Takes one of `count` entries of an array of groups; the last entry takes its place. */
static struct hwi_group *draw_entry(struct hwi_walk *walk, uint32_t *entries, uint32_t count) {
    uint32_t j = hwi_rng_below(&walk->rng, count);
    struct hwi_group *group = &walk->groups[entries[j]];
    entries[j] = entries[count - 1];
    return group;
}

/* ---- uniform order ----------------------------------------------------------------------- */

static void lay_out_hop(struct hwi_walk *walk) {
    walk->bucket_count = 0;
    for (uint32_t g = walk->hop_first[walk->hop]; g != HWI_NONE; g = walk->groups[g].next) {
        for (uint32_t i = 0; i < walk->groups[g].quota; i++) {
            walk->bucket[walk->bucket_count++] = g;
        }
    }
}

/* ---- recent order ------------------------------------------------------------------------ */

/* 1 if the next child of group a is newer than that of group b (of the same key). */
static int is_newer(const struct hwi_walk *walk, uint32_t a, uint32_t b) {
    const struct hwi_group *x = &walk->groups[a], *y = &walk->groups[b];
    uint32_t i = x->visible - 1 - x->drawn, j = y->visible - 1 - y->drawn;
    if (x->times != NULL && x->times[i] != y->times[j]) {
        return x->times[i] > y->times[j];
    }
    return x->children[i] > y->children[j];
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
    uint32_t i = walk->turn_count;
    while (i > 0 && walk->turns[i - 1].key > key) {
        i--;
    }
    if (i > 0 && walk->turns[i - 1].key == key) {
        return &walk->turns[i - 1];
    }
    memmove(&walk->turns[i + 1], &walk->turns[i], (walk->turn_count - i) * sizeof *walk->turns);
    walk->turn_count++;
    const hw_store *store = walk->plan->store;
    uint32_t table = store->keys[key].child_table;
    walk->turns[i] = (struct hwi_turn){.key = key, .timed = store->tables[table].times != NULL};
    return &walk->turns[i];
}

static void lay_out_turns(struct hwi_walk *walk) {
    uint32_t first = walk->hop_first[walk->hop], start = 0;
    walk->turn_count = walk->turn_next = 0;
    for (uint32_t g = first; g != HWI_NONE; g = walk->groups[g].next) {
        struct hwi_turn *turn = turn_of(walk, walk->groups[g].key);
        turn->count += turn->timed ? 1 : walk->groups[g].quota;
    }
    for (uint32_t i = 0; i < walk->turn_count; i++) {
        walk->turns[i].start = start;
        start += walk->turns[i].count;
        walk->turns[i].count = 0;
    }
    for (uint32_t g = first; g != HWI_NONE; g = walk->groups[g].next) {
        struct hwi_turn *turn = turn_of(walk, walk->groups[g].key);
        uint32_t copies = turn->timed ? 1 : walk->groups[g].quota;
        for (uint32_t i = 0; i < copies; i++) {
            walk->bucket[turn->start + turn->count++] = g;
        }
    }
    for (uint32_t i = 0; i < walk->turn_count; i++) {
        struct hwi_turn *turn = &walk->turns[i];
        for (uint32_t at = turn->count / 2; turn->timed && at-- > 0;) {
            sift_down(walk, walk->bucket + turn->start, turn->count, at);
        }
    }
}

/* Takes the newest child of the key whose turn it is. */
static void draw_newest(struct hwi_walk *walk, struct hwi_turn *turn, struct hwi_drawn *drawn) {
    uint32_t *heap = walk->bucket + turn->start;
    struct hwi_group *group = &walk->groups[heap[0]];
    drawn->key = group->key;
    drawn->child = &group->children[group->visible - 1 - group->drawn++];
    if (group->drawn == group->quota) {
        heap[0] = heap[--turn->count];
    }
    sift_down(walk, heap, turn->count, 0);
}

static void draw_turn(struct hwi_walk *walk, struct hwi_drawn *drawn) {
    if (walk->turn_next >= walk->turn_count) {
        walk->turn_next = 0;
    }
    struct hwi_turn *turn = &walk->turns[walk->turn_next];
    if (turn->timed) {
        draw_newest(walk, turn, drawn);
    } else {
        draw_uniform(walk, draw_entry(walk, walk->bucket + turn->start, turn->count), drawn);
        turn->count--;
    }
    if (turn->count > 0) {
        walk->turn_next++;
    } else {
        walk->turn_count--;
        memmove(turn, turn + 1, (walk->turn_count - walk->turn_next) * sizeof *turn);
    }
}

/* ---- the next child ---------------------------------------------------------------------- */

/* Lays out the next hop that has groups; 0 if there is none. */
static int advance_hop(struct hwi_walk *walk) {
    do {
        if (++walk->hop >= walk->hop_end) {
            walk->hop = walk->hop_end;
            return 0;
        }
    } while (walk->hop_first[walk->hop] == HWI_NONE);
    if (walk->plan->options.child_order == HW_CHILDREN_RECENT) {
        lay_out_turns(walk);
    } else {
        lay_out_hop(walk);
    }
    return 1;
}

static void draw_one(struct hwi_walk *walk, struct hwi_drawn *drawn) {
    drawn->depth = walk->hop;
    if (walk->turn_count > 0) {
        draw_turn(walk, drawn);
    } else {
        draw_uniform(walk, draw_entry(walk, walk->bucket, walk->bucket_count), drawn);
        walk->bucket_count--;
    }
}

/*
 * Draws ahead within the hop. Visits take no random words and add no groups to the hop, so the
 * draws are the same whether they are made one by one or together; made together, the reads of
 * their lists overlap, and then those of their records.
 */
static void draw_ahead(struct hwi_walk *walk) {
    const hw_store *store = walk->plan->store;
    walk->ahead_count = walk->ahead_next = 0;
    if (walk->bucket_count == 0 && walk->turn_count == 0 && !advance_hop(walk)) {
        return;
    }
    while (walk->ahead_count < HWI_DRAWS_AHEAD &&
           (walk->bucket_count > 0 || walk->turn_count > 0)) {
        struct hwi_drawn *drawn = &walk->ahead[walk->ahead_count++];
        draw_one(walk, drawn);
        __builtin_prefetch(drawn->child);
    }
    for (uint32_t i = 0; i < walk->ahead_count; i++) {
        struct hwi_drawn *drawn = &walk->ahead[i];
        const struct hwi_table *table = &store->tables[store->keys[drawn->key].child_table];
        drawn->row = *drawn->child;
        if (hwi_table_has(table, drawn->row)) {
            const uint8_t *record = hwi_record(table, drawn->row);
            __builtin_prefetch(record);
            __builtin_prefetch(record + 64);
        }
    }
}

int hwi_draw_next(struct hwi_walk *walk, struct hwi_drawn *drawn) {
    if (walk->ahead_next == walk->ahead_count) {
        draw_ahead(walk);
    }
    if (walk->ahead_next == walk->ahead_count) {
        return 0;
    }
    *drawn = walk->ahead[walk->ahead_next++];
    return 1;
}

int hwi_draw_waits(const struct hwi_walk *walk) {
    if (walk->ahead_next < walk->ahead_count || walk->bucket_count > 0 || walk->turn_count > 0) {
        return 1;
    }
    for (uint32_t hop = walk->hop + 1; hop < walk->hop_end; hop++) {
        if (walk->hop_first[hop] != HWI_NONE) {
            return 1;
        }
    }
    return 0;
}
