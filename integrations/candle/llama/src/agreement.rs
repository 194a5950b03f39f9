//! Whether a quantised model thinks what candle's thinks, beyond the text.
//!
//! A number between two steps of 8 bits goes to one or the other by the last bit of a sum, and each such choice moves
//! others: two orders of adding end at a distance that quantisation makes, also with candle alone. How far is measured
//! here: candle's model beside itself, with embeddings that differ in the last bits. The kernels may be three times as
//! far. With these weights the best token leads by more than either, so that texts can be compared.

use anyhow::{Result, ensure};

use crate::PROMPT;
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
    let mut of_candle = 0.0_f32;
    for change in CHANGES {
        let changed = Weights { embedding: (&weights.embedding * (1.0 + change))?, ..weights.clone() };
        let scores = Model::new(&CandleOps, &changed, precision)?.read(text)?;
        ensure!(chosen(&scores) == chosen(&expected), "rounding decides what candle itself writes: take another seed");
        of_candle = of_candle.max(mean_square(&expected, &scores));
    }
    let of_kernels = mean_square(&expected, &kernels.read(text)?);
    println!(
        "{precision:?}: scores of kernels and candle differ by {of_kernels:.1e} (mean square), those of candle and \
         itself after changes of up to 3e-6 by {of_candle:.1e}",
    );
    ensure!(of_kernels <= TOLERANCE * of_candle, "the kernels are not as near to candle as it is to itself");
    Ok(())
}

fn mean_square(one: &[Vec<f32>], other: &[Vec<f32>]) -> f32 {
    let squares = one.iter().flatten().zip(other.iter().flatten()).map(|(one, other)| (one - other).powi(2));
    squares.sum::<f32>() / one.iter().map(Vec::len).sum::<usize>() as f32
}

/// Returns the best token of each step that wrote one.
fn chosen(scores: &[Vec<f32>]) -> Vec<Option<usize>> {
    let best = |scores: &Vec<f32>| (0..scores.len()).max_by(|one, other| scores[*one].total_cmp(&scores[*other]));
    scores.iter().skip(PROMPT.len() - 1).map(best).collect()
}
