//! Tensor expressions, as a tracing compiler has them: what one element of the result is made of. All values are `f32`.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// What an element is computed from.
pub enum Expression {
    /// The element of the first tensor, or of the second.
    Element(Tensor),
    Constant(f32),
    Binary(Operation, Box<(Expression, Expression)>),
}

#[derive(Clone, Copy)]
pub enum Tensor {
    A,
    B,
}

#[derive(Clone, Copy)]
pub enum Operation {
    Add,
    Subtract,
    Multiply,
    /// The left one if it is greater, else the right one.
    Maximum,
}

/// A function of two tensors of one length.
pub struct Kernel {
    pub element: Expression,
    /// The result is the sum of the elements, in their order, in place of them.
    pub is_sum: bool,
}

impl Kernel {
    /// So many of them; the same for everyone.
    pub fn random(count: usize) -> Vec<Self> {
        let mut random = StdRng::seed_from_u64(20_26);
        let mut kernel = || Self { element: Expression::random(&mut random, 4), is_sum: random.random_ratio(1, 4) };
        (0..count).map(|_| kernel()).collect()
    }

    /// Computes it element by element.
    pub fn run(&self, out: &mut [f32], a: &[f32], b: &[f32]) {
        let mut sum = 0.0;
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            let element = self.element.of(*a, *b);
            sum += element;
            *out = if self.is_sum { 0.0 } else { element };
        }
        if self.is_sum {
            out[0] = sum;
        }
    }
}

impl Expression {
    /// Each has as many operations on every path; no value of elements between -1 and 1 leaves the range of `f32`.
    fn random(random: &mut StdRng, depth: u32) -> Self {
        if depth == 0 {
            return match random.random_range(0..5) {
                0 => Self::Constant(random.random_range(-2.0..2.0)),
                1 | 2 => Self::Element(Tensor::A),
                _ => Self::Element(Tensor::B),
            };
        }
        let operation = match random.random_range(0..4) {
            0 => Operation::Add,
            1 => Operation::Subtract,
            2 => Operation::Multiply,
            _ => Operation::Maximum,
        };
        let left = Self::random(random, depth - 1);
        Self::Binary(operation, Box::new((left, Self::random(random, depth - 1))))
    }

    fn of(&self, a: f32, b: f32) -> f32 {
        match self {
            Self::Element(Tensor::A) => a,
            Self::Element(Tensor::B) => b,
            Self::Constant(value) => *value,
            Self::Binary(operation, sides) => {
                let (left, right) = (sides.0.of(a, b), sides.1.of(a, b));
                match operation {
                    Operation::Add => left + right,
                    Operation::Subtract => left - right,
                    Operation::Multiply => left * right,
                    Operation::Maximum => {
                        if left > right {
                            left
                        } else {
                            right
                        }
                    }
                }
            }
        }
    }
}
