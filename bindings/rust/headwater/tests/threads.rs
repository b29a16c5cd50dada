//! Threads, drops in any order, waiters, and memory.
mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{lines, store};
use headwater::{
    Array, Batch, Epoch, Error, ErrorKind, Options, Sampler, SeedPool, SharedArray, Split, Store,
};

const fn is_send<T: Send + 'static>() {}
const fn is_sync<T: Sync>() {}
const _: () = {
    is_send::<Store>();
    is_sync::<Store>();
    is_send::<Options>();
    is_sync::<Options>();
    is_send::<Sampler>();
    is_sync::<Sampler>();
    is_send::<Batch>();
    is_sync::<Batch>();
    is_send::<SharedArray>();
    is_sync::<SharedArray>();
    is_sync::<Array<'static>>();
    is_send::<Epoch>();
    is_send::<SeedPool>();
    is_send::<Error>();
    is_sync::<Error>();
};

fn small() -> Options {
    Options::new().sequence_length(64).batch_size(8)
}

#[test]
fn what_is_handed_out_outlives_what_made_it() {
    let store = store("shop");
    let sampler = Sampler::open(&store, &small()).unwrap();
    let mut epoch = sampler.epoch(Split::Train, "churn", 0).unwrap();
    let batch = epoch.next().unwrap().unwrap();
    let before = lines(0, &batch);
    let shared = batch.shared("column_ids").unwrap();
    let expected = shared.as_ref().to_vec();
    drop(sampler);
    drop(store);
    let left = std::thread::spawn(move || epoch.map(Result::unwrap).count()).join().unwrap();
    assert!(left > 2);
    assert_eq!(lines(0, &batch), before);
    drop(batch);
    assert_eq!(std::thread::spawn(move || shared.as_ref().to_vec()).join().unwrap(), expected);
}

#[test]
fn an_epoch_and_its_sampler_are_dropped_on_two_threads_at_once() {
    let store = store("shop");
    for _ in 0..60 {
        let sampler = Sampler::open(&store, &small().num_threads(2)).unwrap();
        let mut epoch = sampler.epoch(Split::Train, "churn", 0).unwrap();
        let batch = epoch.next().unwrap().unwrap();
        let other = std::thread::spawn(move || drop(epoch));
        drop(sampler);
        other.join().unwrap();
        assert!(batch.arrays().len() > 20);
    }
}

#[test]
fn four_consumers_of_one_sampler_share_its_stream() {
    let store = store("shop");
    let sampler = Sampler::open(&store, &small()).unwrap();
    let first: BTreeSet<Vec<String>> =
        (0..32).map(|k| lines(0, &sampler.batch(Split::Train, k).unwrap())).collect();
    let taken: Vec<Vec<String>> = std::thread::scope(|scope| {
        let consumers: Vec<_> = (0..4)
            .map(|_| {
                let own = sampler.clone();
                scope.spawn(move || {
                    (0..8).map(|_| lines(0, &own.next(Split::Train).unwrap())).collect::<Vec<_>>()
                })
            })
            .collect();
        consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect()
    });
    assert_eq!(taken.len(), 32);
    assert_eq!(first.len(), 32, "the batches differ");
    assert_eq!(taken.into_iter().collect::<BTreeSet<_>>(), first);
}

#[test]
fn shutdown_wakes_whoever_waits() {
    let store = store("shop");
    // One batch ahead, and a consumer that takes more than there are in time.
    let sampler = Sampler::open(&store, &small().num_threads(1).num_prefetch(1)).unwrap();
    let waiter = sampler.clone();
    let waiting = std::thread::spawn(move || {
        loop {
            if let Err(error) = waiter.next(Split::Train) {
                return error.kind();
            }
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    sampler.shutdown();
    assert_eq!(waiting.join().unwrap(), ErrorKind::ShutDown);
    let after = sampler.next_timeout(Split::Val, Duration::from_millis(1));
    assert_eq!(after.unwrap_err().kind(), ErrorKind::ShutDown);
}

#[test]
fn samplers_are_opened_and_dropped_200_times() {
    let store = store("shop");
    for index in 0..200 {
        let sampler = Sampler::open(&store, &small().num_threads(1)).unwrap();
        let mut epoch = sampler.epoch(Split::Val, "churn", index).unwrap();
        epoch.next().unwrap().unwrap();
    }
}

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

#[test]
fn a_forked_process_is_told_and_can_open_its_own() {
    let store = store("shop");
    let sampler = Sampler::open(&store, &small()).unwrap();
    sampler.next(Split::Train).unwrap();
    // SAFETY: the child calls this crate and ends; it returns to no test.
    let child = unsafe { fork() };
    if child == 0 {
        let told = sampler.next(Split::Train).map_err(|error| error.kind()).err();
        let shape = sampler.shape().map_err(|error| error.kind()).err();
        let stats = sampler.stats().map_err(|error| error.kind()).err();
        drop(sampler);
        let own = Sampler::open(&store, &small()).and_then(|own| own.next(Split::Train));
        let forked = Some(ErrorKind::Forked);
        let is_right = told == forked && stats == forked && shape == forked && own.is_ok();
        // SAFETY: ends this process.
        unsafe { _exit(if is_right { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the child of above.
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 7 << 8);
    sampler.next(Split::Train).unwrap();
}
