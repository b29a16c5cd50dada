//! What is wrong is said, by its kind and in words.
mod common;

use common::store;
use headwater::{
    Cell, ContextLabels, Dtype, ErrorKind, Known, Layout, Options, Sampler, SeedPool, SemanticType,
    Split, Store, VectorsOf, hash64,
};

fn kind_of(options: &Options) -> (ErrorKind, String) {
    let error = Sampler::open(&store("shop"), options).err().expect("the options are wrong");
    (error.kind(), error.to_string())
}

#[test]
fn a_store_that_is_not_there_is_named() {
    let error = Store::open("/no/such.store").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadStore);
    assert!(error.message().contains("/no/such.store"), "{error}");
    let error = Store::open("a\0b").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument);
}

#[test]
fn names_that_the_store_does_not_have_come_with_those_it_has() {
    let (kind, message) = kind_of(&Options::new().tasks(["churned"]));
    assert_eq!(kind, ErrorKind::BadArgument);
    assert!(message.contains("churned") && message.contains("churn"), "{message}");
    let sampler = Sampler::open(&store("shop"), &Options::new()).unwrap();
    let error = sampler.epoch(Split::Train, "spent", 0).err().expect("the shop has no such task");
    assert_eq!(error.kind(), ErrorKind::BadArgument);
    assert!(error.message().contains("churn"), "{error}");
}

#[test]
fn options_out_of_range_are_named() {
    let (kind, message) = kind_of(&Options::new().sequence_length(1));
    assert_eq!(kind, ErrorKind::BadArgument);
    assert_eq!(message, "sequence_length is 1, expected 2 to 65535");
    let (_, message) = kind_of(&Options::new().task_weights(vec![1.0, 2.0]));
    assert_eq!(message, "task_weights has 2 entries, expected 1");
    let (kind, _) = kind_of(&Options::new().layout(Layout::Flat).packing(true));
    assert_eq!(kind, ErrorKind::BadArgument);
}

#[test]
fn arrays_are_asked_for_by_the_right_name_and_type() {
    let options = Options::new().batch_size(4).sequence_length(32);
    let sampler = Sampler::open(&store("shop"), &options).unwrap();
    let batch = sampler.next(Split::Train).unwrap();
    let values = batch.array("numeric_values").unwrap();
    assert_eq!((values.dtype(), values.shape()), (Dtype::F32, &[4, 32][..]));
    assert_eq!(values.as_slice::<f32>().unwrap().len(), 128);
    assert_eq!(batch.numeric_values().unwrap().bytes(), values.bytes());
    assert_eq!(batch.obs_time().unwrap().shape(), [4]);
    let error = batch.neighbor_mask().unwrap_err();
    assert!(error.message().contains("attention_masks"), "{error}");
    let error = values.as_slice::<i32>().unwrap_err();
    assert_eq!(error.message(), "the elements of 'numeric_values' are F32");
    let vectors = batch.array("text_batch_embeddings").unwrap();
    assert_eq!(vectors.dtype(), Dtype::F16);
    assert_eq!(vectors.as_slice::<u16>().unwrap().len(), vectors.bytes().len() / 2);
    let error = batch.array("column_mask").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument);
    assert!(error.message().contains("attention_masks"), "{error}");
}

#[test]
fn a_store_tells_what_it_has() {
    let store = store("keys");
    let tables: Vec<String> = store.tables().unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(tables, ["countries", "years", "visits"]);
    let tasks = store.tasks().unwrap();
    assert_eq!((tasks.len(), tasks[0].name.as_str()), (1, "spent"));
    let columns: Vec<String> = store.columns().unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(columns[..4], ["code", "area", "year", "growth"]);
    assert_eq!(columns.len(), store.counts().unwrap().columns as usize);
    let keys: Vec<String> = store.keys().unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(keys, ["visits.code", "visits.year"]);
    assert_eq!(store.counts().unwrap().rows, 12 + 20 + 480);
    assert_eq!(store.table("visits").unwrap(), 2);
    let visits = store.table_info(2).unwrap();
    assert_eq!((visits.name.as_str(), visits.rows.clone()), ("visits", 32..512));
    assert_eq!(visits.temporal_column, Some(store.column("visits", "day").unwrap()));
    assert_eq!(visits.primary_key, [store.column("visits", "visit_id").unwrap()]);
    let code = store.column_info(store.column("countries", "code").unwrap()).unwrap();
    assert_eq!((code.semantic_type, code.table), (SemanticType::Categorical, Some(0)));
    assert_eq!((code.task, code.known), (None, Known::Creation));
    let names: Vec<&str> = code.categories.map(|c| store.category(c).unwrap()).collect();
    assert_eq!(names[..3], ["ax", "ay", "az"]);
    let by_year = store.key_info(store.key("visits.year").unwrap()).unwrap();
    assert_eq!((by_year.child_table, by_year.parent_table, by_year.edges), (2, 1, 480));
    assert_eq!(by_year.parent_columns, [store.column("years", "year").unwrap()]);
    let task = store.task_info(0).unwrap();
    assert_eq!(task.target_column, store.column("visits", "spent").unwrap());
    assert_eq!((task.seeds as usize, task.is_cell), (store.seeds(0).unwrap().anchors.len(), true));
    assert_eq!(
        (task.time_column, task.has_given_split, task.has_label_times),
        (None, false, false)
    );
    assert_eq!(task.context_labels, ContextLabels::Train);
    let seeds = store.seeds(0).unwrap();
    assert_eq!(seeds.label_times, None);
    let key = store.row_key(seeds.anchors[0]).unwrap()[0];
    let prefixed = [&(key.len() as u32).to_le_bytes()[..], key].concat();
    assert_eq!(seeds.key_hashes[0], hash64(&prefixed));
    assert!(store.metadata().unwrap().contains("\"visits\""));
    let mut pool = SeedPool::new(&store, &Options::new(), Split::Train, true).unwrap();
    let count = pool.len();
    assert!(count > 300 && count < 480);
    let drawn = pool.next_batch(5).unwrap();
    assert!(drawn.labels.iter().all(|label| label.is_finite()));
    assert_eq!((drawn.seeds.len(), pool.remaining()), (5, count - 5));
    assert!(pool.partition_for_rank(2, 2).is_err());
}

