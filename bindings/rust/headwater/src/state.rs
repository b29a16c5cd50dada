//! Where the streams of a sampler, or a pool of seeds, stand: the documents of Python's
//! `state_dict`.
#![forbid(unsafe_code)]

use headwater_sys as sys;

use crate::error::{Error, Result};
use crate::ffi;
use crate::json::Json;
use crate::option_table::{TaskOrder, deciding};
use crate::options::{Options, Resolved};
use crate::sampler::{Sampler, Split};
use crate::seeds::{SeedPool, Sources};
use crate::store::Store;

/// Of Python's `Sampler.state_dict` and `SeedPool.state_dict`.
const SAMPLER_VERSION: u32 = 3;
const POOL_VERSION: u32 = 1;
/// Of masked cells, if none is given: Python's.
const MASK_RATIO: f64 = 0.15;
const STREAMS: [Split; 2] = [Split::Train, Split::Val];

/// Where the streams of a [`Sampler`], or a [`SeedPool`], stand. A run that is saved in Rust
/// continues in Python, and the other way round: the JSON is that of Python's `state_dict()`.
#[derive(Clone, Debug, PartialEq)]
pub struct State(Json);

impl State {
    /// The JSON, in one line.
    pub fn to_json(&self) -> String {
        self.0.to_text()
    }

    /// A state from its JSON. [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument) names the
    /// byte that is no JSON.
    pub fn from_json(text: &str) -> Result<State> {
        Json::read(text).map(State)
    }

    fn new(
        version: u32,
        store: &Store,
        options: Vec<(String, Json)>,
        more: impl IntoIterator<Item = (&'static str, Json)>,
    ) -> State {
        let first = [
            ("version", Json::from(version)),
            ("fingerprint", Json::text(&store.fingerprint())),
            ("options", Json::Object(options)),
        ];
        State(Json::object(first.into_iter().chain(more)))
    }

    /// [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument) unless this state may be loaded
    /// where `made` is taken; the message names all that differs. kind: whose state, for messages.
    fn check(&self, made: &State, kind: &str) -> Result<()> {
        let (version, expected) = (self.0.get("version"), made.0.get("version"));
        if version != expected {
            let (found, expected) = (text_of(version), text_of(expected));
            let message = format!("the state has version {found}, expected {expected}");
            return Err(Error::bad_argument(message));
        }
        for (name, _) in made.0.members() {
            self.0.get(name).ok_or_else(|| not_whole(name))?;
        }
        let mut faults = Vec::new();
        let of_store = |state: &State| text_of(state.0.get("fingerprint"));
        if of_store(self) != of_store(made) {
            faults.push(format!("store {} is now {}", of_store(self), of_store(made)));
        }
        let options = |state: &State| state.0.get("options").cloned().unwrap_or(Json::Null);
        let (saved, now) = (options(self), options(made));
        let mut names: Vec<&String> =
            saved.members().iter().chain(now.members()).map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        for name in names {
            let of = |options: &Json| options.get(name).cloned().unwrap_or(Json::Null);
            let (before, now) = (of(&saved), of(&now));
            if before != now {
                let (before, now) = (before.to_text(), now.to_text());
                faults.push(format!("{name} was {before} and is {now}"));
            }
        }
        if faults.is_empty() {
            return Ok(());
        }
        let faults = faults.join("; ");
        Err(Error::bad_argument(format!("the state is of another {kind}: {faults}")))
    }
}

impl Sampler {
    /// Where its streams stand: batches that were handed out count, those made ahead do not.
    ///
    /// It may be loaded with another batch size, rank or number of threads, and with
    /// [`Shard::Dealt`](crate::Shard::Dealt) with another world size.
    pub fn state(&self) -> Result<State> {
        let (sources, mut streams) = (&self.facts.sources, Vec::new());
        for split in STREAMS {
            let (positions, batches) = ffi::position(&self.handle, split, sources.position_count)?;
            let stream =
                [("positions", by_name(sources, &positions)), ("batches", Json::from(batches))];
            streams.push((split.as_str(), Json::object(stream)));
        }
        let more = [("streams", Json::object(streams))];
        Ok(State::new(SAMPLER_VERSION, self.store(), self.facts.deciding.clone(), more))
    }

