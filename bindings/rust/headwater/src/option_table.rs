// Written by tools/rust_options.py from the table of options that the C library has.
use headwater_sys as sys;

use crate::json::Json;
use crate::options::Options;

/// The words of the option `shard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shard {
    /// `fixed`
    Fixed,
    /// `dealt`
    Dealt,
}
impl Shard {
    /// The word, as Python takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Shard::Fixed => "fixed",
            Shard::Dealt => "dealt",
        }
    }
}

/// The words of the option `width_scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WidthScope {
    /// `foreign_key`
    ForeignKey,
    /// `row`
    Row,
}
impl WidthScope {
    /// The word, as Python takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            WidthScope::ForeignKey => "foreign_key",
            WidthScope::Row => "row",
        }
    }
}

/// The words of the option `child_order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChildOrder {
    /// `uniform`
    Uniform,
    /// `recent`
    Recent,
}
impl ChildOrder {
    /// The word, as Python takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            ChildOrder::Uniform => "uniform",
            ChildOrder::Recent => "recent",
        }
    }
}

/// The words of the option `identifier_cells`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdentifierCells {
    /// `all`
    All,
    /// `foreign_keys`
    ForeignKeys,
    /// `none`
    None,
}
impl IdentifierCells {
    /// The word, as Python takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            IdentifierCells::All => "all",
            IdentifierCells::ForeignKeys => "foreign_keys",
            IdentifierCells::None => "none",
        }
    }
}

/// The words of the option `context_labels`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContextLabels {
    /// `default`
    Default,
    /// `train`
    Train,
    /// `none`
    None,
    /// `all`
    All,
}
impl ContextLabels {
    /// The word, as Python takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            ContextLabels::Default => "default",
            ContextLabels::Train => "train",
            ContextLabels::None => "none",
            ContextLabels::All => "all",
        }
    }
}

/// The words of the option `targets`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Targets {
    /// `inline`
    Inline,
    /// `separate`
    Separate,
}
impl Targets {
    /// The word, as Python takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Targets::Inline => "inline",
            Targets::Separate => "separate",
        }
    }
}

/// The words of the option `task_order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskOrder {
    /// `weighted`
    Weighted,
    /// `round_robin`
    RoundRobin,
}
impl TaskOrder {
    /// The word, as Python takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskOrder::Weighted => "weighted",
            TaskOrder::RoundRobin => "round_robin",
        }
    }
}

/// The words of the option `layout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `dense`
    Dense,
    /// `compact`
    Compact,
    /// `flat`
    Flat,
}
impl Layout {
    /// The word, as Python takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Layout::Dense => "dense",
            Layout::Compact => "compact",
            Layout::Flat => "flat",
        }
    }
}

/// The words of the option `text_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TextMode {
    /// `batch`
    Batch,
    /// `resident`
    Resident,
    /// `numbers`
    Numbers,
}
impl TextMode {
    /// The word, as Python takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            TextMode::Batch => "batch",
            TextMode::Resident => "resident",
            TextMode::Numbers => "numbers",
        }
    }
}

