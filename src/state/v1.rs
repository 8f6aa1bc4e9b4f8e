//! The sentences that identify orders and batchings in version 1 states. They are frozen: such states exist and must
//! load forever. They are compared with nothing else, and new states do not use them.

use crate::config::PackMethod;
use crate::sampler::{BatchingId, KnownOrder, OrderId, Parts, Stopping, hash};

/// The name of a custom order that had no sentence of its own.
const CUSTOM: &str = "an order of the caller's";
/// Prefix of the names of orders that are Python samplers. Their type follows.
const PYTHON: &str = "python:";
/// Longer lists of a mixture's orders were shortened.
const ORDERS_BYTES_MAX: usize = 160;

/// Whether `sentence`, from a version 1 state, describes the order `id`.
pub(super) fn is_order(sentence: &str, id: &OrderId) -> bool {
    sentence == order(id) || (matches!(id.0, KnownOrder::Custom { .. }) && sentence == CUSTOM)
}

/// The version 1 sentence for an order.
pub(super) fn order(id: &OrderId) -> String {
    match &id.0 {
        KnownOrder::Sequential => "in the order of the dataset".into(),
        KnownOrder::Shuffled { seed, .. } => format!("shuffled, seed {seed}"),
        KnownOrder::Windows { samples, seed, .. } => format!("shuffled in windows of {samples}, seed {seed}"),
        KnownOrder::Shards { mixed, seed, .. } => {
            format!("shards in random order, samples of {mixed} shuffled as one, seed {seed}")
        }
        KnownOrder::Pieces { samples, mixed, seed, .. } => {
            format!("pieces of {samples} in random order, samples of {mixed} shuffled as one, seed {seed}")
        }
        KnownOrder::Mixed { parts, stopping, seed, .. } => mixed(parts, *stopping, *seed),
        KnownOrder::TorchDistributed { ranks, seed, .. } => {
            let how = seed.map_or("not shuffled".into(), |seed| format!("shuffled by seed {seed}"));
            format!("torch's DistributedSampler, {how}, for a multiple of {ranks} ranks")
        }
        KnownOrder::Custom { name, .. } => match name.strip_prefix(PYTHON) {
            Some(sampler) => format!("a sampler of the caller's ({sampler})"),
            None => name.clone(),
        },
    }
}

fn mixed(parts: &Parts, stopping: Stopping, seed: u64) -> String {
    let stopping = match stopping {
        Stopping::FirstExhausted => "first_exhausted".into(),
        Stopping::AllExhausted => "all_exhausted".into(),
        Stopping::AllExhaustedWithoutReplacement => "all_exhausted_without_replacement".into(),
        Stopping::After(samples) => format!("after:{samples}"),
    };
    let orders: Vec<String> = parts.orders().iter().map(order).collect();
    let runs = orders.chunk_by(|a, b| a == b).map(|run| match run.len() {
        1 => run[0].clone(),
        len => format!("{len} times {}", run[0]),
    });
    let mut all = runs.collect::<Vec<_>>().join("; ");
    if all.len() > ORDERS_BYTES_MAX {
        let sum = all.bytes().fold(0, |sum, byte| hash(sum ^ u64::from(byte)));
        let first: String = orders[0].chars().take(ORDERS_BYTES_MAX / 2).collect();
        all = format!("{first}; and so on, {sum:016x}");
    }
    format!("mixed of {}, until {stopping}, seed {seed}: {all}", parts.count())
}

