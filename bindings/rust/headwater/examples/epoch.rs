//! `cargo run --release --example epoch -- STORE TASK`: one epoch of a task, and how fast it came.
use std::time::Instant;

use headwater::{Options, Sampler, Split, Store};

fn main() -> headwater::Result<()> {
    let mut words = std::env::args().skip(1);
    let (Some(path), Some(task)) = (words.next(), words.next()) else {
        eprintln!("expected a store and the name of a task");
        std::process::exit(2);
    };
    let store = Store::open(path)?;
    let sampler = Sampler::open(&store, &Options::new().tasks([&task]).sequence_length(96))?;
    let (start, mut batches) = (Instant::now(), 0);
    for batch in sampler.epoch(Split::Train, &task, 0)? {
        let batch = batch?;
        if batches == 0 {
            println!("{batch:#?}");
        }
        batches += 1;
    }
    let cells = sampler.stats()?.cells as f64;
    println!("{batches} batches, {:.0} cells/s", cells / start.elapsed().as_secs_f64());
    Ok(())
}
