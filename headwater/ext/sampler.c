/*
 * headwater._core.Sampler: a store to batches. Options arrive as numbers, words and names are
 * sampler.py's. Waits release the GIL and take it back every 100 ms to see signals.
 */
#include "core.h"

#include <stdio.h>

struct sampler {
    PyObject_HEAD hw_sampler *handle;
    uint32_t task_count; /* of the store; with seed tables, and its tables */
};

hw_sampler *core_sampler_handle(PyObject *sampler) {
    return ((struct sampler *)sampler)->handle;
}

PyObject *core_raise_sampler(const struct core_state *state, const hw_error *error) {
    hw_error named = *error;
    if (error->status == HW_NO_MEMORY) {
        snprintf(named.message, sizeof named.message,
                 "%.350s; lower num_prefetch, default_batch_size or default_sequence_length",
                 error->message);
    }
    return core_raise(state, &named);
}

static PyObject *raise(PyObject *self, const hw_error *error) {
    return core_raise_sampler(core_state_of(Py_TYPE(self)), error);
}

int core_interrupted(void *context) {
    PyThreadState **saved = context;
    PyEval_RestoreThread(*saved);
    int stop = PyErr_CheckSignals() != 0;
    *saved = PyEval_SaveThread();
    return stop;
}

int core_timeout(PyObject *object, void *timeout_ms) {
    *(int64_t *)timeout_ms = -1;
    if (object == Py_None) {
        return 1;
    }
    double seconds = PyFloat_AsDouble(object);
    if (seconds == -1 && PyErr_Occurred()) {
        return 0;
    }
    if (!(seconds >= 0 && seconds < 1e12)) {
        PyErr_SetString(PyExc_ValueError, "timeout must be None or seconds from 0 to 1e12");
        return 0;
    }
    *(int64_t *)timeout_ms = (int64_t)(seconds * 1000);
    return 1;
}

/* ---- open and close ---------------------------------------------------------------------- */

static int core_i32(PyObject *object, void *value) {
    int64_t wide;
    if (!core_i64(object, &wide)) {
        return 0;
    }
    if (wide < INT32_MIN || wide > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%R is not an integer of 32 bits", object);
        return 0;
    }
    *(int32_t *)value = (int32_t)wide;
    return 1;
}

/* A list of float or None; free with PyMem_Free. */
static int double_list(PyObject *object, double **values, uint32_t expected_count) {
    *values = NULL;
    if (object == NULL || object == Py_None) {
        return 0;
    }
    Py_ssize_t size = PySequence_Size(object);
    if (size < 0) {
        return -1;
    }
    if ((uint64_t)size != expected_count) {
        PyErr_Format(PyExc_ValueError, "task_weights has %zd entries, expected %u", size,
                     (unsigned)expected_count);
        return -1;
    }
    double *list = PyMem_Calloc((size_t)size + 1, sizeof *list);
    if (list == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = PySequence_GetItem(object, i);
        list[i] = item == NULL ? -1 : PyFloat_AsDouble(item);
        Py_XDECREF(item);
        if (PyErr_Occurred()) {
            PyMem_Free(list);
            return -1;
        }
    }
    *values = list;
    return 0;
}