/// The version 1 sentence for a batching. Samples had none.
pub(super) fn batching(id: &BatchingId) -> String {
    match id {
        BatchingId::Samples => "samples".into(),
        BatchingId::Packed { method, seq_len, window, .. } => {
            let method = match method {
                PackMethod::FirstFit => "first fit",
                PackMethod::BestFit => "best fit",
                PackMethod::Concat => "concat",
            };
            format!("packed, {method}, rows of {seq_len}, windows of {window}")
        }
        BatchingId::Buckets { buckets, digest, window, .. } => {
            format!("{buckets} buckets ({digest:016x}), windows of {window}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Batching, Buckets, Config, Packing, PadValue, Shuffle};
    use crate::sampler::{Mixed, Sampler, Sequential, Sharded, Shuffled, Windowed};
    use std::sync::Arc;

    fn mixed(samplers: Vec<Arc<dyn Sampler>>, stopping: Stopping) -> OrderId {
        let ends: Vec<u64> = (1..=samplers.len() as u64).map(|end| end * 2).collect();
        let weights = vec![1.0; samplers.len()];
        Mixed::new(samplers, &ends, &weights, stopping, 99).unwrap().id()
    }

    fn shuffled(seeds: impl IntoIterator<Item = u64>) -> Vec<Arc<dyn Sampler>> {
        seeds.into_iter().map(|seed| Arc::new(Shuffled::new(2, seed)) as _).collect()
    }

    /// Copied from what version 1 wrote. If one of these fails, users' states do not load: do not update them.
    #[test]
    fn sentences_are_what_they_always_were() {
        let distributed = |seed| OrderId(KnownOrder::TorchDistributed { ranks: 2, seed, version: 1 });
        for (id, sentence) in [
            (Sequential::new(3).id(), "in the order of the dataset"),
            (Shuffled::new(3, 42).id(), "shuffled, seed 42"),
            (Windowed::new(10, 4, 7).unwrap().id(), "shuffled in windows of 4, seed 7"),
            (Sharded::new(&[3], 2, 7).unwrap().id(), "shards in random order, samples of 2 shuffled as one, seed 7"),
            (
                Sharded::pieces(3, 2, 7).unwrap().id(),
                "pieces of 4096 in random order, samples of 2 shuffled as one, seed 7",
            ),
            (
                mixed(shuffled([0, 1]), Stopping::After(9)),
                "mixed of 2, until after:9, seed 99: shuffled, seed 0; shuffled, seed 1",
            ),
            (
                mixed(shuffled([5; 200]), Stopping::AllExhausted),
                "mixed of 200, until all_exhausted, seed 99: 200 times shuffled, seed 5",
            ),
            (
                mixed(shuffled(0..200), Stopping::FirstExhausted),
                "mixed of 200, until first_exhausted, seed 99: shuffled, seed 0; and so on, fb39e2d84cab64f7",
            ),
            (
                mixed(shuffled([1]), Stopping::AllExhaustedWithoutReplacement),
                "mixed of 1, until all_exhausted_without_replacement, seed 99: shuffled, seed 1",
            ),
            (distributed(Some(5)), "torch's DistributedSampler, shuffled by seed 5, for a multiple of 2 ranks"),
            (distributed(None), "torch's DistributedSampler, not shuffled, for a multiple of 2 ranks"),
            (OrderId::custom("python:RandomSampler", 1, &[3]), "a sampler of the caller's (RandomSampler)"),
            (OrderId::custom("mine", 1, &[3]), "mine"),
            (OrderId::custom("mine", 1, &[3]), "an order of the caller's"),
        ] {
            assert!(is_order(sentence, &id), "{sentence:?} is not {:?}", order(&id));
            assert!(!is_order("shuffled, seed 43", &id));
        }
        assert!(!is_order("an order of the caller's", &KnownOrder::Sequential.into()));
    }

    #[test]
    fn sentences_of_rows_are_what_they_always_were() {
        let packed = |method| {
            let packing = Packing { method, seq_len: 2048, window: 8192, pad: PadValue::default() };
            batching(&BatchingId::of(&Config { batching: Batching::Packed(packing), ..Config::default() }))
        };
        assert_eq!(packed(PackMethod::FirstFit), "packed, first fit, rows of 2048, windows of 8192");
        assert_eq!(packed(PackMethod::BestFit), "packed, best fit, rows of 2048, windows of 8192");
        assert_eq!(packed(PackMethod::Concat), "packed, concat, rows of 2048, windows of 8192");
        let buckets = Buckets { boundaries: vec![10, 20], batch_sizes: vec![4, 2, 1], window: 64 };
        let config = Config { batching: Batching::Buckets(buckets), shuffle: Shuffle::Full, ..Config::default() };
        assert_eq!(batching(&BatchingId::of(&config)), "3 buckets (dc9cd98018781614), windows of 64");
        assert_eq!(batching(&BatchingId::Samples), "samples");
    }
}
