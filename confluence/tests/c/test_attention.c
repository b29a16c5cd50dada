/*
 * The kernels against the definition: softmax over all pairs of cells under the mask of a pattern,
 * in double precision, and gradients by central differences of that.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attention.h"

enum { MOST_CELLS = 40, MOST_ROWS = 12, MOST_PARENTS = 3, MOST_WIDTH = 40, MOST_HEADS = 5 };
enum { KINDS = 4 };

struct context {
    struct attention a;
    float query[MOST_CELLS * MOST_WIDTH], key[MOST_CELLS * MOST_WIDTH];
    float value[MOST_CELLS * MOST_WIDTH], temperature[MOST_HEADS];
    int32_t row_ids[MOST_CELLS], column_ids[MOST_CELLS], parents[MOST_ROWS * MOST_PARENTS];
    int32_t kinds[MOST_ROWS * MOST_PARENTS];
    float kind_key[KINDS * MOST_WIDTH], kind_value[KINDS * MOST_WIDTH];
    uint8_t is_cell[MOST_CELLS];
    float out[MOST_CELLS * MOST_WIDTH], d_out[MOST_CELLS * MOST_WIDTH];
    float d_query[MOST_CELLS * MOST_WIDTH], d_key[MOST_CELLS * MOST_WIDTH];
    float d_value[MOST_CELLS * MOST_WIDTH], d_temperature[MOST_HEADS];
    float d_kind_key[KINDS * MOST_WIDTH], d_kind_value[KINDS * MOST_WIDTH];
};

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static int32_t below(uint32_t *state, int32_t count) {
    return (int32_t)(next_random(state) % (uint32_t)count);
}

static void fill(float *x, int64_t count, uint32_t *state) {
    for (int64_t i = 0; i < count; i++) {
        x[i] = (float)next_random(state) / 8388608.0f - 1.0f;
    }
}

/* Rows of 0 to 4 cells, some hidden; parents that repeat, are the row itself, or are no row; edges
   of no kind, or of one that there is not. */
static struct context *make_context(uint32_t seed, int64_t heads, int64_t head,
                                    enum attention_pattern pattern) {
    struct context *c = calloc(1, sizeof *c);
    uint32_t state = seed * 2654435761u + 1;
    int32_t columns = 2 + below(&state, 9), row = 0;
    assert_non_null(c);
    fill(c->query, MOST_CELLS * MOST_WIDTH, &state);
    fill(c->key, MOST_CELLS * MOST_WIDTH, &state);
    fill(c->value, MOST_CELLS * MOST_WIDTH, &state);
    fill(c->d_out, MOST_CELLS * MOST_WIDTH, &state);
    for (int64_t h = 0; h < heads; h++) {
        c->temperature[h] = 0.5f + (float)h;
    }
    for (int32_t i = 0; i < MOST_CELLS; i++) {
        row += below(&state, 4) == 0 && row + 1 < MOST_ROWS;
        c->row_ids[i] = row;
        c->column_ids[i] = 1000003 * below(&state, columns);
        c->is_cell[i] = below(&state, 5) > 0;
    }
    for (int32_t i = 0; i < MOST_ROWS * MOST_PARENTS; i++) {
        static const int32_t none[] = {-1, MOST_ROWS, 65535};
        c->parents[i] = below(&state, 3) ? none[below(&state, 3)] : below(&state, MOST_ROWS);
        if (i % MOST_PARENTS > 0 && below(&state, 3) == 0) {
            c->parents[i] = c->parents[i - 1];
        }
        c->kinds[i] = below(&state, KINDS + 2) - 1;
    }
    fill(c->kind_key + heads * head, (KINDS - 1) * heads * head, &state);
    fill(c->kind_value + heads * head, (KINDS - 1) * heads * head, &state);
    c->a = (struct attention){
        .batch = 1,
        .cells = MOST_CELLS,
        .rows = MOST_ROWS,
        .parents = MOST_PARENTS,
        .width = heads * head,
        .heads = heads,
        .kinds = KINDS,
        .pattern = pattern,
        .query = c->query,
        .key = c->key,
        .value = c->value,
        .temperature = c->temperature,
        .row_ids = c->row_ids,
        .column_ids = c->column_ids,
        .parent_rows = c->parents,
        .parent_kinds = c->kinds,
        .kind_key = c->kind_key,
        .kind_value = c->kind_value,
        .is_cell = c->is_cell,
        .out = c->out,
        .d_out = c->d_out,
        .d_query = c->d_query,
        .d_key = c->d_key,
        .d_value = c->d_value,
        .d_temperature = c->d_temperature,
        .d_kind_key = c->d_kind_key,
        .d_kind_value = c->d_kind_value,
    };
    return c;
}