/// The words of the option `objective`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Objective {
    /// `task`
    Task,
    /// `masked_cells`
    MaskedCells,
}
impl Objective {
    /// The word, as Python takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Objective::Task => "task",
            Objective::MaskedCells => "masked_cells",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Values {
    pub(crate) rank: Option<u32>,
    pub(crate) world_size: Option<u32>,
    pub(crate) shard: Option<Shard>,
    pub(crate) split_ratios: Option<[f64; 3]>,
    pub(crate) split_seed: Option<u64>,
    pub(crate) seed: Option<u64>,
    pub(crate) batch_size: Option<u32>,
    pub(crate) sequence_length: Option<u32>,
    pub(crate) max_rows: Option<u32>,
    pub(crate) child_width: Option<u32>,
    pub(crate) width_scope: Option<WidthScope>,
    pub(crate) child_order: Option<ChildOrder>,
    pub(crate) identifier_cells: Option<IdentifierCells>,
    pub(crate) context_labels: Option<ContextLabels>,
    pub(crate) targets: Option<Targets>,
    pub(crate) task_order: Option<TaskOrder>,
    pub(crate) task_weights: Option<Vec<f64>>,
    pub(crate) visible_until: Option<[i64; 3]>,
    pub(crate) num_threads: Option<u32>,
    pub(crate) num_prefetch: Option<i32>,
    pub(crate) num_prefetch_val: Option<i32>,
    pub(crate) text_budget: Option<u32>,
    pub(crate) with_rows: Option<bool>,
    pub(crate) layout: Option<Layout>,
    pub(crate) text_mode: Option<TextMode>,
    pub(crate) attention_masks: Option<bool>,
    pub(crate) packing: Option<bool>,
    pub(crate) contexts_per_batch: Option<u32>,
    pub(crate) level_block: Option<u32>,
    pub(crate) level_parts: Option<u32>,
    pub(crate) staleness_zero_share: Option<f64>,
    pub(crate) staleness_max_days: Option<f64>,
    pub(crate) child_counts: Option<bool>,
    pub(crate) label_rows: Option<u32>,
    pub(crate) time_split: Option<[i64; 2]>,
    pub(crate) train_on_val: Option<bool>,
    pub(crate) objective: Option<Objective>,
    pub(crate) mask_ratio: Option<f64>,
    pub(crate) max_targets_per_type: Option<u32>,
    pub(crate) peer_labels: Option<u32>,
    pub(crate) cell_dropout: Option<f64>,
    pub(crate) context_length: Option<u32>,
    pub(crate) max_context_rows: Option<u32>,
}
impl Options {
    /// This process's number, from 0: every seed is seen by exactly one rank per epoch.
    pub fn rank(mut self, value: u32) -> Options {
        self.values.rank = Some(value);
        self
    }

    /// Number of processes that share the seeds.
    pub fn world_size(mut self, value: u32) -> Options {
        self.values.world_size = Some(value);
        self
    }

    /// Whether a seed belongs to one rank for good, or each epoch deals the seeds anew.
    pub fn shard(mut self, value: Shard) -> Options {
        self.values.shard = Some(value);
        self
    }

    /// Shares of train, val and test, where the task does not say which seed is which.
    pub fn split_ratios(mut self, value: [f64; 3]) -> Options {
        self.values.split_ratios = Some(value);
        self
    }

    /// Decides which seed is in which split, nothing else.
    pub fn split_seed(mut self, value: u64) -> Options {
        self.values.split_seed = Some(value);
        self
    }

    /// Order of seeds and draws of children.
    pub fn seed(mut self, value: u64) -> Options {
        self.values.seed = Some(value);
        self
    }

    /// B, sequences per batch.
    pub fn batch_size(mut self, value: u32) -> Options {
        self.values.batch_size = Some(value);
        self
    }

    /// S, cells per sequence.
    pub fn sequence_length(mut self, value: u32) -> Options {
        self.values.sequence_length = Some(value);
        self
    }

    /// R, rows per sequence; by default chosen from a sample.
    pub fn max_rows(mut self, value: u32) -> Options {
        self.values.max_rows = Some(value);
        self
    }

    /// Most children taken of a row, per foreign key or in all (width_scope).
    pub fn child_width(mut self, value: u32) -> Options {
        self.values.child_width = Some(value);
        self
    }

    /// What child_width is per.
    pub fn width_scope(mut self, value: WidthScope) -> Options {
        self.values.width_scope = Some(value);
        self
    }

    /// Which children are taken.
    pub fn child_order(mut self, value: ChildOrder) -> Options {
        self.values.child_order = Some(value);
        self
    }

    /// Which keys become cells.
    pub fn identifier_cells(mut self, value: IdentifierCells) -> Options {
        self.values.identifier_cells = Some(value);
        self
    }

    /// Whose labels contexts show once they are known; by default as each task says.
    pub fn context_labels(mut self, value: ContextLabels) -> Options {
        self.values.context_labels = Some(value);
        self
    }

