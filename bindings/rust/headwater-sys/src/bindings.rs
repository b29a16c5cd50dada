// Written by tools/rust_bindings.py from headwater.h, whose comments are the documentation.
use core::ffi::{c_char, c_int, c_void};

pub const HW_FORMAT_VERSION: u32 = 2;
pub const HW_ABI: u32 = 1;
pub type hw_status = u32;
pub const HW_OK: hw_status = 0;
pub const HW_NO_MEMORY: hw_status = 1;
pub const HW_BAD_ARGUMENT: hw_status = 2;
pub const HW_BAD_SOURCE: hw_status = 3;
pub const HW_BAD_STORE: hw_status = 4;
pub const HW_BAD_TASK: hw_status = 5;
pub const HW_IO: hw_status = 6;
pub const HW_TIMED_OUT: hw_status = 7;
pub const HW_SHUT_DOWN: hw_status = 8;
pub const HW_END: hw_status = 9;
pub const HW_INTERRUPTED: hw_status = 10;
pub const HW_FORKED: hw_status = 11;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_error {
    pub status: hw_status,
    pub message: [c_char; 500],
}
pub type hw_semantic_type = u32;
pub const HW_IDENTIFIER: hw_semantic_type = 0;
pub const HW_NUMERICAL: hw_semantic_type = 1;
pub const HW_TIMESTAMP: hw_semantic_type = 2;
pub const HW_BOOLEAN: hw_semantic_type = 3;
pub const HW_CATEGORICAL: hw_semantic_type = 4;
pub const HW_TEXT: hw_semantic_type = 5;
pub const HW_IGNORED: hw_semantic_type = 6;
pub type hw_split = u32;
pub const HW_TRAIN: hw_split = 0;
pub const HW_VAL: hw_split = 1;
pub const HW_TEST: hw_split = 2;
pub const HW_SPLIT_COUNT: u32 = 3;
pub const HW_SPLIT_NONE: u32 = 3;
pub type hw_known = u32;
pub const HW_KNOWN_CREATION: hw_known = 0;
pub const HW_KNOWN_NEVER: hw_known = 1;
pub const HW_KNOWN_COLUMN: hw_known = 2;
pub const HW_KNOWN_OFFSET: hw_known = 3;
pub type hw_context_labels = u32;
pub const HW_LABELS_DEFAULT: hw_context_labels = 0;
pub const HW_LABELS_TRAIN: hw_context_labels = 1;
pub const HW_LABELS_NONE: hw_context_labels = 2;
pub const HW_LABELS_ALL: hw_context_labels = 3;
pub type hw_child_order = u32;
pub const HW_CHILDREN_UNIFORM: hw_child_order = 0;
pub const HW_CHILDREN_RECENT: hw_child_order = 1;
pub type hw_width_scope = u32;
pub const HW_WIDTH_PER_KEY: hw_width_scope = 0;
pub const HW_WIDTH_PER_ROW: hw_width_scope = 1;
pub type hw_identifier_cells = u32;
pub const HW_IDENTIFIERS_ALL: hw_identifier_cells = 0;
pub const HW_IDENTIFIERS_KEYS: hw_identifier_cells = 1;
pub const HW_IDENTIFIERS_NONE: hw_identifier_cells = 2;
pub type hw_objective = u32;
pub const HW_OBJECTIVE_TASK: hw_objective = 0;
pub const HW_OBJECTIVE_MASKED_CELLS: hw_objective = 1;
pub type hw_shard = u32;
pub const HW_SHARD_FIXED: hw_shard = 0;
pub const HW_SHARD_DEALT: hw_shard = 1;
pub type hw_task_order = u32;
pub const HW_TASKS_WEIGHTED: hw_task_order = 0;
pub const HW_TASKS_ROUND_ROBIN: hw_task_order = 1;
pub type hw_layout = u32;
pub const HW_LAYOUT_DENSE: hw_layout = 0;
pub const HW_LAYOUT_COMPACT: hw_layout = 1;
pub const HW_LAYOUT_FLAT: hw_layout = 2;
pub type hw_targets = u32;
pub const HW_TARGETS_INLINE: hw_targets = 0;
pub const HW_TARGETS_SEPARATE: hw_targets = 1;
pub type hw_text_mode = u32;
pub const HW_TEXTS_BATCH: hw_text_mode = 0;
pub const HW_TEXTS_RESIDENT: hw_text_mode = 1;
pub const HW_TEXTS_NUMBERS: hw_text_mode = 2;
pub type hw_load = u32;
pub const HW_LOAD_MMAP: hw_load = 0;
pub const HW_LOAD_RAM: hw_load = 1;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArrowSchema {
    pub format: *const c_char,
    pub name: *const c_char,
    pub metadata: *const c_char,
    pub flags: i64,
    pub n_children: i64,
    pub children: *mut *mut ArrowSchema,
    pub dictionary: *mut ArrowSchema,
    pub release: Option<unsafe extern "C" fn(a0: *mut ArrowSchema)>,
    pub private_data: *mut c_void,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArrowArray {
    pub length: i64,
    pub null_count: i64,
    pub offset: i64,
    pub n_buffers: i64,
    pub n_children: i64,
    pub buffers: *mut *const c_void,
    pub children: *mut *mut ArrowArray,
    pub dictionary: *mut ArrowArray,
    pub release: Option<unsafe extern "C" fn(a0: *mut ArrowArray)>,
    pub private_data: *mut c_void,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArrowArrayStream {
    pub get_schema: Option<unsafe extern "C" fn(a0: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int>,
    pub get_next: Option<unsafe extern "C" fn(a0: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int>,
    pub get_last_error: Option<unsafe extern "C" fn(a0: *mut ArrowArrayStream) -> *const c_char>,
    pub release: Option<unsafe extern "C" fn(a0: *mut ArrowArrayStream)>,
    pub private_data: *mut c_void,
}
#[repr(C)]
pub struct hw_builder {
    _opaque: [u8; 0],
    _of_c: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_builder_options {
    pub struct_bytes: usize,
    pub name: *const c_char,
    pub stats_until_us: i64,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_table_spec {
    pub struct_bytes: usize,
    pub name: *const c_char,
    pub key_part_count: u32,
    pub temporal: u8,
    pub null_time_visible: u8,
    pub days: u8,
    pub reserved: [u8; 1],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_column_spec {
    pub struct_bytes: usize,
    pub name: *const c_char,
    pub stype: hw_semantic_type,
    pub known: hw_known,
    pub known_column: u32,
    pub known_offset_us: i64,
    pub temporal: u8,
    pub stored: u8,
    pub description: *const c_char,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_key_spec {
    pub struct_bytes: usize,
    pub child_table: u32,
    pub parent_table: u32,
    pub columns: *const u32,
    pub column_count: u32,
    pub reserved: [u8; 4],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_task_spec {
    pub struct_bytes: usize,
    pub name: *const c_char,
    pub anchor_table: u32,
    pub target_column: u32,
    pub target_name: *const c_char,
    pub target_stype: hw_semantic_type,
    pub categories: *const *const c_char,
    pub category_count: u32,
    pub hidden: *const u32,
    pub hidden_count: u32,
    pub exclusive: u8,
    pub given_split: u8,
    pub context_labels: hw_context_labels,
    pub label_times: u8,
    pub reserved: [u8; 3],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_column_stats {
    pub struct_bytes: usize,
    pub value_count: u64,
    pub null_count: u64,
    pub mean: f64,
    pub std: f64,
    pub min: f64,
    pub max: f64,
    pub min_us: i64,
    pub max_us: i64,
    pub true_count: u64,
    pub category_start: u32,
    pub category_count: u32,
}
pub type hw_embedding_kind = u32;
pub const HW_EMBED_TEXTS: hw_embedding_kind = 0;
pub const HW_EMBED_COLUMNS: hw_embedding_kind = 1;
pub const HW_EMBED_CATEGORIES: hw_embedding_kind = 2;
#[repr(C)]
pub struct hw_store {
    _opaque: [u8; 0],
    _of_c: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_store_counts {
    pub struct_bytes: usize,
    pub table_count: u32,
    pub column_count: u32,
    pub key_count: u32,
    pub task_count: u32,
    pub row_count: u32,
    pub category_count: u32,
    pub text_count: u32,
    pub text_dim: u32,
    pub time_mean_us: f64,
    pub time_std_us: f64,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_table_info {
    pub struct_bytes: usize,
    pub name: *const c_char,
    pub first_row: u32,
    pub row_count: u32,
    pub first_column: u32,
    pub column_count: u32,
    pub first_key: u32,
    pub key_count: u32,
    pub temporal_column: u32,
    pub primary_key_count: u32,
    pub primary_key: *const u32,
    pub is_keyed: u8,
    pub reserved: [u8; 7],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_column_info {
    pub struct_bytes: usize,
    pub name: *const c_char,
    pub table: u32,
    pub task: u32,
    pub stype: hw_semantic_type,
    pub known: hw_known,
    pub known_column: u32,
    pub first_category: u32,
    pub category_count: u32,
    pub known_offset_us: i64,
    pub mean: f64,
    pub std: f64,
    pub value_count: u64,
    pub null_count: u64,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_key_info {
    pub struct_bytes: usize,
    pub name: *const c_char,
    pub child_table: u32,
    pub parent_table: u32,
    pub column_count: u32,
    pub columns: *const u32,
    pub parent_columns: *const u32,
    pub edge_count: u64,
    pub null_count: u64,
    pub dangling_count: u64,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_task_info {
    pub struct_bytes: usize,
    pub name: *const c_char,
    pub anchor_table: u32,
    pub target_column: u32,
    pub target_stype: hw_semantic_type,
    pub obs_time_column: u32,
    pub seed_count: u32,
    pub hidden_count: u32,
    pub hidden: *const u32,
    pub context_labels: hw_context_labels,
    pub is_cell: u8,
    pub exclusive: u8,
    pub given_split: u8,
    pub label_times: u8,
}
pub type hw_progress_callback = Option<unsafe extern "C" fn(context: *mut c_void, done_bytes: u64, total_bytes: u64) -> c_int>;
pub type hw_verify = u32;
pub const HW_VERIFY_ONCE: hw_verify = 0;
pub const HW_VERIFY_HEADER: hw_verify = 1;
pub const HW_VERIFY_FULL: hw_verify = 2;
pub type hw_verified = u32;
pub const HW_VERIFIED_HEADER: hw_verified = 0;
pub const HW_VERIFIED_BEFORE: hw_verified = 1;
pub const HW_VERIFIED_NOW: hw_verified = 2;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_verification {
    pub struct_bytes: usize,
    pub how: hw_verified,
    pub not_remembered: [c_char; 200],
    pub reserved: [u8; 4],
}
pub type hw_fault_callback = Option<unsafe extern "C" fn(context: *mut c_void, message: *const c_char)>;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_cell {
    pub struct_bytes: usize,
    pub column: u32,
    pub stype: hw_semantic_type,
    pub is_null: u8,
    pub number: f64,
    pub time_us: i64,
    pub index: u32,
    pub reserved: [u8; 4],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_seeds {
    pub struct_bytes: usize,
    pub count: u32,
    pub anchors: *const u32,
    pub obs_times: *const i64,
    pub targets: *const u64,
    pub states: *const u8,
    pub key_hashes: *const u64,
    pub positions: *const u32,
    pub label_times: *const i64,
}
#[repr(C)]
pub struct hw_sampler {
    _opaque: [u8; 0],
    _of_c: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
}
#[repr(C)]
pub struct hw_pass {
    _opaque: [u8; 0],
    _of_c: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
}
#[repr(C)]
pub struct hw_batch {
    _opaque: [u8; 0],
    _of_c: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
}
pub type hw_interrupt_callback = Option<unsafe extern "C" fn(context: *mut c_void) -> c_int>;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_sampler_options {
    pub struct_bytes: usize,
    pub rank: u32,
    pub world_size: u32,
    pub shard: hw_shard,
    pub split_ratios: [f64; 3],
    pub split_seed: u64,
    pub seed: u64,
    pub batch_size: u32,
    pub sequence_length: u32,
    pub max_rows: u32,
    pub child_width: u32,
    pub max_hops: u32,
    pub width_scope: hw_width_scope,
    pub child_order: hw_child_order,
    pub identifier_cells: hw_identifier_cells,
    pub context_labels: hw_context_labels,
    pub targets: hw_targets,
    pub task_order: hw_task_order,
    pub tasks: *const u32,
    pub task_count: u32,
    pub task_weights: *const f64,
    pub visible_until: *const i64,
    pub num_threads: u32,
    pub num_prefetch: i32,
    pub num_prefetch_val: i32,
    pub text_budget: u32,
    pub with_rows: u8,
    pub layout: hw_layout,
    pub text_mode: hw_text_mode,
    pub attention_masks: u8,
    pub packing: u8,
    pub contexts_per_batch: u32,
    pub level_block: u32,
    pub level_parts: u32,
    pub staleness_zero_share: f64,
    pub staleness_max_days: f64,
    pub child_counts: u8,
    pub label_rows: u32,
    pub time_split: *const i64,
    pub train_on_val: u8,
    pub objective: hw_objective,
    pub mask_ratio: f64,
    pub seed_tables: *const u32,
    pub seed_table_count: u32,
    pub max_targets_per_type: u32,
    pub peer_labels: u32,
    pub cell_dropout: f64,
    pub context_length: u32,
    pub max_context_rows: u32,
}
pub type hw_option_type = u32;
pub const HW_OPTION_FLAG: hw_option_type = 0;
pub const HW_OPTION_WORD: hw_option_type = 1;
pub const HW_OPTION_UINT32: hw_option_type = 2;
pub const HW_OPTION_INT32: hw_option_type = 3;
pub const HW_OPTION_UINT64: hw_option_type = 4;
pub const HW_OPTION_DOUBLE: hw_option_type = 5;
pub const HW_OPTION_TIMES: hw_option_type = 6;
pub const HW_OPTION_NUMBERS: hw_option_type = 7;
pub const HW_OPTION_WEIGHTS: hw_option_type = 8;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_option_field {
    pub struct_bytes: usize,
    pub name: *const c_char,
    pub type_: hw_option_type,
    pub offset: u32,
    pub count: u32,
    pub standard: [f64; 3],
    pub least: f64,
    pub most: f64,
    pub words: *const *const c_char,
    pub decides_contexts: u8,
    pub doc: *const c_char,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_shape {
    pub struct_bytes: usize,
    pub batch_size: u32,
    pub sequence_length: u32,
    pub max_rows: u32,
    pub text_budget: u32,
    pub text_dim: u32,
    pub parent_slots: u32,
    pub contexts_per_batch: u32,
    pub contexts_per_sequence: u32,
    pub max_targets_per_type: u32,
    pub usual_texts: u32,
    pub cells_per_batch: u32,
    pub rows_per_batch: u32,
    pub context_length: u32,
    pub max_context_rows: u32,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_flat_shape {
    pub struct_bytes: usize,
    pub cells: u32,
    pub rows: u32,
    pub pass_cells: [u32; 3],
    pub pass_rows: [u32; 3],
    pub sampled: u32,
    pub capped: u32,
}
#[repr(C)]
pub struct hw_subgraph {
    _opaque: [u8; 0],
    _of_c: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_subgraph_arrays {
    pub struct_bytes: usize,
    pub row_count: u32,
    pub edge_count: u32,
    pub rows: *const u32,
    pub row_tables: *const i32,
    pub row_depths: *const u8,
    pub local_edges: *const u16,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_target_stats {
    pub struct_bytes: usize,
    pub train_count: u64,
    pub null_count: u64,
    pub mean: f64,
    pub std: f64,
    pub column_mean: f64,
    pub column_std: f64,
}
#[repr(C)]
pub struct hw_seed_pool {
    _opaque: [u8; 0],
    _of_c: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_drawn_seeds {
    pub struct_bytes: usize,
    pub seeds: *mut u32,
    pub epochs: *mut u32,
    pub rows: *mut u32,
    pub obs_times: *mut i64,
    pub labels: *mut f64,
    pub tasks: *mut u32,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_sampler_stats {
    pub struct_bytes: usize,
    pub batches: u64,
    pub sequences: u64,
    pub cells: u64,
    pub padded_cells: u64,
    pub rows: u64,
    pub walk_ns: u64,
    pub emit_ns: u64,
    pub text_ns: u64,
    pub producer_wait_ns: u64,
    pub consumer_wait_ns: u64,
    pub elapsed_ns: u64,
    pub stopped_by_rows: u64,
    pub texts_over_budget: u64,
    pub threads: u32,
    pub train_queue: u32,
    pub val_queue: u32,
    pub pass_queue: u32,
    pub slab_bytes: u64,
    pub slab_count: u64,
    pub contexts_cut: u64,
    pub contexts_dropped: u64,
    pub cells_cut: u64,
    pub packed_cells: u64,
    pub packed_sequences: u64,
    pub masked_cells: u64,
    pub masked_over_limit: u64,
    pub withheld_cells: u64,
}
pub type hw_dtype = u32;
pub const HW_INT8: hw_dtype = 0;
pub const HW_UINT8: hw_dtype = 1;
pub const HW_UINT16: hw_dtype = 2;
pub const HW_INT32: hw_dtype = 3;
pub const HW_UINT32: hw_dtype = 4;
pub const HW_INT64: hw_dtype = 5;
pub const HW_FLOAT16: hw_dtype = 6;
pub const HW_FLOAT32: hw_dtype = 7;
pub const HW_CELL_TYPE_MASK: u32 = 7;
pub const HW_CELL_NULL: u32 = 8;
pub const HW_CELL_TARGET: u32 = 16;
pub const HW_CELL_PADDING: u32 = 32;
pub const HW_TIME_WEEKDAY_SHIFT: u32 = 17;
pub const HW_TIME_YEAR_DAY_SHIFT: u32 = 20;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_tensor {
    pub struct_bytes: usize,
    pub name: *const c_char,
    pub dtype: hw_dtype,
    pub rank: u32,
    pub shape: [u64; 3],
    pub data: *const c_void,
    pub bytes: usize,
    pub info: u8,
    pub reserved: [u8; 7],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_batch_sizes {
    pub struct_bytes: usize,
    pub texts: u32,
    pub cells: u32,
    pub rows: u32,
    pub reserved: [u8; 4],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_batch_field {
    pub struct_bytes: usize,
    pub name: *const c_char,
    pub dtype: hw_dtype,
    pub dims: [*const c_char; 3],
    pub info: u8,
    pub when: *const c_char,
    pub meaning: *const c_char,
}
pub const HW_DATE_COUNT: u32 = 732;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hw_calendar_tables {
    pub struct_bytes: usize,
    pub sixtieths: [[f32; 2]; 60],
    pub hours: [[f32; 2]; 24],
    pub weekdays: [[f32; 2]; 7],
    pub dates: [[f32; 6]; HW_DATE_COUNT as usize],
}
unsafe extern "C" {
    pub fn hw_version() -> *const c_char;
    pub fn hw_abi() -> u32;
    pub fn hw_hash64(data: *const c_void, size: usize, seed: u64) -> u64;
    pub fn hw_steady_stream(stream: *mut ArrowArrayStream, error: *mut hw_error) -> hw_status;
    pub fn hw_arrays_open(row_count: u64, stream: *mut ArrowArrayStream, error: *mut hw_error) -> hw_status;
    pub fn hw_arrays_add(stream: *mut ArrowArrayStream, name: *const c_char, format: *const c_char, values: *const c_void, offsets: *const c_void, validity: *const c_void, error: *mut hw_error) -> hw_status;
    pub fn hw_builder_open(directory: *const c_char, options: *const hw_builder_options, builder: *mut *mut hw_builder, error: *mut hw_error) -> hw_status;
    pub fn hw_builder_close(builder: *mut hw_builder);
    pub fn hw_builder_add_table(b: *mut hw_builder, spec: *const hw_table_spec, index: *mut u32, error: *mut hw_error) -> hw_status;
    pub fn hw_builder_add_column(b: *mut hw_builder, table: u32, spec: *const hw_column_spec, index: *mut u32, error: *mut hw_error) -> hw_status;
    pub fn hw_builder_add_key(b: *mut hw_builder, spec: *const hw_key_spec, index: *mut u32, error: *mut hw_error) -> hw_status;
    pub fn hw_builder_add_task(b: *mut hw_builder, spec: *const hw_task_spec, index: *mut u32, error: *mut hw_error) -> hw_status;
    pub fn hw_builder_set_categories(b: *mut hw_builder, column: u32, categories: *const *const c_char, count: u32, error: *mut hw_error) -> hw_status;
    pub fn hw_builder_write_rows(b: *mut hw_builder, table: u32, stream: *mut ArrowArrayStream, error: *mut hw_error) -> hw_status;
    pub fn hw_builder_write_edges(b: *mut hw_builder, key: u32, stream: *mut ArrowArrayStream, null_count: u64, edge_count: *mut u64, error: *mut hw_error) -> hw_status;
    pub fn hw_builder_write_seeds(b: *mut hw_builder, task: u32, stream: *mut ArrowArrayStream, error: *mut hw_error) -> hw_status;
    pub fn hw_builder_seed_splits(b: *const hw_builder, task: u32, counts: *mut u64, error: *mut hw_error) -> hw_status;
    pub fn hw_builder_column_stats(b: *const hw_builder, column: u32, stats: *mut hw_column_stats, error: *mut hw_error) -> hw_status;
    pub fn hw_builder_text_count(b: *const hw_builder) -> u32;
    pub fn hw_builder_text(b: *mut hw_builder, index: u32, text: *mut *const c_char, bytes: *mut usize, error: *mut hw_error) -> hw_status;
    pub fn hw_builder_set_embedder(b: *mut hw_builder, name: *const c_char, text_dim: u32, error: *mut hw_error) -> hw_status;
    pub fn hw_builder_write_vectors(b: *mut hw_builder, kind: hw_embedding_kind, vectors: *const c_void, count: u64, error: *mut hw_error) -> hw_status;
    pub fn hw_builder_finish(b: *mut hw_builder, metadata: *const c_void, metadata_bytes: usize, fingerprint: *mut c_char, error: *mut hw_error) -> hw_status;
    pub fn hw_builder_publish(b: *mut hw_builder, store_path: *const c_char, error: *mut hw_error) -> hw_status;
    pub fn hw_hash_embed(text: *const c_char, bytes: usize, text_dim: u32, vector: *mut c_void, error: *mut hw_error) -> hw_status;
    pub fn hw_store_open(path: *const c_char, load: hw_load, store: *mut *mut hw_store, error: *mut hw_error) -> hw_status;
    pub fn hw_store_close(store: *mut hw_store);
    pub fn hw_store_retain(store: *mut hw_store) -> *mut hw_store;
    pub fn hw_store_directory(store: *const hw_store) -> *const c_char;
    pub fn hw_store_fingerprint(store: *const hw_store) -> *const c_char;
    pub fn hw_store_get_counts(store: *const hw_store, counts: *mut hw_store_counts, error: *mut hw_error) -> hw_status;
    pub fn hw_store_table_info(store: *const hw_store, table: u32, info: *mut hw_table_info, error: *mut hw_error) -> hw_status;
    pub fn hw_store_column_info(store: *const hw_store, column: u32, info: *mut hw_column_info, error: *mut hw_error) -> hw_status;
    pub fn hw_store_key_info(store: *const hw_store, key: u32, info: *mut hw_key_info, error: *mut hw_error) -> hw_status;
    pub fn hw_store_task_info(store: *const hw_store, task: u32, info: *mut hw_task_info, error: *mut hw_error) -> hw_status;
    pub fn hw_store_category(store: *const hw_store, category: u32, text: *mut *const c_char, bytes: *mut usize, error: *mut hw_error) -> hw_status;
    pub fn hw_store_find_table(store: *const hw_store, name: *const c_char, table: *mut u32, error: *mut hw_error) -> hw_status;
    pub fn hw_store_find_column(store: *const hw_store, table: *const c_char, name: *const c_char, column: *mut u32, error: *mut hw_error) -> hw_status;
    pub fn hw_store_find_key(store: *const hw_store, name: *const c_char, key: *mut u32, error: *mut hw_error) -> hw_status;
    pub fn hw_store_find_task(store: *const hw_store, name: *const c_char, task: *mut u32, error: *mut hw_error) -> hw_status;
    pub fn hw_store_metadata(store: *const hw_store, text: *mut *const c_char, bytes: *mut usize, error: *mut hw_error) -> hw_status;
    pub fn hw_store_identity(store: *const hw_store, identity: *mut c_char);
    pub fn hw_store_check_files(store: *const hw_store, verify: hw_verify, folder: *const c_char, progress: hw_progress_callback, context: *mut c_void, verification: *mut hw_verification, error: *mut hw_error) -> hw_status;
    pub fn hw_store_verify(store: *const hw_store, fault: hw_fault_callback, context: *mut c_void, count: *mut u64, error: *mut hw_error) -> hw_status;
    pub fn hw_store_row_table(store: *const hw_store, row: u32, table: *mut u32, error: *mut hw_error) -> hw_status;
    pub fn hw_store_row_time(store: *const hw_store, row: u32, time_us: *mut i64, error: *mut hw_error) -> hw_status;
    pub fn hw_store_row_times(store: *const hw_store, table: u32, times_us: *mut *const i64, rows: *mut u32, error: *mut hw_error) -> hw_status;
    pub fn hw_store_cell(store: *const hw_store, row: u32, column: u32, cell: *mut hw_cell, error: *mut hw_error) -> hw_status;
    pub fn hw_store_parent(store: *const hw_store, row: u32, key: u32, parent: *mut u32, error: *mut hw_error) -> hw_status;
    pub fn hw_store_children(store: *const hw_store, row: u32, key: u32, children: *mut *const u32, count: *mut u32, error: *mut hw_error) -> hw_status;
    pub fn hw_store_row_key(store: *const hw_store, row: u32, key: *mut *const c_void, bytes: *mut usize, error: *mut hw_error) -> hw_status;
    pub fn hw_store_find(store: *const hw_store, table: u32, key: *const c_void, bytes: usize, row: *mut u32, error: *mut hw_error) -> hw_status;
    pub fn hw_store_text(store: *const hw_store, index: u32, text: *mut *const c_char, bytes: *mut usize, error: *mut hw_error) -> hw_status;
    pub fn hw_store_vectors(store: *const hw_store, kind: hw_embedding_kind, vectors: *mut *const c_void, count: *mut u64, error: *mut hw_error) -> hw_status;
    pub fn hw_store_seeds(store: *const hw_store, task: u32, seeds: *mut hw_seeds, error: *mut hw_error) -> hw_status;
    pub fn hw_store_edge_counts(store: *const hw_store, key: u32, parent_rows: *mut u32, edges: *mut u64, error: *mut hw_error) -> hw_status;
    pub fn hw_store_edges(store: *const hw_store, key: u32, starts: *mut u64, rows: *mut u32, times_us: *mut i64, error: *mut hw_error) -> hw_status;
    pub fn hw_store_column_rows(store: *const hw_store, column: u32, rows: *mut u32, error: *mut hw_error) -> hw_status;
    pub fn hw_store_column(store: *const hw_store, column: u32, numbers: *mut f64, times_us: *mut i64, error: *mut hw_error) -> hw_status;
    pub fn hw_store_warm_up(store: *const hw_store, threads: u32, error: *mut hw_error) -> hw_status;
    pub fn hw_sampler_options_init(options: *mut hw_sampler_options, bytes: usize);
    pub fn hw_option_field_count() -> u32;
    pub fn hw_option_field_at(index: u32, field: *mut hw_option_field, error: *mut hw_error) -> hw_status;
    pub fn hw_sampler_open(store: *mut hw_store, options: *const hw_sampler_options, sampler: *mut *mut hw_sampler, error: *mut hw_error) -> hw_status;
    pub fn hw_sampler_shutdown(sampler: *mut hw_sampler);
    pub fn hw_sampler_retain(sampler: *mut hw_sampler) -> *mut hw_sampler;
    pub fn hw_sampler_close(sampler: *mut hw_sampler);
    pub fn hw_sampler_shape(sampler: *const hw_sampler, shape: *mut hw_shape, error: *mut hw_error) -> hw_status;
    pub fn hw_sampler_flat_shape(sampler: *const hw_sampler, task: u32, shape: *mut hw_flat_shape, error: *mut hw_error) -> hw_status;
    pub fn hw_sampler_next(sampler: *mut hw_sampler, split: hw_split, timeout_ms: i64, interrupt: hw_interrupt_callback, context: *mut c_void, batch: *mut *mut hw_batch, error: *mut hw_error) -> hw_status;
    pub fn hw_sampler_batch(sampler: *mut hw_sampler, split: hw_split, k: u64, batch: *mut *mut hw_batch, error: *mut hw_error) -> hw_status;
    pub fn hw_pass_open(sampler: *mut hw_sampler, split: hw_split, task: u32, index: u32, pass: *mut *mut hw_pass, error: *mut hw_error) -> hw_status;
    pub fn hw_pass_open_seeds(sampler: *mut hw_sampler, task: u32, anchors: *const u32, obs_times: *const i64, count: u32, pass: *mut *mut hw_pass, error: *mut hw_error) -> hw_status;
    pub fn hw_pass_open_chosen(sampler: *mut hw_sampler, task: u32, seeds: *const u32, epochs: *const u32, count: u32, pass: *mut *mut hw_pass, error: *mut hw_error) -> hw_status;
    pub fn hw_pass_open_levelled(sampler: *mut hw_sampler, task: u32, seeds: *const u32, epochs: *const u32, count: u32, pass: *mut *mut hw_pass, error: *mut hw_error) -> hw_status;
    pub fn hw_pass_batch_count(pass: *const hw_pass) -> u64;
    pub fn hw_pass_next(pass: *mut hw_pass, timeout_ms: i64, interrupt: hw_interrupt_callback, context: *mut c_void, batch: *mut *mut hw_batch, error: *mut hw_error) -> hw_status;
    pub fn hw_pass_close(pass: *mut hw_pass);
    pub fn hw_sampler_subgraph(sampler: *const hw_sampler, task: u32, seed: u32, epoch: u32, both: u8, subgraph: *mut *mut hw_subgraph, error: *mut hw_error) -> hw_status;
    pub fn hw_subgraph_get(subgraph: *const hw_subgraph, arrays: *mut hw_subgraph_arrays, error: *mut hw_error) -> hw_status;
    pub fn hw_subgraph_close(subgraph: *mut hw_subgraph);
    pub fn hw_sampler_seed_count(sampler: *const hw_sampler, split: hw_split, task: u32, count: *mut u32, error: *mut hw_error) -> hw_status;
    pub fn hw_sampler_splits(sampler: *const hw_sampler, task: u32, splits: *mut u8, count: u32, error: *mut hw_error) -> hw_status;
    pub fn hw_sampler_target_stats(sampler: *const hw_sampler, task: u32, stats: *mut hw_target_stats, error: *mut hw_error) -> hw_status;
    pub fn hw_sampler_column_scale(sampler: *const hw_sampler, column: u32, mean: *mut f64, std: *mut f64, error: *mut hw_error) -> hw_status;
    pub fn hw_seed_pool_open(store: *mut hw_store, options: *const hw_sampler_options, split: hw_split, require_label: u8, label_columns: *const u32, pool: *mut *mut hw_seed_pool, error: *mut hw_error) -> hw_status;
    pub fn hw_seed_pool_close(pool: *mut hw_seed_pool);
    pub fn hw_seed_pool_together(pool: *mut hw_seed_pool, error: *mut hw_error) -> hw_status;
    pub fn hw_seed_pool_keep(pool: *mut hw_seed_pool, first: u32, step: u32, most: u32, error: *mut hw_error) -> hw_status;
    pub fn hw_seed_pool_count(pool: *const hw_seed_pool) -> u64;
    pub fn hw_seed_pool_remaining(pool: *const hw_seed_pool) -> u64;
    pub fn hw_seed_pool_next(pool: *mut hw_seed_pool, count: u32, drawn: *const hw_drawn_seeds, task: *mut u32, taken: *mut u32, error: *mut hw_error) -> hw_status;
    pub fn hw_seed_pool_get_position(pool: *const hw_seed_pool, positions: *mut u64, batches: *mut u64);
    pub fn hw_seed_pool_set_position(pool: *mut hw_seed_pool, positions: *const u64, batches: u64);
    pub fn hw_sampler_get_position(sampler: *mut hw_sampler, split: hw_split, positions: *mut u64, batches: *mut u64, error: *mut hw_error) -> hw_status;
    pub fn hw_sampler_set_position(sampler: *mut hw_sampler, split: hw_split, positions: *const u64, batches: u64, error: *mut hw_error) -> hw_status;
    pub fn hw_sampler_get_stats(sampler: *mut hw_sampler, stats: *mut hw_sampler_stats, error: *mut hw_error) -> hw_status;
    pub fn hw_dtype_bytes(dtype: hw_dtype) -> u32;
    pub fn hw_batch_retain(batch: *mut hw_batch) -> *mut hw_batch;
    pub fn hw_batch_release(batch: *mut hw_batch);
    pub fn hw_batch_tensor_count(batch: *const hw_batch) -> u32;
    pub fn hw_batch_tensor(batch: *const hw_batch, index: u32, tensor: *mut hw_tensor, error: *mut hw_error) -> hw_status;
    pub fn hw_batch_find(batch: *const hw_batch, name: *const c_char, tensor: *mut hw_tensor, error: *mut hw_error) -> hw_status;
    pub fn hw_batch_memory(batch: *const hw_batch, bytes: *mut usize) -> *const c_void;
    pub fn hw_batch_get_sizes(batch: *const hw_batch, sizes: *mut hw_batch_sizes, error: *mut hw_error) -> hw_status;
    pub fn hw_batch_field_count() -> u32;
    pub fn hw_batch_field_at(index: u32, field: *mut hw_batch_field, error: *mut hw_error) -> hw_status;
    pub fn hw_calendar_tables_fill(tables: *mut hw_calendar_tables, error: *mut hw_error) -> hw_status;
}
/// Struct, member and offset; for the member "" the size of the struct.
#[doc(hidden)]
pub fn layout() -> &'static [(&'static str, &'static str, usize)] {
    &[
        ("hw_error", "", size_of::<hw_error>()),
        ("hw_error", "status", core::mem::offset_of!(hw_error, status)),
        ("hw_error", "message", core::mem::offset_of!(hw_error, message)),
        ("ArrowSchema", "", size_of::<ArrowSchema>()),
        ("ArrowSchema", "format", core::mem::offset_of!(ArrowSchema, format)),
        ("ArrowSchema", "name", core::mem::offset_of!(ArrowSchema, name)),
        ("ArrowSchema", "metadata", core::mem::offset_of!(ArrowSchema, metadata)),
        ("ArrowSchema", "flags", core::mem::offset_of!(ArrowSchema, flags)),
        ("ArrowSchema", "n_children", core::mem::offset_of!(ArrowSchema, n_children)),
        ("ArrowSchema", "children", core::mem::offset_of!(ArrowSchema, children)),
        ("ArrowSchema", "dictionary", core::mem::offset_of!(ArrowSchema, dictionary)),
        ("ArrowSchema", "release", core::mem::offset_of!(ArrowSchema, release)),
        ("ArrowSchema", "private_data", core::mem::offset_of!(ArrowSchema, private_data)),
        ("ArrowArray", "", size_of::<ArrowArray>()),
        ("ArrowArray", "length", core::mem::offset_of!(ArrowArray, length)),
        ("ArrowArray", "null_count", core::mem::offset_of!(ArrowArray, null_count)),
        ("ArrowArray", "offset", core::mem::offset_of!(ArrowArray, offset)),
        ("ArrowArray", "n_buffers", core::mem::offset_of!(ArrowArray, n_buffers)),
        ("ArrowArray", "n_children", core::mem::offset_of!(ArrowArray, n_children)),
        ("ArrowArray", "buffers", core::mem::offset_of!(ArrowArray, buffers)),
        ("ArrowArray", "children", core::mem::offset_of!(ArrowArray, children)),
        ("ArrowArray", "dictionary", core::mem::offset_of!(ArrowArray, dictionary)),
        ("ArrowArray", "release", core::mem::offset_of!(ArrowArray, release)),
        ("ArrowArray", "private_data", core::mem::offset_of!(ArrowArray, private_data)),
        ("ArrowArrayStream", "", size_of::<ArrowArrayStream>()),
        ("ArrowArrayStream", "get_schema", core::mem::offset_of!(ArrowArrayStream, get_schema)),
        ("ArrowArrayStream", "get_next", core::mem::offset_of!(ArrowArrayStream, get_next)),
        ("ArrowArrayStream", "get_last_error", core::mem::offset_of!(ArrowArrayStream, get_last_error)),
        ("ArrowArrayStream", "release", core::mem::offset_of!(ArrowArrayStream, release)),
        ("ArrowArrayStream", "private_data", core::mem::offset_of!(ArrowArrayStream, private_data)),
        ("hw_builder_options", "", size_of::<hw_builder_options>()),
        ("hw_builder_options", "struct_bytes", core::mem::offset_of!(hw_builder_options, struct_bytes)),
        ("hw_builder_options", "name", core::mem::offset_of!(hw_builder_options, name)),
        ("hw_builder_options", "stats_until_us", core::mem::offset_of!(hw_builder_options, stats_until_us)),
        ("hw_table_spec", "", size_of::<hw_table_spec>()),
        ("hw_table_spec", "struct_bytes", core::mem::offset_of!(hw_table_spec, struct_bytes)),
        ("hw_table_spec", "name", core::mem::offset_of!(hw_table_spec, name)),
        ("hw_table_spec", "key_part_count", core::mem::offset_of!(hw_table_spec, key_part_count)),
        ("hw_table_spec", "temporal", core::mem::offset_of!(hw_table_spec, temporal)),
        ("hw_table_spec", "null_time_visible", core::mem::offset_of!(hw_table_spec, null_time_visible)),
        ("hw_table_spec", "days", core::mem::offset_of!(hw_table_spec, days)),
        ("hw_table_spec", "reserved", core::mem::offset_of!(hw_table_spec, reserved)),
        ("hw_column_spec", "", size_of::<hw_column_spec>()),
        ("hw_column_spec", "struct_bytes", core::mem::offset_of!(hw_column_spec, struct_bytes)),
        ("hw_column_spec", "name", core::mem::offset_of!(hw_column_spec, name)),
        ("hw_column_spec", "stype", core::mem::offset_of!(hw_column_spec, stype)),
        ("hw_column_spec", "known", core::mem::offset_of!(hw_column_spec, known)),
        ("hw_column_spec", "known_column", core::mem::offset_of!(hw_column_spec, known_column)),
        ("hw_column_spec", "known_offset_us", core::mem::offset_of!(hw_column_spec, known_offset_us)),
        ("hw_column_spec", "temporal", core::mem::offset_of!(hw_column_spec, temporal)),
        ("hw_column_spec", "stored", core::mem::offset_of!(hw_column_spec, stored)),
        ("hw_column_spec", "description", core::mem::offset_of!(hw_column_spec, description)),
        ("hw_key_spec", "", size_of::<hw_key_spec>()),
        ("hw_key_spec", "struct_bytes", core::mem::offset_of!(hw_key_spec, struct_bytes)),
        ("hw_key_spec", "child_table", core::mem::offset_of!(hw_key_spec, child_table)),
        ("hw_key_spec", "parent_table", core::mem::offset_of!(hw_key_spec, parent_table)),
        ("hw_key_spec", "columns", core::mem::offset_of!(hw_key_spec, columns)),
        ("hw_key_spec", "column_count", core::mem::offset_of!(hw_key_spec, column_count)),
        ("hw_key_spec", "reserved", core::mem::offset_of!(hw_key_spec, reserved)),
        ("hw_task_spec", "", size_of::<hw_task_spec>()),
        ("hw_task_spec", "struct_bytes", core::mem::offset_of!(hw_task_spec, struct_bytes)),
        ("hw_task_spec", "name", core::mem::offset_of!(hw_task_spec, name)),
        ("hw_task_spec", "anchor_table", core::mem::offset_of!(hw_task_spec, anchor_table)),
        ("hw_task_spec", "target_column", core::mem::offset_of!(hw_task_spec, target_column)),
        ("hw_task_spec", "target_name", core::mem::offset_of!(hw_task_spec, target_name)),
        ("hw_task_spec", "target_stype", core::mem::offset_of!(hw_task_spec, target_stype)),
        ("hw_task_spec", "categories", core::mem::offset_of!(hw_task_spec, categories)),
        ("hw_task_spec", "category_count", core::mem::offset_of!(hw_task_spec, category_count)),
        ("hw_task_spec", "hidden", core::mem::offset_of!(hw_task_spec, hidden)),
        ("hw_task_spec", "hidden_count", core::mem::offset_of!(hw_task_spec, hidden_count)),
        ("hw_task_spec", "exclusive", core::mem::offset_of!(hw_task_spec, exclusive)),
        ("hw_task_spec", "given_split", core::mem::offset_of!(hw_task_spec, given_split)),
        ("hw_task_spec", "context_labels", core::mem::offset_of!(hw_task_spec, context_labels)),
        ("hw_task_spec", "label_times", core::mem::offset_of!(hw_task_spec, label_times)),
        ("hw_task_spec", "reserved", core::mem::offset_of!(hw_task_spec, reserved)),
        ("hw_column_stats", "", size_of::<hw_column_stats>()),
        ("hw_column_stats", "struct_bytes", core::mem::offset_of!(hw_column_stats, struct_bytes)),
        ("hw_column_stats", "value_count", core::mem::offset_of!(hw_column_stats, value_count)),
        ("hw_column_stats", "null_count", core::mem::offset_of!(hw_column_stats, null_count)),
        ("hw_column_stats", "mean", core::mem::offset_of!(hw_column_stats, mean)),
        ("hw_column_stats", "std", core::mem::offset_of!(hw_column_stats, std)),
        ("hw_column_stats", "min", core::mem::offset_of!(hw_column_stats, min)),
        ("hw_column_stats", "max", core::mem::offset_of!(hw_column_stats, max)),
        ("hw_column_stats", "min_us", core::mem::offset_of!(hw_column_stats, min_us)),
        ("hw_column_stats", "max_us", core::mem::offset_of!(hw_column_stats, max_us)),
        ("hw_column_stats", "true_count", core::mem::offset_of!(hw_column_stats, true_count)),
        ("hw_column_stats", "category_start", core::mem::offset_of!(hw_column_stats, category_start)),
        ("hw_column_stats", "category_count", core::mem::offset_of!(hw_column_stats, category_count)),
        ("hw_store_counts", "", size_of::<hw_store_counts>()),
        ("hw_store_counts", "struct_bytes", core::mem::offset_of!(hw_store_counts, struct_bytes)),
        ("hw_store_counts", "table_count", core::mem::offset_of!(hw_store_counts, table_count)),
        ("hw_store_counts", "column_count", core::mem::offset_of!(hw_store_counts, column_count)),
        ("hw_store_counts", "key_count", core::mem::offset_of!(hw_store_counts, key_count)),
        ("hw_store_counts", "task_count", core::mem::offset_of!(hw_store_counts, task_count)),
        ("hw_store_counts", "row_count", core::mem::offset_of!(hw_store_counts, row_count)),
        ("hw_store_counts", "category_count", core::mem::offset_of!(hw_store_counts, category_count)),
        ("hw_store_counts", "text_count", core::mem::offset_of!(hw_store_counts, text_count)),
        ("hw_store_counts", "text_dim", core::mem::offset_of!(hw_store_counts, text_dim)),
        ("hw_store_counts", "time_mean_us", core::mem::offset_of!(hw_store_counts, time_mean_us)),
        ("hw_store_counts", "time_std_us", core::mem::offset_of!(hw_store_counts, time_std_us)),
        ("hw_table_info", "", size_of::<hw_table_info>()),
        ("hw_table_info", "struct_bytes", core::mem::offset_of!(hw_table_info, struct_bytes)),
        ("hw_table_info", "name", core::mem::offset_of!(hw_table_info, name)),
        ("hw_table_info", "first_row", core::mem::offset_of!(hw_table_info, first_row)),
        ("hw_table_info", "row_count", core::mem::offset_of!(hw_table_info, row_count)),
        ("hw_table_info", "first_column", core::mem::offset_of!(hw_table_info, first_column)),
        ("hw_table_info", "column_count", core::mem::offset_of!(hw_table_info, column_count)),
        ("hw_table_info", "first_key", core::mem::offset_of!(hw_table_info, first_key)),
        ("hw_table_info", "key_count", core::mem::offset_of!(hw_table_info, key_count)),
        ("hw_table_info", "temporal_column", core::mem::offset_of!(hw_table_info, temporal_column)),
        ("hw_table_info", "primary_key_count", core::mem::offset_of!(hw_table_info, primary_key_count)),
        ("hw_table_info", "primary_key", core::mem::offset_of!(hw_table_info, primary_key)),
        ("hw_table_info", "is_keyed", core::mem::offset_of!(hw_table_info, is_keyed)),
        ("hw_table_info", "reserved", core::mem::offset_of!(hw_table_info, reserved)),
        ("hw_column_info", "", size_of::<hw_column_info>()),
        ("hw_column_info", "struct_bytes", core::mem::offset_of!(hw_column_info, struct_bytes)),
        ("hw_column_info", "name", core::mem::offset_of!(hw_column_info, name)),
        ("hw_column_info", "table", core::mem::offset_of!(hw_column_info, table)),
        ("hw_column_info", "task", core::mem::offset_of!(hw_column_info, task)),
        ("hw_column_info", "stype", core::mem::offset_of!(hw_column_info, stype)),
        ("hw_column_info", "known", core::mem::offset_of!(hw_column_info, known)),
        ("hw_column_info", "known_column", core::mem::offset_of!(hw_column_info, known_column)),
        ("hw_column_info", "first_category", core::mem::offset_of!(hw_column_info, first_category)),
        ("hw_column_info", "category_count", core::mem::offset_of!(hw_column_info, category_count)),
        ("hw_column_info", "known_offset_us", core::mem::offset_of!(hw_column_info, known_offset_us)),
        ("hw_column_info", "mean", core::mem::offset_of!(hw_column_info, mean)),
        ("hw_column_info", "std", core::mem::offset_of!(hw_column_info, std)),
        ("hw_column_info", "value_count", core::mem::offset_of!(hw_column_info, value_count)),
        ("hw_column_info", "null_count", core::mem::offset_of!(hw_column_info, null_count)),
        ("hw_key_info", "", size_of::<hw_key_info>()),
        ("hw_key_info", "struct_bytes", core::mem::offset_of!(hw_key_info, struct_bytes)),
        ("hw_key_info", "name", core::mem::offset_of!(hw_key_info, name)),
        ("hw_key_info", "child_table", core::mem::offset_of!(hw_key_info, child_table)),
        ("hw_key_info", "parent_table", core::mem::offset_of!(hw_key_info, parent_table)),
        ("hw_key_info", "column_count", core::mem::offset_of!(hw_key_info, column_count)),
        ("hw_key_info", "columns", core::mem::offset_of!(hw_key_info, columns)),
        ("hw_key_info", "parent_columns", core::mem::offset_of!(hw_key_info, parent_columns)),
        ("hw_key_info", "edge_count", core::mem::offset_of!(hw_key_info, edge_count)),
        ("hw_key_info", "null_count", core::mem::offset_of!(hw_key_info, null_count)),
        ("hw_key_info", "dangling_count", core::mem::offset_of!(hw_key_info, dangling_count)),
        ("hw_task_info", "", size_of::<hw_task_info>()),
        ("hw_task_info", "struct_bytes", core::mem::offset_of!(hw_task_info, struct_bytes)),
        ("hw_task_info", "name", core::mem::offset_of!(hw_task_info, name)),
        ("hw_task_info", "anchor_table", core::mem::offset_of!(hw_task_info, anchor_table)),
        ("hw_task_info", "target_column", core::mem::offset_of!(hw_task_info, target_column)),
        ("hw_task_info", "target_stype", core::mem::offset_of!(hw_task_info, target_stype)),
        ("hw_task_info", "obs_time_column", core::mem::offset_of!(hw_task_info, obs_time_column)),
        ("hw_task_info", "seed_count", core::mem::offset_of!(hw_task_info, seed_count)),
        ("hw_task_info", "hidden_count", core::mem::offset_of!(hw_task_info, hidden_count)),
        ("hw_task_info", "hidden", core::mem::offset_of!(hw_task_info, hidden)),
        ("hw_task_info", "context_labels", core::mem::offset_of!(hw_task_info, context_labels)),
        ("hw_task_info", "is_cell", core::mem::offset_of!(hw_task_info, is_cell)),
        ("hw_task_info", "exclusive", core::mem::offset_of!(hw_task_info, exclusive)),
        ("hw_task_info", "given_split", core::mem::offset_of!(hw_task_info, given_split)),
        ("hw_task_info", "label_times", core::mem::offset_of!(hw_task_info, label_times)),
        ("hw_verification", "", size_of::<hw_verification>()),
        ("hw_verification", "struct_bytes", core::mem::offset_of!(hw_verification, struct_bytes)),
        ("hw_verification", "how", core::mem::offset_of!(hw_verification, how)),
        ("hw_verification", "not_remembered", core::mem::offset_of!(hw_verification, not_remembered)),
        ("hw_verification", "reserved", core::mem::offset_of!(hw_verification, reserved)),
        ("hw_cell", "", size_of::<hw_cell>()),
        ("hw_cell", "struct_bytes", core::mem::offset_of!(hw_cell, struct_bytes)),
        ("hw_cell", "column", core::mem::offset_of!(hw_cell, column)),
        ("hw_cell", "stype", core::mem::offset_of!(hw_cell, stype)),
        ("hw_cell", "is_null", core::mem::offset_of!(hw_cell, is_null)),
        ("hw_cell", "number", core::mem::offset_of!(hw_cell, number)),
        ("hw_cell", "time_us", core::mem::offset_of!(hw_cell, time_us)),
        ("hw_cell", "index", core::mem::offset_of!(hw_cell, index)),
        ("hw_cell", "reserved", core::mem::offset_of!(hw_cell, reserved)),
        ("hw_seeds", "", size_of::<hw_seeds>()),
        ("hw_seeds", "struct_bytes", core::mem::offset_of!(hw_seeds, struct_bytes)),
        ("hw_seeds", "count", core::mem::offset_of!(hw_seeds, count)),
        ("hw_seeds", "anchors", core::mem::offset_of!(hw_seeds, anchors)),
        ("hw_seeds", "obs_times", core::mem::offset_of!(hw_seeds, obs_times)),
        ("hw_seeds", "targets", core::mem::offset_of!(hw_seeds, targets)),
        ("hw_seeds", "states", core::mem::offset_of!(hw_seeds, states)),
        ("hw_seeds", "key_hashes", core::mem::offset_of!(hw_seeds, key_hashes)),
        ("hw_seeds", "positions", core::mem::offset_of!(hw_seeds, positions)),
        ("hw_seeds", "label_times", core::mem::offset_of!(hw_seeds, label_times)),
        ("hw_sampler_options", "", size_of::<hw_sampler_options>()),
        ("hw_sampler_options", "struct_bytes", core::mem::offset_of!(hw_sampler_options, struct_bytes)),
        ("hw_sampler_options", "rank", core::mem::offset_of!(hw_sampler_options, rank)),
        ("hw_sampler_options", "world_size", core::mem::offset_of!(hw_sampler_options, world_size)),
        ("hw_sampler_options", "shard", core::mem::offset_of!(hw_sampler_options, shard)),
        ("hw_sampler_options", "split_ratios", core::mem::offset_of!(hw_sampler_options, split_ratios)),
        ("hw_sampler_options", "split_seed", core::mem::offset_of!(hw_sampler_options, split_seed)),
        ("hw_sampler_options", "seed", core::mem::offset_of!(hw_sampler_options, seed)),
        ("hw_sampler_options", "batch_size", core::mem::offset_of!(hw_sampler_options, batch_size)),
        ("hw_sampler_options", "sequence_length", core::mem::offset_of!(hw_sampler_options, sequence_length)),
        ("hw_sampler_options", "max_rows", core::mem::offset_of!(hw_sampler_options, max_rows)),
        ("hw_sampler_options", "child_width", core::mem::offset_of!(hw_sampler_options, child_width)),
        ("hw_sampler_options", "max_hops", core::mem::offset_of!(hw_sampler_options, max_hops)),
        ("hw_sampler_options", "width_scope", core::mem::offset_of!(hw_sampler_options, width_scope)),
        ("hw_sampler_options", "child_order", core::mem::offset_of!(hw_sampler_options, child_order)),
        ("hw_sampler_options", "identifier_cells", core::mem::offset_of!(hw_sampler_options, identifier_cells)),
        ("hw_sampler_options", "context_labels", core::mem::offset_of!(hw_sampler_options, context_labels)),
        ("hw_sampler_options", "targets", core::mem::offset_of!(hw_sampler_options, targets)),
        ("hw_sampler_options", "task_order", core::mem::offset_of!(hw_sampler_options, task_order)),
        ("hw_sampler_options", "tasks", core::mem::offset_of!(hw_sampler_options, tasks)),
        ("hw_sampler_options", "task_count", core::mem::offset_of!(hw_sampler_options, task_count)),
        ("hw_sampler_options", "task_weights", core::mem::offset_of!(hw_sampler_options, task_weights)),
        ("hw_sampler_options", "visible_until", core::mem::offset_of!(hw_sampler_options, visible_until)),
        ("hw_sampler_options", "num_threads", core::mem::offset_of!(hw_sampler_options, num_threads)),
        ("hw_sampler_options", "num_prefetch", core::mem::offset_of!(hw_sampler_options, num_prefetch)),
        ("hw_sampler_options", "num_prefetch_val", core::mem::offset_of!(hw_sampler_options, num_prefetch_val)),
        ("hw_sampler_options", "text_budget", core::mem::offset_of!(hw_sampler_options, text_budget)),
        ("hw_sampler_options", "with_rows", core::mem::offset_of!(hw_sampler_options, with_rows)),
        ("hw_sampler_options", "layout", core::mem::offset_of!(hw_sampler_options, layout)),
        ("hw_sampler_options", "text_mode", core::mem::offset_of!(hw_sampler_options, text_mode)),
        ("hw_sampler_options", "attention_masks", core::mem::offset_of!(hw_sampler_options, attention_masks)),
        ("hw_sampler_options", "packing", core::mem::offset_of!(hw_sampler_options, packing)),
        ("hw_sampler_options", "contexts_per_batch", core::mem::offset_of!(hw_sampler_options, contexts_per_batch)),
        ("hw_sampler_options", "level_block", core::mem::offset_of!(hw_sampler_options, level_block)),
        ("hw_sampler_options", "level_parts", core::mem::offset_of!(hw_sampler_options, level_parts)),
        ("hw_sampler_options", "staleness_zero_share", core::mem::offset_of!(hw_sampler_options, staleness_zero_share)),
        ("hw_sampler_options", "staleness_max_days", core::mem::offset_of!(hw_sampler_options, staleness_max_days)),
        ("hw_sampler_options", "child_counts", core::mem::offset_of!(hw_sampler_options, child_counts)),
        ("hw_sampler_options", "label_rows", core::mem::offset_of!(hw_sampler_options, label_rows)),
        ("hw_sampler_options", "time_split", core::mem::offset_of!(hw_sampler_options, time_split)),
        ("hw_sampler_options", "train_on_val", core::mem::offset_of!(hw_sampler_options, train_on_val)),
        ("hw_sampler_options", "objective", core::mem::offset_of!(hw_sampler_options, objective)),
        ("hw_sampler_options", "mask_ratio", core::mem::offset_of!(hw_sampler_options, mask_ratio)),
        ("hw_sampler_options", "seed_tables", core::mem::offset_of!(hw_sampler_options, seed_tables)),
        ("hw_sampler_options", "seed_table_count", core::mem::offset_of!(hw_sampler_options, seed_table_count)),
        ("hw_sampler_options", "max_targets_per_type", core::mem::offset_of!(hw_sampler_options, max_targets_per_type)),
        ("hw_sampler_options", "peer_labels", core::mem::offset_of!(hw_sampler_options, peer_labels)),
        ("hw_sampler_options", "cell_dropout", core::mem::offset_of!(hw_sampler_options, cell_dropout)),
        ("hw_sampler_options", "context_length", core::mem::offset_of!(hw_sampler_options, context_length)),
        ("hw_sampler_options", "max_context_rows", core::mem::offset_of!(hw_sampler_options, max_context_rows)),
        ("hw_option_field", "", size_of::<hw_option_field>()),
        ("hw_option_field", "struct_bytes", core::mem::offset_of!(hw_option_field, struct_bytes)),
        ("hw_option_field", "name", core::mem::offset_of!(hw_option_field, name)),
        ("hw_option_field", "type_", core::mem::offset_of!(hw_option_field, type_)),
        ("hw_option_field", "offset", core::mem::offset_of!(hw_option_field, offset)),
        ("hw_option_field", "count", core::mem::offset_of!(hw_option_field, count)),
        ("hw_option_field", "standard", core::mem::offset_of!(hw_option_field, standard)),
        ("hw_option_field", "least", core::mem::offset_of!(hw_option_field, least)),
        ("hw_option_field", "most", core::mem::offset_of!(hw_option_field, most)),
        ("hw_option_field", "words", core::mem::offset_of!(hw_option_field, words)),
        ("hw_option_field", "decides_contexts", core::mem::offset_of!(hw_option_field, decides_contexts)),
        ("hw_option_field", "doc", core::mem::offset_of!(hw_option_field, doc)),
        ("hw_shape", "", size_of::<hw_shape>()),
        ("hw_shape", "struct_bytes", core::mem::offset_of!(hw_shape, struct_bytes)),
        ("hw_shape", "batch_size", core::mem::offset_of!(hw_shape, batch_size)),
        ("hw_shape", "sequence_length", core::mem::offset_of!(hw_shape, sequence_length)),
        ("hw_shape", "max_rows", core::mem::offset_of!(hw_shape, max_rows)),
        ("hw_shape", "text_budget", core::mem::offset_of!(hw_shape, text_budget)),
        ("hw_shape", "text_dim", core::mem::offset_of!(hw_shape, text_dim)),
        ("hw_shape", "parent_slots", core::mem::offset_of!(hw_shape, parent_slots)),
        ("hw_shape", "contexts_per_batch", core::mem::offset_of!(hw_shape, contexts_per_batch)),
        ("hw_shape", "contexts_per_sequence", core::mem::offset_of!(hw_shape, contexts_per_sequence)),
        ("hw_shape", "max_targets_per_type", core::mem::offset_of!(hw_shape, max_targets_per_type)),
        ("hw_shape", "usual_texts", core::mem::offset_of!(hw_shape, usual_texts)),
        ("hw_shape", "cells_per_batch", core::mem::offset_of!(hw_shape, cells_per_batch)),
        ("hw_shape", "rows_per_batch", core::mem::offset_of!(hw_shape, rows_per_batch)),
        ("hw_shape", "context_length", core::mem::offset_of!(hw_shape, context_length)),
        ("hw_shape", "max_context_rows", core::mem::offset_of!(hw_shape, max_context_rows)),
        ("hw_flat_shape", "", size_of::<hw_flat_shape>()),
        ("hw_flat_shape", "struct_bytes", core::mem::offset_of!(hw_flat_shape, struct_bytes)),
        ("hw_flat_shape", "cells", core::mem::offset_of!(hw_flat_shape, cells)),
        ("hw_flat_shape", "rows", core::mem::offset_of!(hw_flat_shape, rows)),
        ("hw_flat_shape", "pass_cells", core::mem::offset_of!(hw_flat_shape, pass_cells)),
        ("hw_flat_shape", "pass_rows", core::mem::offset_of!(hw_flat_shape, pass_rows)),
        ("hw_flat_shape", "sampled", core::mem::offset_of!(hw_flat_shape, sampled)),
        ("hw_flat_shape", "capped", core::mem::offset_of!(hw_flat_shape, capped)),
        ("hw_subgraph_arrays", "", size_of::<hw_subgraph_arrays>()),
        ("hw_subgraph_arrays", "struct_bytes", core::mem::offset_of!(hw_subgraph_arrays, struct_bytes)),
        ("hw_subgraph_arrays", "row_count", core::mem::offset_of!(hw_subgraph_arrays, row_count)),
        ("hw_subgraph_arrays", "edge_count", core::mem::offset_of!(hw_subgraph_arrays, edge_count)),
        ("hw_subgraph_arrays", "rows", core::mem::offset_of!(hw_subgraph_arrays, rows)),
        ("hw_subgraph_arrays", "row_tables", core::mem::offset_of!(hw_subgraph_arrays, row_tables)),
        ("hw_subgraph_arrays", "row_depths", core::mem::offset_of!(hw_subgraph_arrays, row_depths)),
        ("hw_subgraph_arrays", "local_edges", core::mem::offset_of!(hw_subgraph_arrays, local_edges)),
        ("hw_target_stats", "", size_of::<hw_target_stats>()),
        ("hw_target_stats", "struct_bytes", core::mem::offset_of!(hw_target_stats, struct_bytes)),
        ("hw_target_stats", "train_count", core::mem::offset_of!(hw_target_stats, train_count)),
        ("hw_target_stats", "null_count", core::mem::offset_of!(hw_target_stats, null_count)),
        ("hw_target_stats", "mean", core::mem::offset_of!(hw_target_stats, mean)),
        ("hw_target_stats", "std", core::mem::offset_of!(hw_target_stats, std)),
        ("hw_target_stats", "column_mean", core::mem::offset_of!(hw_target_stats, column_mean)),
        ("hw_target_stats", "column_std", core::mem::offset_of!(hw_target_stats, column_std)),
        ("hw_drawn_seeds", "", size_of::<hw_drawn_seeds>()),
        ("hw_drawn_seeds", "struct_bytes", core::mem::offset_of!(hw_drawn_seeds, struct_bytes)),
        ("hw_drawn_seeds", "seeds", core::mem::offset_of!(hw_drawn_seeds, seeds)),
        ("hw_drawn_seeds", "epochs", core::mem::offset_of!(hw_drawn_seeds, epochs)),
        ("hw_drawn_seeds", "rows", core::mem::offset_of!(hw_drawn_seeds, rows)),
        ("hw_drawn_seeds", "obs_times", core::mem::offset_of!(hw_drawn_seeds, obs_times)),
        ("hw_drawn_seeds", "labels", core::mem::offset_of!(hw_drawn_seeds, labels)),
        ("hw_drawn_seeds", "tasks", core::mem::offset_of!(hw_drawn_seeds, tasks)),
        ("hw_sampler_stats", "", size_of::<hw_sampler_stats>()),
        ("hw_sampler_stats", "struct_bytes", core::mem::offset_of!(hw_sampler_stats, struct_bytes)),
        ("hw_sampler_stats", "batches", core::mem::offset_of!(hw_sampler_stats, batches)),
        ("hw_sampler_stats", "sequences", core::mem::offset_of!(hw_sampler_stats, sequences)),
        ("hw_sampler_stats", "cells", core::mem::offset_of!(hw_sampler_stats, cells)),
        ("hw_sampler_stats", "padded_cells", core::mem::offset_of!(hw_sampler_stats, padded_cells)),
        ("hw_sampler_stats", "rows", core::mem::offset_of!(hw_sampler_stats, rows)),
        ("hw_sampler_stats", "walk_ns", core::mem::offset_of!(hw_sampler_stats, walk_ns)),
        ("hw_sampler_stats", "emit_ns", core::mem::offset_of!(hw_sampler_stats, emit_ns)),
        ("hw_sampler_stats", "text_ns", core::mem::offset_of!(hw_sampler_stats, text_ns)),
        ("hw_sampler_stats", "producer_wait_ns", core::mem::offset_of!(hw_sampler_stats, producer_wait_ns)),
        ("hw_sampler_stats", "consumer_wait_ns", core::mem::offset_of!(hw_sampler_stats, consumer_wait_ns)),
        ("hw_sampler_stats", "elapsed_ns", core::mem::offset_of!(hw_sampler_stats, elapsed_ns)),
        ("hw_sampler_stats", "stopped_by_rows", core::mem::offset_of!(hw_sampler_stats, stopped_by_rows)),
        ("hw_sampler_stats", "texts_over_budget", core::mem::offset_of!(hw_sampler_stats, texts_over_budget)),
        ("hw_sampler_stats", "threads", core::mem::offset_of!(hw_sampler_stats, threads)),
        ("hw_sampler_stats", "train_queue", core::mem::offset_of!(hw_sampler_stats, train_queue)),
        ("hw_sampler_stats", "val_queue", core::mem::offset_of!(hw_sampler_stats, val_queue)),
        ("hw_sampler_stats", "pass_queue", core::mem::offset_of!(hw_sampler_stats, pass_queue)),
        ("hw_sampler_stats", "slab_bytes", core::mem::offset_of!(hw_sampler_stats, slab_bytes)),
        ("hw_sampler_stats", "slab_count", core::mem::offset_of!(hw_sampler_stats, slab_count)),
        ("hw_sampler_stats", "contexts_cut", core::mem::offset_of!(hw_sampler_stats, contexts_cut)),
        ("hw_sampler_stats", "contexts_dropped", core::mem::offset_of!(hw_sampler_stats, contexts_dropped)),
        ("hw_sampler_stats", "cells_cut", core::mem::offset_of!(hw_sampler_stats, cells_cut)),
        ("hw_sampler_stats", "packed_cells", core::mem::offset_of!(hw_sampler_stats, packed_cells)),
        ("hw_sampler_stats", "packed_sequences", core::mem::offset_of!(hw_sampler_stats, packed_sequences)),
        ("hw_sampler_stats", "masked_cells", core::mem::offset_of!(hw_sampler_stats, masked_cells)),
        ("hw_sampler_stats", "masked_over_limit", core::mem::offset_of!(hw_sampler_stats, masked_over_limit)),
        ("hw_sampler_stats", "withheld_cells", core::mem::offset_of!(hw_sampler_stats, withheld_cells)),
        ("hw_tensor", "", size_of::<hw_tensor>()),
        ("hw_tensor", "struct_bytes", core::mem::offset_of!(hw_tensor, struct_bytes)),
        ("hw_tensor", "name", core::mem::offset_of!(hw_tensor, name)),
        ("hw_tensor", "dtype", core::mem::offset_of!(hw_tensor, dtype)),
        ("hw_tensor", "rank", core::mem::offset_of!(hw_tensor, rank)),
        ("hw_tensor", "shape", core::mem::offset_of!(hw_tensor, shape)),
        ("hw_tensor", "data", core::mem::offset_of!(hw_tensor, data)),
        ("hw_tensor", "bytes", core::mem::offset_of!(hw_tensor, bytes)),
        ("hw_tensor", "info", core::mem::offset_of!(hw_tensor, info)),
        ("hw_tensor", "reserved", core::mem::offset_of!(hw_tensor, reserved)),
        ("hw_batch_sizes", "", size_of::<hw_batch_sizes>()),
        ("hw_batch_sizes", "struct_bytes", core::mem::offset_of!(hw_batch_sizes, struct_bytes)),
        ("hw_batch_sizes", "texts", core::mem::offset_of!(hw_batch_sizes, texts)),
        ("hw_batch_sizes", "cells", core::mem::offset_of!(hw_batch_sizes, cells)),
        ("hw_batch_sizes", "rows", core::mem::offset_of!(hw_batch_sizes, rows)),
        ("hw_batch_sizes", "reserved", core::mem::offset_of!(hw_batch_sizes, reserved)),
        ("hw_batch_field", "", size_of::<hw_batch_field>()),
        ("hw_batch_field", "struct_bytes", core::mem::offset_of!(hw_batch_field, struct_bytes)),
        ("hw_batch_field", "name", core::mem::offset_of!(hw_batch_field, name)),
        ("hw_batch_field", "dtype", core::mem::offset_of!(hw_batch_field, dtype)),
        ("hw_batch_field", "dims", core::mem::offset_of!(hw_batch_field, dims)),
        ("hw_batch_field", "info", core::mem::offset_of!(hw_batch_field, info)),
        ("hw_batch_field", "when", core::mem::offset_of!(hw_batch_field, when)),
        ("hw_batch_field", "meaning", core::mem::offset_of!(hw_batch_field, meaning)),
        ("hw_calendar_tables", "", size_of::<hw_calendar_tables>()),
        ("hw_calendar_tables", "struct_bytes", core::mem::offset_of!(hw_calendar_tables, struct_bytes)),
        ("hw_calendar_tables", "sixtieths", core::mem::offset_of!(hw_calendar_tables, sixtieths)),
        ("hw_calendar_tables", "hours", core::mem::offset_of!(hw_calendar_tables, hours)),
        ("hw_calendar_tables", "weekdays", core::mem::offset_of!(hw_calendar_tables, weekdays)),
        ("hw_calendar_tables", "dates", core::mem::offset_of!(hw_calendar_tables, dates)),
    ]
}
