/* Zeroed memory on huge pages; see huge_pages.h. */
#define _DEFAULT_SOURCE 1

#include "base/huge_pages.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"

enum {
    HEAP_ALIGN = 64,
    MAP_SHARE = 8, /* of the memory that one map may take to be read 2 MB at a time */
};

static void *map_aligned(uint64_t bytes) {
    uint64_t mapped_bytes = bytes + HWI_HUGE_PAGE_BYTES;
    uint8_t *mapped = mmap(NULL, (size_t)mapped_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        return NULL;
    }
    uint64_t before = hwi_align_up((uintptr_t)mapped, HWI_HUGE_PAGE_BYTES) - (uintptr_t)mapped;
    uint8_t *pages = mapped + before;
    if (before > 0) {
        munmap(mapped, (size_t)before);
    }
    munmap(pages + bytes, (size_t)(HWI_HUGE_PAGE_BYTES - before));
#ifdef MADV_HUGEPAGE
    (void)madvise(pages, (size_t)bytes, MADV_HUGEPAGE); /* a wish: may be refused */
#endif
    return pages;
}

static uint64_t mapped_bytes_of(uint64_t bytes) {
    return hwi_align_up(bytes, HWI_HUGE_PAGE_BYTES);
}

void *hwi_pages_open(uint64_t bytes) {
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    if (bytes >= HWI_HUGE_PAGE_BYTES) {
        return map_aligned(mapped_bytes_of(bytes));
    }
    size_t size = (size_t)hwi_align_up(bytes > 0 ? bytes : 1, HEAP_ALIGN);
    void *pages = aligned_alloc(HEAP_ALIGN, size);
    return pages == NULL ? NULL : memset(pages, 0, size);
}

void hwi_pages_close(void *pages, uint64_t bytes) {
    if (pages != NULL && bytes >= HWI_HUGE_PAGE_BYTES) {
        munmap(pages, (size_t)mapped_bytes_of(bytes));
    } else {
        free(pages);
    }
}

void hwi_pages_advise_map(void *map, uint64_t bytes) {
#ifdef MADV_HUGEPAGE
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page_bytes > 0 && bytes >= HWI_HUGE_PAGE_BYTES &&
        bytes <= (uint64_t)pages * (uint64_t)page_bytes / MAP_SHARE) {
        (void)madvise(map, (size_t)bytes, MADV_HUGEPAGE);
    }
#else
    (void)map;
    (void)bytes;
#endif
}
