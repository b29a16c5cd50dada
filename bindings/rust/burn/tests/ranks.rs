//! Option A: a loop over ranks that are threads, whose gradients are averaged.
#[path = "../../headwater/tests/common/mod.rs"]
mod common;
mod small;

use std::time::{Duration, Instant};

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig};
use burn::tensor::{DType, Device, FloatDType, Tensor};
use common::store;
use headwater::{Sampler, Split};
use headwater_burn::{FromBatch, Gone, GradientExchange, HostExchange};
use small::{Small, SmallBatch, distance, options, parameters};

const STEPS: u64 = 20;
const RATE: f64 = 0.01;

fn optimizer(is_adam: bool) -> ModuleOptimizer {
    if is_adam { AdamConfig::new().with_epsilon(1e-5).init() } else { SgdConfig::new().init() }
}

fn step(model: Small, optimizer: &mut ModuleOptimizer, gradients: GradientsParams) -> Small {
    optimizer.step(RATE, model, gradients)
}

fn gradients(model: &Small, batch: &SmallBatch) -> GradientsParams {
    GradientsParams::from_grads(model.loss(batch).backward(), model)
}

/// Parameters after each step, of a rank of two.
fn rank_of_two(rank: u32, model: Small, exchange: &HostExchange, is_adam: bool) -> Vec<Vec<f32>> {
    let member = exchange.member(rank as usize);
    let device = Device::flex().autodiff();
    let (mut model, mut optimizer) = (model.fork(&device), optimizer(is_adam));
    let options = options().rank(rank).world_size(2).num_threads(1);
    let sampler = Sampler::open(&store("shop"), &options).unwrap();
    let mut after = Vec::new();
    for k in 0..STEPS {
        let batch = sampler.batch(Split::Train, k).unwrap();
        let batch = SmallBatch::from_batch(&batch, &device).unwrap();
        let own = gradients(&model, &batch);
        let mean = member.mean(own, &model).expect("the other rank is there");
        model = step(model, &mut optimizer, mean);
        after.push(parameters(&model));
    }
    after
}

fn two_ranks(model: &Small, is_adam: bool) -> [Vec<Vec<f32>>; 2] {
    let exchange = HostExchange::new(2);
    std::thread::scope(|scope| {
        [0, 1]
            .map(|rank| {
                let (model, exchange) = (model.clone(), &exchange);
                scope.spawn(move || rank_of_two(rank, model, exchange, is_adam))
            })
            .map(|rank| rank.join().expect("no rank panics"))
    })
}

fn new_model() -> Small {
    let device = Device::flex().autodiff();
    device.seed(7);
    let model = Small::new(&store("shop"), &device);
    parameters(&model); // parameters are made when they are first read
    model
}

#[test]
fn two_ranks_step_as_one_rank_on_the_joined_batch() {
    let device = Device::flex().autodiff();
    let model = new_model();
    let samplers = [0, 1].map(|rank| {
        let options = options().rank(rank).world_size(2);
        Sampler::open(&store("shop"), &options).unwrap()
    });
    for is_adam in [true, false] {
        let [first, second] = two_ranks(&model, is_adam);
        let (mut one, mut optimizer) = (model.clone(), optimizer(is_adam));
        let mut losses = Vec::new();
        for k in 0..STEPS {
            let at = k as usize;
            assert!(first[at] == second[at], "equal to the bit after step {k}");
            let parts = samplers.each_ref().map(|sampler| {
                let batch = sampler.batch(Split::Train, k).unwrap();
                SmallBatch::from_batch(&batch, &device).unwrap()
            });
            let [own, other] = parts;
            let joined = own.joined(other);
            losses.push(one.loss(&joined).into_scalar::<f32>());
            let gradients = gradients(&one, &joined);
            one = step(one, &mut optimizer, gradients);
            let apart = distance(&parameters(&one), &first[at]);
            assert!(apart < 1e-5, "step {k}: {apart:e} apart");
        }
        assert!(distance(&parameters(&model), &first[0]) > 1e-4, "a step moves the model");
        assert!(losses[STEPS as usize - 1] < losses[0], "{losses:?}");
    }
}

