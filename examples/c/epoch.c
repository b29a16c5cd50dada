/* A store to batches: epoch STORE [TASK]. A line for each batch of an epoch of train, with a hash
 * of its arrays, then how fast they came. */
#include <headwater.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MUST(call) ((call) == HW_OK ? (void)0 : (fprintf(stderr, "%s\n", error.message), exit(1)))

static double seconds(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A sum over all arrays, so that their order does not matter. */
static uint64_t hash_of(const hw_batch *batch) {
    hw_error error;
    hw_tensor array = {.struct_bytes = sizeof array};
    uint64_t hash = 0;
    for (uint32_t i = 0; i < hw_batch_tensor_count(batch); i++) {
        MUST(hw_batch_tensor(batch, i, &array, &error));
        hash += hw_hash64(array.data, array.bytes, hw_hash64(array.name, strlen(array.name), 0));
    }
    return hash;
}

int main(int argc, char **argv) {
    hw_error error;
    hw_store *store;
    hw_sampler *sampler;
    hw_pass *pass;
    hw_batch *batch;
    hw_sampler_options options;
    uint32_t task = 0; /* the first */
    if (argc < 2 || argc > 3)
        return fputs("usage: epoch STORE [TASK]\n", stderr), 2;
    MUST(hw_store_open(argv[1], HW_LOAD_MMAP, &store, &error));
    if (argc == 3)
        MUST(hw_store_find_task(store, argv[2], &task, &error));
    hw_sampler_options_init(&options, sizeof options);
    options.tasks = &task;
    options.task_count = 1;
    options.sequence_length = 64; /* cells of each context */
    MUST(hw_sampler_open(store, &options, &sampler, &error));
    MUST(hw_pass_open(sampler, HW_TRAIN, task, 0, &pass, &error));
    double start = seconds();
    uint64_t count = hw_pass_batch_count(pass);
    for (uint64_t k = 0; k < count; k++) {
        MUST(hw_pass_next(pass, -1, NULL, NULL, &batch, &error)); /* waits as long as it takes */
        printf("%" PRIu64 " %016" PRIx64 "\n", k, hash_of(batch));
        hw_batch_release(batch);
    }
    printf("%" PRIu64 " batches, %.1f a second\n", count, (double)count / (seconds() - start));
    hw_pass_close(pass);
    hw_sampler_close(sampler);
    hw_store_close(store);
}
