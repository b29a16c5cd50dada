/* Texts of a batch; see texts.h. */
#include "batch/texts.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/huge_pages.h"
#include "batch/counters.h"
#include "batch/masked_cells.h"
#include "batch/pack.h"

enum {
    PART_BYTES = 128 * 1024, /* of vectors: about 10 us, and half of a second-level cache */
    VECTORS_AHEAD = 4, /* asked for while one is copied; 32 lines at D_t = 256 */
    LOOKUPS_AHEAD = 8,
};

/* ---- open and close ---------------------------------------------------------------------- */

/* Distinct texts that a sequence may keep. */
static uint32_t quota_of(const struct hwi_plan *plan) {
    uint32_t length = plan->shape.sequence_length;
    return plan->text_quota < length ? plan->text_quota : length;
}

/* Distinct texts that a batch may have, without row 0. */
static uint64_t most_merged(const struct hwi_plan *plan) {
    uint64_t kept = (uint64_t)plan->shape.batch_size * quota_of(plan);
    return kept < plan->shape.text_budget ? kept : plan->shape.text_budget;
}

hw_status hwi_texts_open(const struct hwi_plan *plan, struct hwi_texts *texts, hw_error *error) {
    if (!hwi_id_set_open(&texts->sequence, plan->shape.context_length)) {
        return hwi_no_memory(error, "a worker's texts", plan->shape.context_length);
    }
    return HW_OK;
}

void hwi_texts_release(struct hwi_texts *texts) {
    hwi_id_set_close(&texts->sequence);
}

static hw_status open_staging(const struct hwi_plan *plan, struct hwi_batch_scratch *scratch,
                              hw_error *error) {
    scratch->staging_bytes = plan->staging->slab_bytes;
    scratch->staging = hwi_pages_open(scratch->staging_bytes);
    if (scratch->staging == NULL) {
        return hwi_no_memory(error, "the contexts of a batch", scratch->staging_bytes);
    }
    return plan->options.packing ? hwi_packing_open(plan, &scratch->packing, error) : HW_OK;
}

hw_status hwi_batch_scratch_open(const struct hwi_plan *plan, struct hwi_batch_scratch **scratch,
                                 hw_error *error) {
    const struct hwi_plan *staged = plan->staging != NULL ? plan : NULL;
    plan = hwi_making_plan(plan);
    size_t batch = plan->shape.batch_size, length = plan->shape.sequence_length;
    size_t quota = quota_of(plan), merged = (size_t)most_merged(plan);
    struct hwi_batch_scratch *made = calloc(1, sizeof *made);
    int is_whole = 0;
    if (made != NULL) {
        made->texts = calloc(batch * quota + 1, sizeof *made->texts);
        made->text_counts = calloc(batch, sizeof *made->text_counts);
        made->text_cells = calloc(batch * length, sizeof *made->text_cells);
        made->cell_counts = calloc(batch, sizeof *made->cell_counts);
        made->rows = calloc(merged + 1, sizeof *made->rows);
        is_whole = made->texts != NULL && made->text_counts != NULL && made->text_cells != NULL &&
                   made->cell_counts != NULL && made->rows != NULL &&
                   hwi_id_set_open(&made->merged, merged);
    }
    if (!is_whole) {
        hwi_batch_scratch_close(made);
        return hwi_no_memory(error, "the texts of a batch", batch * length * 2);
    }
    hw_status status = staged == NULL ? HW_OK : open_staging(staged, made, error);
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
    free(scratch->rows);
    hwi_id_set_close(&scratch->merged);
    hwi_packing_close(scratch->packing);
    if (scratch->staging != NULL) {
        hwi_pages_close(scratch->staging, scratch->staging_bytes);
    }
    free(scratch);
}

/* ---- one sequence ------------------------------------------------------------------------ */

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
    if (!hwi_lists_texts(plan)) {
        HW_TRY(number_resident(plan, ids, cells, scratch->cell_counts[b], error));
        hwi_masked_take_texts(plan, slab, b);
        return HW_OK;
    }
    hwi_id_set_clear(&texts->sequence);
    for (uint32_t i = 0; i < scratch->cell_counts[b]; i++) {
        uint32_t text = ids[cells[i]];
        struct hwi_id_entry *entry = hwi_id_set_find(&texts->sequence, text);
        if (entry->stamp != texts->sequence.stamp) {
            if (text >= plan->store->info->text_count) {
                return bad_text(plan, text, error);
            }
            uint32_t place = count < quota ? ++count : 0;
            if (place > 0) {
                kept[place - 1] = text;
            }
            hwi_id_set_put(&texts->sequence, entry, text, place);
        }
        ids[cells[i]] = entry->place;
        *over_budget += entry->place == 0;
    }
    scratch->text_counts[b] = count;
    return HW_OK;
}

void hwi_texts_none(struct hwi_batch_scratch *scratch, uint32_t b) {
    scratch->text_counts[b] = scratch->cell_counts[b] = 0;
}