/* Options that sampler.py passes by number; those behind the bar may be left out. */
static int parse_options(PyObject *args, PyObject *kwargs, PyObject **store,
                         hw_sampler_options *options, PyObject **tasks, PyObject **weights,
                         int64_t visible_until[3], PyObject **time_split, PyObject **seed_tables,
                         PyObject **never_masked) {
    static char *names[] = {"store",
                            "rank",
                            "world_size",
                            "split_ratios",
                            "split_seed",
                            "seed",
                            "batch_size",
                            "sequence_length",
                            "max_rows",
                            "child_width",
                            "max_hops",
                            "width_scope",
                            "child_order",
                            "identifier_cells",
                            "context_labels",
                            "targets",
                            "task_order",
                            "tasks",
                            "task_weights",
                            "visible_until",
                            "num_threads",
                            "num_prefetch",
                            "num_prefetch_val",
                            "text_budget",
                            "with_rows",
                            "layout",
                            "text_mode",
                            "attention_masks",
                            "packing",
                            "contexts_per_batch",
                            "staleness",
                            "child_counts",
                            "label_rows",
                            "time_split",
                            "objective",

                            "mask_ratio",
                            "seed_tables",
                            "max_targets_per_type",
                            "never_masked",
                            "train_on_val",
                            "peer_labels",
                            "database_age",
                            NULL};
    uint32_t width_scope, child_order, identifiers, labels, targets, task_order;
    uint32_t layout = HW_LAYOUT_DENSE, text_mode = HW_TEXTS_BATCH, objective = HW_OBJECTIVE_TASK;
    int with_rows, attention_masks = 0, packing = 0, child_counts = 0, train_on_val = 0,
                   database_age = 0;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs,
            "OO&O&(ddd)O&O&O&O&O&O&O&O&O&O&O&O&O&OO(O&O&O&)O&O&O&O&p|O&O&ppO&(dd)pO&OO&dOO&"
            "OpO&p",
            names, store, core_u32, &options->rank, core_u32, &options->world_size,
            &options->split_ratios[0], &options->split_ratios[1], &options->split_ratios[2],
            core_u64, &options->split_seed, core_u64, &options->seed, core_u32,
            &options->batch_size, core_u32, &options->sequence_length, core_u32, &options->max_rows,
            core_u32, &options->child_width, core_u32, &options->max_hops, core_u32, &width_scope,
            core_u32, &child_order, core_u32, &identifiers, core_u32, &labels, core_u32, &targets,
            core_u32, &task_order, tasks, weights, core_i64, &visible_until[0], core_i64,
            &visible_until[1], core_i64, &visible_until[2], core_u32, &options->num_threads,
            core_i32, &options->num_prefetch, core_i32, &options->num_prefetch_val, core_u32,
            &options->text_budget, &with_rows, core_u32, &layout, core_u32, &text_mode,
            &attention_masks, &packing, core_u32, &options->contexts_per_batch,
            &options->staleness_zero_share, &options->staleness_max_days, &child_counts, core_u32,
            &options->label_rows, time_split, core_u32, &objective, &options->mask_ratio,
            seed_tables, core_u32, &options->max_targets_per_type, never_masked, &train_on_val,
            core_u32, &options->peer_labels, &database_age)) {
        return 0;
    }
    options->width_scope = (hw_width_scope)width_scope;
    options->child_order = (hw_child_order)child_order;
    options->identifier_cells = (hw_identifier_cells)identifiers;
    options->context_labels = (hw_context_labels)labels;
    options->targets = (hw_targets)targets;
    options->task_order = (hw_task_order)task_order;
    options->with_rows = (uint8_t)with_rows;
    options->layout = (hw_layout)layout;
    options->text_mode = (hw_text_mode)text_mode;
    options->attention_masks = (uint8_t)attention_masks;
    options->packing = (uint8_t)packing;
    options->child_counts = (uint8_t)child_counts;
    options->train_on_val = (uint8_t)train_on_val;
    options->database_age = (uint8_t)database_age;
    options->objective = (hw_objective)objective;
    options->visible_until = visible_until;
    return 1;
}

static PyObject *sampler_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    struct core_state *state = core_state_of(type);
    PyObject *store, *tasks, *weights, *split_times = Py_None;
    PyObject *tables = Py_None, *columns = Py_None;
    int64_t visible_until[3], time_split[2];
    hw_sampler_options options = {.struct_bytes = sizeof options};
    uint32_t *task_list = NULL, *table_list = NULL, *column_list = NULL;
    double *weight_list = NULL;
    struct sampler *self = NULL;
    if (!parse_options(args, kwargs, &store, &options, &tasks, &weights, visible_until,
                       &split_times, &tables, &columns)) {
        return NULL;
    }
    if (split_times != Py_None) {
        if (!PyArg_ParseTuple(split_times, "O&O&", core_i64, &time_split[0], core_i64,
                              &time_split[1])) {
            return NULL;
        }
        options.time_split = time_split;
    }
    if (!PyObject_TypeCheck(store, state->store_type)) {
        PyErr_SetString(PyExc_TypeError, "expected a _core.Store");
        return NULL;
    }
    hw_store *handle = core_store_handle(store);
    if (handle == NULL) {
        return NULL;
    }
    hw_store_counts counts = hw_store_get_counts(handle);
    uint32_t task_count = counts.task_count;
    if (core_u32_list(tasks, &task_list, &options.task_count) != 0 ||
        core_u32_list(tables, &table_list, &options.seed_table_count) != 0) {
        goto done;
    }
    uint32_t weight_count = table_list != NULL  ? options.seed_table_count
                            : task_list != NULL ? options.task_count
                                                : task_count;
    if (double_list(weights, &weight_list, weight_count) ||
        core_u32_list(columns, &column_list, &options.never_masked_count) != 0) {
        goto done;
    }
    options.seed_tables = table_list;
    options.never_masked = column_list;
    options.tasks = task_list;
    options.task_weights = weight_list;
    self = (struct sampler *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        goto done;
    }
    hw_error error;
    hw_status status;
    hw_sampler *sampler = NULL;
    Py_BEGIN_ALLOW_THREADS status = hw_sampler_open(handle, &options, &sampler, &error);
    Py_END_ALLOW_THREADS if (status != HW_OK) {
        Py_CLEAR(self);
        core_raise_sampler(state, &error);
        goto done;
    }
    self->handle = sampler;
    self->task_count = task_count + (table_list != NULL ? counts.table_count : 0);