    /// Continues where a state was taken, and drops what was made ahead.
    /// [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument) names all that differs: the store,
    /// or options that decide contexts.
    pub fn load_state(&self, state: &State) -> Result<()> {
        state.check(&self.state()?, "sampler")?;
        let mut places = Vec::new();
        for split in STREAMS {
            let name = split.as_str();
            let stream = state.0.get("streams").and_then(|streams| streams.get(name));
            let stream = stream.ok_or_else(|| not_whole(name))?;
            let (positions, batches) = place(&self.facts.sources, stream)?;
            let step = self.facts.step;
            if positions.iter().any(|position| position % step != 0) {
                return Err(Error::bad_argument(format!(
                    "the state is not whole: positions of '{name}' are {positions:?}, expected \
                     multiples of world_size, {step}"
                )));
            }
            places.push((split, positions, batches));
        }
        for (split, positions, batches) in places {
            ffi::set_position(&self.handle, split, &positions, batches)?;
        }
        Ok(())
    }
}

impl SeedPool {
    /// Where it stands; it names the rank and the number of ranks.
    pub fn state(&self) -> State {
        let (positions, batches) = ffi::pool_position(&self.pool, self.sources.position_count);
        let (rank, world_size) = self.part();
        let mut options = self.deciding.clone();
        options.push(("together".to_owned(), Json::Bool(self.is_together)));
        options.push(("rank".to_owned(), Json::from(rank)));
        options.push(("world_size".to_owned(), Json::from(world_size)));
        if self.most < u32::MAX {
            options.push(("most".to_owned(), Json::from(u64::from(self.most))));
        }
        let more =
            [("positions", by_name(&self.sources, &positions)), ("batches", Json::from(batches))];
        State::new(POOL_VERSION, &self.store, options, more)
    }