/* ---- the definition ------------------------------------------------------------------------ */

static bool points_at(const struct context *c, int32_t from, int32_t to) {
    for (int32_t p = 0; p < MOST_PARENTS; p++) {
        if (c->parents[from * MOST_PARENTS + p] == to) {
            return true;
        }
    }
    return false;
}

static bool looks_at(const struct context *c, int32_t i, int32_t j) {
    if (i == j) {
        return true;
    }
    if (!c->is_cell[i] || !c->is_cell[j]) {
        return false;
    }
    switch (c->a.pattern) {
    case ATTENTION_OUTBOUND:
        return c->row_ids[i] == c->row_ids[j] || points_at(c, c->row_ids[i], c->row_ids[j]);
    case ATTENTION_INBOUND:
        return points_at(c, c->row_ids[j], c->row_ids[i]);
    case ATTENTION_COLUMN:
    case ATTENTION_PATTERN_COUNT:
        break;
    }
    return c->column_ids[i] == c->column_ids[j];
}

static double norm(const float *x, int64_t count) {
    double square = 0;
    for (int64_t k = 0; k < count; k++) {
        square += (double)x[k] * x[k];
    }
    return fmax(sqrt(square), 1e-6);
}

/* What the edge from cell i to cell j adds to one element of its key or value: of the keys that
   join their rows the mean. */
static double added(const struct context *c, int32_t i, int32_t j, const float *vectors,
                    int64_t at) {
    int32_t child = c->row_ids[c->a.pattern == ATTENTION_OUTBOUND ? i : j];
    int32_t parent = c->row_ids[c->a.pattern == ATTENTION_OUTBOUND ? j : i], count = 0;
    double sum = 0;
    for (int32_t p = 0; p < MOST_PARENTS && c->a.pattern != ATTENTION_COLUMN; p++) {
        int32_t kind = c->kinds[child * MOST_PARENTS + p];
        if (c->is_cell[i] && c->parents[child * MOST_PARENTS + p] == parent) {
            count++;
            sum += kind > 0 && kind < KINDS ? vectors[kind * c->a.width + at] : 0;
        }
    }
    return count == 0 ? 0 : sum / count;
}

/* Attention of one cell and head in double precision. */
static void defined(const struct context *c, int32_t i, int64_t h, double *out) {
    int64_t head = c->a.width / c->a.heads, count = 0;
    const float *q = c->query + i * c->a.width + h * head;
    double total = 0;
    for (int32_t j = 0; j < MOST_CELLS; j++) {
        count += looks_at(c, i, j);
    }
    double scale = fmin(fmax(c->temperature[h] * log1p((double)count), -40), 40);
    memset(out, 0, (size_t)head * sizeof *out);
    for (int32_t j = 0; j < MOST_CELLS; j++) {
        if (looks_at(c, i, j)) {
            const float *k = c->key + j * c->a.width + h * head;
            const float *v = c->value + j * c->a.width + h * head;
            double cosine = 0;
            for (int64_t d = 0; d < head; d++) {
                double key = k[d] / norm(k, head);
                cosine += q[d] * (key + added(c, i, j, c->kind_key, h * head + d));
            }
            double e = exp(fmin(fmax(scale * cosine / norm(q, head), -40), 40));
            total += e;
            for (int64_t d = 0; d < head; d++) {
                out[d] += e * (v[d] + added(c, i, j, c->kind_value, h * head + d));
            }
        }
    }
    for (int64_t d = 0; d < head; d++) {
        out[d] /= total;
    }
}

/* The sum whose gradient is asked for: that of out * d_out. */
static double objective(const struct context *c) {
    int64_t head = c->a.width / c->a.heads;
    double sum = 0, out[MOST_WIDTH];
    for (int32_t i = 0; i < MOST_CELLS; i++) {
        for (int64_t h = 0; h < c->a.heads; h++) {
            defined(c, i, h, out);
            for (int64_t d = 0; d < head; d++) {
                sum += out[d] * c->d_out[i * c->a.width + h * head + d];
            }
        }
    }
    return sum;
}

