//! Each member that examples/graph_batch.rs makes is what the store has.
mod common;
#[allow(dead_code)]
#[path = "../examples/graph_batch.rs"]
mod example;

use std::ops::Range;

use common::store;
use example::{Encoder, GraphBatch, Tensor, f32_of, graph_batch};
use headwater::{Batch, Cell, Objective, Options, Sampler, Split, Store, VectorsOf};

const LENGTH: usize = 96;
const WIDTH: usize = 6;
const YEAR_US: f64 = 365.2425 * 86_400e6;

/// The features below: number, epoch, boolean, NULL, and the sums of the vectors of a category and
/// a text. Of each the places in a cell.
fn places(text_dim: usize) -> [Range<usize>; WIDTH] {
    let texts = 18 + text_dim;
    [0..1, 15..16, 16..17, 17..18, 18..texts, texts..texts + text_dim]
}

struct Made {
    store: Store,
    sampler: Sampler,
    batch: Batch,
    made: GraphBatch,
    text_dim: usize,
}

fn made() -> Made {
    let store = store("shop");
    let options = Options::new().objective(Objective::MaskedCells).seed_tables(["orders"]);
    let options = options.attention_masks(true).with_rows(true).sequence_length(LENGTH as u32);
    let sampler = Sampler::open(&store, &options.num_threads(1)).unwrap();
    let text_dim = sampler.shape().unwrap().text_dim;
    let mut weights = vec![0.0; (18 + 2 * text_dim) * WIDTH];
    for (feature, places) in places(text_dim).into_iter().enumerate() {
        for place in places {
            weights[place * WIDTH + feature] = 1.0;
        }
    }
    let mask_vectors = (0..6 * WIDTH).map(|i| 100.0 + (i / WIDTH) as f32).collect();
    let batch = sampler.next(Split::Train).unwrap();
    let encoder = Encoder { weights, mask_vectors, width: WIDTH };
    let made = graph_batch(&batch, &store, &encoder).unwrap();
    Made { store, sampler, batch, made, text_dim }
}

impl Made {
    /// The column and the cell in the store at a position; `None` in padding.
    fn cell(&self, at: usize) -> Option<(u32, Cell)> {
        let of = |name| self.batch.array(name).unwrap();
        if of("is_padding").as_slice::<u8>().unwrap()[at] == 1 {
            return None;
        }
        let column = of("column_ids").as_slice::<i32>().unwrap()[at] as u32;
        let local = of("seq_row_ids").as_slice::<u16>().unwrap()[at] as usize;
        let rows = of("row_ids");
        let row = rows.as_slice::<u32>().unwrap()[at / LENGTH * rows.shape()[1] + local];
        Some((column, self.store.cell(row, column).unwrap()))
    }

    fn scaled(&self, column: u32, value: f64) -> f32 {
        let (mean, std) = self.sampler.column_scale(column).unwrap();
        ((value - mean) / std) as f32
    }

    fn vector(&self, of: VectorsOf, number: u32) -> Vec<f32> {
        let (bits, width) = self.store.vectors(of).unwrap();
        bits[number as usize * width..][..width].iter().map(|bits| f32_of(*bits)).collect()
    }
}

fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-5, "{what}: {found}, expected {expected}");
    }
}

#[test]
fn every_member_has_its_shape() {
    let Made { made, sampler, text_dim, .. } = made();
    let shape = sampler.shape().unwrap();
    let (b, s, m) = (shape.batch_size, LENGTH, shape.max_targets_per_type);
    let targets = &made.targets;
    assert_eq!(made.features.shape, [b, s, WIDTH]);
    assert_eq!(made.column_embeddings.shape, [b, s, text_dim]);
    assert_eq!(made.cell_types.shape, [b, s]);
    for mask in [&made.column_mask, &made.feature_mask, &made.neighbor_mask] {
        assert_eq!(mask.shape, [b, s, s]);
    }
    assert_eq!(made.padding_mask.shape, [b, s]);
    assert_eq!(made.masked_positions.shape, [b, s]);
    for indices in [
        &targets.numerical_indices,
        &targets.timestamp_indices,
        &targets.boolean_indices,
        &targets.categorical_indices,
        &targets.text_indices,
    ] {
        assert_eq!(indices.shape, [b, m]);
    }
    assert_eq!(targets.numerical_values.shape, [b, m]);
    assert_eq!(targets.timestamp_values.shape, [b, m, 15]);
    assert_eq!(targets.boolean_values.shape, [b, m]);
    assert_eq!(targets.categorical_embeddings.shape, [b, m, text_dim]);
    assert_eq!(targets.text_embeddings.shape, [b, m, text_dim]);
}