/// HEADWATER_BURN_RUNS runs, 5 if it is not set, each of which has a minute.
#[test]
fn many_runs_end() {
    let runs = std::env::var("HEADWATER_BURN_RUNS").map_or(5, |runs| runs.parse().unwrap());
    let model = new_model();
    let mut expected = None;
    for run in 0..runs {
        let (sender, receiver) = std::sync::mpsc::channel();
        let model = model.clone();
        std::thread::spawn(move || sender.send(two_ranks(&model, true)));
        let [ranks, _] = receiver
            .recv_timeout(Duration::from_secs(60))
            .unwrap_or_else(|_| panic!("run {run} of {runs} does not end"));
        assert!(*expected.get_or_insert_with(|| ranks.clone()) == ranks, "run {run} differs");
    }
}

#[test]
fn a_rank_that_panics_or_leaves_ends_the_other() {
    let model = new_model();
    let batch = {
        let sampler = Sampler::open(&store("shop"), &options()).unwrap();
        let batch = sampler.batch(Split::Train, 0).unwrap();
        SmallBatch::from_batch(&batch, &Device::flex().autodiff()).unwrap()
    };
    for panics in [true, false] {
        let exchange = HostExchange::new(2);
        let start = Instant::now();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let member = exchange.member(0);
                let model = model.clone().fork(&Device::flex().autodiff());
                let first = member.mean(gradients(&model, &batch), &model).err();
                let second = member.mean(gradients(&model, &batch), &model).err();
                assert_eq!(second, first, "once it is over, each call says so");
                first
            });
            let leaving = scope.spawn(|| {
                let _member = exchange.member(1);
                assert!(!panics, "on purpose");
            });
            assert_eq!(leaving.join().is_err(), panics);
            assert_eq!(waiting.join().unwrap(), Some(Gone));
        });
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn a_gradient_that_one_rank_lacks_counts_as_zeros() {
    let model = new_model();
    let sampler = Sampler::open(&store("shop"), &options()).unwrap();
    let batch = sampler.batch(Split::Train, 0).unwrap();
    let batch = SmallBatch::from_batch(&batch, &Device::flex().autodiff()).unwrap();
    let exchange = HostExchange::new(2);
    let whole = gradients(&model, &batch);
    let count = whole.len();
    let members = [0, 1].map(|rank| exchange.member(rank));
    let after = std::thread::scope(|scope| {
        let other = scope.spawn(|| members[1].mean(GradientsParams::new(), &model).unwrap());
        let mean = members[0].mean(whole, &model).unwrap();
        assert_eq!(other.join().unwrap().len(), count);
        SgdConfig::new().init().step(1.0, model.clone(), mean)
    });
    // Half of the gradient: SGD at half the rate.
    let whole = gradients(&model, &batch);
    let expected = SgdConfig::new().init().step(0.5, model.clone(), whole);
    assert!(distance(&parameters(&after), &parameters(&expected)) < 1e-7);
}

#[derive(Module, Debug)]
struct Pair {
    learns: Linear,
    is_frozen: Linear,
}

/// Makes parameters float64.
struct Doubles;

impl ModuleMapper for Doubles {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = parameter.consume();
        let tensor = Tensor::from_inner(tensor.inner().cast(FloatDType::F64)).require_grad();
        Param::from_mapped_value(id, tensor, mapper)
    }
}

#[test]
fn a_frozen_parameter_stays_as_it_is_and_others_keep_their_type() {
    let device = Device::flex().autodiff();
    device.seed(7);
    let new = LinearConfig::new(3, 3);
    let mut pair = Pair { learns: new.init(&device), is_frozen: new.init(&device).no_grad() };
    let exchange = HostExchange::new(1);
    let member = exchange.member(0);
    // AdamW moves a parameter that has a gradient, be it of zeros.
    for dtype in [DType::F32, DType::F64] {
        let numbers = Tensor::<2>::from_data([[1.0, 2.0, 3.0]], (&device, dtype));
        let loss = pair.is_frozen.forward(pair.learns.forward(numbers).cast(FloatDType::F32)).sum();
        let own = GradientsParams::from_grads(loss.backward(), &pair);
        let mean = member.mean(own, &pair).unwrap();
        assert_eq!(mean.len(), 2);
        assert_eq!(mean.get::<2>(pair.learns.weight.id).unwrap().dtype(), dtype);
        let before = pair.clone();
        pair = AdamWConfig::new().with_weight_decay(0.1).init().step(0.1, pair, mean);
        assert_eq!(parameters(&pair.is_frozen), parameters(&before.is_frozen));
        assert!(distance(&parameters(&pair.learns), &parameters(&before.learns)) > 0.01);
        pair.learns = pair.learns.map(&mut Doubles);
    }
}