    /// Whether targets stand in their cells or in arrays of their own.
    pub fn targets(mut self, value: Targets) -> Options {
        self.values.targets = Some(value);
        self
    }

    /// How the tasks of a stream take turns.
    pub fn task_order(mut self, value: TaskOrder) -> Options {
        self.values.task_order = Some(value);
        self
    }

    /// How often each task has its turn; by default equally often.
    pub fn task_weights(mut self, value: Vec<f64>) -> Options {
        self.values.task_weights = Some(value);
        self
    }

    /// By split a time after which nothing is ever shown.
    pub fn visible_until(mut self, value: [i64; 3]) -> Options {
        self.values.visible_until = Some(value);
        self
    }

    /// Threads of the sampler's own that make batches; by default all samplers of the process share as many as there are usable cores, at most 16.
    pub fn num_threads(mut self, value: u32) -> Options {
        self.values.num_threads = Some(value);
        self
    }

    /// Batches made ahead, at most; 0: each is made when it is asked for, without threads; by default 3, or as many as keep all threads at work (docs/guides/tuning.md).
    pub fn num_prefetch(mut self, value: i32) -> Options {
        self.values.num_prefetch = Some(value);
        self
    }

    /// The same of the stream of val.
    pub fn num_prefetch_val(mut self, value: i32) -> Options {
        self.values.num_prefetch_val = Some(value);
        self
    }

    /// U, texts per batch; by default chosen from a sample.
    pub fn text_budget(mut self, value: u32) -> Options {
        self.values.text_budget = Some(value);
        self
    }

    /// Adds row_depths, and row_ids in info.
    pub fn with_rows(mut self, value: bool) -> Options {
        self.values.with_rows = Some(value);
        self
    }

    /// Arrays that are ready to compute with; at most a fifth as large; or without padding.
    pub fn layout(mut self, value: Layout) -> Options {
        self.values.layout = Some(value);
        self
    }

    /// Vectors of texts are in each batch; or the caller has them all, and cells name them; or the caller has them, and each batch lists its own.
    pub fn text_mode(mut self, value: TextMode) -> Options {
        self.values.text_mode = Some(value);
        self
    }

    /// Adds column_mask, feature_mask, neighbor_mask \[B,S,S\] and padding_mask.
    pub fn attention_masks(mut self, value: bool) -> Options {
        self.values.attention_masks = Some(value);
        self
    }

    /// Puts several contexts into a sequence (batch.md, "Packing").
    pub fn packing(mut self, value: bool) -> Options {
        self.values.packing = Some(value);
        self
    }

    /// Seeds that a batch owns with packing; by default as many as fit uncut.
    pub fn contexts_per_batch(mut self, value: u32) -> Options {
        self.values.contexts_per_batch = Some(value);
        self
    }

    /// With layout flat: batches whose contexts are dealt to equal lengths together; 1: batches keep the order of the stream.
    pub fn level_block(mut self, value: u32) -> Options {
        self.values.level_block = Some(value);
        self
    }

    /// With layout flat: batches that one step of the trainer takes, levelled as one batch first.
    pub fn level_parts(mut self, value: u32) -> Options {
        self.values.level_parts = Some(value);
        self
    }

    /// Probability that a train seed sees all that it may (staleness_max_days).
    pub fn staleness_zero_share(mut self, value: f64) -> Options {
        self.values.staleness_zero_share = Some(value);
        self
    }

    /// A train seed sees less by a gap of up to so many days (sampling.md, "Staleness").
    pub fn staleness_max_days(mut self, value: f64) -> Options {
        self.values.staleness_max_days = Some(value);
        self
    }

    /// Three cells per foreign key that points at a row: how many of its children are visible, and the ages of the last and the first.
    pub fn child_counts(mut self, value: bool) -> Options {
        self.values.child_counts = Some(value);
        self
    }

    /// Most rows with the known labels of the anchor's earlier seeds, in contexts of derived tasks.
    pub fn label_rows(mut self, value: u32) -> Options {
        self.values.label_rows = Some(value);
        self
    }

