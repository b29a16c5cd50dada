/*
 * A transcript of every struct that crosses the interface, for test_grown_structs.py: the same
 * program runs with this library, and with one whose structs all have a member more. Behind each
 * struct lie bytes that nobody may touch.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/fixtures.h"

enum { GUARD_BYTES = 64, GUARD = 0xa5 };

/* A variable of a struct type in the caller's size, between guards. */
#define GUARDED(type, name)                                                                        \
    struct {                                                                                       \
        type it;                                                                                   \
        unsigned char guard[GUARD_BYTES];                                                          \
    } name;                                                                                        \
    memset(&(name), 0, sizeof(name));                                                              \
    memset((name).guard, GUARD, GUARD_BYTES);                                                      \
    (name).it.struct_bytes = sizeof(type)

#define INTACT(name)                                                                               \
    do {                                                                                           \
        for (int i_ = 0; i_ < GUARD_BYTES; i_++) {                                                 \
            if ((name).guard[i_] != GUARD) {                                                       \
                printf("byte %d behind " #name " was written\n", i_);                              \
            }                                                                                      \
        }                                                                                          \
    } while (0)

static void tell_store(hw_store *store) {
    GUARDED(hw_store_counts, counts);
    MUST(hw_store_get_counts(store, &counts.it, &error));
    INTACT(counts);
    printf("counts %u %u %u %u %u %u %u %u %g %g\n", counts.it.table_count, counts.it.column_count,
           counts.it.key_count, counts.it.task_count, counts.it.row_count, counts.it.category_count,
           counts.it.text_count, counts.it.text_dim, counts.it.time_mean_us, counts.it.time_std_us);
    GUARDED(hw_table_info, table);
    MUST(hw_store_table_info(store, BOOKS, &table.it, &error));
    INTACT(table);
    printf("table %s %u %u %u %u\n", table.it.name, table.it.first_row, table.it.row_count,
           table.it.temporal_column, table.it.is_keyed);
    GUARDED(hw_column_info, column);
    MUST(hw_store_column_info(store, BOOKS_PRICE, &column.it, &error));
    INTACT(column);
    printf("column %s %u %u %g %" PRIu64 "\n", column.it.name, column.it.table, column.it.stype,
           column.it.mean, column.it.null_count);
    GUARDED(hw_key_info, key);
    MUST(hw_store_key_info(store, BOOKS_AUTHOR, &key.it, &error));
    INTACT(key);
    printf("key %s %u %" PRIu64 "\n", key.it.name, key.it.columns[0], key.it.dangling_count);
    GUARDED(hw_task_info, task);
    MUST(hw_store_task_info(store, TASK_RETURNS, &task.it, &error));
    INTACT(task);
    printf("task %s %u %u %u\n", task.it.name, task.it.target_column, task.it.seed_count,
           task.it.label_times);
    GUARDED(hw_cell, cell);
    MUST(hw_store_cell(store, 4, BOOKS_PRICE, &cell.it, &error));
    INTACT(cell);
    printf("cell %u %u %u %g\n", cell.it.column, cell.it.stype, cell.it.is_null, cell.it.number);
    GUARDED(hw_seeds, seeds);
    MUST(hw_store_seeds(store, TASK_RETURNS, &seeds.it, &error));
    INTACT(seeds);
    for (uint32_t i = 0; i < seeds.it.count; i++) {
        printf("seed %u %" PRId64 " %u\n", seeds.it.anchors[i], seeds.it.obs_times[i],
               seeds.it.states[i]);
    }
    GUARDED(hw_verification, verification);
    MUST(hw_store_check_files(store, HW_VERIFY_FULL, NULL, NULL, NULL, &verification.it, &error));
    INTACT(verification);
    printf("verified %u '%s'\n", verification.it.how, verification.it.not_remembered);
}

static void tell_batch(const hw_batch *batch) {
    GUARDED(hw_batch_sizes, sizes);
    MUST(hw_batch_get_sizes(batch, &sizes.it, &error));
    INTACT(sizes);
    printf("batch %u %u %u\n", sizes.it.texts, sizes.it.cells, sizes.it.rows);
    for (uint32_t i = 0; i < hw_batch_tensor_count(batch); i++) {
        GUARDED(hw_tensor, tensor);
        MUST(hw_batch_tensor(batch, i, &tensor.it, &error));
        INTACT(tensor);
        printf("%s %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %016" PRIx64 "\n", tensor.it.name,
               tensor.it.dtype, tensor.it.rank, tensor.it.shape[0], tensor.it.shape[1],
               tensor.it.shape[2], tensor.it.info, hw_hash64(tensor.it.data, tensor.it.bytes, 0));
    }
}

static void tell_sampler(hw_store *store) {
    GUARDED(hw_sampler_options, options);
    hw_sampler_options_init(&options.it, sizeof options.it);
    INTACT(options);
    options.it.sequence_length = 32;
    options.it.batch_size = 4;
    options.it.layout = HW_LAYOUT_FLAT;
    options.it.num_threads = 1;
    memset(options.guard, GUARD, GUARD_BYTES);
    hw_sampler *sampler = fixture_sampler(store, &options.it);
    GUARDED(hw_shape, shape);
    MUST(hw_sampler_shape(sampler, &shape.it, &error));
    INTACT(shape);
    printf("shape %u %u %u %u %u %u %u\n", shape.it.batch_size, shape.it.sequence_length,
           shape.it.max_rows, shape.it.text_budget, shape.it.usual_texts, shape.it.cells_per_batch,
           shape.it.max_context_rows);
    GUARDED(hw_flat_shape, flat);
    MUST(hw_sampler_flat_shape(sampler, TASK_RETURNS, &flat.it, &error));
    INTACT(flat);
    printf("flat %u %u %u %u\n", flat.it.cells, flat.it.rows, flat.it.pass_cells[2],
           flat.it.capped);
    GUARDED(hw_target_stats, target);
    MUST(hw_sampler_target_stats(sampler, TASK_PRICE, &target.it, &error));
    INTACT(target);
    printf("target %" PRIu64 " %g %g\n", target.it.train_count, target.it.mean,
           target.it.column_std);
    hw_batch *batch = NULL;
    MUST(hw_sampler_batch(sampler, HW_TRAIN, 0, &batch, &error));
    tell_batch(batch);
    hw_batch_release(batch);
    hw_subgraph *subgraph = NULL;
    MUST(hw_sampler_subgraph(sampler, TASK_PRICE, 1, 0, 1, &subgraph, &error));
    GUARDED(hw_subgraph_arrays, graph);
    MUST(hw_subgraph_get(subgraph, &graph.it, &error));
    INTACT(graph);
    for (uint32_t i = 0; i < graph.it.edge_count; i++) {
        printf("edge %u %u\n", graph.it.rows[graph.it.local_edges[2 * i]],
               graph.it.rows[graph.it.local_edges[2 * i + 1]]);
    }
    hw_subgraph_close(subgraph);
    GUARDED(hw_sampler_stats, stats);
    MUST(hw_sampler_get_stats(sampler, &stats.it, &error));
    INTACT(stats);
    printf("stats %" PRIu64 " %u\n", stats.it.texts_over_budget, stats.it.threads);
    hw_sampler_close(sampler);

    hw_seed_pool *pool = NULL;
    uint32_t seeds[3], epochs[3], rows[3], task, taken;
    int64_t times[3];
    double labels[3];
    MUST(hw_seed_pool_open(store, &options.it, HW_TRAIN, 0, NULL, &pool, &error));
    GUARDED(hw_drawn_seeds, drawn);
    drawn.it.seeds = seeds;
    drawn.it.epochs = epochs;
    drawn.it.rows = rows;
    drawn.it.obs_times = times;
    drawn.it.labels = labels;
    MUST(hw_seed_pool_next(pool, 3, &drawn.it, &task, &taken, &error));
    INTACT(drawn);
    printf("drawn of %u: %u %u %u\n", task, seeds[0], seeds[1], seeds[2]);
    uint32_t tasks[3];
    drawn.it.tasks = tasks;
    MUST(hw_seed_pool_together(pool, &error));
    MUST(hw_seed_pool_next(pool, 3, &drawn.it, &task, &taken, &error));
    INTACT(drawn);
    for (uint32_t i = 0; i < taken; i++) {
        printf("drawn together: %u of %u\n", seeds[i], tasks[i]);
    }
    hw_seed_pool_close(pool);
}

static void tell_tables(void) {
    for (uint32_t i = 0; i < hw_batch_field_count(); i++) {
        GUARDED(hw_batch_field, field);
        MUST(hw_batch_field_at(i, &field.it, &error));
        INTACT(field);
        printf("%s %u %s: %s\n", field.it.name, field.it.dtype, field.it.dims[0], field.it.meaning);
    }
    for (uint32_t i = 0; i < hw_option_field_count(); i++) {
        GUARDED(hw_option_field, field);
        MUST(hw_option_field_at(i, &field.it, &error));
        INTACT(field);
        printf("%s %u %g %g: %s\n", field.it.name, field.it.type, field.it.standard[0],
               field.it.most, field.it.doc);
    }
    static struct {
        hw_calendar_tables it;
        unsigned char guard[GUARD_BYTES];
    } tables;
    memset(tables.guard, GUARD, GUARD_BYTES);
    tables.it.struct_bytes = sizeof tables.it;
    MUST(hw_calendar_tables_fill(&tables.it, &error));
    INTACT(tables);
    printf("calendar %016" PRIx64 "\n",
           hw_hash64(tables.it.sixtieths, sizeof tables.it - sizeof(size_t), 0));
}

static void tell_builder(const char *store_path) {
    GUARDED(hw_table_spec, table);
    GUARDED(hw_column_spec, column);
    GUARDED(hw_column_stats, stats);
    static const double heights[] = {1, 2, 6};
    const struct fixture_column columns[] = {{"height", "g", heights, NULL}};
    hw_builder *b = fixture_builder("trees", store_path, INT64_MAX); /* hw_builder_options */
    uint32_t index;
    table.it.name = "trees";
    MUST(hw_builder_add_table(b, &table.it, &index, &error));
    column.it.name = "height";
    column.it.stype = HW_NUMERICAL;
    MUST(hw_builder_add_column(b, 0, &column.it, &index, &error));
    fixture_rows(b, 0, columns, 1, 3, 0);
    MUST(hw_builder_column_stats(b, index, &stats.it, &error));
    INTACT(table);
    INTACT(column);
    INTACT(stats);
    printf("stats %" PRIu64 " %g %g\n", stats.it.value_count, stats.it.mean, stats.it.max);
    hw_builder_close(b);
}

/* A folder for the stores, which are left there. */
int main(int argc, char **argv) {
    hw_store *store;
    char *path;
    if (argc != 2 || hw_abi() != HW_ABI) {
        return 1;
    }
    path = fixture_path(argv[1], "bookstore"); /* hw_key_spec and hw_task_spec by the fixture */
    store = bookstore(path);
    tell_store(store);
    tell_sampler(store);
    hw_store_close(store);
    free(path);
    path = fixture_path(argv[1], "trees");
    tell_builder(path);
    free(path);
    tell_tables();
    return 0;
}