/// Visit i is in country i * 5 % 12 and year 2000 + i * 3 % 20; its row is found by its key.
#[test]
fn rows_are_read_one_by_one() {
    let store = store("keys");
    let row = store.find(2, &["7"]).unwrap().expect("visit 7 is there");
    assert_eq!(store.row_table(row).unwrap(), 2);
    assert_eq!(store.row_key(row).unwrap(), [b"7"]);
    let column = |name| store.column("visits", name).unwrap();
    let Cell::Number(spent) = store.cell(row, column("spent")).unwrap() else { panic!("a sum") };
    assert!((spent - (7.0 + 10.0 + 11.0)).abs() < 1e-5);
    assert_eq!(store.cell(row, column("visit_id")).unwrap(), Cell::Identifier);
    let Cell::Time(time) = store.cell(row, column("day")).unwrap() else { panic!("a time") };
    assert_eq!(store.row_time(row).unwrap(), time);
    let Cell::Text(text) = store.cell(row, column("note")).unwrap() else { panic!("a text") };
    assert_eq!(store.text_str(text).unwrap(), "note 7");
    let Cell::Category(code) = store.cell(row, column("code")).unwrap() else { panic!("a code") };
    assert_eq!(store.category(code).unwrap(), "dz");
    let by_code = store.key("visits.code").unwrap();
    let country = store.parent(row, by_code).unwrap().expect("it has a country");
    assert_eq!(store.row_key(country).unwrap(), [b"dz"]);
    let visits = store.children(country, by_code).unwrap();
    assert_eq!(visits.len(), 40);
    assert!(visits.contains(&row));
    assert_eq!(store.row_key_str(country).unwrap(), ["dz"]);
    assert_eq!(store.find(2, &["480"]).unwrap(), None);
    let found = store.find_all(2, [["480"], ["7"], ["x"], ["7"]]).unwrap();
    assert_eq!(found, [None, Some(row), None, Some(row)]);
    let eleventh = store.find(2, &["11"]).unwrap().unwrap();
    assert_eq!(store.cell(eleventh, column("spent")).unwrap(), Cell::Null);
    assert_eq!(store.cell(row, 0).unwrap_err().kind(), ErrorKind::BadArgument);
    assert_eq!(store.row_time(512).unwrap_err().kind(), ErrorKind::BadArgument);
}

#[test]
fn targets_columns_and_vectors_are_as_batches_show_them() {
    let store = store("keys");
    let sampler = Sampler::open(&store, &Options::new().batch_size(4).sequence_length(32)).unwrap();
    let stats = sampler.target_stats("spent").unwrap();
    let spent = store.column("visits", "spent").unwrap();
    let scale = sampler.column_scale(spent).unwrap();
    assert_eq!((stats.column_mean, stats.column_std), scale);
    let found = store.column_info(spent).unwrap();
    assert_eq!((found.mean, found.std), scale);
    assert!(stats.train_count > 300 && (stats.mean - scale.0).abs() < 1.0, "{stats:?}");
    let (columns, width) = store.vectors(VectorsOf::Columns).unwrap();
    assert_eq!(columns.len(), width * store.counts().unwrap().columns as usize);
    let (texts, _) = store.vectors(VectorsOf::Texts).unwrap();
    assert_eq!(texts.len(), width * 17, "a vector for each note");
}