    /// (at, until): deals the seeds of train anew, for a backtest (sampling.md, "Splits by time").
    pub fn time_split(mut self, value: [i64; 2]) -> Options {
        self.values.time_split = Some(value);
        self
    }

    /// The seeds of val are train's, for the last fit before test; val then has none.
    pub fn train_on_val(mut self, value: bool) -> Options {
        self.values.train_on_val = Some(value);
        self
    }

    /// A task's target, or masked cells of contexts without a question.
    pub fn objective(mut self, value: Objective) -> Options {
        self.values.objective = Some(value);
        self
    }

    /// Probability that a cell is masked; by default 0.15 for masked cells, else 0.
    pub fn mask_ratio(mut self, value: f64) -> Options {
        self.values.mask_ratio = Some(value);
        self
    }

    /// M, masked cells of one type in a sequence; by default chosen from a sample.
    pub fn max_targets_per_type(mut self, value: u32) -> Options {
        self.values.max_targets_per_type = Some(value);
        self
    }

    /// Most rows with the labels of other anchors that became known last, at most 1024.
    pub fn peer_labels(mut self, value: u32) -> Options {
        self.values.peer_labels = Some(value);
        self
    }

    /// Probability, less than 1, that a cell is left out of a train context; never the target, a masked cell or a row's first (sampling.md, "Cell dropout").
    pub fn cell_dropout(mut self, value: f64) -> Options {
        self.values.cell_dropout = Some(value);
        self
    }

    /// With packing: most cells of a context, at most S, which is the default.
    pub fn context_length(mut self, value: u32) -> Options {
        self.values.context_length = Some(value);
        self
    }

