//! Every array of every batch of an epoch is the same bits as Python's.
mod common;

use std::fmt::Write;
use std::time::Duration;

use common::{folder, lines, lines_of, options, split, store};
use headwater::{
    DrawnSeeds, IdentifierCells, Layout, Options, Sampler, SeedPool, Split, State, TaskOrder,
    hash64,
};

/// An epoch of rust_vectors.py: its words, and the lines of its arrays.
type Recorded = (Vec<String>, Vec<String>);

fn recorded() -> Vec<Recorded> {
    let text = std::fs::read_to_string(folder().join("epochs.txt")).expect("epochs.txt is there");
    let mut found: Vec<Recorded> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("epoch ") {
            Some(words) => {
                found.push((words.split(' ').map(str::to_owned).collect(), Vec::new()));
            }
            None => found.last_mut().expect("an epoch comes first").1.push(line.to_owned()),
        }
    }
    for (_, arrays) in &mut found {
        arrays.sort();
    }
    found
}

/// The lines of the same epoch by this crate, sorted, with options changed by `change`.
fn drawn(words: &[String], change: impl Fn(Options) -> Options) -> Vec<String> {
    let [of_store, of_split, task, index, pairs @ ..] = words else {
        panic!("an epoch has a store, a split, a task and a number: {words:?}");
    };
    let options = change(options(pairs.iter().map(String::as_str)));
    let sampler = Sampler::open(&store(of_store), &options).expect("the options are right");
    let index = index.parse().expect("a number");
    let epoch = sampler.epoch(split(of_split), task, index).expect("the task has seeds");
    let mut found = lines_of(epoch).expect("batches come");
    found.sort();
    found
}

#[test]
fn every_array_is_the_same_for_any_number_of_threads() {
    let recorded = recorded();
    let sets: std::collections::BTreeSet<_> = recorded
        .iter()
        .map(|(words, _)| {
            let kept = words[4..]
                .iter()
                .filter(|word| !word.contains("rank=") && !word.contains("world_size="));
            kept.cloned().collect::<Vec<_>>()
        })
        .collect();
    assert!(sets.len() >= 11, "{} option sets", sets.len());
    let mut count = 0;
    for (words, expected) in &recorded {
        for threads in [1, 3] {
            let found = drawn(words, |options| options.num_threads(threads));
            assert_eq!(found.len(), expected.len(), "{words:?}");
            for (ours, theirs) in found.iter().zip(expected) {
                assert_eq!(ours, theirs, "{words:?}, {threads} threads");
            }
            count += found.len();
        }
    }
    assert!(count > 10_000, "{count} arrays");
}

/// A state that Python saved: its words, its JSON, and the lines of the batch that came next.
type Saved = (Vec<String>, String, Vec<String>);

fn saved(file: &str, first: &str) -> Vec<Saved> {
    let text = std::fs::read_to_string(folder().join(file)).expect("the file is there");
    let mut found: Vec<Saved> = Vec::new();
    for line in text.lines() {
        if let Some(words) = line.strip_prefix(first) {
            found.push((words.split(' ').map(str::to_owned).collect(), String::new(), Vec::new()));
        } else if line.starts_with('{') {
            found.last_mut().expect("a state comes first").1 = line.to_owned();
        } else {
            found.last_mut().expect("a state comes first").2.push(line.to_owned());
        }
    }
    found
}

#[test]
fn a_state_of_python_is_rusts_and_goes_on_here_and_there() {
    let mut saved = saved("states.txt", "state ");
    assert!(saved.len() >= 2 * 11, "{} states", saved.len());
    let mut of_rust = String::new();
    for (words, json, expected) in &mut saved {
        expected.sort();
        let of_python = State::from_json(json).unwrap();
        let given = options(words[1..].iter().map(String::as_str)).num_threads(2);
        let store = store(&words[0]);
        let resumed = Sampler::open(&store, &given).unwrap();
        resumed.load_state(&of_python).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        assert_eq!(&lines(0, &resumed.next(Split::Train).unwrap()), &*expected, "{words:?}");

        let sampler = Sampler::open(&store, &given).unwrap();
        for _ in 0..3 {
            sampler.next(Split::Train).unwrap();
        }
        if !words.iter().any(|word| word == "layout=flat") {
            sampler.next(Split::Val).unwrap(); // flat batches have a stream of train alone
        }
        let state = sampler.state().unwrap();
        assert_eq!(state, of_python, "{words:?}");
        let next = lines(0, &sampler.next(Split::Train).unwrap()).join("\n");
        writeln!(of_rust, "state {}\n{}\n{next}", words.join(" "), state.to_json()).unwrap();
    }
    std::fs::write(folder().join("states_of_rust.txt"), of_rust).unwrap(); // for Python
}

