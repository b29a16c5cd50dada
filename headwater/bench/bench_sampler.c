/*
 * How fast does the C library make batches, and how long does one context take?
 *
 *     bench_sampler STORE [--threads N] [--batch B] [--length S] [--width W] [--max-rows R]
 *                   [--task N] [--seconds T] [--repeats N] [--batches N] [--ram] [--cold]
 *                   [--latency REQUESTS] [--layout dense|compact]
 *                   [--text-mode batch|resident] [--child-counts 0|1]
 *                   [--peer-labels N]
 *
 * Prints one JSON line. Threads 0 (the default) make each batch in the calling thread, so that CPU
 * time is the sampler's alone. Throughput takes N turns of T seconds after WARM_BATCHES, keeping
 * HELD batches alive as a trainer does whose transfers are in flight; rates are medians of the
 * turns, and the best (..._max). Every page of the store is read once before (--cold: not).
 *
 * With --batches it makes exactly that many in measure_batches(), whatever the time, for
 * valgrind --tool=callgrind --toggle-collect='measure_batches*', as bench/instructions.py does.
 *
 * With --latency it times single requests of one context each for one task (0): `position` is batch
 * k of a stream of B = 1, `ad_hoc` opens a pass over one seed, takes its batch and closes it.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "headwater.h"

#define HELD 2u
#define WARM_BATCHES 4u /* more than HELD: every slab of the pool was filled once */
#define WARM_REQUESTS 20u
#define MAX_REQUESTS 10000000u
#define MAX_REPEATS 1000u
#define NS_PER_SECOND 1e9

struct settings {
    const char *store, *layout, *text_mode;
    uint32_t threads;
    uint64_t batch_count, request_count, repeats;
    double seconds;
    hw_load load;
    uint32_t task;
    int has_task, cold;
    hw_sampler_options options;
};

/* What a run made, and what it took. */
struct tally {
    uint64_t batches, padded_cells, cells, rows, bytes;
    double seconds, cpu_seconds;
    double rates[MAX_REPEATS], cpu_rates[MAX_REPEATS]; /* padded cells per second, by turn */
    hw_sampler_stats stages;
};

struct ring {
    hw_batch *held[HELD];
    uint32_t next;
};

void measure_batches(hw_sampler *sampler, const struct settings *settings, struct ring *ring,
                     struct tally *tally);

/* ---- small things ------------------------------------------------------------------------ */

static _Noreturn void stop(const char *what, const char *message) {
    fprintf(stderr, "bench_sampler: %s: %s\n", what, message);
    exit(1);
}

static void expect_ok(hw_status status, const hw_error *error) {
    if (status != HW_OK) {
        stop("the library says", error->message);
    }
}

static double seconds_of(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / NS_PER_SECOND;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, uint64_t count, double share) {
    return sorted[(uint64_t)(share * (double)(count - 1) + 0.5)];
}

/* ---- arguments --------------------------------------------------------------------------- */

static double number(const char *name, const char *text) {
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end != 0 || !(value >= 0 && value <= UINT32_MAX)) {
        stop(name, "expected a number that is not negative");
    }
    return value;
}

static void take_argument(struct settings *settings, const char *name, const char *value) {
    hw_sampler_options *options = &settings->options;
    if (strcmp(name, "--layout") == 0) {
        settings->layout = value;
    } else if (strcmp(name, "--text-mode") == 0) {
        settings->text_mode = value;
    } else if (strcmp(name, "--seconds") == 0) {
        settings->seconds = number(name, value);
    } else if (strcmp(name, "--repeats") == 0) {
        settings->repeats = (uint64_t)number(name, value);
    } else if (strcmp(name, "--batches") == 0) {
        settings->batch_count = (uint64_t)number(name, value);
    } else if (strcmp(name, "--latency") == 0) {
        settings->request_count = (uint64_t)number(name, value);
    } else if (strcmp(name, "--threads") == 0) {
        settings->threads = (uint32_t)number(name, value);
    } else if (strcmp(name, "--child-counts") == 0) {
        options->child_counts = number(name, value) > 0;
    } else if (strcmp(name, "--peer-labels") == 0) {
        options->peer_labels = (uint32_t)number(name, value);
    } else if (strcmp(name, "--batch") == 0) {
        options->batch_size = (uint32_t)number(name, value);
    } else if (strcmp(name, "--length") == 0) {
        options->sequence_length = (uint32_t)number(name, value);
    } else if (strcmp(name, "--width") == 0) {
        options->child_width = (uint32_t)number(name, value);
    } else if (strcmp(name, "--max-rows") == 0) {
        options->max_rows = (uint32_t)number(name, value);
    } else if (strcmp(name, "--task") == 0) {
        settings->task = (uint32_t)number(name, value);
        settings->has_task = 1;
    } else {
        stop(name, "unknown option");
    }
}

