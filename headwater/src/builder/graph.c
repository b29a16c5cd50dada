/*
 * Child lists: for every table that foreign keys point at, the children of each (row, child slot)
 * one after the other. A counting sort: count per list, turn counts into places, scatter. Keys are
 * scanned in child-row order, so each list comes out in row order, which is time order.
 *
 * Where a key is known later than its row, "time order" is by edge time, the later of the child's
 * time and the known times of the key's columns; such lists are sorted once more. All arrays are
 * spilled; the scatter is random access, about 20 ns per edge in memory.
 */
#include <stdlib.h>

#include "base/bytes.h"
#include "builder/builder.h"

struct edge {
    int64_t time;
    uint32_t row;
};

struct graph_table {
    hw_builder *b;
    struct hwi_build_table *table;
    uint32_t index;
    uint32_t *counts; /* [row_count * child_slot_count], in table->child_counts */
    struct hwi_spill places; /* uint32, same shape: where the next child of the list goes */
    struct hwi_spill children; /* uint32 [edge_count] */
    struct hwi_spill times; /* int64 [edge_count], with HWI_TABLE_CHILD_TIMES */
    uint64_t edge_count;
};

static int64_t edge_time(const hw_builder *b, const struct hwi_build_key *key, uint32_t row) {
    const struct hwi_build_table *child = &b->tables[key->info.child_table];
    int64_t created = hwi_build_row_time(child, row), latest = created;
    const uint8_t *spilled = child->rows.data + (uint64_t)row * child->spill_row_bytes;
    for (uint32_t i = 0; i < key->info.column_count && key->info.known_late; i++) {
        int64_t time = hwi_build_known_time(b, &b->columns[key->columns[i]].info, created, spilled);
        latest = time > latest ? time : latest;
    }
    return latest;
}

static hw_status count_children(struct graph_table *graph, hw_error *error) {
    const hw_builder *b = graph->b;
    uint32_t slot_count = graph->table->info.child_slot_count;
    uint64_t list_count = (uint64_t)graph->table->info.row_count * slot_count;
    uint8_t *at = NULL;
    HW_TRY(hwi_spill_open(&graph->table->child_counts, b->directory, error));
    HW_TRY(hwi_spill_extend(&graph->table->child_counts, 4 * list_count, &at, error));
    graph->counts = (uint32_t *)(void *)at;
    for (uint32_t k = 0; k < b->key_count; k++) {
        struct hwi_build_key *key = &b->keys[k];
        if (key->info.parent_table != graph->index) {
            continue;
        }
        uint32_t child_rows = b->tables[key->info.child_table].info.row_count;
        graph->edge_count += key->info.edge_count;
        for (uint32_t row = 0; row < child_rows; row++) {
            uint32_t parent = hwi_read_u32(key->parents.data + 4 * (uint64_t)row);
            if (parent != HWI_NONE) {
                graph->counts[(uint64_t)parent * slot_count + key->info.child_slot]++;
            }
        }
        hwi_spill_pass(&key->parents, 4 * (uint64_t)child_rows);
    }
    if (graph->edge_count > HWI_MAX_TABLE_EDGES) {
        return hwi_fail(error, HW_BAD_SOURCE, "%llu edges point at table '%s', at most %u",
                        (unsigned long long)graph->edge_count, graph->table->name,
                        HWI_MAX_TABLE_EDGES);
    }
    graph->table->info.edge_count = graph->edge_count;
    return HW_OK;
}

static hw_status scatter(struct graph_table *graph, hw_error *error) {
    const hw_builder *b = graph->b;
    uint32_t slot_count = graph->table->info.child_slot_count;
    uint64_t list_count = (uint64_t)graph->table->info.row_count * slot_count;
    int has_times = (graph->table->info.flags & HWI_TABLE_CHILD_TIMES) != 0;
    uint8_t *places = NULL, *children = NULL, *times = NULL;
    HW_TRY(hwi_spill_open(&graph->places, b->directory, error));
    HW_TRY(hwi_spill_extend(&graph->places, 4 * list_count, &places, error));
    HW_TRY(hwi_spill_open(&graph->children, b->directory, error));
    HW_TRY(hwi_spill_extend(&graph->children, 4 * graph->edge_count, &children, error));
    if (has_times) {
        HW_TRY(hwi_spill_open(&graph->times, b->directory, error));
        HW_TRY(hwi_spill_extend(&graph->times, 8 * graph->edge_count, &times, error));
    }
    uint32_t place = 0;
    for (uint64_t i = 0; i < list_count; i++) {
        hwi_write_u32(places + 4 * i, place);
        place += graph->counts[i];
    }
    for (uint32_t k = 0; k < b->key_count; k++) {
        struct hwi_build_key *key = &b->keys[k];
        if (key->info.parent_table != graph->index) {
            continue;
        }
        const struct hwi_table_info *child = &b->tables[key->info.child_table].info;
        for (uint32_t row = 0; row < child->row_count; row++) {
            uint32_t parent = hwi_read_u32(key->parents.data + 4 * (uint64_t)row);
            if (parent == HWI_NONE) {
                continue;
            }
            uint8_t *next = places + 4 * ((uint64_t)parent * slot_count + key->info.child_slot);
            uint64_t to = hwi_read_u32(next);
            hwi_write_u32(next, (uint32_t)to + 1);
            hwi_write_u32(children + 4 * to, child->row_start + row);
            if (has_times) {
                hwi_write_i64(times + 8 * to, edge_time(b, key, row));
            }
        }
        hwi_spill_pass(&key->parents, 4 * (uint64_t)child->row_count);
    }
    return HW_OK;
}

