/* Texts of a batch; see batch_texts.h. */
#include "batch_texts.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "pack.h"

/* ---- sets of ids ------------------------------------------------------------------------- */

static int id_set_open(struct hwi_id_set *set, uint64_t most) {
    uint64_t size = 16;
    while (size < 2 * most) {
        size *= 2;
    }
    set->mask = (uint32_t)(size - 1);
    set->stamp = 0;
    set->entries = calloc(size, sizeof *set->entries);
    return set->entries != NULL;
}

static void id_set_clear(struct hwi_id_set *set) {
    if (++set->stamp == 0) {
        memset(set->entries, 0, ((size_t)set->mask + 1) * sizeof *set->entries);
        set->stamp = 1;
    }
}

/* The entry of an id; its stamp is older if the id is new. */
static struct hwi_id_entry *id_set_find(struct hwi_id_set *set, uint32_t id) {
    uint32_t at = (id * 2654435761u) & set->mask;
    while (set->entries[at].stamp == set->stamp && set->entries[at].id != id) {
        at = (at + 1) & set->mask;
    }
    return &set->entries[at];
}

static void id_set_put(struct hwi_id_set *set, struct hwi_id_entry *entry, uint32_t id,
                       uint32_t place) {
    *entry = (struct hwi_id_entry){.stamp = set->stamp, .id = id, .place = place};
}

/* ---- open and close ---------------------------------------------------------------------- */

/* Distinct texts that a sequence may keep. */
static uint32_t quota_of(const struct hwi_plan *plan) {
    uint32_t length = plan->shape.sequence_length;
    return plan->text_quota < length ? plan->text_quota : length;
}

hw_status hwi_texts_open(const struct hwi_plan *plan, struct hwi_texts *texts, hw_error *error) {
    uint64_t kept = (uint64_t)plan->shape.batch_size * quota_of(plan);
    kept = kept < plan->shape.text_budget ? kept : plan->shape.text_budget;
    if (!id_set_open(&texts->sequence, plan->shape.sequence_length) ||
        !id_set_open(&texts->batch, kept)) {
        hwi_texts_release(texts);
        return hwi_no_memory(error, "a worker's texts", kept * 2 * sizeof *texts->batch.entries);
    }
    return HW_OK;
}

void hwi_texts_release(struct hwi_texts *texts) {
    free(texts->sequence.entries);
    free(texts->batch.entries);
    *texts = (struct hwi_texts){0};
}

hw_status hwi_batch_scratch_open(const struct hwi_plan *plan, struct hwi_batch_scratch **scratch,
                                 hw_error *error) {
    const struct hwi_plan *packed = plan->staging != NULL ? plan : NULL;
    plan = hwi_making_plan(plan);
    size_t batch = plan->shape.batch_size, length = plan->shape.sequence_length;
    size_t quota = quota_of(plan);
    struct hwi_batch_scratch *made = calloc(1, sizeof *made);
    if (made != NULL) {
        made->texts = calloc(batch * quota + 1, sizeof *made->texts);
        made->text_counts = calloc(batch, sizeof *made->text_counts);
        made->text_cells = calloc(batch * length, sizeof *made->text_cells);
        made->cell_counts = calloc(batch, sizeof *made->cell_counts);
    }
    if (made == NULL || !made->texts || !made->text_counts || !made->text_cells ||
        !made->cell_counts) {
        hwi_batch_scratch_close(made);
        return hwi_no_memory(error, "the texts of a batch", batch * length * 2);
    }
    hw_status status = packed == NULL ? HW_OK : hwi_packing_open(packed, &made->packing, error);
    if (status != HW_OK) {
        hwi_batch_scratch_close(made);
        return status;
    }
    *scratch = made;
    return HW_OK;
}

void hwi_batch_scratch_close(struct hwi_batch_scratch *scratch) {
    if (scratch == NULL) {
        return;
    }
    free(scratch->texts);
    free(scratch->text_counts);
    free(scratch->text_cells);
    free(scratch->cell_counts);
    hwi_packing_close(scratch->packing);
    free(scratch);
}

/* ---- numbers ----------------------------------------------------------------------------- */

static hw_status bad_text(const struct hwi_plan *plan, uint32_t text, hw_error *error) {
    return hwi_fail(error, HW_BAD_STORE,
                    "a cell holds text %u, the store has %u; run `headwater verify`", text,
                    plan->store->info->text_count);
}

/* Resident texts: the store's numbers stay, above the 0 of no text. */
static hw_status number_resident(const struct hwi_plan *plan, uint32_t *ids, const uint16_t *cells,
                                 uint32_t cell_count, hw_error *error) {
    for (uint32_t i = 0; i < cell_count; i++) {
        uint32_t text = ids[cells[i]];
        if (text >= plan->store->info->text_count) {
            return bad_text(plan, text, error);
        }
        ids[cells[i]] = text + 1;
    }
    return HW_OK;
}

