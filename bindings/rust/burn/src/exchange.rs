//! Gradients averaged over ranks: Option A of seed 000.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};

/// One rank's way to the mean of the gradients of all ranks of a training. A rank is a thread with a
/// replica of the model, `model.clone().fork(&device)`.
///
/// Without `fork` replicas share a graph, and threads that go backward at once can wait for each
/// other for ever.
pub trait GradientExchange {
    /// The mean over all ranks of the gradients of the module's parameters. Where a rank has no
    /// gradient of a parameter, zeros count; a parameter that has none on any rank, such as a frozen
    /// one, has none in the mean. Each rank calls it as often as the others, with modules of the same
    /// parameters; all of them get the same bits.
    fn mean<M: Module>(
        &self,
        gradients: GradientsParams,
        module: &M,
    ) -> Result<GradientsParams, Gone>;
}

/// Another rank has left, or panicked: there will be no mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("another rank left the training")
    }
}

impl std::error::Error for Gone {}

/// An exchange through the memory of the host, which works on every backend.
///
/// ```
/// use headwater_burn::HostExchange;
///
/// let exchange = HostExchange::new(2);
/// let ranks = std::thread::scope(|scope| {
///     let ranks: Vec<_> = (0..2)
///         .map(|rank| {
///             let exchange = &exchange;
///             scope.spawn(move || {
///                 let member = exchange.member(rank); // ends the other rank if this one panics
///                 // ... member.mean(gradients, &model)? in each step
///                 drop(member);
///                 rank
///             })
///         })
///         .collect();
///     ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
/// });
/// assert_eq!(ranks, [0, 1]);
/// ```
pub struct HostExchange {
    world: usize,
    round: Mutex<Round>,
    changed: Condvar,
}

/// Of each parameter, in the order of the module; None: it has no gradient.
type Values = Vec<Option<Vec<f32>>>;

struct Round {
    number: u64,
    given: Vec<Option<Values>>,
    mean: Arc<Values>,
    /// Why there will be no other.
    is_over: bool,
}

/// A rank that takes part. When it is dropped, by a panic too, ranks that wait get [`Gone`].
#[must_use]
pub struct Member<'e> {
    exchange: &'e HostExchange,
    rank: usize,
}

impl HostExchange {
    /// Between `world` ranks.
    pub fn new(world: usize) -> HostExchange {
        let given = vec![None; world];
        let round = Round { number: 0, given, mean: Arc::new(Vec::new()), is_over: false };
        HostExchange { world, round: Mutex::new(round), changed: Condvar::new() }
    }

    /// A rank, which takes part for as long as it holds what this returns.
    ///
    /// # Panics
    ///
    /// Panics if there is no such rank.
    pub fn member(&self, rank: usize) -> Member<'_> {
        assert!(rank < self.world, "rank {rank} of {}", self.world);
        Member { exchange: self, rank }
    }

    fn lock(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mean of what all ranks give, summed in their order.
    fn mean_of(&self, rank: usize, own: Values) -> Result<Arc<Values>, Gone> {
        let mut round = self.lock();
        if round.is_over {
            return Err(Gone);
        }
        assert!(round.given[rank].is_none(), "two threads are rank {rank}");
        let number = round.number;
        round.given[rank] = Some(own);
        if round.given.iter().all(Option::is_some) {
            let mut all = round.given.iter_mut().filter_map(Option::take);
            let mut sum = all.next().unwrap_or_default();
            for other in all {
                assert_eq!(sum.len(), other.len(), "ranks have different models");
                sum.iter_mut().zip(other).for_each(|(sum, other)| add(sum, other));
            }
            let scale = 1.0 / self.world as f32;
            sum.iter_mut().flatten().flatten().for_each(|value| *value *= scale);
            round.mean = Arc::new(sum);
            round.number += 1;
            self.changed.notify_all();
        }
        while round.number == number {
            if round.is_over {
                return Err(Gone);
            }
            round = self.changed.wait(round).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(round.mean.clone())
    }
}

fn add(sum: &mut Option<Vec<f32>>, other: Option<Vec<f32>>) {
    match (&mut *sum, other) {
        (Some(sum), Some(other)) => {
            assert_eq!(sum.len(), other.len(), "ranks have different models");
            sum.iter_mut().zip(other).for_each(|(sum, value)| *sum += value);
        }
        (None, other) => *sum = other,
        (Some(_), None) => {}
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.exchange.lock().is_over = true;
        self.exchange.changed.notify_all();
    }
}

impl GradientExchange for Member<'_> {
    fn mean<M: Module>(
        &self,
        gradients: GradientsParams,
        module: &M,
    ) -> Result<GradientsParams, Gone> {
        let mut read = Reader { gradients, values: Vec::new() };
        module.visit(&mut read);
        let mean = self.exchange.mean_of(self.rank, read.values)?;
        let mut write = Writer { gradients: GradientsParams::new(), values: mean.iter() };
        module.visit(&mut write);
        Ok(write.gradients)
    }
}

/// Reads the gradients of parameters in the order of the module.
struct Reader {
    gradients: GradientsParams,
    values: Values,
}

impl ModuleVisitor for Reader {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let gradient = self.gradients.remove::<D>(parameter.id);
        self.values.push(gradient.map(|gradient| gradient.into_data().iter::<f32>().collect()));
    }
}

/// Makes gradients of them again.
struct Writer<'v> {
    gradients: GradientsParams,
    values: std::slice::Iter<'v, Option<Vec<f32>>>,
}

impl ModuleVisitor for Writer<'_> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let Some(values) = self.values.next().expect("ranks have equal models") else { return };
        let (device, dtype) = (parameter.lazy_device().inner(), parameter.val().dtype());
        let data = TensorData::new(values.clone(), parameter.lazy_shape()).convert_dtype(dtype);
        // Gradients are outside of autodiff.
        self.gradients.register(parameter.id, Tensor::<D>::from_data(data, (&device, dtype)));
    }
}
