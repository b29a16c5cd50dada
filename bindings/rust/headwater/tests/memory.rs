//! Memory does not grow: a process of its own, whose memory no other test uses.
mod common;

use common::store;
use headwater::{Options, Sampler, Split};

fn resident_kb() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = text.lines().find(|line| line.starts_with("VmRSS")).expect("a process has memory");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("in kB")
}

#[test]
fn memory_is_flat_over_2000_batches() {
    let store = store("shop");
    let options = Options::new().sequence_length(64).batch_size(8).num_threads(2);
    let sampler = Sampler::open(&store, &options).unwrap();
    let mut first = 0;
    for number in 0..2000 {
        sampler.next(Split::Train).unwrap();
        if number == 200 {
            first = resident_kb();
        }
    }
    let grown = resident_kb().saturating_sub(first);
    assert!(grown < 8 << 10, "{grown} kB more after 2,000 batches than after 200");
}
