//! Whether a quantised model thinks what candle's thinks.
//!
//! A number between two steps of 8 bits goes to one or the other by the last bit of a sum, and each such choice moves
//! others: two orders of adding end at a distance that quantisation makes, also with candle alone. How far is measured
//! here: candle's model beside itself, with an embedding that differs in the last bits. The kernels have to be as near.

use anyhow::{Result, ensure};

use crate::model::Model;
use crate::ops::{CandleOps, KernelOps, Precision};
use crate::weights::Weights;

pub fn check(
    weights: &Weights,
    precision: Precision,
    candle: &Model<'_, CandleOps>,
    kernels: &Model<'_, KernelOps>,
    text: &[u32],
) -> Result<()> {
    let nudged = Weights { embedding: (&weights.embedding * (1.0 + 1e-6))?, ..weights.clone() };
    let expected = candle.read(text)?;
    let of_candle = Distance::of(&expected, &Model::new(&CandleOps, &nudged, precision)?.read(text)?);
    let of_kernels = Distance::of(&expected, &kernels.read(text)?);
    println!(
        "{precision:?}: scores of {} tokens: kernels and candle differ by {:.1e} (mean square), candle by {:.1e} from \
         itself after a change of 1e-6; the best token is the same {} and {} times",
        text.len(),
        of_kernels.mean_square,
        of_candle.mean_square,
        of_kernels.same_best,
        of_candle.same_best,
    );
    ensure!(of_kernels.mean_square < 2.0 * of_candle.mean_square, "the kernels are not as near as candle is to itself");
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