static int compare_edges(const void *left, const void *right) {
    const struct edge *a = left, *b = right;
    if (a->time != b->time) {
        return a->time < b->time ? -1 : 1;
    }
    return (a->row > b->row) - (a->row < b->row);
}

/* Sorts the lists of one slot by (edge time, row). */
static void sort_slot(struct graph_table *graph, uint32_t slot, struct edge *edges) {
    uint32_t slot_count = graph->table->info.child_slot_count;
    uint64_t list_count = (uint64_t)graph->table->info.row_count * slot_count;
    uint64_t start = 0;
    for (uint64_t i = 0; i < list_count; start += graph->counts[i], i++) {
        uint32_t count = graph->counts[i];
        if (i % slot_count != slot || count < 2) {
            continue;
        }
        uint8_t *rows = graph->children.data + 4 * start;
        uint8_t *times = graph->times.data + 8 * start;
        for (uint32_t j = 0; j < count; j++) {
            edges[j].time = hwi_read_i64(times + 8 * (uint64_t)j);
            edges[j].row = hwi_read_u32(rows + 4 * (uint64_t)j);
        }
        qsort(edges, count, sizeof *edges, compare_edges);
        for (uint32_t j = 0; j < count; j++) {
            hwi_write_i64(times + 8 * (uint64_t)j, edges[j].time);
            hwi_write_u32(rows + 4 * (uint64_t)j, edges[j].row);
        }
    }
}

static hw_status sort_late_lists(struct graph_table *graph, hw_error *error) {
    const hw_builder *b = graph->b;
    uint64_t list_count =
        (uint64_t)graph->table->info.row_count * graph->table->info.child_slot_count;
    uint32_t longest = 0;
    if (!(graph->table->info.flags & HWI_TABLE_CHILD_TIMES)) {
        return HW_OK;
    }
    for (uint64_t i = 0; i < list_count; i++) {
        longest = graph->counts[i] > longest ? graph->counts[i] : longest;
    }
    struct edge *edges = malloc(sizeof *edges * ((size_t)longest + 1));
    if (edges == NULL) {
        return hwi_no_memory(error, "the longest child list", sizeof *edges * (uint64_t)longest);
    }
    for (uint32_t k = 0; k < b->key_count; k++) {
        if (b->keys[k].info.parent_table == graph->index && b->keys[k].info.known_late) {
            sort_slot(graph, b->keys[k].info.child_slot, edges);
        }
    }
    free(edges);
    return HW_OK;
}

static hw_status write_table(struct graph_table *graph, struct hwi_writer *writer,
                             hw_error *error) {
    HW_TRY(count_children(graph, error));
    HW_TRY(scatter(graph, error));
    HW_TRY(sort_late_lists(graph, error));
    HW_TRY(hwi_writer_spill(writer, HWI_SECTION(HWI_SECTION_CHILDREN, graph->index), 4,
                            &graph->children, graph->edge_count, error));
    if (graph->table->info.flags & HWI_TABLE_CHILD_TIMES) {
        HW_TRY(hwi_writer_spill(writer, HWI_SECTION(HWI_SECTION_CHILD_TIMES, graph->index), 8,
                                &graph->times, graph->edge_count, error));
    }
    return HW_OK;
}

hw_status hwi_build_graph(hw_builder *b, struct hwi_file_info *file, hw_error *error) {
    struct hwi_writer writer = {.fd = -1};
    uint32_t section_count = 0;
    for (uint32_t t = 0; t < b->table_count; t++) {
        if (b->tables[t].info.child_slot_count > 0) {
            section_count += (b->tables[t].info.flags & HWI_TABLE_CHILD_TIMES) ? 2 : 1;
        }
    }
    hw_status status =
        hwi_writer_open(&writer, b->directory, HWI_FILE_GRAPH, 0, section_count, error);
    for (uint32_t t = 0; t < b->table_count && status == HW_OK; t++) {
        struct graph_table graph = {.b = b, .table = &b->tables[t], .index = t};
        if (graph.table->info.child_slot_count == 0) {
            continue;
        }
        status = write_table(&graph, &writer, error);
        hwi_spill_seal(&graph.table->child_counts);
        hwi_spill_close(&graph.places);
        hwi_spill_close(&graph.children);
        hwi_spill_close(&graph.times);
    }
    return hwi_writer_close(&writer, status, file, error);
}
