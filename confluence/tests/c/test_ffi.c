/*
 * What XLA calls, called by a stand-in for XLA: a pool of threads that helps at once, later than
 * the call or never, that refuses, and memory that is refused. Whoever helps, results are the same
 * bits; when the pool is done, nothing is left of a call. Contexts differ in their numbers of
 * cells, one has none, and behind the last there is padding.
 */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attention.h"
#include "xla/ffi/api/c_api.h"

XLA_FFI_Error *confluence_attention_forward(XLA_FFI_CallFrame *frame);
XLA_FFI_Error *confluence_attention_backward(XLA_FFI_CallFrame *frame);

enum { CONTEXTS = 13, EMPTY = 3, CELLS = 200, ROWS = 70, PARENTS = 2, HEADS = 2, WIDTH = 16 };
enum { MATRIX = CELLS * WIDTH, THREADS = 4, MOST_TASKS = 64, ARGUMENTS = 14, RESULTS = 6 };
enum { KINDS = 3, PARENT_ARGUMENT = 6, KIND_ARGUMENT = 7 };

/* ---- memory that is refused ------------------------------------------------------------------ */

static atomic_int refused_calls, refused_workspaces;

void *__wrap_calloc(size_t count, size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);

static bool is_refused(atomic_int *left) {
    return atomic_load(left) > 0 && atomic_fetch_sub(left, 1) > 0;
}

