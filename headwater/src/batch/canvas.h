/*
 * Two arrays of a sequence are large and nearly all zero: timestamp_values [S, 15] and fk_adj
 * [R, R]. They are drawn on a canvas that stays in a worker's cache, where the few places that were
 * set are cleared again, and go to the batch in one sweep. Setting and clearing those places in the
 * batch itself touches its lines at random, and costs twice the time of writing all of it.
 */
#ifndef HWI_CANVAS_H
#define HWI_CANVAS_H

#include "base/error.h"
#include "plan/plan.h"

/* All zero but for what the lists name. */
struct hwi_canvas {
    size_t times_bytes, edges_bytes;
    float *times; /* [S, 15], NULL where the batches have no timestamp_values */
    uint16_t *time_cells; /* [S + 1] cells that may be set */
    uint32_t time_count;
    uint8_t *edges; /* [R, R], NULL where the batches have no fk_adj */
    uint32_t *edge_places; /* [R * P] places that are set */
    uint32_t edge_count;
};

HWI_CHECK hw_status hwi_canvas_open(const struct hwi_plan *plan, struct hwi_canvas *canvas,
                                    hw_error *error);
void hwi_canvas_release(struct hwi_canvas *canvas);
/* Clears what is set. */
void hwi_canvas_clear(struct hwi_canvas *canvas);
/* The 15 floats of a cell, to be written. */
static inline float *hwi_canvas_time(struct hwi_canvas *canvas, uint32_t cell) {
    canvas->time_cells[canvas->time_count++] = (uint16_t)cell;
    return canvas->times + (size_t)HWI_TIME_FLOATS * cell;
}
static inline void hwi_canvas_edge(struct hwi_canvas *canvas, uint32_t place) {
    canvas->edges[place] = 1;
    canvas->edge_places[canvas->edge_count++] = place;
}
/* Copies the canvas to sequence b of a batch. */
void hwi_canvas_copy_out(const struct hwi_canvas *canvas, const struct hwi_plan *plan,
                         uint8_t *slab, uint32_t b);

#endif