static void read_arguments(int argc, char **argv, struct settings *settings) {
    *settings = (struct settings){
        .layout = "dense",
        .text_mode = "batch",
        .seconds = 3,
        .repeats = 1,
    };
    hw_sampler_options_init(&settings->options, sizeof settings->options);
    settings->options.seed = settings->options.split_seed = 0; /* those of the results so far */
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--ram") == 0) {
            settings->load = HW_LOAD_RAM;
        } else if (strcmp(argv[i], "--cold") == 0) {
            settings->cold = 1;
        } else if (strncmp(argv[i], "--", 2) == 0 && i + 1 < argc) {
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
    if (settings->request_count > MAX_REQUESTS) {
        stop("--latency", "too many requests");
    }
    if (settings->repeats < 1 || settings->repeats > MAX_REPEATS) {
        stop("--repeats", "expected 1 to 1000");
    }
}

/* 0 for the first word, 1 for the second. */
static int choice(const char *value, const char *first, const char *second) {
    int is_second = strcmp(value, second) == 0;
    if (!is_second && strcmp(value, first) != 0) {
        fprintf(stderr, "bench_sampler: '%s', expected %s or %s\n", value, first, second);
        exit(2);
    }
    return is_second;
}

static void set_words(struct settings *settings) {
    settings->options.layout = (hw_layout)choice(settings->layout, "dense", "compact");
    settings->options.text_mode = (hw_text_mode)choice(settings->text_mode, "batch", "resident");
}

static hw_sampler *open_sampler(struct settings *settings, hw_store *store) {
    hw_sampler_options *options = &settings->options;
    hw_sampler *sampler = NULL;
    hw_error error;
    if (settings->has_task || settings->request_count > 0) {
        options->tasks = &settings->task;
        options->task_count = 1;
    }
    if (settings->request_count > 0) {
        options->batch_size = 1;
        settings->threads = 0;
    }
    options->num_threads = settings->threads;
    if (settings->threads == 0) {
        options->num_prefetch = 0;
    }
    expect_ok(hw_sampler_open(store, options, &sampler, &error), &error);
    return sampler;
}

/* ---- throughput -------------------------------------------------------------------------- */

static void hold(struct ring *ring, hw_batch *batch) {
    hw_batch_release(ring->held[ring->next]);
    ring->held[ring->next] = batch;
    ring->next = (ring->next + 1) % HELD;
}

static uint64_t sum_of(const hw_tensor *tensor) {
    const uint32_t *values = tensor->data;
    uint64_t sum = 0;
    for (size_t i = 0; i < tensor->bytes / sizeof *values; i++) {
        sum += values[i];
    }
    return sum;
}

static void count_batch(const hw_batch *batch, struct tally *tally) {
    tally->batches++;
    tally->bytes = 0;
    for (uint32_t i = 0; i < hw_batch_tensor_count(batch); i++) {
        hw_tensor tensor = hw_batch_tensor(batch, i);
        tally->bytes += tensor.info ? 0 : tensor.bytes;
        if (strcmp(tensor.name, "num_cells") == 0) {
            tally->cells += sum_of(&tensor);
        } else if (strcmp(tensor.name, "num_rows") == 0) {
            tally->rows += sum_of(&tensor);
        }
    }
}

static hw_batch *next_batch(hw_sampler *sampler) {
    hw_batch *batch = NULL;
    hw_error error;
    expect_ok(hw_sampler_next(sampler, HW_TRAIN, -1, NULL, NULL, &batch, &error), &error);
    return batch;
}