done:
    hw_store_close(handle);
    PyMem_Free(task_list);
    PyMem_Free(weight_list);
    PyMem_Free(table_list);
    PyMem_Free(column_list);
    return (PyObject *)self;
}

PyDoc_STRVAR(shutdown_doc, "shutdown() -> None\n\nEnds production; idempotent, any thread.");

static PyObject *shutdown(PyObject *self, PyObject *unused) {
    (void)unused;
    Py_BEGIN_ALLOW_THREADS hw_sampler_shutdown(core_sampler_handle(self));
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static int sampler_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static void sampler_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    hw_sampler *handle = core_sampler_handle(self);
    PyObject_GC_UnTrack(self);
    Py_BEGIN_ALLOW_THREADS hw_sampler_close(handle);
    Py_END_ALLOW_THREADS PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* ---- batches ----------------------------------------------------------------------------- */

PyDoc_STRVAR(next_doc, "next(split: int, timeout: float | None) -> Batch\n\n"
                       "Next batch of the stream of train or val.");

static PyObject *next_batch(PyObject *self, PyObject *args) {
    uint32_t split;
    int64_t timeout_ms;
    if (!PyArg_ParseTuple(args, "O&O&", core_u32, &split, core_timeout, &timeout_ms)) {
        return NULL;
    }
    hw_batch *batch = NULL;
    hw_error error;
    PyThreadState *saved = PyEval_SaveThread();
    hw_status status = hw_sampler_next(core_sampler_handle(self), (hw_split)split, timeout_ms,
                                       core_interrupted, &saved, &batch, &error);
    PyEval_RestoreThread(saved);
    return status == HW_OK ? core_batch(core_state_of(Py_TYPE(self)), batch) : raise(self, &error);
}

PyDoc_STRVAR(batch_doc, "batch(split: int, k: int) -> Batch\n\nBatch k of a split's stream.");

static PyObject *batch_at(PyObject *self, PyObject *args) {
    uint32_t split;
    uint64_t k;
    if (!PyArg_ParseTuple(args, "O&O&", core_u32, &split, core_u64, &k)) {
        return NULL;
    }
    hw_batch *batch = NULL;
    hw_error error;
    hw_status status;
    Py_BEGIN_ALLOW_THREADS status =
        hw_sampler_batch(core_sampler_handle(self), (hw_split)split, k, &batch, &error);
    Py_END_ALLOW_THREADS return status == HW_OK ? core_batch(core_state_of(Py_TYPE(self)), batch)
                                                : raise(self, &error);
}

/* ---- what it is -------------------------------------------------------------------------- */

PyDoc_STRVAR(shape_doc, "shape() -> dict[str, int]\n\nbatch_size, sequence_length, max_rows, "
                        "text_budget, text_dim, parent_slots, contexts_per_batch, "
                        "contexts_per_sequence, max_targets_per_type.");

static PyObject *shape(PyObject *self, PyObject *unused) {
    (void)unused;
    hw_shape s = hw_sampler_shape(core_sampler_handle(self));
    return Py_BuildValue("{sIsIsIsIsIsIsIsIsI}", "batch_size", s.batch_size, "sequence_length",
                         s.sequence_length, "max_rows", s.max_rows, "text_budget", s.text_budget,
                         "text_dim", s.text_dim, "parent_slots", s.parent_slots,
                         "contexts_per_batch", s.contexts_per_batch, "contexts_per_sequence",
                         s.contexts_per_sequence, "max_targets_per_type", s.max_targets_per_type);
}

PyDoc_STRVAR(seed_count_doc, "seed_count(split: int, task: int) -> int\n\n"
                             "Seeds of a (split, task) over all ranks.");

static PyObject *seed_count(PyObject *self, PyObject *args) {
    uint32_t split, task, count;
    hw_error error;
    if (!PyArg_ParseTuple(args, "O&O&", core_u32, &split, core_u32, &task)) {
        return NULL;
    }
    if (hw_sampler_seed_count(core_sampler_handle(self), (hw_split)split, task, &count, &error) !=
        HW_OK) {
        return raise(self, &error);
    }
    return PyLong_FromUnsignedLong(count);
}

PyDoc_STRVAR(splits_doc, "splits(task: int, seed_count: int) -> Array\n\n"
                         "uint8 [seed_count]: the split of every seed of the task.");

static PyObject *splits(PyObject *self, PyObject *args) {
    uint32_t task, count;
    if (!PyArg_ParseTuple(args, "O&O&", core_u32, &task, core_u32, &count)) {
        return NULL;
    }
    hw_error error;
    uint8_t *values = PyMem_Calloc((size_t)count + 1, 1);
    if (values == NULL) {
        return PyErr_NoMemory();
    }
    if (hw_sampler_splits(core_sampler_handle(self), task, values, count, &error) != HW_OK) {
        PyMem_Free(values);
        return raise(self, &error);
    }
    uint64_t sizes[3] = {count};
    return core_array(core_state_of(Py_TYPE(self)), values, CORE_UINT8, 1, sizes,
                      (struct core_owner){values, PyMem_Free});
}

PyDoc_STRVAR(target_stats_doc, "target_stats(task: int) -> dict[str, int | float]\n\n"
                               "train_count, null_count, mean, std, column_mean, column_std.");

static PyObject *target_stats(PyObject *self, PyObject *args) {
    uint32_t task;
    hw_target_stats stats;
    hw_error error;
    if (!PyArg_ParseTuple(args, "O&", core_u32, &task)) {
        return NULL;
    }
    if (hw_sampler_target_stats(core_sampler_handle(self), task, &stats, &error) != HW_OK) {
        return raise(self, &error);
    }
    return Py_BuildValue("{sKsKsdsdsdsd}", "train_count", (unsigned long long)stats.train_count,
                         "null_count", (unsigned long long)stats.null_count, "mean", stats.mean,
                         "std", stats.std, "column_mean", stats.column_mean, "column_std",
                         stats.column_std);
}

PyDoc_STRVAR(column_scale_doc, "column_scale(column: int) -> tuple[float, float]\n\n"
                               "Mean and deviation by which a column of a table is shown.");

static PyObject *column_scale(PyObject *self, PyObject *args) {
    uint32_t column;
    double mean, std;
    hw_error error;
    if (!PyArg_ParseTuple(args, "O&", core_u32, &column)) {
        return NULL;
    }
    if (hw_sampler_column_scale(core_sampler_handle(self), column, &mean, &std, &error) != HW_OK) {
        return raise(self, &error);
    }
    return Py_BuildValue("(dd)", mean, std);
}

/* ---- positions and statistics ------------------------------------------------------------ */

PyDoc_STRVAR(get_position_doc, "get_position(split: int) -> tuple[list[int], int]\n\n"
                               "Global positions consumed by task of the store, and batches.");

static PyObject *get_position(PyObject *self, PyObject *args) {
    uint32_t split, task_count = ((struct sampler *)self)->task_count;
    uint64_t batches = 0;
    hw_error error;
    if (!PyArg_ParseTuple(args, "O&", core_u32, &split)) {
        return NULL;
    }
    uint64_t *positions = PyMem_Calloc((size_t)task_count + 1, sizeof *positions);
    if (positions == NULL) {
        return PyErr_NoMemory();
    }
    hw_status status = hw_sampler_get_position(core_sampler_handle(self), (hw_split)split,
                                               positions, &batches, &error);
    PyObject *list = status == HW_OK ? PyList_New(task_count) : raise(self, &error);
    for (uint32_t t = 0; t < task_count && list != NULL; t++) {
        PyObject *position = PyLong_FromUnsignedLongLong(positions[t]);
        if (position == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, t, position);
        }
    }
    PyMem_Free(positions);
    return list == NULL ? NULL : Py_BuildValue("(NK)", list, (unsigned long long)batches);
}

