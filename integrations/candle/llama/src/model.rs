//! The decoder, over any operators.

use candle_core::{DType, Device, Result, Tensor};

use crate::ops::{Ops, Precision};
use crate::weights::{CONFIG, LayerWeights, Weights};

pub struct Model<'a, O: Ops> {
    ops: &'a O,
    weights: &'a Weights,
    layers: Vec<Layer<'a, O>>,
    head: O::Linear,
}

struct Layer<'a, O: Ops> {
    weights: &'a LayerWeights,
    query: O::Linear,
    key: O::Linear,
    value: O::Linear,
    output: O::Linear,
    gate: O::Linear,
    up: O::Linear,
    down: O::Linear,
}

/// Keys and values of a text so far, for each layer: `[capacity, kv_heads, head_size]`, the oldest token first.
struct Cache {
    keys: Tensor,
    values: Tensor,
}

impl<'a, O: Ops> Model<'a, O> {
    pub fn new(ops: &'a O, weights: &'a Weights, precision: Precision) -> Result<Self> {
        let linear = |weights: &Tensor| ops.linear(weights, precision);
        let layers = weights.layers.iter().map(|weights| {
            Ok(Layer {
                weights,
                query: linear(&weights.query)?,
                key: linear(&weights.key)?,
                value: linear(&weights.value)?,
                output: linear(&weights.output)?,
                gate: linear(&weights.gate)?,
                up: linear(&weights.up)?,
                down: linear(&weights.down)?,
            })
        });
        Ok(Self { ops, weights, layers: layers.collect::<Result<_>>()?, head: linear(&weights.head)? })
    }

    /// Returns the weights of the largest product of a layer.
    pub fn largest(&self) -> &O::Linear {
        &self.layers[0].gate
    }

    /// Goes on with a text: the most likely token each time. `at_token` is called before each.
    pub fn generate(&self, prompt: &[u32], tokens: usize, mut at_token: impl FnMut()) -> Result<Vec<u32>> {
        let caches = self.caches()?;
        let mut text = prompt.to_vec();
        for position in 0..prompt.len() + tokens - 1 {
            at_token();
            let hidden = self.step(text[position], position, &caches)?;
            if position + 1 == text.len() {
                let [logits] = self.ops.products(&hidden, [&self.head])?;
                text.push(logits.argmax(1)?.squeeze(0)?.to_scalar()?);
            }
        }
        Ok(text.split_off(prompt.len()))
    }

    /// Reads a text, and returns what it thinks of each next token: `[vocabulary]` for each.
    pub fn read(&self, text: &[u32]) -> Result<Vec<Vec<f32>>> {
        let caches = self.caches()?;
        let logits = text.iter().enumerate().map(|(position, token)| {
            let [logits] = self.ops.products(&self.step(*token, position, &caches)?, [&self.head])?;
            logits.squeeze(0)?.to_vec1()
        });
        logits.collect()
    }

    fn caches(&self) -> Result<Vec<Cache>> {
        let shape = (CONFIG.capacity, CONFIG.kv_heads, CONFIG.head_size);
        let zeros = || Tensor::zeros(shape, DType::F32, &Device::Cpu);
        self.layers.iter().map(|_| Ok(Cache { keys: zeros()?, values: zeros()? })).collect()
    }

    fn step(&self, token: u32, position: usize, caches: &[Cache]) -> Result<Tensor> {
        let Weights { embedding, cosine, sine, .. } = self.weights;
        let (cosine, sine) = (cosine.narrow(0, position, 1)?, sine.narrow(0, position, 1)?);
        let mut x = embedding.narrow(0, token as usize, 1)?;
        for (layer, cache) in self.layers.iter().zip(caches) {
            let attended = self.attend(&x, layer, cache, position, (&cosine, &sine))?;
            x = (x + attended)?;
            let normed = self.ops.rms_norm(&x, &layer.weights.feed_forward_norm, CONFIG.eps)?;
            let [gate, up] = self.ops.products(&normed, [&layer.gate, &layer.up])?;
            let [fed] = self.ops.products(&self.ops.swiglu(&gate, &up)?, [&layer.down])?;
            x = (x + fed)?;
        }
        self.ops.rms_norm(&x, &self.weights.norm, CONFIG.eps)
    }

    fn attend(
        &self,
        x: &Tensor,
        layer: &Layer<'_, O>,
        cache: &Cache,
        position: usize,
        (cosine, sine): (&Tensor, &Tensor),
    ) -> Result<Tensor> {
        let normed = self.ops.rms_norm(x, &layer.weights.attention_norm, CONFIG.eps)?;
        let [query, key, value] = self.ops.products(&normed, [&layer.query, &layer.key, &layer.value])?;
        let heads = |of: &Tensor, heads: usize| of.reshape((heads, CONFIG.head_size));
        let query = self.ops.rope(&heads(&query, CONFIG.heads)?, cosine, sine)?;
        let key = self.ops.rope(&heads(&key, CONFIG.kv_heads)?, cosine, sine)?;
        cache.keys.slice_set(&key.unsqueeze(0)?, 0, position)?;
        cache.values.slice_set(&heads(&value, CONFIG.kv_heads)?.unsqueeze(0)?, 0, position)?;
        let so_far = |of: &Tensor| of.narrow(0, 0, position + 1);
        let attended = self.ops.attention(&query, &so_far(&cache.keys)?, &so_far(&cache.values)?)?;
        let [output] = self.ops.products(&attended.reshape((1, ()))?, [&layer.output])?;
        Ok(output)
    }
}