/* One turn. The name is what callgrind toggles on, so it must stay a function. */
__attribute__((noinline)) void measure_batches(hw_sampler *sampler, const struct settings *settings,
                                               struct ring *ring, struct tally *tally) {
    double start = seconds_of(CLOCK_MONOTONIC), seconds = 0;
    uint64_t wanted = settings->batch_count, made = 0;
    do {
        hw_batch *batch = next_batch(sampler);
        count_batch(batch, tally);
        hold(ring, batch);
        made++;
        seconds = seconds_of(CLOCK_MONOTONIC) - start;
    } while (wanted > 0 ? made < wanted : seconds < settings->seconds);
}

static void take_turns(hw_sampler *sampler, const struct settings *settings, struct ring *ring,
                       struct tally *tally) {
    hw_shape shape = hw_sampler_shape(sampler);
    double batch_cells = (double)shape.batch_size * shape.sequence_length;
    for (uint64_t turn = 0; turn < settings->repeats; turn++) {
        uint64_t before = tally->batches;
        double start = seconds_of(CLOCK_MONOTONIC), cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        measure_batches(sampler, settings, ring, tally);
        double seconds = seconds_of(CLOCK_MONOTONIC) - start;
        double cpu_seconds = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        double cells = (double)(tally->batches - before) * batch_cells;
        tally->rates[turn] = cells / seconds;
        tally->cpu_rates[turn] = cells / cpu_seconds;
        tally->seconds += seconds;
        tally->cpu_seconds += cpu_seconds;
    }
    tally->padded_cells = tally->batches * shape.batch_size * shape.sequence_length;
    qsort(tally->rates, settings->repeats, sizeof *tally->rates, compare_doubles);
    qsort(tally->cpu_rates, settings->repeats, sizeof *tally->cpu_rates, compare_doubles);
}

static void run_throughput(hw_sampler *sampler, const struct settings *settings,
                           struct tally *tally) {
    struct ring ring = {0};
    for (uint32_t i = 0; i < WARM_BATCHES; i++) {
        hold(&ring, next_batch(sampler));
    }
    hw_sampler_stats before = hw_sampler_get_stats(sampler);
    take_turns(sampler, settings, &ring, tally);
    hw_sampler_stats after = hw_sampler_get_stats(sampler);
    tally->stages = (hw_sampler_stats){
        .walk_ns = after.walk_ns - before.walk_ns,
        .emit_ns = after.emit_ns - before.emit_ns,
        .text_ns = after.text_ns - before.text_ns,
        .producer_wait_ns = after.producer_wait_ns - before.producer_wait_ns,
        .consumer_wait_ns = after.consumer_wait_ns - before.consumer_wait_ns,
    };
    for (uint32_t i = 0; i < HELD; i++) {
        hw_batch_release(ring.held[i]);
    }
}

static void print_configuration(const struct settings *settings, hw_shape shape) {
    printf("{\"question\": \"%s\", \"threads\": %u, \"layout\": \"%s\", \"text_mode\": \"%s\", "
           "\"B\": %u, \"S\": %u, \"R\": %u, \"w\": %u, \"U\": %u",
           settings->request_count > 0 ? "latency in C" : "throughput in C", settings->threads,
           settings->layout, settings->text_mode, shape.batch_size, shape.sequence_length,
           shape.max_rows, settings->options.child_width == 0 ? 16 : settings->options.child_width,
           shape.text_budget);
}

static void print_throughput(const struct settings *settings, const struct tally *tally) {
    double padded = (double)tally->padded_cells;
    uint64_t last = settings->repeats - 1;
    printf(", \"repeats\": %llu, \"batches\": %llu, \"padded_cells\": %llu, \"cells\": %llu, "
           "\"rows\": %llu, \"fill\": %.4f, \"seconds\": %.6f, \"cpu_seconds\": %.6f",
           (unsigned long long)settings->repeats, (unsigned long long)tally->batches,
           (unsigned long long)tally->padded_cells, (unsigned long long)tally->cells,
           (unsigned long long)tally->rows, (double)tally->cells / padded, tally->seconds,
           tally->cpu_seconds);
    printf(", \"padded_cells_per_s\": %.0f, \"padded_cells_per_s_max\": %.0f, "
           "\"padded_cells_per_cpu_s\": %.0f, \"padded_cells_per_cpu_s_max\": %.0f",
           quantile(tally->rates, settings->repeats, 0.5), tally->rates[last],
           quantile(tally->cpu_rates, settings->repeats, 0.5), tally->cpu_rates[last]);
    printf(", \"bytes_per_padded_cell\": %.2f, \"walk_ns_per_padded_cell\": %.2f, "
           "\"emit_ns_per_padded_cell\": %.2f, \"text_ns_per_padded_cell\": %.2f, "
           "\"producer_wait_s\": %.4f, \"consumer_wait_s\": %.4f}\n",
           (double)tally->bytes * (double)tally->batches / padded,
           (double)tally->stages.walk_ns / padded, (double)tally->stages.emit_ns / padded,
           (double)tally->stages.text_ns / padded,
           (double)tally->stages.producer_wait_ns / NS_PER_SECOND,
           (double)tally->stages.consumer_wait_ns / NS_PER_SECOND);
}

