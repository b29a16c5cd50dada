/*
 * A fuzz target without a fuzzer: main of replay.c gives it the files named on the command line, or
 * with -n COUNT as many random inputs from a fixed seed.
 */
#ifndef REPLAY_H
#define REPLAY_H

#include <stddef.h>
#include <stdint.h>

#define EDIT_BYTES 6u

/* What a target has: an input is a byte and edits of EDIT_BYTES. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const uint32_t most_edits; /* of a random input */
void discharge_patients(void);

#endif