#[test]
fn cells_are_those_of_the_store() {
    let all = made();
    let made = &all.made;
    let mut kinds = [0; 8];
    for (at, feature) in made.features.values.chunks_exact(WIDTH).enumerate() {
        let embedding = &made.column_embeddings.values[at * all.text_dim..][..all.text_dim];
        let is_masked = made.masked_positions.values[at];
        let Some((column, cell)) = all.cell(at) else {
            assert!(made.padding_mask.values[at] && !is_masked);
            assert_close(feature, &[0.0; WIDTH], "padding");
            assert_close(embedding, &vec![0.0; all.text_dim], "padding");
            kinds[7] += 1;
            continue;
        };
        assert!(!made.padding_mask.values[at]);
        let stype = all.store.column_info(column).unwrap().semantic_type;
        assert_eq!(made.cell_types.values[at], stype as u8);
        assert_close(embedding, &all.vector(VectorsOf::Columns, column), "column");
        let mut expected = [0.0; WIDTH];
        match cell {
            _ if is_masked => expected = [100.0 + f32::from(stype as u8); WIDTH],
            Cell::Null => expected[3] = 1.0,
            Cell::Identifier => {}
            Cell::Number(value) => expected[0] = all.scaled(column, value),
            Cell::Time(time) => expected[1] = all.scaled(column, time as f64),
            Cell::Boolean(flag) => expected[2] = f32::from(flag),
            Cell::Category(category) => {
                expected[4] = all.vector(VectorsOf::Categories, category).iter().sum();
            }
            Cell::Text(text) => {
                expected[5] = all.vector(VectorsOf::Texts, text).iter().sum();
            }
        }
        assert_close(feature, &expected, &format!("{cell:?}"));
        kinds[if is_masked { 6 } else { stype as usize }] += 1;
    }
    assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}"); // six types, masked, padding
}

/// The masked cells of a type: place in its list, position, column and value.
fn targets(all: &Made, indices: &Tensor<i32>) -> Vec<(usize, u32, Cell)> {
    let of_sequence = indices.values.chunks_exact(indices.shape[1]);
    let mut found = Vec::new();
    for (sequence, list) in of_sequence.enumerate() {
        for (place, index) in list.iter().enumerate().filter(|(_, index)| **index >= 0) {
            let at = sequence * LENGTH + *index as usize;
            assert!(all.made.masked_positions.values[at]);
            let (column, cell) = all.cell(at).expect("a cell");
            found.push((sequence * list.len() + place, column, cell));
        }
    }
    assert!(!found.is_empty());
    found
}

#[test]
fn targets_are_the_cells_of_the_store() {
    let all = made();
    let made = &all.made.targets;
    let mut count = 0;
    for (place, column, cell) in targets(&all, &made.numerical_indices) {
        let Cell::Number(value) = cell else { panic!("{cell:?}") };
        let found = made.numerical_values.values[place];
        assert_close(&[found], &[all.scaled(column, value)], "number");
        count += 1;
    }
    for (place, column, cell) in targets(&all, &made.timestamp_indices) {
        let Cell::Time(time) = cell else { panic!("{cell:?}") };
        let parts = &made.timestamp_values.values[15 * place..][..15];
        let turn = (time.rem_euclid(86_400_000_000) / 3_600_000_000) as f64 / 24.0;
        let turn = 2.0 * std::f64::consts::PI * turn;
        assert_close(&parts[4..6], &[turn.sin() as f32, turn.cos() as f32], "hour");
        assert_close(&parts[14..], &[all.scaled(column, time as f64)], "epoch");
        assert!((50.0..60.0).contains(&(time as f64 / YEAR_US)), "{time}");
        count += 1;
    }
    for (place, _, cell) in targets(&all, &made.boolean_indices) {
        assert_eq!(Cell::Boolean(made.boolean_values.values[place]), cell);
        count += 1;
    }
    let width = all.text_dim;
    for (place, _, cell) in targets(&all, &made.categorical_indices) {
        let Cell::Category(category) = cell else { panic!("{cell:?}") };
        let found = &made.categorical_embeddings.values[place * width..][..width];
        assert_close(found, &all.vector(VectorsOf::Categories, category), "category");
        count += 1;
    }
    for (place, _, cell) in targets(&all, &made.text_indices) {
        let Cell::Text(text) = cell else { panic!("{cell:?}") };
        let found = &made.text_embeddings.values[place * width..][..width];
        assert_close(found, &all.vector(VectorsOf::Texts, text), "text");
        count += 1;
    }
    // All masked cells but those that are NULL.
    let masked = (0..all.made.masked_positions.values.len())
        .filter(|at| all.made.masked_positions.values[*at])
        .filter(|at| !matches!(all.cell(*at), Some((_, Cell::Null))));
    assert_eq!(count, masked.count());
}

#[test]
fn masks_hide_what_is_not_joined() {
    let Made { made, batch, .. } = made();
    let columns: &[i32] = batch.array("column_ids").unwrap().as_slice().unwrap();
    let rows: &[u16] = batch.array("seq_row_ids").unwrap().as_slice().unwrap();
    let edges = batch.array("fk_adj").unwrap();
    let (edges, count) = (edges.as_slice::<u8>().unwrap(), edges.shape()[1]);
    let joined = |b: usize, i: u16, j: u16| {
        let edge = |i: u16, j: u16| edges[(b * count + i as usize) * count + j as usize] == 1;
        edge(i, j) || edge(j, i)
    };
    let mut shown = [0; 3];
    for at in 0..made.column_mask.values.len() {
        let (i, b) = (at / LENGTH, at / LENGTH / LENGTH);
        let j = b * LENGTH + at % LENGTH;
        let both = !made.padding_mask.values[i] && !made.padding_mask.values[j];
        let expected = [
            i == j || both && columns[i] == columns[j],
            i == j || both && rows[i] == rows[j],
            i == j || both && joined(b, rows[i], rows[j]),
        ];
        let masks = [&made.column_mask, &made.feature_mask, &made.neighbor_mask];
        for ((mask, expected), shown) in masks.iter().zip(expected).zip(&mut shown) {
            assert_eq!(mask.values[at], !expected, "cells {i} and {j}");
            *shown += usize::from(expected && i != j);
        }
    }
    assert!(shown.iter().all(|count| *count > 0), "{shown:?}");
}
