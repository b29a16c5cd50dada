//! The training of the model by ranks, each a thread with a replica and a sampler of its own.

use std::error::Error;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use burn::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::lr_scheduler::module_lr_scheduler::{ModuleLrScheduler, ModuleLrSchedulerConfig};
use burn::module::{Module, ParamGroup};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer, MuonConfig};
use burn::tensor::{Bool, Device, Tensor};
use headwater::{ChildOrder, IdentifierCells, Options, Sampler, Split, Store, Targets};
use headwater_burn::{ContextBatch, FromBatch, GradientExchange, HostExchange};

use super::{ShopModel, Size};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The task of the shop: will a customer stay away?
pub const TASK: &str = "churn";
pub const SIZE: Size = Size { width: 64, blocks: 2, heads: 4 };
pub const STEPS: usize = 300;
/// Sequences of a step, which the ranks, or devices, share.
pub const BATCH: u32 = 32;
const LEARNING_RATE: f64 = 3e-3;
/// Of the matrices of attention and feed-forward.
const MATRIX_LEARNING_RATE: f64 = 0.02;
/// Steps of which a mean loss is reported.
const WINDOW: usize = 50;

/// What to train.
pub struct Plan {
    pub store: PathBuf,
    pub ranks: u32,
    pub steps: usize,
    /// Burn's record of the trained model goes there.
    pub save_to: Option<PathBuf>,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    pub parameters: usize,
    pub seconds_per_step: f64,
    /// In all steps, of rank 0.
    pub seconds_waited: f64,
    /// Means of the first and of the last 50 steps.
    pub first_loss: f32,
    pub last_loss: f32,
    pub val: f64,
    pub test: f64,
    /// The same if no cell sees the rows that foreign keys join with its own.
    pub test_alone: f64,
}