static void assert_gradient(const struct context *c, float *x, float found) {
    float kept = *x, step = 1e-2f;
    *x = kept + step;
    double high = objective(c), width = *x;
    *x = kept - step;
    double low = objective(c);
    width -= *x;
    *x = kept;
    double expected = (high - low) / width;
    if (fabs(found - expected) > 2e-3 * fmax(1, fabs(expected))) {
        fail_msg("gradient %g, expected %g", (double)found, expected);
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

struct variant {
    attention_sequence *forward, *backward;
};

static const struct variant variants[] = {
    {attention_forward_baseline, attention_backward_baseline},
#if defined(__x86_64__)
    {attention_forward_v3, attention_backward_v3},
#endif
};

static bool can_run(size_t variant) {
#if defined(__x86_64__)
    return variant == 0 || (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
#else
    return variant == 0;
#endif
}

static bool run(attention_sequence *function, const struct attention *a) {
    void *workspace = aligned_alloc(64, attention_workspace_bytes(a));
    assert_non_null(workspace);
    memset(workspace, 0xff, attention_workspace_bytes(a)); /* floats are NaN */
    bool is_whole = function(a, 0, workspace);
    free(workspace);
    return is_whole;
}

static void check(size_t v, uint32_t seed, int64_t heads, int64_t head,
                  enum attention_pattern pattern) {
    struct context *c = make_context(seed, heads, head, pattern);
    uint32_t state = seed;
    double out[MOST_WIDTH];
    assert_true(run(variants[v].forward, &c->a));
    for (int32_t i = 0; i < MOST_CELLS; i++) {
        for (int64_t h = 0; h < heads; h++) {
            defined(c, i, h, out);
            for (int64_t d = 0; d < head; d++) {
                assert_float_equal(c->out[i * c->a.width + h * head + d], out[d], 1e-5);
            }
        }
    }
    assert_true(run(variants[v].backward, &c->a));
    for (int32_t n = 0; n < 6; n++) {
        int32_t at = below(&state, MOST_CELLS * (int32_t)c->a.width);
        assert_gradient(c, c->query + at, c->d_query[at]);
        assert_gradient(c, c->key + at, c->d_key[at]);
        assert_gradient(c, c->value + at, c->d_value[at]);
    }
    for (int32_t n = 0; n < 4; n++) {
        int32_t at = (int32_t)c->a.width + below(&state, (KINDS - 1) * (int32_t)c->a.width);
        assert_gradient(c, c->kind_key + at, c->d_kind_key[at]);
        assert_gradient(c, c->kind_value + at, c->d_kind_value[at]);
    }
    for (int64_t at = 0; at < c->a.width; at++) { /* kind 0 stays zero */
        assert_true(c->d_kind_key[at] == 0 && c->d_kind_value[at] == 0);
    }
    assert_gradient(c, c->temperature, c->d_temperature[0]);
    free(c);
}

static void kernels_compute_what_is_defined(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{1, 8}, {2, 16}, {5, 4}, {3, 12}, {1, 40}};
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        for (uint32_t seed = 0; seed < 30 && can_run(v); seed++) {
            const int64_t *shape = shapes[seed % 5];
            for (int pattern = 0; pattern < ATTENTION_PATTERN_COUNT; pattern++) {
                check(v, seed, shape[0], shape[1], (enum attention_pattern)pattern);
            }
        }
    }
}

static void numbers_that_are_none_stay_visible(void **state) {
    (void)state;
    struct context *c = make_context(2, 2, 8, ATTENTION_COLUMN);
    memset(c->is_cell, 1, sizeof c->is_cell);
    memset(c->column_ids, 0, sizeof c->column_ids);
    c->temperature[1] = NAN;
    assert_true(run(attention_forward_baseline, &c->a));
    assert_false(isnan(c->out[0]));
    assert_true(isnan(c->out[8]));
    free(c);
}

/* A logit over 40 is cut, and has no gradient. */
static void logits_are_cut(void **state) {
    (void)state;
    struct context *c = make_context(1, 1, 8, ATTENTION_OUTBOUND);
    memset(c->is_cell, 0, sizeof c->is_cell);
    c->is_cell[0] = c->is_cell[1] = 1, c->row_ids[0] = 0, c->row_ids[1] = 1;
    for (int32_t i = 0; i < MOST_ROWS * MOST_PARENTS; i++) {
        c->parents[i] = i == 0 ? 1 : -1;
        c->kinds[i] = 1;
    }
    c->temperature[0] = 30; /* times log(3), of two keys: 33 */
    memset(c->kind_key, 0, sizeof c->kind_key);
    for (int64_t d = 0; d < 8; d++) { /* along the query, and the key across it but for a bit */
        c->query[d] = d == 0, c->key[d] = d == 1, c->key[8 + d] = d == 0;
        c->kind_key[8 + d] = d == 0;
    }
    for (size_t v = 0; v < sizeof variants / sizeof *variants && can_run(v); v++) {
        assert_true(run(variants[v].forward, &c->a));
        assert_true(run(variants[v].backward, &c->a));
        assert_float_equal(c->out[0], c->value[8] + c->kind_value[8], 1e-5); /* e^40 to 1 */
        for (int64_t d = 0; d < 8; d++) {
            assert_true(c->d_kind_key[8 + d] == 0);
        }
    }
    free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_compute_what_is_defined),
        cmocka_unit_test(numbers_that_are_none_stay_visible),
        cmocka_unit_test(logits_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
