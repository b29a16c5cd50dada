/*
 * Large pieces of zeroed memory, on huge pages where the kernel gives them: batches, and store
 * files that are read into memory. Random reads and 12 MB slabs both touch more 4 KB pages than the
 * processor remembers translations for; with 2 MB pages it remembers all of them. What is smaller
 * than one huge page comes from the heap, so that a checker sees its exact end.
 */
#ifndef HWI_HUGE_PAGES_H
#define HWI_HUGE_PAGES_H

#include <stdint.h>

#define HWI_HUGE_PAGE_BYTES ((uint64_t)2 << 20)

/* At least `bytes` of zeros, 64-byte aligned, huge pages asked for; NULL: no memory. Not touched,
 * so that its pages stand on the memory node of the thread that writes them first. */
void *hwi_pages_open(uint64_t bytes);
/* The same number of bytes; pages NULL is fine. */
void hwi_pages_close(void *pages, uint64_t bytes);
/* Asks for huge pages for a file map that nobody has read yet, unless it would fill much of the
 * memory: the kernel then reads 2 MB at a time, which a store larger than memory could not afford.
 * A wish: where it is not granted nothing changes. */
void hwi_pages_advise_map(void *map, uint64_t bytes);

#endif