/* ---- latency ----------------------------------------------------------------------------- */

static void ask_position(hw_sampler *sampler, uint64_t k) {
    hw_batch *batch = NULL;
    hw_error error;
    expect_ok(hw_sampler_batch(sampler, HW_TRAIN, k, &batch, &error), &error);
    hw_batch_release(batch);
}

static void ask_ad_hoc(hw_sampler *sampler, const hw_seeds *seeds, uint32_t task, uint64_t k) {
    /* A stride that is odd and large meets seeds all over the store before it repeats. */
    uint32_t seed = (uint32_t)(k * 2654435761u % seeds->count);
    hw_pass *pass = NULL;
    hw_batch *batch = NULL;
    hw_error error;
    expect_ok(hw_pass_open_seeds(sampler, task, &seeds->anchors[seed], &seeds->obs_times[seed], 1,
                                 &pass, &error),
              &error);
    expect_ok(hw_pass_next(pass, -1, NULL, NULL, &batch, &error), &error);
    hw_batch_release(batch);
    hw_pass_close(pass);
}

static void print_latency(const char *name, double *seconds, uint64_t count) {
    qsort(seconds, count, sizeof *seconds, compare_doubles);
    printf(", \"%s_us_p50\": %.2f, \"%s_us_p99\": %.2f", name, quantile(seconds, count, 0.5) * 1e6,
           name, quantile(seconds, count, 0.99) * 1e6);
}

static void run_latency(hw_sampler *sampler, const hw_store *store,
                        const struct settings *settings) {
    uint64_t count = settings->request_count;
    double *position = calloc(count, sizeof *position), *ad_hoc = calloc(count, sizeof *ad_hoc);
    hw_seeds seeds;
    hw_error error;
    expect_ok(hw_store_seeds(store, settings->task, &seeds, &error), &error);
    if (position == NULL || ad_hoc == NULL || seeds.count == 0) {
        stop("--latency", "no memory, or a task without seeds");
    }
    for (uint64_t k = 0; k < WARM_REQUESTS + count; k++) {
        double start = seconds_of(CLOCK_MONOTONIC);
        ask_position(sampler, k);
        double between = seconds_of(CLOCK_MONOTONIC);
        ask_ad_hoc(sampler, &seeds, settings->task, k);
        if (k >= WARM_REQUESTS) {
            position[k - WARM_REQUESTS] = between - start;
            ad_hoc[k - WARM_REQUESTS] = seconds_of(CLOCK_MONOTONIC) - between;
        }
    }
    printf(", \"requests\": %llu", (unsigned long long)count);
    print_latency("position", position, count);
    print_latency("ad_hoc", ad_hoc, count);
    printf("}\n");
    free(position);
    free(ad_hoc);
}

int main(int argc, char **argv) {
    struct settings settings;
    hw_store *store = NULL;
    hw_error error;
    read_arguments(argc, argv, &settings);
    set_words(&settings);
    expect_ok(hw_store_open(settings.store, settings.load, &store, &error), &error);
    if (!settings.cold) {
        expect_ok(hw_store_warm_up(store, 1, &error), &error);
    }
    hw_sampler *sampler = open_sampler(&settings, store);
    print_configuration(&settings, hw_sampler_shape(sampler));
    if (settings.request_count > 0) {
        run_latency(sampler, store, &settings);
    } else {
        static struct tally tally;
        run_throughput(sampler, &settings, &tally);
        print_throughput(&settings, &tally);
    }
    hw_sampler_close(sampler);
    hw_store_close(store);
    return 0;
}
