//! Data-parallel training in the words of seed 000, Option A: a thread for each rank, each with a
//! sampler of its part of the seeds; `register`, `backward`, `from_grads`, `all_reduce`, `step`,
//! `finish_collective`.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{panic, thread};

use burn::backend::flex::FlexDevice;
use burn::backend::{Autodiff, Flex};
use burn::module::Module;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{ElementConversion, Tensor};
use burn_collective::{CollectiveConfig, PeerId, ReduceOperation};
use burn_collective::{all_reduce, finish_collective, register, reset_collective};
use headwater::{Batch, Options, Sampler, Split, Store, Targets};
use headwater_burn_collective::{Contexts, Net, parameters};

const TASK: &str = "churn";
const WORLD: usize = 2;
/// Of the 247 seeds rank 0 has 124 and rank 1 has 123, which fill three batches: each rank has four
/// batches an epoch, the fourth of rank 1 without a seed.
const BATCH_SIZE: u32 = 41;
const BATCHES: usize = 4;
const EPOCHS: usize = 5;
const LEARNING_RATE: f64 = 3e-3;

/// What a rank did, by step.
#[derive(Default)]
struct Trained {
    batches: Vec<Batch>,
    losses: Vec<f32>,
    parameters: Vec<Vec<f32>>,
}

/// Held by a registered rank. If it panics, the others get an error, and do not wait forever.
struct Member<B: Backend>(PhantomData<B>);

impl<B: Backend> Drop for Member<B> {
    fn drop(&mut self) {
        if thread::panicking() {
            reset_collective::<B>();
        }
    }
}

/// Registers a rank and waits for the others.
fn join<B: Backend>(peer: PeerId, device: &B::Device) -> Member<B> {
    let config = CollectiveConfig::default().with_num_devices(WORLD);
    register::<B>(peer, device.clone(), config).expect("a rank registers once");
    Member(PhantomData)
}

/// Ranks of one backend meet within the process, so one test at a time has ranks.
fn alone() -> MutexGuard<'static, ()> {
    static RANKS: Mutex<()> = Mutex::new(());
    RANKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The store of tools/rust_vectors.py.
fn shop() -> Store {
    let folder = std::env::var_os("HEADWATER_RUST_VECTORS");
    let folder = PathBuf::from(folder.expect("run tools/test_burn.sh"));
    Store::open(folder.join("shop.store")).expect("the store is sound")
}

/// The part of one rank in the training.
fn train<B: AutodiffBackend>(
    rank: usize,
    store: &Store,
    model: Net<B>,
    device: &B::Device,
) -> Trained {
    let peer = PeerId::from(rank);
    let _member = join::<B::InnerBackend>(peer, device);
    let options = Options::new().tasks([TASK]).batch_size(BATCH_SIZE).sequence_length(32);
    let options = options.targets(Targets::Separate).attention_masks(true);
    let options = options.rank(rank as u32).world_size(WORLD as u32);
    let sampler = Sampler::open(store, &options).unwrap();

    let mut model = model.fork(device); // with parameters that no other thread has
    let mut optimizer = AdamConfig::new().init();
    let mut trained = Trained::default();
    for epoch in 0..EPOCHS {
        for batch in sampler.epoch(Split::Train, TASK, epoch as u32).unwrap() {
            let batch = batch.unwrap();
            let loss = model.loss(&Contexts::new(&[&batch], device).unwrap());
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            let grads = grads
                .all_reduce::<B::InnerBackend>(peer, ReduceOperation::Mean)
                .expect("the other rank is there");
            model = optimizer.step(LEARNING_RATE, model, grads);

            trained.batches.push(batch);
            trained.losses.push(loss.into_scalar().elem());
            trained.parameters.push(parameters(&model));
        }
    }
    finish_collective::<B::InnerBackend>(peer).expect("a rank finishes once");
    trained
}

/// The seeds of a batch, without its empty places.
fn seeds(batch: &Batch) -> Vec<u32> {
    let count: &[u32] = batch.array("num_sequences").unwrap().as_slice().unwrap();
    let seeds: &[u32] = batch.array("seed_index").unwrap().as_slice().unwrap();
    seeds[..count[0] as usize].to_vec()
}

#[test]
fn two_ranks_train_as_one_with_both_batches() {
    let _alone = alone();
    let (store, device) = (shop(), FlexDevice);
    <Autodiff<Flex> as Backend>::seed(&device, 11);
    let columns = store.counts().unwrap().columns as usize;
    let model = Net::<Autodiff<Flex>>::new(columns, &device);
    parameters(&model); // makes them: clones have the same only after that
    let ranks: [Trained; WORLD] = thread::scope(|scope| {
        let (store, model, device) = (&store, &model, &device);
        let spawn = |rank| {
            let model = model.clone();
            scope.spawn(move || train(rank, store, model, device))
        };
        [0, 1].map(spawn).map(|rank| rank.join().unwrap())
    });

    for rank in &ranks {
        assert_eq!(rank.batches.len(), EPOCHS * BATCHES);
    }
    for epoch in 0..EPOCHS {
        let used = ranks.each_ref().map(|rank| -> Vec<u32> {
            rank.batches[BATCHES * epoch..][..BATCHES].iter().flat_map(seeds).collect()
        });
        assert_eq!(used.each_ref().map(Vec::len), [124, 123]);
        assert_eq!(used.into_iter().flatten().collect::<BTreeSet<_>>().len(), 247);
    }

    let mut one = model;
    let mut optimizer = AdamConfig::new().init();
    let mut distance = 0f32;
    for step in 0..EPOCHS * BATCHES {
        let of_rank = &ranks[0].parameters[step];
        assert!(*of_rank == ranks[1].parameters[step], "the ranks differ after step {step}");
        let both = ranks.each_ref().map(|rank| &rank.batches[step]);
        let loss = one.loss(&Contexts::new(&both, &device).unwrap());
        let grads = GradientsParams::from_grads(loss.backward(), &one);
        one = optimizer.step(LEARNING_RATE, one, grads);
        for (of_rank, of_one) in of_rank.iter().zip(parameters(&one)) {
            distance = distance.max((of_rank - of_one).abs());
        }
    }
    let loss = |epoch: usize| -> f32 {
        ranks.iter().flat_map(|rank| &rank.losses[BATCHES * epoch..][..BATCHES]).sum()
    };
    let (first, last) = (loss(0), loss(EPOCHS - 1));
    println!("apart from one rank by {distance:e}; loss of an epoch {first}, then {last}");
    assert!(distance < 1e-5);
    assert!(last < 0.95 * first);
}

#[test]
fn a_rank_that_panics_ends_the_other() {
    let _alone = alone();
    let device = FlexDevice;
    let waiting = thread::spawn(move || {
        let peer = PeerId::from(0usize);
        let _member = join::<Flex>(peer, &device);
        let tensor = Tensor::<Flex, 1>::zeros([1], &device).into_primitive().tensor();
        all_reduce::<Flex>(peer, tensor, ReduceOperation::Mean).is_err()
    });
    let panicking = thread::spawn(move || {
        let _member = join::<Flex>(PeerId::from(1usize), &device);
        panic::resume_unwind(Box::new("a panic without a message"));
    });
    assert!(panicking.join().is_err());
    assert!(waiting.join().unwrap());
}