PyDoc_STRVAR(set_position_doc,
             "set_position(split: int, positions: list[int], batches: int) -> None\n\n"
             "Continues a stream from there; drops what was prefetched.");

static PyObject *set_position(PyObject *self, PyObject *args) {
    uint32_t split, task_count = ((struct sampler *)self)->task_count;
    uint64_t batches;
    PyObject *list;
    hw_error error;
    if (!PyArg_ParseTuple(args, "O&O!O&", core_u32, &split, &PyList_Type, &list, core_u64,
                          &batches)) {
        return NULL;
    }
    if (PyList_Size(list) != (Py_ssize_t)task_count) {
        PyErr_Format(PyExc_ValueError, "expected %u positions, one per task of the store",
                     (unsigned)task_count);
        return NULL;
    }
    uint64_t *positions = PyMem_Calloc((size_t)task_count + 1, sizeof *positions);
    if (positions == NULL) {
        return PyErr_NoMemory();
    }
    for (uint32_t t = 0; t < task_count; t++) {
        if (!core_u64(PyList_GetItem(list, t), &positions[t])) {
            PyMem_Free(positions);
            return NULL;
        }
    }
    hw_status status;
    Py_BEGIN_ALLOW_THREADS status = hw_sampler_set_position(
        core_sampler_handle(self), (hw_split)split, positions, batches, &error);
    Py_END_ALLOW_THREADS PyMem_Free(positions);
    if (status != HW_OK) {
        return raise(self, &error);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(stats_doc, "stats() -> dict[str, int]\n\nThe counters of hw_sampler_stats.");

static PyObject *stats(PyObject *self, PyObject *unused) {
    (void)unused;
    hw_sampler_stats s = hw_sampler_get_stats(core_sampler_handle(self));
    const struct {
        const char *name;
        uint64_t value;
    } counters[] = {
        {"batches", s.batches},
        {"sequences", s.sequences},
        {"cells", s.cells},
        {"padded_cells", s.padded_cells},
        {"rows", s.rows},
        {"walk_ns", s.walk_ns},
        {"emit_ns", s.emit_ns},
        {"text_ns", s.text_ns},
        {"producer_wait_ns", s.producer_wait_ns},
        {"consumer_wait_ns", s.consumer_wait_ns},
        {"elapsed_ns", s.elapsed_ns},
        {"stopped_by_rows", s.stopped_by_rows},
        {"texts_over_budget", s.texts_over_budget},
        {"threads", s.threads},
        {"train_queue", s.train_queue},
        {"val_queue", s.val_queue},
        {"slab_bytes", s.slab_bytes},
        {"slab_count", s.slab_count},
        {"contexts_cut", s.contexts_cut},
        {"contexts_dropped", s.contexts_dropped},
        {"cells_cut", s.cells_cut},
        {"packed_cells", s.packed_cells},
        {"packed_sequences", s.packed_sequences},
        {"masked_cells", s.masked_cells},
        {"masked_over_limit", s.masked_over_limit},
        {"withheld_cells", s.withheld_cells},
    };
    PyObject *dict = PyDict_New();
    for (size_t i = 0; i < sizeof counters / sizeof counters[0] && dict != NULL; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(counters[i].value);
        if (value == NULL || PyDict_SetItemString(dict, counters[i].name, value) != 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(value);
    }
    return dict;
}

static PyMethodDef sampler_methods[] = {
    {"next", next_batch, METH_VARARGS, next_doc},
    {"batch", batch_at, METH_VARARGS, batch_doc},
    {"shape", shape, METH_NOARGS, shape_doc},
    {"seed_count", seed_count, METH_VARARGS, seed_count_doc},
    {"splits", splits, METH_VARARGS, splits_doc},
    {"target_stats", target_stats, METH_VARARGS, target_stats_doc},
    {"column_scale", column_scale, METH_VARARGS, column_scale_doc},
    {"get_position", get_position, METH_VARARGS, get_position_doc},
    {"set_position", set_position, METH_VARARGS, set_position_doc},
    {"stats", stats, METH_NOARGS, stats_doc},
    {"shutdown", shutdown, METH_NOARGS, shutdown_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(sampler_doc, "Sampler(store, **options)\n\nA store to batches (headwater.h).");

static PyType_Slot sampler_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)sampler_doc},
    {Py_tp_new, sampler_new},
    {Py_tp_methods, sampler_methods},
    {Py_tp_traverse, sampler_traverse},
    {Py_tp_dealloc, sampler_dealloc},
    {0, NULL},
};

PyType_Spec core_sampler_spec = {
    .name = "headwater._core.Sampler",
    .basicsize = sizeof(struct sampler),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = sampler_slots,
};
