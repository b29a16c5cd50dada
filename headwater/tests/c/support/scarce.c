/* Memory that runs out; see scarce.h. */
#define _POSIX_C_SOURCE 200809L

#include "support/scarce.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_ullong calls_left; /* up to the one that fails; 0: none does */
static atomic_int failed_call;
static atomic_llong block_count, mapped_bytes;
static _Thread_local int pause_depth;

void scarce_begin(uint64_t n) {
    atomic_store(&failed_call, SCARCE_NONE);
    atomic_store(&calls_left, n);
}

enum scarce_call scarce_failed(void) {
    return (enum scarce_call)atomic_load(&failed_call);
}

enum scarce_call scarce_end(void) {
    atomic_store(&calls_left, 0);
    return scarce_failed();
}

void scarce_pause(void) {
    pause_depth++;
}

void scarce_resume(void) {
    pause_depth--;
}

int64_t scarce_blocks(void) {
    return atomic_load(&block_count);
}

int64_t scarce_mapped_bytes(void) {
    return atomic_load(&mapped_bytes);
}

/* 1 if this call is the one. */
static int fails(enum scarce_call call) {
    unsigned long long left = atomic_load(&calls_left);
    do {
        if (left == 0 || pause_depth > 0) {
            return 0;
        }
    } while (!atomic_compare_exchange_weak(&calls_left, &left, left - 1));
    if (left > 1) {
        return 0;
    }
    atomic_store(&failed_call, call);
    errno = ENOMEM;
    return 1;
}

static void *counted(void *block) {
    atomic_fetch_add(&block_count, block != NULL);
    return block;
}

/* ---- the wrapped calls --------------------------------------------------------------------- */

/* The linker leads calls of name to __wrap_name, and __real_name to what they would have got. */
#define WRAPPED(type, name, ...)                                                                   \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

WRAPPED(void *, malloc, size_t bytes) {
    return fails(SCARCE_MEMORY) ? NULL : counted(__real_malloc(bytes));
}

WRAPPED(void *, calloc, size_t count, size_t bytes) {
    return fails(SCARCE_MEMORY) ? NULL : counted(__real_calloc(count, bytes));
}

WRAPPED(void *, aligned_alloc, size_t align, size_t bytes) {
    return fails(SCARCE_MEMORY) ? NULL : counted(__real_aligned_alloc(align, bytes));
}

WRAPPED(void *, realloc, void *block, size_t bytes) {
    if (fails(SCARCE_MEMORY)) {
        return NULL;
    }
    int is_new = block == NULL;
    void *larger = __real_realloc(block, bytes);
    return is_new ? counted(larger) : larger;
}

WRAPPED(char *, strdup, const char *text) {
    return fails(SCARCE_MEMORY) ? NULL : counted(__real_strdup(text));
}

WRAPPED(char *, strndup, const char *text, size_t bytes) {
    return fails(SCARCE_MEMORY) ? NULL : counted(__real_strndup(text, bytes));
}

WRAPPED(void, free, void *block) {
    atomic_fetch_sub(&block_count, block != NULL);
    __real_free(block);
}

/* Meson asks for 64-bit offsets, under which these two have another name. */
WRAPPED(void *, mmap64, void *at, size_t bytes, int access, int flags, int fd, int64_t offset) {
    if (fails(SCARCE_MEMORY)) {
        return MAP_FAILED;
    }
    void *mapped = __real_mmap64(at, bytes, access, flags, fd, offset);
    atomic_fetch_add(&mapped_bytes, mapped != MAP_FAILED ? (long long)bytes : 0);
    return mapped;
}

WRAPPED(FILE *, fopen64, const char *path, const char *mode) {
    return fails(SCARCE_SYSTEM) ? NULL : __real_fopen64(path, mode);
}

WRAPPED(int, munmap, void *mapped, size_t bytes) {
    atomic_fetch_sub(&mapped_bytes, (long long)bytes);
    return __real_munmap(mapped, bytes);
}

WRAPPED(int, pthread_mutex_init, pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes) {
    return fails(SCARCE_MEMORY) ? ENOMEM : __real_pthread_mutex_init(mutex, attributes);
}

WRAPPED(int, pthread_cond_init, pthread_cond_t *condition, const pthread_condattr_t *attributes) {
    return fails(SCARCE_MEMORY) ? ENOMEM : __real_pthread_cond_init(condition, attributes);
}

WRAPPED(int, pthread_create, pthread_t *id, const pthread_attr_t *attributes,
        void *(*begin)(void *), void *argument) {
    return fails(SCARCE_SYSTEM) ? EAGAIN : __real_pthread_create(id, attributes, begin, argument);
}