#[test]
fn a_state_of_another_sampler_names_what_differs() {
    let (words, json, _) = &saved("states.txt", "state ")[0];
    let open = |change: fn(Options) -> Options| {
        let given = options(words[1..].iter().map(String::as_str));
        Sampler::open(&store(&words[0]), &change(given)).unwrap()
    };
    let refusal = |sampler: &Sampler, json: &str| {
        sampler.load_state(&State::from_json(json).unwrap()).unwrap_err().to_string()
    };
    let said = refusal(&open(|given| given.seed(7).identifier_cells(IdentifierCells::None)), json);
    let expected =
        "the state is of another sampler: identifier_cells was \"all\" and is \"none\"; ";
    assert!(said.starts_with(expected), "{said}");
    assert!(said.contains("; seed was 42 and is 7"), "{said}");
    let whole = open(|given| given);
    let older = json.replace("\"version\": 3", "\"version\": 2");
    assert_eq!(refusal(&whole, &older), "the state has version 2, expected 3");
    let cut = json.replace("\"churn\":", "\"chum\":");
    assert_eq!(refusal(&whole, &cut), "the state is not whole: it lacks 'churn'");
    let odd = json.replace("\"batches\": 3", "\"batches\": -3");
    assert_eq!(refusal(&whole, &odd), "the state is not whole: 'batches' is -3");
    let other = Sampler::open(&store("keys"), &options(words[1..].iter().map(String::as_str)));
    assert!(refusal(&other.unwrap(), json).contains("is now"));
}

/// The lines of seeds, as rust_vectors.py writes them.
fn seed_lines(drawn: &DrawnSeeds) -> Vec<String> {
    let numbers = |list: &[u32]| list.iter().flat_map(|one| one.to_le_bytes()).collect::<Vec<_>>();
    let times: Vec<u8> = drawn.times.iter().flat_map(|time| time.to_le_bytes()).collect();
    let labels: Vec<u8> = drawn.labels.iter().flat_map(|label| label.to_le_bytes()).collect();
    let arrays = [
        ("seeds", numbers(&drawn.seeds)),
        ("epochs", numbers(&drawn.epochs)),
        ("rows", numbers(&drawn.rows)),
        ("obs_times", times),
        ("labels", labels),
    ];
    let hashed = arrays.map(|(name, bytes)| format!("{name} {:016x}", hash64(&bytes)));
    let task = drawn.task.as_deref().unwrap_or("None");
    let tasks = format!("tasks {:016x}", hash64(&numbers(&drawn.tasks)));
    [format!("task {task}"), tasks].into_iter().chain(hashed).collect()
}

#[test]
fn a_pool_of_python_is_rusts_and_goes_on_here_and_there() {
    let saved = saved("pools.txt", "pool ");
    assert_eq!(saved.len(), 12);
    let mut of_rust = String::new();
    for (words, json, expected) in &saved {
        let [name, of_split, labelled, rank, world, pairs @ ..] = &words[..] else {
            panic!("a pool has a store, a split, a part and options: {words:?}");
        };
        let of_sampler = pairs.iter().filter(|pair| *pair != "together=True");
        let is_together = pairs.len() > of_sampler.clone().count();
        let given = options(of_sampler.map(String::as_str));
        let (rank, world) = (rank.parse().unwrap(), world.parse().unwrap());
        let open = || {
            let split = split(of_split);
            let mut pool = SeedPool::new(&store(name), &given, split, labelled == "True").unwrap();
            if is_together {
                pool = pool.together().unwrap();
            }
            pool.partition_for_rank(rank, world).unwrap();
            pool
        };
        let of_python = State::from_json(json).unwrap();
        let mut resumed = open();
        resumed.load_state(&of_python).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        assert_eq!(&seed_lines(&resumed.next_batch(7).unwrap()), expected, "{words:?}");

        let mut pool = open();
        pool.next_batch(5).unwrap();
        pool.next_batch(pool.len() as usize).unwrap();
        let state = pool.state();
        assert_eq!(state, of_python, "{words:?}");
        let next = seed_lines(&pool.next_batch(7).unwrap()).join("\n");
        writeln!(of_rust, "pool {}\n{}\n{next}", words.join(" "), state.to_json()).unwrap();
    }
    std::fs::write(folder().join("pools_of_rust.txt"), of_rust).unwrap(); // for Python
}