uint32_t hwi_texts_list(struct hwi_texts *texts, const struct hwi_context *context,
                        uint32_t *listed) {
    const struct hwi_plan *plan = context->plan;
    uint32_t count = 0;
    hwi_id_set_clear(&texts->sequence);
    for (uint32_t row = 0; row < context->row_count; row++) {
        const struct hwi_visit *visit = &context->visits[row];
        if (visit->table == HWI_NONE) {
            continue;
        }
        const struct hwi_table_plan *cells = &plan->tables[visit->table];
        const uint8_t *nulls = visit->record + plan->store->tables[visit->table].info->null_offset;
        for (uint32_t k = 0; k < visit->cell_count; k++) {
            uint32_t c = visit->list == HWI_NONE ? k : context->cell_lists[visit->list + k], text;
            if (cells->stypes[c] != HW_TEXT || hwi_is_null_cell(cells, nulls, c)) {
                continue;
            }
            memcpy(&text, visit->record + cells->lanes[c], sizeof text);
            struct hwi_id_entry *entry = hwi_id_set_find(&texts->sequence, text);
            if (entry->stamp != texts->sequence.stamp) {
                hwi_id_set_put(&texts->sequence, entry, text, count);
                listed[count++] = text;
            }
        }
    }
    return count;
}

/* ---- one batch --------------------------------------------------------------------------- */

/* Gives each distinct text of the batch the next row of vectors, by first appearance. */
static void merge_texts(const struct hwi_plan *plan, struct hwi_batch_scratch *scratch) {
    struct hwi_id_set *merged = &scratch->merged;
    uint32_t quota = quota_of(plan), used = 1;
    hwi_id_set_clear(merged);
    for (uint32_t b = 0; b < plan->shape.batch_size; b++) {
        uint32_t *texts = scratch->texts + (size_t)b * quota, count = scratch->text_counts[b];
        for (uint32_t i = 0; i < count; i++) {
            if (i + LOOKUPS_AHEAD < count) {
                __builtin_prefetch(
                    &merged->entries[hwi_id_set_start(merged, texts[i + LOOKUPS_AHEAD])], 1);
            }
            struct hwi_id_entry *entry = hwi_id_set_find(merged, texts[i]);
            if (entry->stamp != merged->stamp) {
                scratch->rows[used] = texts[i];
                hwi_id_set_put(merged, entry, texts[i], used++);
            }
            texts[i] = entry->place;
        }
    }
    scratch->row_count = used;
}

static void write_number(const struct hwi_plan *plan, uint8_t *slab, enum hwi_field_id id,
                         uint32_t number) {
    memcpy(hwi_field_at(plan, slab, id, 0), &number, sizeof number);
}

/* What the batch asks; of masked cells, no task's target. */
static void write_question(const struct hwi_plan *plan, uint8_t *slab,
                           const struct hwi_task_plan *task) {
    int is_asked = hwi_is_task_objective(plan);
    uint8_t stype = is_asked ? task->info->target_stype : UINT8_MAX;
    uint32_t start = 0, count = 0;
    if (stype == HW_CATEGORICAL) {
        start = plan->store->columns[task->info->target_column].category_start;
        count = plan->store->columns[task->info->target_column].category_count;
    }
    *(uint8_t *)hwi_field_at(plan, slab, HWI_TARGET_STYPE, 0) = stype;
    write_number(plan, slab, HWI_TASK_IDX, is_asked ? task->task : HWI_NONE);
    write_number(plan, slab, HWI_CAT_EMB_START, start);
    write_number(plan, slab, HWI_CAT_EMB_COUNT, count);
}

/* Where the sequences were made: in the staging batch, if there is one. */
static const struct hwi_plan *making(const struct hwi_plan *plan,
                                     const struct hwi_batch_scratch *scratch, uint8_t **slab) {
    if (scratch->staging != NULL) {
        *slab = scratch->staging;
    }
    return hwi_making_plan(plan);
}

uint32_t hwi_batch_merge(const struct hwi_plan *plan, uint8_t *slab,
                         struct hwi_batch_scratch *scratch, uint32_t task,
                         uint32_t sequence_count) {
    plan = making(plan, scratch, &slab);
    write_question(plan, slab, &plan->tasks[task]);
    write_number(plan, slab, HWI_NUM_SEQUENCES, sequence_count);
    scratch->part_count = 1;
    if (!hwi_lists_texts(plan)) {
        return scratch->part_count;
    }
    merge_texts(plan, scratch);
    memcpy(&scratch->dirty_count, hwi_field_at(plan, slab, HWI_NUM_TEXTS, 0), 4);
    if (scratch->dirty_count < scratch->row_count) {
        scratch->dirty_count = scratch->row_count;
    }
    /* Until the last part is done, rows up to here may be written: it may be given up before. */
    write_number(plan, slab, HWI_NUM_TEXTS, scratch->dirty_count);
    uint64_t parts = scratch->row_count * (uint64_t)hwi_text_bytes(plan) / PART_BYTES;
    scratch->part_count = parts < plan->shape.batch_size ? (uint32_t)parts : plan->shape.batch_size;
    scratch->part_count += scratch->part_count == 0;
    return scratch->part_count;
}

