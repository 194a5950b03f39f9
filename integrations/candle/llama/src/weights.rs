//! The decoder's shape, and its weights: random, and the same each time.

use candle_core::{Device, Result, Tensor};

/// A small decoder in the shape of Llama.
pub const CONFIG: Config = Config {
    hidden: 512,
    layers: 6,
    heads: 8,
    kv_heads: 4,
    head_size: 64,
    feed_forward: 1408,
    vocabulary: 2048,
    capacity: 256,
    eps: 1e-5,
    rope_base: 10_000.0,
};

#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    /// Heads of keys and values; each serves `heads / kv_heads` heads of queries.
    pub kv_heads: usize,
    pub head_size: usize,
    pub feed_forward: usize,
    pub vocabulary: usize,
    /// The most tokens that a text has.
    pub capacity: usize,
    pub eps: f32,
    pub rope_base: f32,
}

/// Weights of `[rows, columns]`, as checkpoints have them.
#[derive(Debug, Clone)]
pub struct Weights {
    pub embedding: Tensor,
    pub layers: Vec<LayerWeights>,
    pub norm: Tensor,
    pub head: Tensor,
    /// `[capacity, head_size / 2]`
    pub cosine: Tensor,
    pub sine: Tensor,
}

#[derive(Debug, Clone)]
pub struct LayerWeights {
    pub attention_norm: Tensor,
    pub query: Tensor,
    pub key: Tensor,
    pub value: Tensor,
    pub output: Tensor,
    pub feed_forward_norm: Tensor,
    pub gate: Tensor,
    pub up: Tensor,
    pub down: Tensor,
}

impl Weights {
    pub fn random(seed: u64) -> Result<Self> {
        let c = CONFIG;
        let mut random = Random(seed);
        let layers = (0..c.layers).map(|_| {
            Ok(LayerWeights {
                attention_norm: random.norm(c.hidden)?,
                query: random.matrix(c.heads * c.head_size, c.hidden)?,
                key: random.matrix(c.kv_heads * c.head_size, c.hidden)?,
                value: random.matrix(c.kv_heads * c.head_size, c.hidden)?,
                output: random.matrix(c.hidden, c.heads * c.head_size)?,
                feed_forward_norm: random.norm(c.hidden)?,
                gate: random.matrix(c.feed_forward, c.hidden)?,
                up: random.matrix(c.feed_forward, c.hidden)?,
                down: random.matrix(c.hidden, c.feed_forward)?,
            })
        });
        let layers = layers.collect::<Result<_>>()?;
        let embedding = random.tensor(&[c.vocabulary, c.hidden], -1.0, 1.0)?;
        let norm = random.norm(c.hidden)?;
        let head = (random.matrix(c.vocabulary, c.hidden)? + followers(&embedding)?)?;
        let half = c.head_size / 2;
        let angle = |index: usize| {
            let (position, pair) = (index / half, index % half);
            position as f32 / c.rope_base.powf(pair as f32 / half as f32)
        };
        let angles = Tensor::from_iter((0..c.capacity * half).map(angle), &Device::Cpu)?.reshape((c.capacity, half))?;
        Ok(Self { embedding, layers, norm, head, cosine: angles.cos()?, sine: angles.sin()? })
    }
}

/// Returns what a head has besides random numbers: each token makes one other likely, so that the model is as sure of
/// most tokens as trained models are. The layers decide on the rest.
fn followers(embedding: &Tensor) -> Result<Tensor> {
    let (vocabulary, hidden) = embedding.dims2()?;
    let mut before = vec![0_u32; vocabulary];
    for token in 0..vocabulary {
        // A circle of all tokens.
        before[(5 * token + 1) % vocabulary] = token as u32;
    }
    let before = embedding.index_select(&Tensor::new(before, &Device::Cpu)?, 0)?;
    before * (1.3 * (3.0 / hidden as f64).sqrt())
}

/// SplitMix64.
struct Random(u64);

impl Random {
    /// Returns a number from 0 to 1.
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 40) as f32 / (1 << 24) as f32
    }

    fn tensor(&mut self, shape: &[usize], from: f32, to: f32) -> Result<Tensor> {
        let numbers: Vec<f32> = (0..shape.iter().product()).map(|_| from + (to - from) * self.next()).collect();
        Tensor::from_vec(numbers, shape, &Device::Cpu)
    }

    /// A product with it has the size of what goes in.
    fn matrix(&mut self, rows: usize, columns: usize) -> Result<Tensor> {
        let most = (3.0 / columns as f32).sqrt();
        self.tensor(&[rows, columns], -most, most)
    }

    fn norm(&mut self, len: usize) -> Result<Tensor> {
        self.tensor(&[len], 0.5, 1.5)
    }
}