    /// Continues where a state was taken.
    /// [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument) names all that differs: the store,
    /// options that decide seeds, or the rank.
    pub fn load_state(&mut self, state: &State) -> Result<()> {
        state.check(&self.state(), "pool")?;
        let (positions, batches) = place(&self.sources, &state.0)?;
        let own: Vec<u64> =
            self.sources.seeds.iter().map(|(_, number)| positions[*number as usize]).collect();
        if self.is_together && own.iter().any(|position| *position != own[0]) {
            let message = format!("the state is not whole: positions are {own:?}, expected one");
            return Err(Error::bad_argument(message));
        }
        ffi::pool_set_position(&mut self.pool, &positions, batches);
        Ok(())
    }
}

/// What a sampler was opened with.
pub(crate) struct Facts {
    pub(crate) sources: Sources,
    pub(crate) rank: u32,
    pub(crate) world_size: u32,
    /// Of which a position is a multiple: the world size of fixed shards.
    step: u64,
    /// The options that decide contexts, as Python's `Sampler` keeps them.
    deciding: Vec<(String, Json)>,
}

impl Facts {
    pub(crate) fn new(
        sampler: &ffi::SamplerHandle,
        store: &Store,
        options: &Options,
        raw: &sys::hw_sampler_options,
        resolved: Resolved<'_>,
    ) -> Result<Facts> {
        let shape = ffi::shape(sampler)?;
        let values = resolved.values;
        let (mut found, world_size) = (deciding(raw), raw.world_size.max(1));
        let visible_until = values.visible_until.unwrap_or(ALL_TIMES);
        let masks = raw.objective != sys::HW_OBJECTIVE_TASK || raw.mask_ratio > 0.0;
        let mask_ratio = if raw.mask_ratio > 0.0 { raw.mask_ratio } else { MASK_RATIO };
        let by_name = |weights: &Vec<f64>| {
            let weights = weights.iter().map(|weight| Json::from(*weight));
            Json::Object(resolved.names().map(str::to_owned).zip(weights).collect())
        };
        let lengths = if raw.packing != 0 {
            ["context_length", "max_context_rows"]
        } else {
            ["default_sequence_length", "max_rows"]
        };
        let is_stale = raw.staleness_max_days > 0.0;
        let stale = Json::list([raw.staleness_zero_share, raw.staleness_max_days]);
        let texts = shape.text_budget.saturating_sub(1) / shape.contexts_per_batch.max(1);
        found.extend([
            ("visible_until", Json::list(visible_until)),
            ("time_split", values.time_split.map_or(Json::Null, Json::list)),
            ("staleness", if is_stale { stale } else { Json::Null }),
            (lengths[0], Json::from(shape.context_length)),
            (lengths[1], Json::from(shape.max_context_rows)),
            ("texts_per_sequence", Json::chosen(shape.text_budget > 0, texts)),
            ("tasks", Json::List(resolved.names().map(Json::text).collect())),
            ("task_weights", resolved.weights.as_ref().map_or(Json::Null, by_name)),
            ("seed_tables", Json::Bool(options.has_seed_tables())),
            ("mask_ratio", Json::chosen(masks, mask_ratio)),
            ("max_targets_per_type", Json::chosen(masks, shape.max_targets_per_type)),
        ]);
        if raw.layout == sys::HW_LAYOUT_FLAT {
            let contexts = u64::from(shape.batch_size) * u64::from(world_size);
            found.extend([
                ("level_block", Json::from(raw.level_block)),
                ("level_parts", Json::from(raw.level_parts)),
                ("contexts_of_all_ranks", Json::from(contexts)),
            ]);
        }
        if raw.shard == sys::HW_SHARD_FIXED {
            found.push(("world_size", Json::from(world_size)));
        }
        Ok(Facts {
            rank: raw.rank,
            world_size,
            step: if raw.shard == sys::HW_SHARD_FIXED { world_size.into() } else { 1 },
            deciding: owned(found),
            sources: Sources::new(store, options, resolved)?,
        })
    }
}

/// The options that decide the seeds of a pool, as Python's `SeedPool` keeps them. Those that it
/// does not have are added where they are not at their defaults, so that it refuses them.
pub(crate) fn deciding_pool(
    raw: &sys::hw_sampler_options,
    resolved: &Resolved<'_>,
    are_tables: bool,
    split: Split,
    require_label: bool,
) -> Vec<(String, Json)> {
    let (values, names) = (resolved.values, resolved.names());
    // Python gives C the column of the labels of each seed table, and this number for none.
    let labels =
        if are_tables { Json::list(names.map(|_| u32::MAX)) } else { Json::Bool(require_label) };
    let mut found = vec![
        ("seed", Json::from(raw.seed)),
        ("split_seed", Json::from(raw.split_seed)),
        ("split_ratios", Json::list(raw.split_ratios)),
        ("task_weights", resolved.weights.clone().map_or(Json::Null, Json::list)),
        ("split", Json::text(split.as_str())),
        ("tasks", Json::List(resolved.names().map(Json::text).collect())),
        ("seed_tables", Json::Bool(are_tables)),
        ("label_columns", labels),
    ];
    if let Some(order) = values.task_order.filter(|order| *order != TaskOrder::Weighted) {
        found.push(("task_order", Json::text(order.as_str())));
    }
    if let Some(until) = values.visible_until.filter(|until| *until != ALL_TIMES) {
        found.push(("visible_until", Json::list(until)));
    }
    if let Some(times) = values.time_split {
        found.push(("time_split", Json::list(times)));
    }
    if raw.train_on_val != 0 {
        found.push(("train_on_val", Json::Bool(true)));
    }
    owned(found)
}

const ALL_TIMES: [i64; 3] = [i64::MAX; 3];

fn owned(options: Vec<(&str, Json)>) -> Vec<(String, Json)> {
    options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Positions by number to those by name.
fn by_name(sources: &Sources, positions: &[u64]) -> Json {
    let named =
        |(name, number): &(String, u32)| (name.clone(), Json::from(positions[*number as usize]));
    Json::Object(sources.seeds.iter().map(named).collect())
}

/// The positions, by number, and the batches of a saved stream.
fn place(sources: &Sources, saved: &Json) -> Result<(Vec<u64>, u64)> {
    let mut positions = vec![0; sources.position_count];
    for (name, number) in &sources.seeds {
        let found = saved.get("positions").and_then(|positions| positions.get(name));
        positions[*number as usize] = natural(name, found)?;
    }
    Ok((positions, natural("batches", saved.get("batches"))?))
}

fn text_of(found: Option<&Json>) -> String {
    found.map_or("none".to_owned(), Json::to_text)
}

fn not_whole(name: &str) -> Error {
    Error::bad_argument(format!("the state is not whole: it lacks '{name}'"))
}

fn natural(name: &str, found: Option<&Json>) -> Result<u64> {
    match found {
        Some(Json::Int(number)) => u64::try_from(*number).map_err(|_| {
            Error::bad_argument(format!("the state is not whole: '{name}' is {number}"))
        }),
        _ => Err(not_whole(name)),
    }
}
