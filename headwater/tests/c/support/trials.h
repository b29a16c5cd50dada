/*
 * Memory that runs out at every place where it can: a trial is repeated with its first, second,
 * third ... call for memory failing, until none fails. Each time exactly one call of the library
 * must say HW_NO_MEMORY with a message, or HW_IO with the operating system's; the same call must
 * succeed when it is made again, where the library does not say otherwise; the results must be
 * those of a run that lacked nothing; and no block, map, descriptor or folder may be left.
 */
#ifndef TRIALS_H
#define TRIALS_H

#include <stdint.h>

#include "support/fixtures.h"

/* Calls of this trial that reported the failure. */
extern uint32_t refused_count;

/* Whether the call was refused; then it must be for the one failure there was. */
int is_refused(hw_status status, const hw_error *error);

/* A call that may be made again. */
#define AGAIN(call)                                                                                \
    do {                                                                                           \
        hw_error error = {.message = ""};                                                          \
        if (is_refused(call, &error)) {                                                            \
            hw_status again = (call);                                                              \
            fixture_check(again, &error, #call);                                                   \
        }                                                                                          \
    } while (0)

/* Every call for memory of a trial fails once. `may_cope`: some of them are not missed. */
void try_all(void (*trial)(void *), void *context, int may_cope);

#endif
