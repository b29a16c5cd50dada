//! Chosen seeds, and the splits of all.
mod common;

use common::{lines, store};
use headwater::{Layout, Options, Sampler, SeedPool, Split};

fn small() -> Options {
    Options::new().sequence_length(32).batch_size(8).num_threads(1)
}

#[test]
fn a_batch_of_chosen_seeds_is_that_of_their_epoch() {
    let sampler = Sampler::open(&store("shop"), &small()).unwrap();
    let first = sampler.epoch(Split::Train, "churn", 2).unwrap().next().unwrap().unwrap();
    let seeds: Vec<u32> = first.array("seed_index").unwrap().as_slice().unwrap().to_vec();
    assert_eq!(seeds.len(), 8);
    let chosen = sampler.batch_of("churn", &seeds, &[2; 8]).unwrap();
    assert_eq!(lines(0, &chosen), lines(0, &first));
    let other = sampler.batch_of("churn", &seeds, &[1; 8]).unwrap();
    assert_ne!(lines(0, &other), lines(0, &first));
    let none = sampler.batch_of("churn", &[], &[]).unwrap();
    assert_eq!(none.array("num_sequences").unwrap().as_slice::<u32>().unwrap(), [0]);
    let error = sampler.batch_of("churn", &[0; 9], &[0; 9]).unwrap_err();
    assert!(error.message().starts_with("9 seeds, expected at most 8"), "{error}");
}

#[test]
fn chosen_seeds_in_the_flat_layout_are_levelled_as_in_the_stream() {
    let options = small().layout(Layout::Flat).level_block(1).tasks(["churn"]);
    let sampler = Sampler::open(&store("shop"), &options).unwrap();
    for k in 0..4 {
        let batch = sampler.batch(Split::Train, k).unwrap();
        let seeds: Vec<u32> = batch.array("seed_index").unwrap().as_slice().unwrap().to_vec();
        let chosen = sampler.batch_of("churn", &seeds, &[0; 8]).unwrap();
        assert_eq!(lines(0, &chosen), lines(0, &batch));
    }
    let short = sampler.batch_of("churn", &[3], &[0]).unwrap();
    assert_eq!(short.array("num_contexts").unwrap().as_slice::<u32>().unwrap(), [1]);
}

#[test]
fn a_pool_of_a_rank_has_its_epoch_and_that_of_all_ranks_every_seed() {
    let options = small().rank(1).world_size(3);
    let sampler = Sampler::open(&store("shop"), &options).unwrap();
    assert_eq!((sampler.rank(), sampler.world_size()), (1, 3));
    let mut pool = SeedPool::of(&sampler, Split::Train, "churn", false).unwrap();
    let drawn = pool.epoch(u32::MAX).unwrap();
    let epoch = sampler.epoch(Split::Train, "churn", u32::MAX).unwrap();
    let mut expected = Vec::new();
    for batch in epoch {
        let batch = batch.unwrap();
        let count = batch.array("num_sequences").unwrap().as_slice::<u32>().unwrap()[0] as usize;
        let seeds = batch.array("seed_index").unwrap().as_slice::<u32>().unwrap();
        expected.extend_from_slice(&seeds[..count]);
    }
    assert_eq!(drawn.seeds, expected);
    assert!(drawn.epochs.iter().all(|epoch| *epoch == u32::MAX), "the last epoch there is");
    let all = SeedPool::of_all_ranks(&sampler, Split::Train, "churn", false).unwrap();
    let count = sampler.seed_count(Split::Train, "churn").unwrap();
    assert_eq!(all.len(), u64::from(count));
    assert!(pool.len() == u64::from(count / 3) || pool.len() == u64::from(count.div_ceil(3)));
    let new = SeedPool::new(&store("shop"), &options.tasks(["churn"]), Split::Train, false);
    let mut new = new.unwrap();
    new.epoch(u32::MAX).unwrap();
    assert_eq!(pool.state(), new.state(), "the same document");
}

#[test]
fn every_seed_has_its_split() {
    let store = store("keys");
    let sampler = Sampler::open(&store, &small()).unwrap();
    let splits = sampler.splits("spent").unwrap();
    assert_eq!(splits.len(), store.seeds(0).unwrap().anchors.len());
    for split in [Split::Train, Split::Val, Split::Test] {
        let count = splits.iter().filter(|one| **one == Some(split)).count();
        assert!(count > 0);
        assert_eq!(count, sampler.seed_count(split, "spent").unwrap() as usize, "{split:?}");
    }
    // Of the seeds of train, train is what is known a microsecond after the first seed, val all that
    // is asked from then until the last one. That one is in no split, and so are all others.
    let times = store.seeds(0).unwrap().times;
    let (first, last) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
    let by_time = Sampler::open(&store, &small().time_split([first + 1, last])).unwrap();
    let anew = by_time.splits("spent").unwrap();
    for ((before, split), time) in splits.iter().zip(anew).zip(times) {
        let expected = match before {
            Some(Split::Train) if *time == first => Some(Split::Train),
            Some(Split::Train) if *time < last => Some(Split::Val),
            _ => None,
        };
        assert_eq!(split, expected, "a seed of {before:?} at {time}");
    }
    assert!(sampler.splits("spend").is_err());
    let tables = small().objective(headwater::Objective::MaskedCells).seed_tables(["visits"]);
    let of_rows = Sampler::open(&store, &tables).unwrap();
    assert_eq!(of_rows.splits("visits").unwrap().len(), 480);
}

