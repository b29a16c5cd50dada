//! What a sampler did: the counters of C, and what follows from them, as Python's `stats`.
#![forbid(unsafe_code)]

use std::fmt::{Display, Write};
use std::time::Duration;

use headwater_sys as sys;

/// A member of C's struct in Rust, and as Prometheus has it.
trait Member: Copy {
    type OfC;
    fn of(read: Self::OfC) -> Self;
    /// Times are in seconds.
    fn shown(self) -> String;
}

macro_rules! numbers {
    ($($kind:ty)+) => { $(
        impl Member for $kind {
            type OfC = $kind;
            fn of(read: $kind) -> $kind {
                read
            }
            fn shown(self) -> String {
                self.to_string()
            }
        }
    )+ };
}
numbers! { u32 u64 }

impl Member for Duration {
    type OfC = u64;
    fn of(read: u64) -> Duration {
        Duration::from_nanos(read)
    }
    fn shown(self) -> String {
        format!("{:?}", seconds(self))
    }
}

/// Declares the struct of all members, and lists them by their names in C.
macro_rules! sampler_stats {
    ($($(#[$doc:meta])* $name:ident: $kind:ty = $of_c:ident;)+) => {
        /// What a sampler did since it was opened. Times but `consumer_wait` and `elapsed` are
        /// summed over threads.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct SamplerStats {
            $($(#[$doc])* pub $name: $kind,)+
        }

        impl SamplerStats {
            pub(crate) fn of(read: &sys::hw_sampler_stats) -> SamplerStats {
                SamplerStats { $($name: Member::of(read.$of_c),)+ }
            }

            fn members(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($of_c), self.$name.shown()),)+]
            }
        }
    };
}

sampler_stats! {
    /// Batches that were made.
    batches: u64 = batches;
    /// Contexts in them.
    sequences: u64 = sequences;
    /// Cells that are not padding.
    cells: u64 = cells;
    /// Cells with padding; in the flat layout N.
    padded_cells: u64 = padded_cells;
    /// Rows.
    rows: u64 = rows;
    /// Time of walking.
    walk: Duration = walk_ns;
    /// Time of writing cells.
    emit: Duration = emit_ns;
    /// Time of copying vectors of texts.
    text: Duration = text_ns;
    /// Time in which threads had no work for this sampler.
    producer_wait: Duration = producer_wait_ns;
    /// Time in which the reader waited for a batch.
    consumer_wait: Duration = consumer_wait_ns;
    /// Time since the sampler was opened.
    elapsed: Duration = elapsed_ns;
    /// Contexts that `max_rows` ended.
    stopped_by_rows: u64 = stopped_by_rows;
    /// Texts beyond the budget of their batch.
    texts_over_budget: u64 = texts_over_budget;
    /// Threads that serve it.
    threads: u32 = threads;
    /// Batches of train that are ready now.
    train_queue: u32 = train_queue;
    /// Batches of val that are ready now.
    val_queue: u32 = val_queue;
    /// Batches of epochs that are ready now.
    pass_queue: u32 = pass_queue;
    /// Memory of the batches that are there, those handed out included.
    slab_bytes: u64 = slab_bytes;
    /// How many there are.
    slab_count: u64 = slab_count;
    /// Packing and flat: contexts that were cut.
    contexts_cut: u64 = contexts_cut;
    /// Packing: contexts that were dropped.
    contexts_dropped: u64 = contexts_dropped;
    /// Cells that were lost by both.
    cells_cut: u64 = cells_cut;
    /// Packing and flat: cells of batches, without those.
    packed_cells: u64 = packed_cells;
    /// Packing: sequences of batches.
    packed_sequences: u64 = packed_sequences;
    /// Cells that were masked.
    masked_cells: u64 = masked_cells;
    /// Cells that were chosen beyond M of their type, and not masked.
    masked_over_limit: u64 = masked_over_limit;
    /// Cells of visited rows that are not shown: hidden columns, targets, labels.
    withheld_cells: u64 = withheld_cells;
}

/// Members that may fall: gauges.
const STATE: [&str; 6] =
    ["threads", "train_queue", "val_queue", "pass_queue", "slab_bytes", "slab_count"];
const STAGES: [&str; 3] = ["walk", "emit", "text"];

