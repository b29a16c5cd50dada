/* Ends of samplers; see endings.h. */
#define _DEFAULT_SOURCE 1

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/endings.h"
#include "support/fixtures.h"
#include "support/unit_test.h"

void ending_fork(hw_sampler *sampler) {
    hw_batch *kept = fixture_next(sampler, HW_TRAIN);
    pid_t child = fork();
    if (child == 0) {
        hw_batch *batch = NULL;
        hw_pass *pass = NULL;
        int is_refused =
            hw_sampler_next(sampler, HW_TRAIN, -1, NULL, NULL, &batch, NULL) == HW_FORKED &&
            hw_sampler_batch(sampler, HW_TRAIN, 0, &batch, NULL) == HW_FORKED &&
            hw_pass_open(sampler, HW_TRAIN, UINT32_MAX, 0, &pass, NULL) == HW_FORKED;
        hw_batch_release(kept);
        hw_sampler_shutdown(sampler);
        hw_sampler_close(sampler);
        _exit(is_refused ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    hw_batch_release(kept);
    hw_batch_release(fixture_next(sampler, HW_TRAIN));
}

struct reader {
    hw_sampler *sampler;
    hw_status status;
};

static void *take_until_it_ends(void *argument) {
    struct reader *reader = argument;
    hw_batch *batch = NULL;
    while ((reader->status = hw_sampler_next(reader->sampler, HW_TRAIN, -1, NULL, NULL, &batch,
                                             NULL)) == HW_OK) {
        hw_batch_release(batch);
    }
    return NULL;
}

void ending_shutdown(hw_sampler *sampler, uint32_t microseconds) {
    struct reader readers[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        readers[i] = (struct reader){.sampler = sampler};
        assert_int_equal(pthread_create(&threads[i], NULL, take_until_it_ends, &readers[i]), 0);
    }
    usleep(microseconds);
    hw_sampler_shutdown(sampler);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readers[i].status, HW_SHUT_DOWN);
    }
}
