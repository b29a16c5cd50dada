/*
 * The arithmetic. Compiled once for each set of instructions; KERNEL(name) names the result.
 *
 * A query's logit for a key is min(max(τ·log(1 + keys), -40), 40)·cos(q, k), so |logit| <= 40: exp
 * needs no maximum, and total is at least exp(-40). Backward makes the scores again instead of
 * keeping them, as attention.py does.
 *
 * Heads are padded to whole vectors in the workspace. Keys and values of a group are also laid out
 * with the keys innermost ("across"), padded to two vectors, so that scores of 16 keys are made at
 * once; sums over keys go through rows of K numbers instead. Per pair and head that is K products
 * and sums, forward twice and backward five times.
 */
#include "attention.h"

#include <math.h>
#include <string.h>

#ifndef KERNEL
#define KERNEL(name) name##_baseline
#endif

#define LANES 8
#define KEYS_AT_ONCE (2 * LANES)
#define LOGIT_LIMIT 40.0f
#define NORM_FLOOR 1e-6f

typedef float vector __attribute__((vector_size(LANES * sizeof(float)), may_alias));
typedef int32_t integers __attribute__((vector_size(LANES * sizeof(int32_t)), may_alias));

struct workspace {
    struct attention_groups groups;
    int32_t *keys; /* [S + 1] of a group; the last is for the query itself */
    int64_t head; /* K, padded to vectors */
    int64_t row; /* H heads of this width */
    int64_t across; /* room for keys of a group, padded */
    float *query, *key, *value; /* [S,row]: unit, unit, as given */
    float *query_size, *key_size; /* [S,H] 1 / max(norm, floor) */
    float *keys_across, *values_across; /* [row,across] of a group */
    float *is_key; /* [across] 1 or 0 */
    float *scores, *d_logits; /* [across] */
    float *d_key, *d_value; /* [S,row] */
    float *d_out_head, *d_query_head; /* [head] of one query */
};

static int64_t padded(int64_t count, int64_t multiple) {
    return (count + multiple - 1) / multiple * multiple;
}

/* Lays the workspace out from `memory`, or only counts its bytes if that is NULL. */
static size_t place(const struct attention *a, struct workspace *w, char *memory) {
    w->head = padded(a->width / a->heads, LANES);
    w->row = w->head * a->heads;
    w->across = padded(a->cells + 1, KEYS_AT_ONCE);
    size_t cells = (size_t)a->cells, heads = (size_t)a->heads;
    size_t matrix = cells * (size_t)w->row, group = (size_t)w->row * (size_t)w->across;
    size_t across = (size_t)w->across, at = attention_groups_bytes(a);
    struct {
        float **array;
        size_t count;
    } parts[] = {
        {&w->query, matrix},
        {&w->key, matrix},
        {&w->value, matrix},
        {&w->query_size, cells * heads},
        {&w->key_size, cells * heads},
        {&w->keys_across, group},
        {&w->values_across, group},
        {&w->is_key, across},
        {&w->scores, across},
        {&w->d_logits, across},
        {&w->d_key, matrix},
        {&w->d_value, matrix},
        {&w->d_out_head, (size_t)w->head},
        {&w->d_query_head, (size_t)w->head},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].array = memory == NULL ? NULL : (float *)(void *)(memory + at);
        at += attention_rounded(parts[i].count * sizeof(float));
    }
    if (memory != NULL) {
        attention_groups_place(a, &w->groups, memory);
        w->keys = (int32_t *)(void *)(memory + at);
    }
    return at + attention_rounded((cells + 1) * sizeof(int32_t));
}

#ifdef KERNEL_OWNS_SIZES
size_t attention_workspace_bytes(const struct attention *a) {
    struct workspace w;
    return place(a, &w, NULL);
}
#endif

/* ---- vectors --------------------------------------------------------------------------------- */

static inline vector all(float x) {
    return (vector){x, x, x, x, x, x, x, x};
}

static inline vector load(const float *x) {
    return *(const vector *)(const void *)x;
}

static inline void store(float *x, vector v) {
    *(vector *)(void *)x = v;
}