void *__wrap_calloc(size_t count, size_t bytes) {
    return is_refused(&refused_calls) ? NULL : __real_calloc(count, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return is_refused(&refused_workspaces) ? NULL : __real_aligned_alloc(alignment, bytes);
}

/* ---- the stand-in for XLA -------------------------------------------------------------------- */

struct XLA_FFI_Error {
    XLA_FFI_Error_Code code;
    char message[200];
};

struct task {
    XLA_FFI_Task *function;
    void *data;
};

/*
 * The pool: tasks wait for threads, or for `close_pool` if it has none. It stands in for the
 * context of a call, whose type has had several names in XLA's header; pointers to it pass as void.
 */
struct pool {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct task tasks[MOST_TASKS];
    size_t given, taken;
    int64_t says_threads; /* below 1: it does not say */
    size_t refuses_after; /* tasks that it takes */
    bool is_closed;
    pthread_t threads[THREADS];
    size_t thread_count;
};

static atomic_int error_count; /* made and not destroyed */

static XLA_FFI_Error *make_error(XLA_FFI_Error_Code code, const char *message) {
    XLA_FFI_Error *error = malloc(sizeof *error);
    if (error == NULL) {
        abort();
    }
    error->code = code;
    snprintf(error->message, sizeof error->message, "%s", message);
    atomic_fetch_add(&error_count, 1);
    return error;
}

static XLA_FFI_Error *create(XLA_FFI_Error_Create_Args *args) {
    return make_error(args->errc, args->message);
}

static void destroy(XLA_FFI_Error_Destroy_Args *args) {
    atomic_fetch_sub(&error_count, 1);
    free(args->error);
}

static XLA_FFI_Error *count_threads(XLA_FFI_ThreadPool_NumThreads_Args *args) {
    const struct pool *pool = (const void *)args->ctx;
    if (pool->says_threads < 1) {
        return make_error(XLA_FFI_Error_Code_UNAVAILABLE, "no pool");
    }
    *args->num_threads = pool->says_threads;
    return NULL;
}

static XLA_FFI_Error *schedule(XLA_FFI_ThreadPool_Schedule_Args *args) {
    struct pool *pool = (void *)args->ctx;
    XLA_FFI_Error *error = NULL;
    pthread_mutex_lock(&pool->mutex);
    if (pool->given >= pool->refuses_after || pool->given == MOST_TASKS) {
        error = make_error(XLA_FFI_Error_Code_UNAVAILABLE, "the pool is full");
    } else {
        pool->tasks[pool->given++] = (struct task){args->task, args->data};
        pthread_cond_broadcast(&pool->changed);
    }
    pthread_mutex_unlock(&pool->mutex);
    return error;
}

static void *serve(void *data) {
    struct pool *pool = data;
    pthread_mutex_lock(&pool->mutex);
    for (;;) {
        while (pool->taken == pool->given && !pool->is_closed) {
            pthread_cond_wait(&pool->changed, &pool->mutex);
        }
        if (pool->taken == pool->given) {
            break;
        }
        struct task task = pool->tasks[pool->taken++];
        pthread_mutex_unlock(&pool->mutex);
        task.function(task.data);
        pthread_mutex_lock(&pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

static const XLA_FFI_Api api = {
    .struct_size = XLA_FFI_Api_STRUCT_SIZE,
    .XLA_FFI_Error_Create = create,
    .XLA_FFI_Error_Destroy = destroy,
    .XLA_FFI_ThreadPool_Schedule = schedule,
    .XLA_FFI_ThreadPool_NumThreads = count_threads,
};

static void open_pool(struct pool *pool, size_t threads) {
    memset(pool, 0, sizeof *pool);
    assert_int_equal(pthread_mutex_init(&pool->mutex, NULL), 0);
    assert_int_equal(pthread_cond_init(&pool->changed, NULL), 0);
    pool->says_threads = THREADS + 1;
    pool->refuses_after = SIZE_MAX;
    for (; pool->thread_count < threads; pool->thread_count++) {
        pthread_t *thread = &pool->threads[pool->thread_count];
        assert_int_equal(pthread_create(thread, NULL, serve, pool), 0);
    }
}

/* Does what is left to do; after it no thread has hold of a call. */
static void close_pool(struct pool *pool) {
    pthread_mutex_lock(&pool->mutex);
    pool->is_closed = true;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->mutex);
    for (size_t i = 0; i < pool->thread_count; i++) {
        assert_int_equal(pthread_join(pool->threads[i], NULL), 0);
    }
    serve(pool);
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->mutex);
    assert_int_equal(atomic_load(&error_count), 0);
}

/* ---- a call ---------------------------------------------------------------------------------- */

/* Operands and results; `spoiled` is what results hold before a call. */
struct operands {
    float query[MATRIX], key[MATRIX], value[MATRIX], temperature[HEADS], d_out[MATRIX];
    int32_t row_ids[CELLS], column_ids[CELLS], parents[ROWS * PARENTS], kinds[ROWS * PARENTS];
    float kind_key[KINDS * WIDTH], kind_value[KINDS * WIDTH];
    int32_t context_cells[CONTEXTS + 1], context_rows[CONTEXTS + 1];
    uint8_t is_cell[CELLS];
    float out[MATRIX], d_query[MATRIX], d_key[MATRIX], d_value[MATRIX];
    float d_temperature[CONTEXTS * HEADS];
    float d_kind_key[CONTEXTS * KINDS * WIDTH], d_kind_value[CONTEXTS * KINDS * WIDTH];
};

static const float spoiled = 1e30f;

static void spoil(struct operands *o) {
    for (size_t i = 0; i < MATRIX; i++) {
        o->out[i] = o->d_query[i] = o->d_key[i] = o->d_value[i] = spoiled;
    }
    for (size_t i = 0; i < CONTEXTS * HEADS; i++) {
        o->d_temperature[i] = spoiled;
    }
    for (size_t i = 0; i < CONTEXTS * KINDS * WIDTH; i++) {
        o->d_kind_key[i] = o->d_kind_value[i] = spoiled;
    }
}

static struct operands *make_operands(void) {
    struct operands *o = calloc(1, sizeof *o);
    assert_non_null(o);
    uint32_t state = 12345;
    float *matrices[] = {o->query, o->key, o->value, o->d_out};
    for (size_t m = 0; m < 4; m++) {
        for (size_t i = 0; i < MATRIX; i++) {
            state = state * 1664525u + 1013904223u;
            matrices[m][i] = (float)(state >> 8) / 8388608.0f - 1.0f;
        }
    }
    for (int32_t context = 0, cell = 0; context < CONTEXTS; context++) {
        int32_t rows = context == EMPTY ? 0 : 1 + context * 5 % 8;
        for (int32_t i = 0; i < 3 * rows; i++) {
            o->row_ids[cell++] = i / 3;
        }
        o->context_cells[context + 1] = cell;
        o->context_rows[context + 1] = cell / 3;
    }
    for (int i = 0; i < CELLS; i++) {
        o->column_ids[i] = i % 3;
        o->is_cell[i] = i < o->context_cells[CONTEXTS] && i % 7 != 0;
    }
    for (int i = 0; i < ROWS * PARENTS; i++) {
        o->parents[i] = i % 3 - 1;
        o->kinds[i] = i % KINDS;
    }
    for (int i = WIDTH; i < KINDS * WIDTH; i++) {
        o->kind_key[i] = o->query[i], o->kind_value[i] = o->key[i];
    }
    o->temperature[0] = 1, o->temperature[1] = 2;
    spoil(o);
    return o;
}

/* Buffers of a call, which a test may damage before it. */
struct frame {
    XLA_FFI_CallFrame frame;
    XLA_FFI_Buffer arguments[ARGUMENTS], results[RESULTS];
    int64_t dims[ARGUMENTS + RESULTS][2];
    void *argument_pointers[ARGUMENTS], *result_pointers[RESULTS];
    int32_t pattern;
    XLA_FFI_Scalar scalar;
    XLA_FFI_AttrType attribute_type;
    void *attribute;
};

static void make_frame(struct frame *f, struct operands *o, struct pool *pool, bool is_backward) {
    memset(f, 0, sizeof *f);
    const struct {
        XLA_FFI_DataType dtype;
        void *data;
        int64_t rank, dims[2];
    } arguments[ARGUMENTS] = {
        {XLA_FFI_DataType_F32, o->query, 2, {CELLS, WIDTH}},
        {XLA_FFI_DataType_F32, o->key, 2, {CELLS, WIDTH}},
        {XLA_FFI_DataType_F32, o->value, 2, {CELLS, WIDTH}},
        {XLA_FFI_DataType_F32, o->temperature, 1, {HEADS}},
        {XLA_FFI_DataType_S32, o->row_ids, 1, {CELLS}},
        {XLA_FFI_DataType_S32, o->column_ids, 1, {CELLS}},
        {XLA_FFI_DataType_S32, o->parents, 2, {ROWS, PARENTS}},
        {XLA_FFI_DataType_S32, o->kinds, 2, {ROWS, PARENTS}},
        {XLA_FFI_DataType_PRED, o->is_cell, 1, {CELLS}},
        {XLA_FFI_DataType_S32, o->context_cells, 1, {CONTEXTS + 1}},
        {XLA_FFI_DataType_S32, o->context_rows, 1, {CONTEXTS + 1}},
        {XLA_FFI_DataType_F32, o->kind_key, 2, {KINDS, WIDTH}},
        {XLA_FFI_DataType_F32, o->kind_value, 2, {KINDS, WIDTH}},
        {XLA_FFI_DataType_F32, o->d_out, 2, {CELLS, WIDTH}},
    };
    for (int i = 0; i < ARGUMENTS; i++) {
        memcpy(f->dims[i], arguments[i].dims, sizeof f->dims[i]);
        f->arguments[i] = (XLA_FFI_Buffer){.dtype = arguments[i].dtype,
                                           .data = arguments[i].data,
                                           .rank = arguments[i].rank,
                                           .dims = f->dims[i]};
        f->argument_pointers[i] = &f->arguments[i];
    }
    float *results[] = {is_backward ? o->d_query : o->out,
                        o->d_key,
                        o->d_value,
                        o->d_temperature,
                        o->d_kind_key,
                        o->d_kind_value};
    for (int i = 0; i < RESULTS; i++) { /* of which only the place is read */
        f->results[i] = (XLA_FFI_Buffer){.dtype = XLA_FFI_DataType_F32, .data = results[i]};
        f->result_pointers[i] = &f->results[i];
    }
    f->pattern = ATTENTION_OUTBOUND;
    f->scalar = (XLA_FFI_Scalar){.dtype = XLA_FFI_DataType_S32, .value = &f->pattern};
    f->attribute_type = XLA_FFI_AttrType_SCALAR;
    f->attribute = &f->scalar;
    f->frame = (XLA_FFI_CallFrame){
        .struct_size = XLA_FFI_CallFrame_STRUCT_SIZE,
        .api = &api,
        .ctx = (void *)pool,
        .args = {.size = is_backward ? ARGUMENTS : ARGUMENTS - 1, .args = f->argument_pointers},
        .rets = {.size = is_backward ? RESULTS : 1, .rets = f->result_pointers},
        .attrs = {.size = 1, .types = &f->attribute_type, .attrs = &f->attribute},
    };
}

static XLA_FFI_Error *call(struct frame *f, bool is_backward) {
    return is_backward ? confluence_attention_backward(&f->frame)
                       : confluence_attention_forward(&f->frame);
}

static XLA_FFI_Error *call_with(struct operands *o, struct pool *pool, bool is_backward) {
    struct frame f;
    make_frame(&f, o, pool, is_backward);
    return call(&f, is_backward);
}

static void assert_refused(XLA_FFI_Error *error, XLA_FFI_Error_Code code, const char *message) {
    assert_non_null(error);
    assert_string_equal(error->message, message);
    assert_int_equal(error->code, code);
    destroy(&(XLA_FFI_Error_Destroy_Args){.error = error});
}

static void assert_same_results(const struct operands *expected, const struct operands *found) {
    const size_t bytes = sizeof *expected - offsetof(struct operands, out);
    assert_memory_equal(expected->out, found->out, bytes);
}

/* Both calls over spoiled results, which must then be the expected ones. */
static void assert_computed(struct operands *found, struct pool *pool,
                            const struct operands *expected) {
    spoil(found);
    assert_null(call_with(found, pool, false));
    assert_null(call_with(found, pool, true));
    assert_same_results(expected, found);
}

/* What a call gives that nobody helps, and operands for a test's own calls. */
struct pair {
    struct operands *expected, *found;
};

static int open_pair(void **state) {
    struct pair *pair = malloc(sizeof *pair);
    assert_non_null(pair);
    *pair = (struct pair){make_operands(), make_operands()};
    struct operands *o = pair->expected;
    struct pool pool;
    open_pool(&pool, 0);
    pool.says_threads = 1;
    assert_null(call_with(o, &pool, false));
    assert_null(call_with(o, &pool, true));
    assert_int_equal(pool.given, 0);
    close_pool(&pool);
    for (size_t i = 0; i < MATRIX; i++) {
        assert_true(o->out[i] < spoiled && o->d_query[i] < spoiled && o->d_key[i] < spoiled &&
                    o->d_value[i] < spoiled);
    }
    for (size_t i = 0; i < CONTEXTS * HEADS; i++) {
        assert_true(o->d_temperature[i] < spoiled);
    }
    bool is_any = false;
    for (size_t i = 0; i < CONTEXTS * KINDS * WIDTH; i++) {
        assert_true(o->d_kind_key[i] < spoiled && o->d_kind_value[i] < spoiled);
        is_any = is_any || (o->d_kind_key[i] != 0 && o->d_kind_value[i] != 0);
    }
    assert_true(is_any);
    *state = pair;
    return 0;
}

static int close_pair(void **state) {
    struct pair *pair = *state;
    free(pair->expected);
    free(pair->found);
    free(pair);
    return 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void results_are_the_same_bits_whoever_helps(void **state) {
    const struct pair *pair = *state;
    static const struct {
        size_t threads, refuses_after;
        int64_t says_threads;
    } pools[] = {
        {0, SIZE_MAX, THREADS + 1}, {1, SIZE_MAX, THREADS + 1}, {2, SIZE_MAX, THREADS + 1},
        {3, SIZE_MAX, THREADS + 1}, {4, SIZE_MAX, THREADS + 1}, {0, 0, THREADS + 1},
        {1, 1, THREADS + 1},        {2, 2, THREADS + 1},        {0, SIZE_MAX, 0},
    };
    enum { POOLS = sizeof pools / sizeof *pools };
    for (size_t round = 0; round < 40 * POOLS; round++) {
        struct pool pool;
        open_pool(&pool, pools[round % POOLS].threads);
        pool.refuses_after = pools[round % POOLS].refuses_after;
        pool.says_threads = pools[round % POOLS].says_threads;
        for (int again = 0; again < 3; again++) { /* helpers of one call may come in the next */
            assert_computed(pair->found, &pool, pair->expected);
        }
        bool may_help = pool.refuses_after > 0 && pool.says_threads > 0;
        assert_int_equal(pool.given > 0, may_help);
        close_pool(&pool);
    }
}

static void help_that_comes_after_the_call_finds_nothing_to_do(void **state) {
    const struct pair *pair = *state;
    struct pool pool;
    open_pool(&pool, 0);
    assert_computed(pair->found, &pool, pair->expected);
    spoil(pair->found);
    assert_int_equal(pool.given, 2 * THREADS);
    close_pool(&pool); /* runs the tasks */
    assert_float_equal(pair->found->out[0], spoiled, 0);
}

static void memory_that_is_refused_ends_the_call_with_an_error(void **state) {
    static const char said[] = "attention: out of memory";
    const struct operands *expected = ((const struct pair *)*state)->expected;
    struct operands *found = ((const struct pair *)*state)->found;
    for (int is_backward = 0; is_backward < 2; is_backward++) {
        struct pool pool;
        open_pool(&pool, 0);
        atomic_store(&refused_calls, 1);
        assert_refused(call_with(found, &pool, is_backward), XLA_FFI_Error_Code_RESOURCE_EXHAUSTED,
                       said);
        assert_int_equal(pool.given, 0);
        atomic_store(&refused_workspaces, 1); /* the caller's, and nobody helps */
        assert_refused(call_with(found, &pool, is_backward), XLA_FFI_Error_Code_RESOURCE_EXHAUSTED,
                       said);
        assert_null(call_with(found, &pool, is_backward));
        close_pool(&pool);
    }
    assert_same_results(expected, found);
    /* Whose workspace is refused is chance; the call is whole, or says so. */
    for (int round = 0; round < 300; round++) {
        struct pool pool;
        open_pool(&pool, THREADS);
        spoil(found);
        atomic_store(&refused_workspaces, 1 + round % THREADS);
        XLA_FFI_Error *error = call_with(found, &pool, false);
        if (error == NULL) {
            assert_memory_equal(expected->out, found->out, sizeof found->out);
        } else {
            assert_refused(error, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, said);
        }
        spoil(found); /* its memory is the caller's again */
        close_pool(&pool);
        assert_float_equal(found->out[0], spoiled, 0);
        atomic_store(&refused_workspaces, 0);
    }
}

/* The frame of a call with one context of the batch alone, and no padding. */
static void make_frame_of_one(struct frame *f, struct operands *o, struct pool *pool,
                              bool is_backward, int context) {
    static int32_t cells[2], rows[2];
    int32_t cell = o->context_cells[context], row = o->context_rows[context];
    cells[1] = o->context_cells[context + 1] - cell;
    rows[1] = o->context_rows[context + 1] - row;
    make_frame(f, o, pool, is_backward);
    float *matrices[] = {o->query + cell * WIDTH, o->key + cell * WIDTH, o->value + cell * WIDTH};
    for (int i = 0; i < 3; i++) {
        f->arguments[i].data = matrices[i];
    }
    f->arguments[4].data = o->row_ids + cell;
    f->arguments[5].data = o->column_ids + cell;
    f->arguments[PARENT_ARGUMENT].data = o->parents + row * PARENTS;
    f->arguments[KIND_ARGUMENT].data = o->kinds + row * PARENTS;
    f->arguments[8].data = o->is_cell + cell;
    f->arguments[9].data = cells, f->arguments[10].data = rows;
    f->arguments[13].data = o->d_out + cell * WIDTH;
    const int64_t counts[ARGUMENTS] = {cells[1], cells[1], cells[1], HEADS,    cells[1],
                                       cells[1], rows[1],  rows[1],  cells[1], 2,
                                       2,        KINDS,    KINDS,    cells[1]};
    for (int i = 0; i < ARGUMENTS; i++) {
        f->dims[i][0] = counts[i];
    }
    f->results[0].data = (is_backward ? o->d_query : o->out) + cell * WIDTH;
    f->results[1].data = o->d_key + cell * WIDTH;
    f->results[2].data = o->d_value + cell * WIDTH;
    f->results[3].data = o->d_temperature + context * HEADS;
    f->results[4].data = o->d_kind_key + context * KINDS * WIDTH;
    f->results[5].data = o->d_kind_value + context * KINDS * WIDTH;
}

static void a_context_gets_what_it_gets_alone(void **state) {
    const struct operands *expected = ((const struct pair *)*state)->expected;
    struct operands *found = ((const struct pair *)*state)->found;
    struct pool pool;
    open_pool(&pool, 0);
    spoil(found);
    for (int context = 0; context < CONTEXTS; context++) {
        for (int is_backward = 0; is_backward < 2; is_backward++) {
            struct frame f;
            make_frame_of_one(&f, found, &pool, is_backward, context);
            assert_null(call(&f, is_backward));
        }
    }
    close_pool(&pool);
    const size_t bytes = (size_t)found->context_cells[CONTEXTS] * WIDTH * sizeof(float);
    assert_memory_equal(expected->out, found->out, bytes);
    assert_memory_equal(expected->d_query, found->d_query, bytes);
    assert_memory_equal(expected->d_key, found->d_key, bytes);
    assert_memory_equal(expected->d_value, found->d_value, bytes);
    assert_memory_equal(expected->d_temperature, found->d_temperature, sizeof found->d_temperature);
    assert_memory_equal(expected->d_kind_key, found->d_kind_key, sizeof found->d_kind_key);
    assert_memory_equal(expected->d_kind_value, found->d_kind_value, sizeof found->d_kind_value);
    assert_float_equal(found->out[bytes / sizeof(float)], spoiled, 0);
}

static void padding_behind_the_last_context_hands_its_values_on(void **state) {
    const struct operands *o = ((const struct pair *)*state)->expected;
    const int first = o->context_cells[CONTEXTS] * WIDTH;
    const size_t bytes = (size_t)(MATRIX - first) * sizeof(float);
    assert_true(bytes > 0);
    assert_memory_equal(o->out + first, o->value + first, bytes);
    assert_memory_equal(o->d_value + first, o->d_out + first, bytes);
    for (int i = first; i < MATRIX; i++) {
        assert_true(o->d_query[i] == 0 && o->d_key[i] == 0);
    }
    assert_true(o->d_temperature[EMPTY * HEADS] == 0);
}

static void a_row_that_is_not_there_is_named(void **state) {
    static const char said[] = "attention: context 5 has a cell of row 2 or later";
    struct operands *o = ((const struct pair *)*state)->found;
    const int32_t cell = o->context_cells[5] + 1;
    o->row_ids[cell] = 2; /* the next context has such a row */
    for (size_t threads = 0; threads <= THREADS; threads += THREADS) {
        struct pool pool;
        o->is_cell[cell] = 1;
        open_pool(&pool, threads);
        assert_refused(call_with(o, &pool, false), XLA_FFI_Error_Code_INVALID_ARGUMENT, said);
        assert_refused(call_with(o, &pool, true), XLA_FFI_Error_Code_INVALID_ARGUMENT, said);
        o->is_cell[cell] = 0; /* what is hidden may say anything */
        assert_null(call_with(o, &pool, false));
        close_pool(&pool);
    }
}

static void contexts_that_are_not_in_the_batch_are_refused(void **state) {
    struct operands *o = ((const struct pair *)*state)->found;
    const struct {
        int32_t *starts, last;
        const char *said;
    } arrays[] = {
        {o->context_cells, CELLS,
         "attention: context_cells do not begin with 0, fall, or pass the number of cells"},
        {o->context_rows, ROWS,
         "attention: context_rows do not begin with 0, fall, or pass the number of rows"},
    };
    struct pool pool;
    open_pool(&pool, 0);
    for (size_t a = 0; a < 2; a++) {
        int32_t *starts = arrays[a].starts;
        const struct {
            int32_t at, value;
        } changes[] = {
            {0, 1},
            {0, -1},
            {5, -1},
            {5, starts[6] + 1},
            {5, INT32_MAX},
            {CONTEXTS, starts[CONTEXTS - 1] - 1},
            {CONTEXTS, arrays[a].last + 1},
        };
        for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
            int32_t before = starts[changes[i].at];
            starts[changes[i].at] = changes[i].value;
            for (int is_backward = 0; is_backward < 2; is_backward++) {
                assert_refused(call_with(o, &pool, is_backward),
                               XLA_FFI_Error_Code_INVALID_ARGUMENT, arrays[a].said);
            }
            starts[changes[i].at] = before;
        }
    }
    assert_int_equal(pool.given, 0);
    close_pool(&pool);
    assert_float_equal(o->out[0], spoiled, 0);
    assert_float_equal(o->d_query[0], spoiled, 0);
}

/* A good call in which one thing is another one. */
#define ASSERT_REFUSED_WITH(change)                                                                \
    do {                                                                                           \
        struct frame f;                                                                            \
        make_frame(&f, o, &pool, is_backward);                                                     \
        f.change;                                                                                  \
        assert_refused(call(&f, is_backward), XLA_FFI_Error_Code_INVALID_ARGUMENT,                 \
                       "attention: types or shapes of the operands do not go together");           \
    } while (0)

static void operands_that_do_not_go_together_are_refused(void **state) {
    struct operands *o = ((const struct pair *)*state)->found;
    struct pool pool;
    open_pool(&pool, 0);
    for (int is_backward = 0; is_backward < 2; is_backward++) {
        int64_t count = is_backward ? ARGUMENTS : ARGUMENTS - 1;
        for (int64_t i = 0; i < count; i++) {
            ASSERT_REFUSED_WITH(arguments[i].dtype = XLA_FFI_DataType_F64);
            ASSERT_REFUSED_WITH(arguments[i].rank--);
            ASSERT_REFUSED_WITH(dims[i][0]++); /* heads: 3, which no width is a multiple of */
        }
        ASSERT_REFUSED_WITH(frame.args.size--);
        ASSERT_REFUSED_WITH(frame.rets.size--);
        ASSERT_REFUSED_WITH(pattern = -1);
        ASSERT_REFUSED_WITH(pattern = ATTENTION_PATTERN_COUNT);
    }
    assert_int_equal(pool.given, 0);
    close_pool(&pool);
    assert_float_equal(o->out[0], spoiled, 0);
}

/* A wheel that was built with a newer JAX runs with it, too. */
static void the_interface_is_that_of_the_oldest_jax(void **state) {
    (void)state;
    for (int is_backward = 0; is_backward < 2; is_backward++) {
        XLA_FFI_Metadata metadata = {.struct_size = XLA_FFI_Metadata_STRUCT_SIZE};
        XLA_FFI_Metadata_Extension extension = {
            .extension_base = {.type = XLA_FFI_Extension_Metadata},
            .metadata = &metadata,
        };
        struct frame f = {.frame = {.extension_start = &extension.extension_base}};
        assert_null(call(&f, is_backward));
        assert_int_equal(metadata.api_version.major_version, 0);
        assert_int_equal(metadata.api_version.minor_version, 3); /* of JAX 0.10.0 */
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)
    const struct CMUnitTest tests[] = {
        TEST(results_are_the_same_bits_whoever_helps),
        TEST(help_that_comes_after_the_call_finds_nothing_to_do),
        TEST(memory_that_is_refused_ends_the_call_with_an_error),
        TEST(a_context_gets_what_it_gets_alone),
        TEST(padding_behind_the_last_context_hands_its_values_on),
        TEST(a_row_that_is_not_there_is_named),
        TEST(contexts_that_are_not_in_the_batch_are_refused),
        TEST(operands_that_do_not_go_together_are_refused),
        TEST(the_interface_is_that_of_the_oldest_jax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