/// What a pool of Python cannot do stands in the state too, so that Python refuses it.
#[test]
fn a_state_of_another_pool_names_what_differs() {
    let (store, plain) = (store("shop"), Options::new());
    let open = |options: &Options| SeedPool::new(&store, options, Split::Train, false).unwrap();
    let refusal = |options: &Options| {
        open(&plain).load_state(&open(options).state()).unwrap_err().to_string()
    };
    assert_eq!(
        refusal(&plain.clone().task_order(TaskOrder::RoundRobin).train_on_val(true)),
        "the state is of another pool: task_order was \"round_robin\" and is null; train_on_val \
         was true and is null"
    );
    let until = refusal(&plain.clone().visible_until([i64::MAX, i64::MAX, 7]));
    assert!(until.contains("visible_until was [9223372036854775807, "), "{until}");
    // Rank 1 of 3, by the options and by a call.
    let mut called = open(&plain);
    called.partition_for_rank(1, 3).unwrap();
    let by_options = open(&plain.clone().rank(1).world_size(3));
    assert_eq!(called.state(), by_options.state());
    let mut cut = called.state().to_json();
    assert!(cut.contains("\"rank\": 1, \"world_size\": 3"), "{cut}");
    cut = cut.replace("\"batches\": 0", "\"calls\": 0");
    let error = called.load_state(&State::from_json(&cut).unwrap()).unwrap_err();
    assert_eq!(error.message(), "the state is not whole: it lacks 'batches'");
    // Rank 0 of 2 of that part: rank 1 of 6.
    let mut part = by_options;
    let whole = part.len();
    part.partition_for_rank(0, 2).unwrap();
    assert!(part.state().to_json().contains("\"rank\": 1, \"world_size\": 6"));
    assert_eq!(part.len(), whole.div_ceil(2));
}

#[test]
fn prometheus_gets_the_names_and_types_of_python() {
    let text = std::fs::read_to_string(folder().join("prometheus.txt")).expect("it is there");
    let blocks: Vec<&str> = text.split("sampler ").skip(1).filter(|one| one.len() > 80).collect();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        let (words, expected) = block.split_once('\n').expect("lines follow");
        let sampler = Sampler::open(&store("shop"), &options(words.split(' '))).unwrap();
        sampler.next(Split::Train).unwrap();
        let told = sampler.stats_prometheus().unwrap();
        let shown = |line: &str| {
            let name = line.rsplit_once(' ').expect("a number").0.to_owned();
            if line.starts_with('#') { line.to_owned() } else { name }
        };
        let found: Vec<String> = told.lines().map(shown).collect();
        assert_eq!(found, expected.lines().collect::<Vec<_>>(), "{words}");
        let stats = sampler.stats().unwrap();
        assert!(stats.sequences >= 16 && stats.walk > Duration::ZERO, "{stats:?}");
        assert!(stats.elapsed >= stats.consumer_wait, "{stats:?}");
    }
}

#[test]
fn one_option_that_differs_is_seen() {
    let recorded = recorded();
    let (words, expected) = &recorded[0];
    assert_eq!(&drawn(words, |options| options), expected);
    assert_ne!(&drawn(words, |options| options.seed(43)), expected);
    assert_ne!(&drawn(words, |options| options.child_width(1)), expected);
    assert_ne!(&drawn(words, |options| options.layout(Layout::Compact)), expected);
}

#[test]
fn parts_of_a_pool_are_the_ranks_of_a_sampler() {
    let store = store("shop");
    let options = |rank, world| {
        let sizes = Options::new().sequence_length(32).batch_size(8).num_threads(1);
        sizes.rank(rank).world_size(world)
    };
    let whole = Sampler::open(&store, &options(0, 1)).unwrap();
    let mut seen = Vec::new();
    for rank in 0..2 {
        let own = Sampler::open(&store, &options(rank, 2)).unwrap();
        let mut pool = SeedPool::new(&store, &options(0, 1), Split::Train, false).unwrap();
        pool.partition_for_rank(rank, 2).unwrap();
        let mut orders = Vec::new();
        for index in 0..3 {
            let drawn = pool.next_batch(pool.len() as usize).unwrap();
            let task = drawn.task.expect("one task at a time");
            assert_eq!(task, "churn");
            assert!(drawn.epochs.iter().all(|epoch| *epoch == index));
            let by_rank = lines_of(own.epoch(Split::Train, "churn", index).unwrap()).unwrap();
            let chosen = whole.epoch_of(&task, &drawn.seeds, &drawn.epochs).unwrap();
            let by_pool = lines_of(chosen).unwrap();
            // A sampler's ranks are padded to equally many batches, a pool's parts are not.
            assert_eq!(by_rank[..by_pool.len()], by_pool);
            orders.push(drawn.seeds);
        }
        let sorted = |order: &Vec<u32>| {
            let mut order = order.clone();
            order.sort_unstable();
            order
        };
        assert!(orders.iter().all(|order| sorted(order) == sorted(&orders[0])), "fixed");
        assert_ne!(orders[0], orders[1], "shuffled anew");
        seen.extend(sorted(&orders[0]));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), whole.seed_count(Split::Train, "churn").unwrap() as usize);
}