/* Copies rows [first, end) of vectors, asking for the next ones ahead; the copies stay in the
 * cache, where the caller's transfer finds them. */
static void gather_vectors(const struct hwi_plan *plan, uint8_t *slab, const uint32_t *rows,
                           uint32_t first, uint32_t end) {
    size_t bytes = (size_t)plan->shape.text_dim * 2;
    const uint8_t *source = plan->store->vectors[HW_EMBED_TEXTS];
    uint8_t *vectors = hwi_field_at(plan, slab, HWI_TEXT_BATCH_EMBEDDINGS, 0);
    for (uint32_t row = first; row < end; row++) {
        if (row + VECTORS_AHEAD < end) {
            const uint8_t *ahead = source + rows[row + VECTORS_AHEAD] * bytes;
            for (size_t byte = 0; byte < bytes; byte += HWI_LINE_BYTES) {
                __builtin_prefetch(ahead + byte);
            }
        }
        memcpy(vectors + row * bytes, source + rows[row] * bytes, bytes);
    }
}

static void write_rows(const struct hwi_plan *plan, uint8_t *slab, const uint32_t *rows,
                       uint32_t first, uint32_t end) {
    if (plan->options.text_mode == HW_TEXTS_BATCH) {
        gather_vectors(plan, slab, rows, first, end);
        return;
    }
    uint32_t *numbers = hwi_field_at(plan, slab, HWI_TEXT_NUMBERS, 0);
    for (uint32_t row = first; row < end; row++) {
        numbers[row] = rows[row] + 1;
    }
}

/* Batch-wide numbers for the cells of sequence b. */
static void number_cells(const struct hwi_plan *plan, uint8_t *slab,
                         const struct hwi_batch_scratch *scratch, uint32_t b) {
    size_t at = (size_t)b * plan->shape.sequence_length;
    uint32_t *ids = hwi_field_at(plan, slab, hwi_text_ids_field(plan), 4 * at);
    const uint32_t *texts = scratch->texts + (size_t)b * quota_of(plan);
    const uint16_t *cells = scratch->text_cells + at;
    for (uint32_t i = 0; i < scratch->cell_counts[b]; i++) {
        uint32_t place = ids[cells[i]];
        ids[cells[i]] = place == 0 ? 0 : texts[place - 1];
    }
    hwi_masked_take_texts(plan, slab, b);
}

/* Where part `part` of `count` things begins. */
static uint32_t part_start(const struct hwi_batch_scratch *scratch, uint32_t count, uint32_t part) {
    return (uint32_t)((uint64_t)count * part / scratch->part_count);
}

void hwi_batch_gather(const struct hwi_plan *plan, uint8_t *slab,
                      const struct hwi_batch_scratch *scratch, uint32_t part) {
    plan = making(plan, scratch, &slab);
    if (!hwi_lists_texts(plan)) {
        return;
    }
    uint32_t used = scratch->row_count, batch_size = plan->shape.batch_size;
    uint32_t first = part_start(scratch, scratch->dirty_count, part);
    uint32_t end = part_start(scratch, scratch->dirty_count, part + 1);
    uint32_t clean = first > used ? first : used; /* rows from here on are cleared */
    if (first == 0) {
        first = 1; /* row 0 is zero in every batch */
    }
    if (first < used) {
        write_rows(plan, slab, scratch->rows, first, end < used ? end : used);
    }
    if (clean < end) {
        size_t bytes = hwi_text_bytes(plan);
        memset(hwi_field_at(plan, slab, hwi_texts_field(plan), clean * bytes), 0,
               (end - clean) * bytes);
    }
    uint32_t last = part_start(scratch, batch_size, part + 1);
    for (uint32_t b = part_start(scratch, batch_size, part); b < last; b++) {
        number_cells(plan, slab, scratch, b);
    }
}

hw_batch_sizes hwi_batch_finish(const struct hwi_plan *plan, uint8_t *slab,
                                struct hwi_batch_scratch *scratch, uint32_t sequence_count,
                                const struct hwi_flat_sizes *flat, struct hwi_counters *counters) {
    uint8_t *made = slab;
    const struct hwi_plan *made_by = making(plan, scratch, &made);
    hw_batch_sizes sizes = {0};
    if (hwi_lists_texts(plan)) {
        write_number(made_by, made, HWI_NUM_TEXTS, scratch->row_count);
        int is_usual = scratch->row_count <= plan->shape.usual_texts;
        sizes.texts = is_usual ? plan->shape.usual_texts : plan->shape.text_budget;
    }
    if (plan->flat != NULL) {
        hwi_flatten(plan, scratch->staging, slab, flat, counters);
        sizes.cells = flat->cells;
        sizes.rows = flat->rows;
        return sizes;
    }
    counters->padded_cells += (uint64_t)plan->shape.batch_size * plan->shape.sequence_length;
    if (scratch->packing != NULL) {
        hwi_pack(plan, scratch->packing, scratch->staging, slab, sequence_count, counters);
    }
    return sizes;
}
