/*
 * Parents of a foreign key, one per child row, from pairs in any order into a spill.
 */
#include <stdio.h>
#include <string.h>

#include "builder/arrow.h"
#include "builder/builder.h"

/* The key, if its parents may be written now. */
static hw_status find_key(hw_builder *b, uint32_t key, struct hwi_build_key **found,
                          hw_error *error) {
    HW_TRY(hwi_builder_start_write(b, error));
    if (key >= b->key_count || b->keys[key].written) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "parents of foreign key %u of %u, each once", key,
                        b->key_count);
    }
    struct hwi_build_key *target = &b->keys[key];
    const struct hwi_build_table *child = &b->tables[target->info.child_table];
    const struct hwi_build_table *parent = &b->tables[target->info.parent_table];
    if (!child->written || !parent->written) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "parents of '%s.%s' are written before the rows of table '%s'", child->name,
                        b->columns[target->columns[0]].name,
                        child->written ? parent->name : child->name);
    }
    *found = target;
    return HW_OK;
}

static hw_status take_pairs(struct hwi_arrow *arrow, struct hwi_build_key *key, const hw_builder *b,
                            hw_error *error) {
    const struct hwi_build_table *child = &b->tables[key->info.child_table];
    const struct hwi_build_table *parent = &b->tables[key->info.parent_table];
    for (uint64_t i = 0; i < arrow->row_count; i++) {
        uint32_t from = 0, to = 0;
        if (hwi_arrow_is_null(&arrow->columns[0], i) || hwi_arrow_is_null(&arrow->columns[1], i)) {
            return hwi_fail(error, HW_BAD_SOURCE, "edge %llu of %s has a NULL",
                            (unsigned long long)(arrow->first_row + i), arrow->subject);
        }
        HW_TRY(hwi_arrow_index(arrow, 0, i, child->info.row_count, &from, error));
        HW_TRY(hwi_arrow_index(arrow, 1, i, parent->info.row_count, &to, error));
        uint8_t *at = key->parents.data + 4 * (uint64_t)from;
        if (hwi_read_u32(at) != HWI_NONE) {
            return hwi_fail(error, HW_BAD_SOURCE, "%s has two parents for row %u", arrow->subject,
                            from);
        }
        hwi_write_u32(at, to);
    }
    return HW_OK;
}

/* Every child row without a parent; none of a key that is never known keeps one. */
static void clear_parents(struct hwi_build_key *key, uint64_t row_count) {
    if (row_count > 0) {
        memset(key->parents.data, 0xff, 4 * (size_t)row_count);
    }
}

/* Room for the parents of all rows, none of which has one yet. */
static hw_status open_parents(const hw_builder *b, struct hwi_build_key *key, hw_error *error) {
    uint64_t row_count = b->tables[key->info.child_table].info.row_count;
    uint8_t *at = NULL;
    HW_TRY(hwi_spill_open(&key->parents, b->directory, error));
    HW_TRY(hwi_spill_extend(&key->parents, 4 * row_count, &at, error));
    clear_parents(key, row_count);
    return HW_OK;
}

static hw_status take_edges(const hw_builder *b, struct hwi_build_key *key,
                            struct ArrowArrayStream *stream, uint64_t *edge_count,
                            hw_error *error) {
    const struct hwi_arrow_field fields[2] = {{"child", HWI_ARROW_INTEGER},
                                              {"parent", HWI_ARROW_INTEGER}};
    char subject[200];
    struct hwi_arrow arrow;
    snprintf(subject, sizeof subject, "foreign key '%s.%s'", b->tables[key->info.child_table].name,
             b->columns[key->columns[0]].name);
    HW_TRY(open_parents(b, key, error));
    hw_status status = hwi_arrow_open(&arrow, stream, subject, fields, 2, error);
    while (status == HW_OK) {
        status = hwi_arrow_next(&arrow, error);
        if (status != HW_OK || arrow.row_count == 0) {
            break;
        }
        status = take_pairs(&arrow, key, b, error);
    }
    *edge_count = arrow.first_row;
    hwi_arrow_close(&arrow);
    return status;
}

/* What is common to all edges of a key, once they are taken. */
static hw_status finish_edges(hw_builder *b, struct hwi_build_key *key, uint64_t null_count,
                              uint64_t edge_count, hw_error *error) {
    uint64_t row_count = b->tables[key->info.child_table].info.row_count;
    if (null_count > row_count - edge_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "%llu rows with a NULL key and %llu edges of %llu rows",
                        (unsigned long long)null_count, (unsigned long long)edge_count,
                        (unsigned long long)row_count);
    }
    if (key->is_never) {
        clear_parents(key, row_count);
    }
    key->info.edge_count = key->is_never ? 0 : edge_count;
    key->info.null_count = null_count;
    key->info.dangling_count = row_count - edge_count - null_count;
    hwi_spill_seal(&key->parents);
    key->written = 1;
    return HW_OK;
}

hw_status hw_builder_write_edges(hw_builder *b, uint32_t key, struct ArrowArrayStream *stream,
                                 uint64_t null_count, uint64_t *edge_count, hw_error *error) {
    struct hwi_build_key *target = NULL;
    uint64_t taken_count = 0;
    HW_TRY(find_key(b, key, &target, error));
    hw_status status = take_edges(b, target, stream, &taken_count, error);
    if (status == HW_OK) {
        status = finish_edges(b, target, null_count, taken_count, error);
    }
    if (status == HW_OK) {
        *edge_count = taken_count;
    }
    return hwi_builder_latch(b, status);
}