hw_status hwi_texts_number(struct hwi_texts *texts, const struct hwi_plan *plan, uint8_t *slab,
                           struct hwi_batch_scratch *scratch, uint32_t b, uint64_t *over_budget,
                           hw_error *error) {
    uint32_t length = plan->shape.sequence_length, quota = quota_of(plan), count = 0;
    uint32_t *ids = hwi_field_at(plan, slab, hwi_text_ids_field(plan), (size_t)b * length * 4);
    const uint16_t *cells = scratch->text_cells + (size_t)b * length;
    uint32_t *kept = scratch->texts + (size_t)b * quota;
    scratch->text_counts[b] = 0;
    if (plan->options.text_mode == HW_TEXTS_RESIDENT) {
        return number_resident(plan, ids, cells, scratch->cell_counts[b], error);
    }
    id_set_clear(&texts->sequence);
    for (uint32_t i = 0; i < scratch->cell_counts[b]; i++) {
        uint32_t text = ids[cells[i]];
        struct hwi_id_entry *entry = id_set_find(&texts->sequence, text);
        if (entry->stamp != texts->sequence.stamp) {
            if (text >= plan->store->info->text_count) {
                return bad_text(plan, text, error);
            }
            uint32_t place = count < quota ? ++count : 0;
            if (place > 0) {
                kept[place - 1] = text;
            }
            id_set_put(&texts->sequence, entry, text, place);
        }
        ids[cells[i]] = entry->place;
        *over_budget += entry->place == 0;
    }
    scratch->text_counts[b] = count;
    return HW_OK;
}

uint32_t hwi_texts_count(struct hwi_texts *texts, const struct hwi_walk *walk) {
    const struct hwi_plan *plan = walk->plan;
    uint32_t count = 0;
    id_set_clear(&texts->sequence);
    for (uint32_t row = 0; row < walk->row_count; row++) {
        const struct hwi_visit *visit = &walk->visits[row];
        if (visit->table == HWI_NONE) {
            continue;
        }
        const struct hwi_table_plan *cells = &plan->tables[visit->table];
        const uint8_t *nulls = visit->record + plan->store->tables[visit->table].info->null_offset;
        for (uint32_t k = 0; k < visit->cell_count; k++) {
            uint32_t c = visit->list == HWI_NONE ? k : walk->cell_lists[visit->list + k], text;
            if (cells->stypes[c] != HW_TEXT || hwi_is_null_cell(cells, nulls, c)) {
                continue;
            }
            memcpy(&text, visit->record + cells->lanes[c], sizeof text);
            struct hwi_id_entry *entry = id_set_find(&texts->sequence, text);
            if (entry->stamp != texts->sequence.stamp) {
                id_set_put(&texts->sequence, entry, text, count++);
            }
        }
    }
    return count;
}

uint32_t hwi_texts_merge(struct hwi_texts *texts, const struct hwi_plan *plan, uint8_t *slab,
                         struct hwi_batch_scratch *scratch) {
    uint32_t length = plan->shape.sequence_length, dim = plan->shape.text_dim, used = 1;
    uint32_t quota = quota_of(plan);
    uint8_t *vectors = hwi_field_at(plan, slab, HWI_TEXT_BATCH_EMBEDDINGS, 0);
    const uint8_t *source = plan->store->vectors[HW_EMBED_TEXTS];
    id_set_clear(&texts->batch);
    memset(vectors, 0, (size_t)dim * 2);
    for (uint32_t b = 0; b < plan->shape.batch_size; b++) {
        uint32_t *kept = scratch->texts + (size_t)b * quota;
        for (uint32_t i = 0; i < scratch->text_counts[b]; i++) {
            struct hwi_id_entry *entry = id_set_find(&texts->batch, kept[i]);
            if (entry->stamp != texts->batch.stamp) {
                memcpy(vectors + (size_t)used * dim * 2, source + (size_t)kept[i] * dim * 2,
                       (size_t)dim * 2);
                id_set_put(&texts->batch, entry, kept[i], used++);
            }
            kept[i] = entry->place;
        }
        uint32_t *ids = hwi_field_at(plan, slab, hwi_text_ids_field(plan), (size_t)b * length * 4);
        const uint16_t *cells = scratch->text_cells + (size_t)b * length;
        for (uint32_t i = 0; i < scratch->cell_counts[b]; i++) {
            uint32_t place = ids[cells[i]];
            ids[cells[i]] = place == 0 ? 0 : kept[place - 1];
        }
    }
    memset(vectors + (size_t)used * dim * 2, 0, (size_t)(plan->shape.text_budget - used) * dim * 2);
    return used;
}
