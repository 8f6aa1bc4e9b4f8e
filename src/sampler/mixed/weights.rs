//! Converts weights to slots of a period.

use crate::{Error, ErrorKind, Result};

/// Slots of a period: the unit of weights is 1 / 65536 of the samples.
pub(super) const PERIOD: u64 = 1 << 16;

/// Maximum number of datasets in a mixture.
pub(super) const PARTS_MAX: usize = 256;

/// The slots of each weight in a period, by largest remainder: the sum is [`PERIOD`], a weight of 0 has none, and every
/// other one has at least one. Only the ratios of weights matter.
///
/// # Errors
/// `InvalidArgument` for more than [`PARTS_MAX`] weights, for one that is negative, infinite or not a number, and if
/// all are 0.
pub(super) fn slots(weights: &[f64]) -> Result<Vec<u32>> {
    let refuse = |what: String| {
        let error = Error::new(ErrorKind::InvalidArgument, what);
        Err(error.with_remedy("give each dataset a weight of 0 or more, and at least one more than 0"))
    };
    if weights.len() > PARTS_MAX {
        return refuse(format!("a mixture has {} datasets; the limit is {PARTS_MAX}", weights.len()));
    }
    if let Some(part) = weights.iter().position(|weight| !weight.is_finite() || *weight < 0.0) {
        return refuse(format!("the weight of dataset {part} is {}", weights[part]));
    }
    let largest = weights.iter().copied().fold(0.0, f64::max);
    if largest == 0.0 {
        return refuse("no dataset of the mixture has a weight above 0".into());
    }
    // Divided by the largest, so that no sum is infinite.
    let sum: f64 = weights.iter().map(|weight| weight / largest).sum();
    let exact: Vec<f64> = weights.iter().map(|weight| weight / largest / sum * PERIOD as f64).collect();
    let floors = weights.iter().zip(&exact).map(|(&weight, exact)| (exact.floor() as u32).max((weight > 0.0).into()));
    let mut slots: Vec<u32> = floors.collect();
    let total: u64 = slots.iter().map(|&count| u64::from(count)).sum();
    let mut by_remainder: Vec<usize> = (0..weights.len()).filter(|&part| weights[part] > 0.0).collect();
    let remainder = |part: usize| exact[part] - f64::from(slots[part]);
    by_remainder.sort_by(|&a, &b| remainder(b).total_cmp(&remainder(a)));
    for &part in by_remainder.iter().cycle().take(PERIOD.saturating_sub(total) as usize) {
        slots[part] += 1;
    }
    // The smallest were rounded up, by at most one each; take that from those that have the most.
    for _ in PERIOD..total {
        if let Some(most) = slots.iter_mut().max() {
            *most -= 1;
        }
    }
    Ok(slots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn weights_are_rounded_to_a_full_period() {
        assert_eq!(slots(&[1.0]).unwrap(), [65536]);
        assert_eq!(slots(&[1.0, 1.0, 1.0]).unwrap(), [21846, 21845, 21845], "the first of equals has what is left");
        assert_eq!(slots(&[0.5, 0.0, 0.25, 0.25]).unwrap(), [32768, 0, 16384, 16384]);
        assert_eq!(slots(&[1e308, 1e308]).unwrap(), [32768, 32768]);
        assert_eq!(slots(&[1e-308, 1.0, 5e-324]).unwrap(), [1, 65534, 1]);
        let mut many = vec![1e-9; 255];
        many.push(1.0);
        let of_many = slots(&many).unwrap();
        assert_eq!((of_many[0], of_many[254], of_many[255]), (1, 1, 65536 - 255));
        assert_eq!(slots(&[1.0; 256]).unwrap(), [256; 256]);
    }

    #[test]
    fn weights_that_cannot_be_are_refused() {
        for wrong in [
            &[][..],
            &[0.0, 0.0],
            &[1.0, -0.1],
            &[f64::NAN, 1.0],
            &[f64::INFINITY],
            &[-f64::INFINITY, 1.0],
            &[1.0; 257],
        ] {
            let error = slots(wrong).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{wrong:?}");
            assert!(error.remedy().is_some());
        }
        assert!(slots(&[1.0, -0.1]).unwrap_err().to_string().contains("dataset 1 is -0.1"));
    }

    proptest! {
        #[test]
        fn every_weight_is_met_within_a_slot(weights in prop::collection::vec(0.01..100.0_f64, 1..100)) {
            let slots = slots(&weights).unwrap();
            let sum: f64 = weights.iter().sum();
            prop_assert_eq!(slots.iter().map(|&count| u64::from(count)).sum::<u64>(), PERIOD);
            for (weight, &count) in weights.iter().zip(&slots) {
                let exact = weight / sum * PERIOD as f64;
                prop_assert!((exact - f64::from(count)).abs() < 1.001, "{} for {}", count, exact);
            }
            // Slots are weights too, and are not rounded again, so a state can store them.
            let again: Vec<f64> = slots.iter().map(|&count| f64::from(count)).collect();
            prop_assert_eq!(super::slots(&again).unwrap(), slots);
        }
    }
}
