//! Whether a quantised model thinks what candle's thinks.
//!
//! A number between two steps of 8 bits goes to one or the other by the last bit of a sum, and each such choice moves
//! others: two orders of adding end at a distance that quantisation makes, also with candle alone. How far is measured
//! here: candle's model beside itself, with embeddings that differ in the last bits. The kernels have to be as near.

use anyhow::{Result, ensure};

use crate::model::Model;
use crate::ops::{CandleOps, KernelOps, Precision};
use crate::weights::Weights;

/// Changes of the embedding. Some reach no number between two steps, where a text is short.
const CHANGES: [f64; 4] = [1e-6, -1e-6, 3e-6, -3e-6];

/// What the kernels' distance may be of candle's largest one: distances differ by chance.
const TOLERANCE: f32 = 3.0;

pub fn check(
    weights: &Weights,
    precision: Precision,
    candle: &Model<'_, CandleOps>,
    kernels: &Model<'_, KernelOps>,
    text: &[u32],
) -> Result<()> {
    let expected = candle.read(text)?;
    let mut of_candle = Distance { mean_square: 0.0, same_best: text.len() };
    for change in CHANGES {
        let changed = Weights { embedding: (&weights.embedding * (1.0 + change))?, ..weights.clone() };
        let distance = Distance::of(&expected, &Model::new(&CandleOps, &changed, precision)?.read(text)?);
        if distance.mean_square > of_candle.mean_square {
            of_candle = distance;
        }
    }
    let of_kernels = Distance::of(&expected, &kernels.read(text)?);
    println!(
        "{precision:?}: {} positions; kernels and candle differ by {:.1e} (mean square of all scores), and by {:.1e} \
         candle and itself after a change of 1e-6; the best token is the same {} and {} times",
        text.len(),
        of_kernels.mean_square,
        of_candle.mean_square,
        of_kernels.same_best,
        of_candle.same_best,
    );
    ensure!(
        of_kernels.mean_square <= TOLERANCE * of_candle.mean_square,
        "the kernels are not as near to candle as it is to itself"
    );
    Ok(())
}

struct Distance {
    mean_square: f32,
    same_best: usize,
}

impl Distance {
    fn of(one: &[Vec<f32>], other: &[Vec<f32>]) -> Self {
        let squares = one.iter().flatten().zip(other.iter().flatten()).map(|(one, other)| (one - other).powi(2));
        let mean_square = squares.sum::<f32>() / one.iter().map(Vec::len).sum::<usize>() as f32;
        let best = |scores: &[f32]| (0..scores.len()).max_by(|one, other| scores[*one].total_cmp(&scores[*other]));
        let same_best = one.iter().zip(other).filter(|(one, other)| best(one) == best(other)).count();
        Self { mean_square, same_best }
    }
}