/// Trains and answers. Rank 0 alone prints and saves.
pub fn train(plan: &Plan) -> Outcome<Report> {
    if !(1..=BATCH).contains(&plan.ranks) || plan.steps == 0 {
        let (ranks, steps) = (plan.ranks, plan.steps);
        let expected = format!("expected 1 to {BATCH} ranks, and a step");
        return Err(format!("{ranks} ranks and {steps} steps, {expected}").into());
    }
    let store = Store::open(&plan.store)?;
    let device = Device::flex().autodiff();
    device.seed(7);
    let model = ShopModel::new(&store, SIZE, &device)?;
    let exchange = HostExchange::new(plan.ranks as usize);
    let start = Instant::now();
    let trained = thread::scope(|scope| {
        let ranks: Vec<_> = (0..plan.ranks)
            .map(|rank| {
                let replica = model.clone().fork(&device); // without it ranks can hang
                let (store, exchange, device) = (&store, &exchange, &device);
                scope.spawn(move || train_rank(plan, rank, store, replica, exchange, device))
            })
            .collect();
        let ended: Vec<_> = ranks.into_iter().map(|rank| rank.join()).collect();
        ended.into_iter().map(|rank| rank.expect("no rank panics")).collect::<Outcome<Vec<_>>>()
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let Trained { model, losses, waited } = trained.into_iter().next().expect("there is a rank 0");
    if let Some(path) = &plan.save_to {
        model.clone().save_file(path)?;
    }
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
    let window = WINDOW.min(losses.len());
    let sampler = Sampler::open(&store, &options(0, 1))?;
    Ok(Report {
        parameters: model.num_params(),
        seconds_per_step: seconds / plan.steps as f64,
        seconds_waited: waited.as_secs_f64(),
        first_loss: mean(&losses[..window]),
        last_loss: mean(&losses[losses.len() - window..]),
        val: auroc_of(&model, &sampler, Split::Val, false)?,
        test: auroc_of(&model, &sampler, Split::Test, false)?,
        test_alone: auroc_of(&model, &sampler, Split::Test, true)?,
    })
}

struct Trained {
    model: ShopModel,
    losses: Vec<f32>,
    /// For batches.
    waited: Duration,
}

fn train_rank(
    plan: &Plan,
    rank: u32,
    store: &Store,
    mut model: ShopModel,
    exchange: &HostExchange,
    device: &Device,
) -> Outcome<Trained> {
    let member = exchange.member(rank as usize); // if this rank fails, the others end too
    let sampler = Sampler::open(store, &options(rank, plan.ranks))?;
    let (mut optimizer, mut rates) = optimizer(plan.steps)?;
    let (mut losses, mut waited) = (Vec::new(), Duration::ZERO);
    for step in 0..plan.steps {
        let start = Instant::now();
        let batch = sampler.next(Split::Train)?;
        waited += start.elapsed();
        let loss = model.loss(&ContextBatch::from_batch(&batch, device)?);
        losses.push(loss.clone().into_scalar::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let gradients = member.mean(gradients, &model)?;
        model = optimizer.step(rates.step(), model, gradients);
        if rank == 0 && (step + 1) % WINDOW == 0 {
            let last = &losses[losses.len() - WINDOW..];
            println!("step {}: loss {:.4}", step + 1, last.iter().sum::<f32>() / WINDOW as f32);
        }
    }
    Ok(Trained { model, losses, waited })
}

/// AdamW, but Muon for the matrices of blocks (with AdamW alone the loss stays that of a constant),
/// and their learning rates, which fall along a cosine.
pub fn optimizer(steps: usize) -> Outcome<(ModuleOptimizer, ModuleLrScheduler)> {
    let matrices = ParamGroup::from_regex(r"blocks\..*(query|key|value|output|up|down)\.weight$")
        .expect("it is a regular expression");
    let muon = MuonConfig::new().build();
    let optimizer = AdamWConfig::new().with_beta_2(0.95).init();
    let cosine = |rate| CosineAnnealingLrSchedulerConfig::new(rate, steps);
    let rates = ModuleLrSchedulerConfig::new(cosine(LEARNING_RATE).into())
        .with_group(matrices.clone(), cosine(MATRIX_LEARNING_RATE));
    Ok((optimizer.with_group(matrices, muon, None), rates.init()?))
}

/// The contexts of `make demo`.
pub fn options(rank: u32, ranks: u32) -> Options {
    Options::new()
        .tasks([TASK])
        .rank(rank)
        .world_size(ranks)
        .batch_size(BATCH / ranks)
        .sequence_length(96)
        .max_rows(32)
        .max_hops(3)
        .child_width(4)
        .child_order(ChildOrder::Recent)
        .identifier_cells(IdentifierCells::None)
        .targets(Targets::Separate)
        .attention_masks(true)
        .num_threads(1)
}

/// The AUROC of a model's answers to the seeds of a split.
pub fn auroc_of(
    model: &ShopModel,
    sampler: &Sampler,
    split: Split,
    is_alone: bool,
) -> Outcome<f64> {
    let (model, device) = (model.valid(), Device::flex());
    let mut answered = Vec::new();
    for batch in sampler.epoch(split, TASK, 0)? {
        let mut batch = ContextBatch::from_batch(&batch?, &device)?;
        if is_alone {
            let masks = batch.masks.as_mut().expect("the options ask for masks");
            let [sequences, cells, _] = masks.neighbor.dims();
            let others = Tensor::<2, Bool>::diag_mask([cells, cells], 0, &device);
            masks.neighbor = others.unsqueeze::<3>().expand([sequences, cells, cells]);
        }
        let scores = model.answers(&batch).into_data().try_to_vec::<f32>()?;
        let truths = batch.arrays.array("target_values")?.as_slice::<f32>()?;
        let labelled = batch.arrays.array("is_labelled")?.as_slice::<u8>()?;
        let all = scores.into_iter().zip(truths.chunks(15)).zip(labelled);
        let all = all.filter(|(_, labelled)| **labelled == 1);
        answered.extend(all.map(|((score, truth), _)| (score, truth[0] == 1.0)));
    }
    Ok(auroc(answered))
}

/// How often a true one has a higher score than a false one; ties count half.
pub fn auroc(mut answered: Vec<(f32, bool)>) -> f64 {
    answered.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut falses, mut trues, mut wins) = (0.0, 0.0, 0.0);
    for ties in answered.chunk_by(|one, other| one.0 == other.0) {
        let own_trues = ties.iter().filter(|(_, truth)| *truth).count() as f64;
        let own_falses = ties.len() as f64 - own_trues;
        wins += own_trues * (falses + own_falses / 2.0);
        falses += own_falses;
        trues += own_trues;
    }
    wins / (falses * trues)
}
