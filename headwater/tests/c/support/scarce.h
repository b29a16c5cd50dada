/*
 * Memory that runs out. The test that links scarce.c has its own and the library's calls for memory
 * wrapped by the linker (meson.build): they are counted, any one of them can be made to fail, and
 * what they gave is counted until it is given back.
 */
#ifndef SCARCE_H
#define SCARCE_H

#include <stdint.h>

enum scarce_call {
    SCARCE_NONE,
    SCARCE_MEMORY, /* malloc and its like, mmap, what locks need */
    SCARCE_SYSTEM, /* fopen and pthread_create: the operating system's own memory */
};

/* From here on the n-th call fails, from 1, counted over all threads, and no other. */
void scarce_begin(uint64_t n);
/* No call fails any more; which kind did, since scarce_begin. */
enum scarce_call scarce_end(void);
/* The kind that did so far. */
enum scarce_call scarce_failed(void);
/* Calls of this thread in between are not counted and do not fail: what the test itself needs. */
void scarce_pause(void);
void scarce_resume(void);

/* Blocks that were not freed, and mapped bytes. */
int64_t scarce_blocks(void);
int64_t scarce_mapped_bytes(void);

#endif