impl SamplerStats {
    /// What bounds the run: the `consumer`, who waits less than the threads do, else the stage that
    /// takes longest: `walk`, `emit` or `text`; `idle` before the first batch. What to do about
    /// it: `tuning.md` of the documentation.
    pub fn bound_by(&self) -> &'static str {
        if self.sequences == 0 {
            return "idle";
        }
        if self.threads > 0 && self.producer_wait / self.threads >= self.consumer_wait {
            return "consumer";
        }
        // The first of the largest, as in Python.
        let times = [self.walk, self.emit, self.text];
        let longest = times.iter().max().expect("there are three");
        STAGES[times.iter().position(|time| time == longest).expect("it is one of them")]
    }

    pub(crate) fn prometheus(&self, shape: &sys::hw_shape, rank: u32) -> String {
        let mut text = String::new();
        for (of_c, value) in self.members() {
            let name = match of_c.strip_suffix("_ns") {
                Some(stem) => format!("{stem}_seconds"),
                None => of_c.to_owned(),
            };
            if STATE.contains(&of_c) {
                put(&mut text, &name, "gauge", rank, value);
            } else {
                put(&mut text, &format!("{name}_total"), "counter", rank, value);
            }
        }
        for (name, value) in self.derived(shape) {
            put(&mut text, &name, "gauge", rank, format!("{value:?}"));
        }
        line(&mut text, "# TYPE headwater_sampler_bound_by gauge");
        for bound in ["consumer", "walk", "emit", "text", "idle"] {
            let is_it = u8::from(bound == self.bound_by());
            let labels = format!("{{rank=\"{rank}\",bound=\"{bound}\"}}");
            line(&mut text, format_args!("headwater_sampler_bound_by{labels} {is_it}"));
        }
        text
    }

    /// How full batches are, and shares of the time.
    fn derived(&self, shape: &sys::hw_shape) -> Vec<(String, f64)> {
        let of = |count: u64, size: u32| (count * u64::from(size)) as f64;
        let cells = of(self.sequences, shape.context_length);
        let unpacked = share(self.cells as f64, cells);
        let packed = self.packed_cells as f64;
        let mut found = Vec::new();
        if shape.cells_per_batch > 0 {
            found.push(("fill".to_owned(), share(packed, self.padded_cells as f64)));
            found.push(("fill_unpacked".to_owned(), unpacked));
        } else if shape.contexts_per_sequence > 1 || self.packed_sequences > 0 {
            let places = of(self.packed_sequences, shape.sequence_length);
            found.push(("fill".to_owned(), share(packed, places)));
            found.push(("fill_unpacked".to_owned(), unpacked));
        } else {
            found.push(("fill".to_owned(), unpacked));
        }
        let parts = [self.walk, self.emit, self.text, self.producer_wait].map(seconds);
        let names = STAGES.into_iter().chain(["producer_wait"]);
        for (name, part) in names.zip(parts) {
            found.push((format!("{name}_share"), share(part, parts.iter().sum())));
        }
        let waited = share(seconds(self.consumer_wait), seconds(self.elapsed));
        found.push(("consumer_wait_share".to_owned(), waited));
        found
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_nanos() as f64 * 1e-9
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).min(1.0) } else { 0.0 }
}

fn line(text: &mut String, words: impl Display) {
    writeln!(text, "{words}").expect("a String can be written");
}

fn put(text: &mut String, name: &str, kind: &str, rank: u32, value: String) {
    line(text, format_args!("# TYPE headwater_sampler_{name} {kind}"));
    line(text, format_args!("headwater_sampler_{name}{{rank=\"{rank}\"}} {value}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(text: &str, expected: &str) {
        assert!(text.lines().any(|line| line == expected), "{expected} is not in\n{text}");
    }

    /// 3 of 4 seconds of two threads are work, most of it the walk; the reader waited for 1 of 2.
    #[test]
    fn shares_and_the_bound_follow_from_the_counters() {
        let second = Duration::from_secs(1);
        let stats = SamplerStats {
            sequences: 10,
            cells: 250,
            walk: second * 2,
            emit: second / 2,
            text: second / 2,
            producer_wait: second,
            consumer_wait: second,
            elapsed: second * 2,
            threads: 2,
            ..SamplerStats::default()
        };
        let mut shape: sys::hw_shape = crate::ffi::empty();
        (shape.context_length, shape.sequence_length) = (100, 100);
        shape.contexts_per_sequence = 1;
        assert_eq!(stats.bound_by(), "walk"); // threads waited for half a second each
        let text = stats.prometheus(&shape, 3);
        assert!(text.ends_with("bound=\"idle\"} 0\n"), "{text}");
        has(&text, "# TYPE headwater_sampler_cells_total counter");
        has(&text, "headwater_sampler_cells_total{rank=\"3\"} 250");
        has(&text, "headwater_sampler_walk_seconds_total{rank=\"3\"} 2.0");
        has(&text, "headwater_sampler_threads{rank=\"3\"} 2");
        has(&text, "headwater_sampler_fill{rank=\"3\"} 0.25");
        has(&text, "headwater_sampler_walk_share{rank=\"3\"} 0.5");
        has(&text, "headwater_sampler_producer_wait_share{rank=\"3\"} 0.25");
        has(&text, "headwater_sampler_consumer_wait_share{rank=\"3\"} 0.5");
        has(&text, "headwater_sampler_bound_by{rank=\"3\",bound=\"walk\"} 1");
        has(&text, "headwater_sampler_bound_by{rank=\"3\",bound=\"consumer\"} 0");
        let waiting = SamplerStats { producer_wait: second * 2, ..stats };
        assert_eq!(waiting.bound_by(), "consumer"); // as long as the reader
        assert_eq!(SamplerStats::default().bound_by(), "idle");
        let packed = SamplerStats { packed_cells: 90, packed_sequences: 1, ..stats };
        has(&packed.prometheus(&shape, 0), "headwater_sampler_fill{rank=\"0\"} 0.9");
        has(&packed.prometheus(&shape, 0), "headwater_sampler_fill_unpacked{rank=\"0\"} 0.25");
        (shape.cells_per_batch, shape.sequence_length) = (1000, 100);
        let flat = SamplerStats { padded_cells: 120, ..packed };
        has(&flat.prometheus(&shape, 0), "headwater_sampler_fill{rank=\"0\"} 0.75");
    }
}