static inline float sum(vector v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* e^x for |x| <= 87, to about 2 units of the last place: 2^n times a polynomial on ±ln(2)/2. */
static inline vector exponential(vector x) {
    const vector shift = all(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    vector n = (x * all(1.44269504f) + shift) - shift;
    vector r = x - n * all(0.693359375f);
    r = r - n * all(-2.12194440e-4f);
    vector p = all(1.0f / 5040);
    p = p * r + all(1.0f / 720);
    p = p * r + all(1.0f / 120);
    p = p * r + all(1.0f / 24);
    p = p * r + all(1.0f / 6);
    p = p * r + all(0.5f);
    p = p * r + all(1.0f);
    p = p * r + all(1.0f);
    integers power = (__builtin_convertvector(n, integers) + 127) << 23;
    union {
        integers bits;
        vector value;
    } scale = {.bits = power};
    return p * scale.value;
}

/* products[j] = x · rows_across[., j] for all keys. */
static inline void products(const float *x, const float *rows_across, int64_t across, int64_t head,
                            int64_t keys, float *result) {
    for (int64_t j = 0; j < keys; j += KEYS_AT_ONCE) {
        vector low = all(0), high = all(0);
        for (int64_t k = 0; k < head; k++) {
            const float *row = rows_across + k * across + j;
            low += all(x[k]) * load(row);
            high += all(x[k]) * load(row + LANES);
        }
        store(result + j, low);
        store(result + j + LANES, high);
    }
}

/* ---- one sequence -------------------------------------------------------------------------- */

/* Cells of one array into padded heads, as unit vectors if `size` is given. */
static void load_cells(const struct attention *a, const struct workspace *w, const float *from,
                       float *to, float *size) {
    int64_t head = a->width / a->heads;
    for (int64_t i = 0; i < a->cells * a->heads; i++, from += head, to += w->head) {
        float factor = 1.0f;
        if (size != NULL) {
            float square = 0.0f;
            for (int64_t k = 0; k < head; k++) {
                square += from[k] * from[k];
            }
            float norm = sqrtf(square);
            factor = size[i] = 1.0f / (norm < NORM_FLOOR ? NORM_FLOOR : norm);
        }
        for (int64_t k = 0; k < head; k++) {
            to[k] = from[k] * factor;
        }
        for (int64_t k = head; k < w->head; k++) {
            to[k] = 0.0f;
        }
    }
}

static bool begin(const struct attention *a, int64_t sequence, struct workspace *w, void *memory) {
    int64_t at = sequence * a->cells * a->width;
    place(a, w, memory);
    load_cells(a, w, a->query + at, w->query, w->query_size);
    load_cells(a, w, a->key + at, w->key, w->key_size);
    load_cells(a, w, a->value + at, w->value, NULL);
    return attention_groups_find(a, sequence, &w->groups);
}

static void put_across(const struct workspace *w, const float *cells, int64_t j, int32_t cell,
                       float *across) {
    const float *from = cells + cell * w->row;
    for (int64_t d = 0; d < w->row; d++) {
        across[d * w->across + j] = from[d];
    }
}

/* What all queries of a group share. */
struct group {
    int32_t shared; /* keys of all */
    int32_t count; /* with the query itself */
    bool sees_itself;
    float log_count; /* log(1 + keys) */
};

/* False if every cell of the unit sees itself alone. */
static bool begin_group(const struct attention *a, int64_t sequence, const struct workspace *w,
                        int32_t unit, bool with_values, struct group *group) {
    group->shared = attention_keys(a, sequence, &w->groups, unit, w->keys);
    group->sees_itself = attention_sees_itself(a, sequence, unit);
    group->count = group->shared + (group->sees_itself ? 1 : 0);
    if (group->count == 1) {
        return false;
    }
    group->log_count = log1pf((float)group->count);
    int64_t across = padded(group->count, KEYS_AT_ONCE);
    for (int64_t j = 0; j < across; j++) {
        w->is_key[j] = j < group->count ? 1.0f : 0.0f;
    }
    for (int32_t j = 0; j < group->shared; j++) {
        put_across(w, w->key, j, w->keys[j], w->keys_across);
        if (with_values) {
            put_across(w, w->value, j, w->keys[j], w->values_across);
        }
    }
    for (int64_t d = 0; d < w->row; d++) {
        for (int64_t j = group->shared; j < across; j++) {
            w->keys_across[d * w->across + j] = 0.0f;
            if (with_values) {
                w->values_across[d * w->across + j] = 0.0f;
            }
        }
    }
    return true;
}

static void add_itself(const struct workspace *w, const struct group *group, int32_t cell,
                       bool with_values) {
    if (group->sees_itself) {
        w->keys[group->shared] = cell;
        put_across(w, w->key, group->shared, cell, w->keys_across);
        if (with_values) {
            put_across(w, w->value, group->shared, cell, w->values_across);
        }
    }
}

static float logit_scale(const struct attention *a, const struct group *group, int64_t h) {
    float scale = a->temperature[h] * group->log_count; /* NaN stays NaN */
    return scale > LOGIT_LIMIT ? LOGIT_LIMIT : scale < -LOGIT_LIMIT ? -LOGIT_LIMIT : scale;
}

/* exp of the logits of one query and head in w->scores; their total. */
static inline float score(const struct workspace *w, const struct group *group, const float *query,
                          float scale, int64_t h) {
    vector total = all(0);
    products(query, w->keys_across + h * w->head * w->across, w->across, w->head, group->count,
             w->scores);
    for (int64_t j = 0; j < group->count; j += LANES) {
        vector e = exponential(load(w->scores + j) * all(scale)) * load(w->is_key + j);
        store(w->scores + j, e);
        total += e;
    }
    return sum(total);
}

/* ---- forward --------------------------------------------------------------------------------- */

static inline void mix(const struct workspace *w, const struct group *group, float total, int64_t h,
                       int64_t head, float *out) {
    float mixed[LANES] __attribute__((aligned(LANES * sizeof(float))));
    for (int64_t part = 0; part < w->head; part += LANES) {
        const float *values = w->value + h * w->head + part;
        vector result = all(0);
        for (int32_t j = 0; j < group->count; j++) {
            result += all(w->scores[j]) * load(values + w->keys[j] * w->row);
        }
        store(mixed, result / all(total));
        for (int64_t k = part; k < head && k < part + LANES; k++) {
            out[h * head + k] = mixed[k - part];
        }
    }
}

bool KERNEL(attention_forward)(const struct attention *a, int64_t sequence, void *memory) {
    struct workspace w;
    if (!begin(a, sequence, &w, memory)) {
        return false;
    }
    int64_t head = a->width / a->heads, at = sequence * a->cells * a->width;
    float *out = a->out + at;
    memcpy(out, a->value + at, (size_t)(a->cells * a->width) * sizeof *out);
    for (int32_t unit = 0; unit < w.groups.unit_count; unit++) {
        struct group group;
        int32_t first = w.groups.starts[unit], last = w.groups.starts[unit + 1];
        if (first == last || !begin_group(a, sequence, &w, unit, false, &group)) {
            continue;
        }
        for (int32_t i = first; i < last; i++) {
            int32_t cell = w.groups.cells[i];
            add_itself(&w, &group, cell, false);
            for (int64_t h = 0; h < a->heads; h++) {
                const float *query = w.query + cell * w.row + h * w.head;
                float total = score(&w, &group, query, logit_scale(a, &group, h), h);
                mix(&w, &group, total, h, head, out + cell * a->width);
            }
        }
    }
    return true;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Gradient of a vector from that of its unit vector. */
static inline void through_norm(const float *unit, const float *d_unit, float size, int64_t head,
                                float *d) {
    float along = 0.0f;
    if (size < 1.0f / NORM_FLOOR) {
        for (int64_t k = 0; k < head; k++) {
            along += unit[k] * d_unit[k];
        }
    }
    for (int64_t k = 0; k < head; k++) {
        d[k] = size * (d_unit[k] - unit[k] * along);
    }
}

/* One query and head: gradients of its keys and values are added, of its unit query given.
   `d_out` is padded. Returns the gradient of the scale of its logits. */
static inline float query_backward(const struct workspace *w, const struct group *group,
                                   const float *query, const float *d_out, float scale, int64_t h,
                                   float *d_query) {
    float total = score(w, group, query, scale, h), inverse = 1.0f / total;
    vector along = all(0);
    products(d_out, w->values_across + h * w->head * w->across, w->across, w->head, group->count,
             w->d_logits);
    for (int64_t j = 0; j < group->count; j += LANES) {
        vector p = load(w->scores + j) * all(inverse);
        store(w->scores + j, p);
        along += p * load(w->d_logits + j);
    }
    vector mean = all(sum(along));
    for (int64_t j = 0; j < group->count; j += LANES) {
        store(w->d_logits + j, load(w->scores + j) * (load(w->d_logits + j) - mean));
    }
    float d_scale = 0.0f;
    for (int64_t part = 0; part < w->head; part += LANES) {
        int64_t column = h * w->head + part;
        vector scaled = load(query + part) * all(scale), d = load(d_out + part), result = all(0);
        for (int32_t j = 0; j < group->count; j++) {
            int64_t at = w->keys[j] * w->row + column;
            vector d_logit = all(w->d_logits[j]);
            result += d_logit * load(w->key + at);
            store(w->d_key + at, load(w->d_key + at) + d_logit * scaled);
            store(w->d_value + at, load(w->d_value + at) + all(w->scores[j]) * d);
        }
        d_scale += sum(result * load(query + part));
        store(d_query + part, result * all(scale));
    }
    return d_scale;
}

/* All heads of one query. */
static void cell_backward(const struct attention *a, int64_t sequence, const struct workspace *w,
                          const struct group *group, int32_t cell) {
    int64_t head = a->width / a->heads, at = (sequence * a->cells + cell) * a->width;
    float *d_out = w->d_out_head, *d_query = w->d_query_head;
    add_itself(w, group, cell, true);
    for (int64_t h = 0; h < a->heads; h++) {
        float scale = logit_scale(a, group, h);
        memset(d_out, 0, (size_t)w->head * sizeof *d_out);
        memcpy(d_out, a->d_out + at + h * head, (size_t)head * sizeof *d_out);
        const float *query = w->query + cell * w->row + h * w->head;
        float d_scale = query_backward(w, group, query, d_out, scale, h, d_query);
        if (fabsf(scale) < LOGIT_LIMIT) {
            a->d_temperature[sequence * a->heads + h] += d_scale * group->log_count;
        }
        through_norm(query, d_query, w->query_size[cell * a->heads + h], head,
                     a->d_query + at + h * head);
    }
}

/* Gradients of the keys and values of the sequence leave their padded heads. */
static void finish_backward(const struct attention *a, int64_t sequence,
                            const struct workspace *w) {
    int64_t head = a->width / a->heads;
    for (int64_t i = 0; i < a->cells * a->heads; i++) {
        int64_t at = sequence * a->cells * a->width + i * head, from = i * w->head;
        through_norm(w->key + from, w->d_key + from, w->key_size[i], head, a->d_key + at);
        for (int64_t k = 0; k < head; k++) {
            a->d_value[at + k] = w->d_value[from + k];
        }
    }
}

/* A cell that sees itself alone hands its value on. */
static void alone_backward(const struct attention *a, int64_t sequence, const struct workspace *w,
                           int32_t cell) {
    int64_t head = a->width / a->heads, at = (sequence * a->cells + cell) * a->width;
    for (int64_t h = 0; h < a->heads; h++) {
        for (int64_t k = 0; k < head; k++) {
            w->d_value[cell * w->row + h * w->head + k] += a->d_out[at + h * head + k];
        }
    }
}

bool KERNEL(attention_backward)(const struct attention *a, int64_t sequence, void *memory) {
    struct workspace w;
    if (!begin(a, sequence, &w, memory)) {
        return false;
    }
    size_t matrix = (size_t)(a->cells * w.row) * sizeof(float);
    memset(w.d_key, 0, matrix);
    memset(w.d_value, 0, matrix);
    memset(a->d_query + sequence * a->cells * a->width, 0,
           (size_t)(a->cells * a->width) * sizeof(float));
    memset(a->d_temperature + sequence * a->heads, 0, (size_t)a->heads * sizeof(float));
    for (int32_t unit = 0; unit < w.groups.unit_count; unit++) {
        struct group group;
        int32_t first = w.groups.starts[unit], last = w.groups.starts[unit + 1];
        if (first == last) {
            continue;
        }
        bool is_group = begin_group(a, sequence, &w, unit, true, &group);
        for (int32_t i = first; i < last; i++) {
            if (is_group) {
                cell_backward(a, sequence, &w, &group, w.groups.cells[i]);
            } else {
                alone_backward(a, sequence, &w, w.groups.cells[i]);
            }
        }
    }
    const uint8_t *is_cell = a->is_cell + sequence * a->cells;
    for (int32_t cell = 0; cell < a->cells; cell++) {
        if (!is_cell[cell]) {
            alone_backward(a, sequence, &w, cell);
        }
    }
    finish_backward(a, sequence, &w);
    return true;
}
