/* The canvas of a worker; see canvas.h. */
#include "batch/canvas.h"

#include <stdint.h>
#include <stdlib.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/bytes.h"
#include "base/huge_pages.h"

/* Batches from this size on do not stay in a cache until they are read, so their lines are written
 * without being fetched first. */
#define STREAMED_SLAB_BYTES ((uint64_t)2 << 20)

hw_status hwi_canvas_open(const struct hwi_plan *plan, struct hwi_canvas *canvas, hw_error *error) {
    size_t length = plan->shape.sequence_length, rows = plan->shape.max_rows;
    int has_times = plan->offsets[HWI_TIMESTAMP_VALUES] != UINT64_MAX;
    size_t times_bytes = has_times ? 4 * HWI_TIME_FLOATS * length : 0;
    int has_edges = plan->offsets[HWI_FK_ADJ] != UINT64_MAX;
    size_t edges_bytes = has_edges ? rows * rows : 0;
    *canvas = (struct hwi_canvas){
        .times_bytes = times_bytes,
        .times = has_times ? hwi_pages_open(times_bytes) : NULL,
        .time_cells = calloc(length + 1, sizeof(uint16_t)),
        .edges_bytes = edges_bytes,
        .edges = has_edges ? hwi_pages_open(edges_bytes) : NULL,
        .edge_places = calloc(rows * plan->shape.parent_slots + 1, sizeof(uint32_t)),
    };
    if (canvas->time_cells == NULL || canvas->edge_places == NULL ||
        (has_times && canvas->times == NULL) || (has_edges && canvas->edges == NULL)) {
        hwi_canvas_release(canvas);
        return hwi_no_memory(error, "the canvas of a worker", times_bytes + edges_bytes);
    }
    return HW_OK;
}

void hwi_canvas_release(struct hwi_canvas *canvas) {
    hwi_pages_close(canvas->times, canvas->times_bytes);
    free(canvas->time_cells);
    hwi_pages_close(canvas->edges, canvas->edges_bytes);
    free(canvas->edge_places);
    *canvas = (struct hwi_canvas){0};
}

void hwi_canvas_clear(struct hwi_canvas *canvas) {
    for (uint32_t i = 0; i < canvas->time_count; i++) {
        memset(canvas->times + (size_t)HWI_TIME_FLOATS * canvas->time_cells[i], 0,
               4 * HWI_TIME_FLOATS);
    }
    for (uint32_t i = 0; i < canvas->edge_count; i++) {
        canvas->edges[canvas->edge_places[i]] = 0;
    }
    canvas->time_count = canvas->edge_count = 0;
}

#ifdef __SSE2__
/* Past the caches: whole lines, the rest as usual. */
static void stream_out(uint8_t *to, const uint8_t *from, size_t bytes) {
    size_t head = (HWI_LINE_BYTES - ((uintptr_t)to % HWI_LINE_BYTES)) % HWI_LINE_BYTES;
    head = head < bytes ? head : bytes;
    memcpy(to, from, head);
    size_t done = head;
    for (; done + HWI_LINE_BYTES <= bytes; done += HWI_LINE_BYTES) {
        const __m128i *source = (const __m128i *)(const void *)(from + done);
        __m128i *target = (__m128i *)(void *)(to + done);
        __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
        __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
        _mm_stream_si128(target, a);
        _mm_stream_si128(target + 1, b);
        _mm_stream_si128(target + 2, c);
        _mm_stream_si128(target + 3, d);
    }
    memcpy(to + done, from + done, bytes - done);
    _mm_sfence(); /* before another thread is told that it is there */
}
#else
static void stream_out(uint8_t *to, const uint8_t *from, size_t bytes) {
    memcpy(to, from, bytes);
}
#endif

static void copy_out(const struct hwi_plan *plan, void *to, const void *from, size_t bytes) {
    if (plan->slab_bytes >= STREAMED_SLAB_BYTES) {
        stream_out(to, from, bytes);
    } else {
        memcpy(to, from, bytes);
    }
}

void hwi_canvas_copy_out(const struct hwi_canvas *canvas, const struct hwi_plan *plan,
                         uint8_t *slab, uint32_t b) {
    if (canvas->times != NULL) {
        copy_out(plan, hwi_field_at(plan, slab, HWI_TIMESTAMP_VALUES, b * canvas->times_bytes),
                 canvas->times, canvas->times_bytes);
    }
    if (canvas->edges != NULL) {
        copy_out(plan, hwi_field_at(plan, slab, HWI_FK_ADJ, b * canvas->edges_bytes), canvas->edges,
                 canvas->edges_bytes);
    }
}
