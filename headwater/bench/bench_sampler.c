/*
 * Makes batches in the calling thread, so that valgrind can count the instructions they take.
 *
 *     bench_sampler STORE [--task N] [--batches N] [--layout dense|compact] [--child-counts 0|1]
 *                   [--peer-labels N]
 *
 * After WARM_BATCHES it makes N batches (4) of a task (0) in measure_batches(), for
 * valgrind --tool=callgrind --toggle-collect='measure_batches*', as bench/instructions.py does. It
 * keeps HELD batches alive as a trainer does whose transfers are in flight, has read every page of
 * the store once before, and prints one JSON line. Rates and latencies: `headwater bench`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "headwater.h"

#define HELD 2u
#define WARM_BATCHES 4u /* more than HELD: every slab of the pool was filled once */

struct settings {
    const char *store, *layout;
    uint32_t batch_count, task;
    hw_sampler_options options;
};

struct ring {
    hw_batch *held[HELD];
    uint32_t next;
};

uint64_t measure_batches(hw_sampler *sampler, uint32_t count, struct ring *ring);

static _Noreturn void stop(const char *what, const char *message) {
    fprintf(stderr, "bench_sampler: %s: %s\n", what, message);
    exit(1);
}

static void expect_ok(hw_status status, const hw_error *error) {
    if (status != HW_OK) {
        stop("the library says", error->message);
    }
}

static uint32_t number(const char *name, const char *text) {
    char *end = NULL;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != 0 || value > UINT32_MAX) {
        stop(name, "expected a number that is not negative");
    }
    return (uint32_t)value;
}

static void take_argument(struct settings *settings, const char *name, const char *value) {
    hw_sampler_options *options = &settings->options;
    if (strcmp(name, "--layout") == 0) {
        settings->layout = value;
        options->layout = strcmp(value, "dense") == 0 ? HW_LAYOUT_DENSE : HW_LAYOUT_COMPACT;
        if (options->layout == HW_LAYOUT_COMPACT && strcmp(value, "compact") != 0) {
            stop(name, "expected dense or compact");
        }
    } else if (strcmp(name, "--batches") == 0) {
        settings->batch_count = number(name, value);
    } else if (strcmp(name, "--task") == 0) {
        settings->task = number(name, value);
    } else if (strcmp(name, "--child-counts") == 0) {
        options->child_counts = number(name, value) > 0;
    } else if (strcmp(name, "--peer-labels") == 0) {
        options->peer_labels = number(name, value);
    } else {
        stop(name, "unknown option");
    }
}

static void read_arguments(int argc, char **argv, struct settings *settings) {
    *settings = (struct settings){.layout = "dense", .batch_count = 4};
    hw_sampler_options_init(&settings->options, sizeof settings->options);
    settings->options.seed = settings->options.split_seed = 0; /* those of the results so far */
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) == 0 && i + 1 < argc) {
            take_argument(settings, argv[i], argv[i + 1]);
            i++;
        } else if (settings->store == NULL) {
            settings->store = argv[i];
        } else {
            stop(argv[i], "expected an option and its value");
        }
    }
    if (settings->store == NULL) {
        stop("usage", "bench_sampler STORE [options]; the file's first lines list them");
    }
}

static hw_sampler *open_sampler(struct settings *settings, hw_store *store) {
    hw_sampler_options *options = &settings->options;
    hw_sampler *sampler = NULL;
    hw_error error;
    options->tasks = &settings->task;
    options->task_count = 1;
    options->num_threads = 0;
    options->num_prefetch = 0;
    expect_ok(hw_sampler_open(store, options, &sampler, &error), &error);
    return sampler;
}

static void hold(struct ring *ring, hw_batch *batch) {
    hw_batch_release(ring->held[ring->next]);
    ring->held[ring->next] = batch;
    ring->next = (ring->next + 1) % HELD;
}

static uint64_t cells_of(const hw_batch *batch) {
    uint64_t cells = 0;
    hw_error error;
    hw_tensor counts = {.struct_bytes = sizeof counts};
    expect_ok(hw_batch_find(batch, "num_cells", &counts, &error), &error);
    const uint32_t *values = counts.data;
    for (size_t k = 0; k < counts.bytes / sizeof *values; k++) {
        cells += values[k];
    }
    return cells;
}

static hw_batch *next_batch(hw_sampler *sampler) {
    hw_batch *batch = NULL;
    hw_error error;
    expect_ok(hw_sampler_next(sampler, HW_TRAIN, -1, NULL, NULL, &batch, &error), &error);
    return batch;
}

/* Their cells. The name is what callgrind toggles on, so it must stay a function. */
__attribute__((noinline)) uint64_t measure_batches(hw_sampler *sampler, uint32_t count,
                                                   struct ring *ring) {
    uint64_t cells = 0;
    for (uint32_t made = 0; made < count; made++) {
        hw_batch *batch = next_batch(sampler);
        cells += cells_of(batch);
        hold(ring, batch);
    }
    return cells;
}

static void print_line(const struct settings *settings, hw_shape shape, uint64_t cells) {
    uint64_t padded = (uint64_t)settings->batch_count * shape.batch_size * shape.sequence_length;
    printf("{\"layout\": \"%s\", \"text_mode\": \"batch\", \"B\": %u, \"S\": %u, \"R\": %u, "
           "\"w\": %u, \"U\": %u, \"padded_cells\": %llu, \"fill\": %.4f}\n",
           settings->layout, shape.batch_size, shape.sequence_length, shape.max_rows,
           settings->options.child_width == 0 ? 16 : settings->options.child_width,
           shape.usual_texts, (unsigned long long)padded, (double)cells / (double)padded);
}

int main(int argc, char **argv) {
    struct settings settings;
    struct ring ring = {0};
    hw_store *store = NULL;
    hw_error error;
    read_arguments(argc, argv, &settings);
    expect_ok(hw_store_open(settings.store, HW_LOAD_MMAP, &store, &error), &error);
    expect_ok(hw_store_warm_up(store, 1, &error), &error);
    hw_sampler *sampler = open_sampler(&settings, store);
    for (uint32_t i = 0; i < WARM_BATCHES; i++) {
        hold(&ring, next_batch(sampler));
    }
    uint64_t cells = measure_batches(sampler, settings.batch_count, &ring);
    hw_shape shape = {.struct_bytes = sizeof shape};
    expect_ok(hw_sampler_shape(sampler, &shape, &error), &error);
    print_line(&settings, shape, cells);
    for (uint32_t i = 0; i < HELD; i++) {
        hw_batch_release(ring.held[i]);
    }
    hw_sampler_close(sampler);
    hw_store_close(store);
    return 0;
}
