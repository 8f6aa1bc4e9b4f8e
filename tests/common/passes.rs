//! Passes of the kernel that resamples: of any size, over a source of exactly the bytes that they read.

use super::random::Random;
use uringload::inspect::twin::{self, PassParams};

/// A pass, and everything that it is made of.
pub struct RandomPass {
    pub params: PassParams,
    taps: Vec<[u32; 2]>,
    weights: Vec<i32>,
    pub source: Vec<u8>,
}

impl RandomPass {
    /// Of fewer than `most` rows and columns. Most weights are as large as those of a filter, and some are any number.
    pub fn new(random: &mut Random, most: u64) -> RandomPass {
        let (height, width, is_vertical) = (random.below(most) as u32, random.below(most) as u32, random.below(2) == 0);
        let row_bytes = random.one_of(&[0, 3, 100, 101, 256]);
        let params = PassParams { height, width, row_bytes, is_vertical };
        let (mut taps, mut weights) = (Vec::new(), Vec::new());
        for _ in 0..params.taps() {
            for _ in 0..random.below(6) {
                let usual = random.below(1 << 22) as i32 - (1 << 20);
                weights.push(if random.below(9) == 0 { random.number() as i32 } else { usual });
            }
            taps.push([random.below(20) as u32, weights.len() as u32]);
        }
        let source = random.bytes(params.source_bytes(&taps) as usize);
        RandomPass { params, taps, weights, source }
    }

    /// Its weights, as the kernel reads them.
    pub fn encoded(&self) -> Vec<u8> {
        let taps = self.taps.as_flattened().iter().map(|number| number.to_le_bytes());
        taps.chain(self.weights.iter().map(|weight| weight.to_le_bytes())).collect::<Vec<_>>().into_flattened()
    }

    /// What its twin makes.
    pub fn made(&self) -> Vec<u8> {
        let mut made = vec![0; self.params.bytes()];
        twin::resample(&mut made, &self.source, self.params, &self.taps, &self.weights);
        made
    }
}