#[test]
fn a_pool_of_one_task_gives_each_epoch_of_the_sampler() {
    let store = store("shop");
    let options = Options::new().tasks(["churn"]).sequence_length(64).batch_size(16);
    let sampler = Sampler::open(&store, &options).unwrap();
    let mut pool = SeedPool::of(&sampler, Split::Train, "churn", false).unwrap();
    let count = sampler.seed_count(Split::Train, "churn").unwrap();
    assert_eq!(pool.len(), u64::from(count));
    for index in [2, 0] {
        let drawn = pool.epoch(index).unwrap();
        assert!(drawn.epochs.iter().all(|epoch| *epoch == index));
        let expected: Vec<u32> = sampler
            .epoch(Split::Train, "churn", index)
            .unwrap()
            .flat_map(|batch| {
                let batch = batch.unwrap();
                let given = batch.num_sequences().unwrap().as_slice::<u32>().unwrap()[0] as usize;
                batch.seed_index().unwrap().as_slice::<u32>().unwrap()[..given].to_vec()
            })
            .collect();
        assert_eq!(drawn.seeds, expected, "epoch {index}");
    }
    // The third seed of train and every second behind it, two of them; a state says so.
    let mut stored = pool.epoch(0).unwrap().seeds;
    stored.sort_unstable();
    let whole = pool.state();
    pool.keep(2, 2, 2).unwrap();
    let mut kept = pool.epoch(5).unwrap().seeds;
    kept.sort_unstable();
    assert_eq!(kept, [stored[2], stored[4]]);
    let error = pool.load_state(&whole).unwrap_err();
    assert!(error.message().contains("most"), "{error}");
    assert!(SeedPool::of(&sampler, Split::Train, "charn", false).is_err());
}

#[test]
fn tables_that_are_drawn_together_are_one_list() {
    let (store, names) = (store("shop"), ["orders", "visits"]);
    let options = small().objective(headwater::Objective::MaskedCells).seed_tables(names);
    let open = || SeedPool::new(&store, &options, Split::Train, false).unwrap();
    let mut pool = open().together().unwrap();
    assert_eq!(pool.len(), open().len());
    let pairs = |drawn: &headwater::DrawnSeeds| -> Vec<(u32, u32)> {
        drawn.tasks.iter().copied().zip(drawn.seeds.iter().copied()).collect()
    };
    let sorted = |mut list: Vec<(u32, u32)>| {
        list.sort_unstable();
        list
    };
    let (first, second) = (pool.epoch(0).unwrap(), pool.epoch(1).unwrap());
    let all = sorted(pairs(&first));
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]) && all.len() as u64 == pool.len());
    assert_eq!(all, sorted(pairs(&second)));
    assert_ne!(pairs(&first), pairs(&second));
    assert_eq!((first.task.as_ref(), &first.names[..]), (None, &names.map(String::from)[..]));
    let sampler = Sampler::open(&store, &options).unwrap();
    let drawn = pool.next_batch(8).unwrap();
    let parts = drawn.by_task();
    assert_eq!(parts.iter().map(|(_, part)| part.seeds.len()).sum::<usize>(), 8);
    for (table, part) in &parts {
        let own = pairs(&drawn).into_iter().filter(|(task, _)| names[*task as usize] == table);
        assert_eq!(part.seeds, own.map(|(_, seed)| seed).collect::<Vec<_>>());
        let [(name, same)] = &part.by_task()[..] else { panic!("a part is of one table") };
        assert_eq!((name, &same.rows), (table, &part.rows));
        let batch = sampler.batch_of(table, &part.seeds, &part.epochs).unwrap();
        let anchors = batch.array("anchor_rows").unwrap();
        assert_eq!(anchors.as_slice::<u32>().unwrap()[..part.rows.len()], part.rows);
    }
    let mut ranks = Vec::new();
    for rank in 0..3 {
        pool.partition_for_rank(rank, 3).unwrap();
        ranks.extend(pairs(&pool.epoch(5).unwrap()));
    }
    assert_eq!(sorted(ranks), all);
    let error = pool.load_state(&open().state()).unwrap_err();
    assert!(error.message().contains("together was false and is true"), "{error}");
    let weighted = options.clone().task_weights(vec![1.0, 2.0]);
    let weighted = SeedPool::new(&store, &weighted, Split::Train, false).unwrap().together();
    assert!(weighted.err().unwrap().message().contains("leave out task_weights"));
    assert!(open().epoch(0).unwrap_err().message().contains("expected one, or together()"));
}