    /// With packing: most rows of a context, at most max_rows; by default that, or chosen where that is.
    pub fn max_context_rows(mut self, value: u32) -> Options {
        self.values.max_context_rows = Some(value);
        self
    }
}
impl Values {
    /// Sets the members of C's struct, whose lists point into these values.
    pub(crate) fn put(&self, raw: &mut sys::hw_sampler_options) {
        if let Some(value) = &self.rank {
            raw.rank = *value;
        }
        if let Some(value) = &self.world_size {
            raw.world_size = *value;
        }
        if let Some(value) = &self.shard {
            raw.shard = *value as u32;
        }
        if let Some(value) = &self.split_ratios {
            raw.split_ratios = *value;
        }
        if let Some(value) = &self.split_seed {
            raw.split_seed = *value;
        }
        if let Some(value) = &self.seed {
            raw.seed = *value;
        }
        if let Some(value) = &self.batch_size {
            raw.batch_size = *value;
        }
        if let Some(value) = &self.sequence_length {
            raw.sequence_length = *value;
        }
        if let Some(value) = &self.max_rows {
            raw.max_rows = *value;
        }
        if let Some(value) = &self.child_width {
            raw.child_width = *value;
        }
        if let Some(value) = &self.width_scope {
            raw.width_scope = *value as u32;
        }
        if let Some(value) = &self.child_order {
            raw.child_order = *value as u32;
        }
        if let Some(value) = &self.identifier_cells {
            raw.identifier_cells = *value as u32;
        }
        if let Some(value) = &self.context_labels {
            raw.context_labels = *value as u32;
        }
        if let Some(value) = &self.targets {
            raw.targets = *value as u32;
        }
        if let Some(value) = &self.task_order {
            raw.task_order = *value as u32;
        }
        if let Some(value) = &self.task_weights {
            raw.task_weights = value.as_ptr();
        }
        if let Some(value) = &self.visible_until {
            raw.visible_until = value.as_ptr();
        }
        if let Some(value) = &self.num_threads {
            raw.num_threads = *value;
        }
        if let Some(value) = &self.num_prefetch {
            raw.num_prefetch = *value;
        }
        if let Some(value) = &self.num_prefetch_val {
            raw.num_prefetch_val = *value;
        }
        if let Some(value) = &self.text_budget {
            raw.text_budget = *value;
        }
        if let Some(value) = &self.with_rows {
            raw.with_rows = u8::from(*value);
        }
        if let Some(value) = &self.layout {
            raw.layout = *value as u32;
        }
        if let Some(value) = &self.text_mode {
            raw.text_mode = *value as u32;
        }
        if let Some(value) = &self.attention_masks {
            raw.attention_masks = u8::from(*value);
        }
        if let Some(value) = &self.packing {
            raw.packing = u8::from(*value);
        }
        if let Some(value) = &self.contexts_per_batch {
            raw.contexts_per_batch = *value;
        }
        if let Some(value) = &self.level_block {
            raw.level_block = *value;
        }
        if let Some(value) = &self.level_parts {
            raw.level_parts = *value;
        }
        if let Some(value) = &self.staleness_zero_share {
            raw.staleness_zero_share = *value;
        }
        if let Some(value) = &self.staleness_max_days {
            raw.staleness_max_days = *value;
        }
        if let Some(value) = &self.child_counts {
            raw.child_counts = u8::from(*value);
        }
        if let Some(value) = &self.label_rows {
            raw.label_rows = *value;
        }
        if let Some(value) = &self.time_split {
            raw.time_split = value.as_ptr();
        }
        if let Some(value) = &self.train_on_val {
            raw.train_on_val = u8::from(*value);
        }
        if let Some(value) = &self.objective {
            raw.objective = *value as u32;
        }
        if let Some(value) = &self.mask_ratio {
            raw.mask_ratio = *value;
        }
        if let Some(value) = &self.max_targets_per_type {
            raw.max_targets_per_type = *value;
        }
        if let Some(value) = &self.peer_labels {
            raw.peer_labels = *value;
        }
        if let Some(value) = &self.cell_dropout {
            raw.cell_dropout = *value;
        }
        if let Some(value) = &self.context_length {
            raw.context_length = *value;
        }
        if let Some(value) = &self.max_context_rows {
            raw.max_context_rows = *value;
        }
    }
}
/// The options that decide contexts, by Python's names, as a saved state has them.
pub(crate) fn deciding(raw: &sys::hw_sampler_options) -> Vec<(&'static str, Json)> {
    vec![
        ("shard", match raw.shard { 0 => Json::text("fixed"), 1 => Json::text("dealt"), _ => Json::from(raw.shard) }),
        ("split_ratios", Json::list(raw.split_ratios)),
        ("split_seed", Json::from(raw.split_seed)),
        ("seed", Json::from(raw.seed)),
        ("bfs_child_width", Json::from(raw.child_width)),
        ("max_hops", Json::chosen(raw.max_hops > 0, raw.max_hops.wrapping_sub(1))),
        ("child_width_per", match raw.width_scope { 0 => Json::text("foreign_key"), 1 => Json::text("row"), _ => Json::from(raw.width_scope) }),
        ("child_order", match raw.child_order { 0 => Json::text("uniform"), 1 => Json::text("recent"), _ => Json::from(raw.child_order) }),
        ("identifier_cells", match raw.identifier_cells { 0 => Json::text("all"), 1 => Json::text("foreign_keys"), 2 => Json::text("none"), _ => Json::from(raw.identifier_cells) }),
        ("context_labels", match raw.context_labels { 0 => Json::Null, 1 => Json::text("train"), 2 => Json::text("none"), 3 => Json::text("all"), _ => Json::from(raw.context_labels) }),
        ("task_order", match raw.task_order { 0 => Json::text("weighted"), 1 => Json::text("round_robin"), _ => Json::from(raw.task_order) }),
        ("packing", Json::Bool(raw.packing != 0)),
        ("child_counts", Json::Bool(raw.child_counts != 0)),
        ("label_rows", Json::from(raw.label_rows)),
        ("train_on_val", Json::Bool(raw.train_on_val != 0)),
        ("objective", match raw.objective { 0 => Json::text("task"), 1 => Json::text("masked_cells"), _ => Json::from(raw.objective) }),
        ("peer_labels", Json::from(raw.peer_labels)),
        ("cell_dropout", Json::from(raw.cell_dropout)),
    ]
}
