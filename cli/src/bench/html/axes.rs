//! Axes of drawings: round values at their places. Labels are text beside the drawing, which shrinks with the page;
//! they do not.

use super::{Page, escaped, solid};
use std::fmt::Write as _;
use uringload_measure::text;

/// Width and height of a drawing, in its own units.
pub const WIDE: f64 = 800.0;
pub const HIGH: f64 = 400.0;
/// Steps of a linear axis at most: as many labels as a phone has room for.
pub const STEPS: f64 = 5.0;
/// Decades on a logarithmic axis that have a label at most.
const DECADES: f64 = 6.0;

/// The round values of an axis: the place of each, from 0 to 1, and its label.
pub struct Axis(Vec<(f64, String)>);

impl Axis {
    /// From 0 to `end` in `steps` or fewer, with what values are in, such as " s".
    pub fn linear(end: f64, steps: f64, unit: &str) -> Axis {
        let (end, step) = (end.clamp(1e-9, 1e18), step(end, steps));
        let places = (0_u8..).map(|number| f64::from(number) * step).take_while(|value| *value <= end * (1.0 + 1e-9));
        Axis(places.map(|value| (value / end, label(value) + unit)).collect())
    }

    /// Between two powers of ten.
    pub fn logarithmic([low, high]: [f64; 2], label: impl Fn(f64) -> String) -> Axis {
        let every = ((high - low) / DECADES).ceil().max(1.0);
        // Few decades have room for values between them.
        let times: &[f64] = if high - low < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let first = (low / every).floor() * every;
        let decades = (0_u8..).map(|number| first + f64::from(number) * every).take_while(|decade| *decade <= high);
        let logs = decades.flat_map(|decade| times.iter().map(move |times| (decade + times.log10(), times, decade)));
        let inside = logs.filter(|(log, ..)| (low..=high).contains(log));
        let ticks = inside.map(|(log, times, decade)| ((log - low) / (high - low), label(times * 10f64.powf(decade))));
        Axis(ticks.collect())
    }
}

/// A round value at or above `most`, for the end of an axis.
pub fn round_up(most: f64) -> f64 {
    let step = step(most, STEPS);
    (most / step - 1e-9).ceil().max(1.0) * step
}

/// The distance of round values that cover `range` in `steps` or fewer: 1, 2 or 5 of a power of ten.
fn step(range: f64, steps: f64) -> f64 {
    let least = range.clamp(1e-9, 1e18) / steps;
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|times| times * power)
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

/// A round value in as few digits as it has.
pub fn label(value: f64) -> String {
    if value >= 1e7 {
        return text::count((value / 1e6) as u64) + " million";
    }
    if (value - value.round()).abs() < 1e-9 {
        return text::count(value.round() as u64);
    }
    let digits = format!("{value:.9}");
    digits.trim_end_matches('0').to_owned()
}

/// "10 KB", where a size that was measured would be "10.0 KB".
pub fn size(bytes: f64) -> String {
    text::bytes(bytes).replace(".00 ", " ").replace(".0 ", " ")
}

impl Page {
    /// A drawing between its axes. `look` is its class, `names` stand above and below it, and `said` is for readers who
    /// cannot see it. `over` lies on the drawing and does not shrink.
    pub(super) fn chart(
        &mut self,
        look: &str,
        names: [&str; 2],
        said: &str,
        [x, y]: [&Axis; 2],
        drawing: &str,
        over: &str,
    ) {
        let (mut xs, mut ys, mut grid) = (String::new(), String::new(), String::new());
        // Writing to a String cannot fail.
        for (place, label) in &x.0 {
            let (at, label) = (WIDE * place, solid(label));
            let _ = write!(xs, "<span style=\"left:{:.2}%\">{label}</span> ", 100.0 * place);
            let _ = write!(grid, "<line class=\"grid\" x1=\"{at:.1}\" y1=\"0\" x2=\"{at:.1}\" y2=\"{HIGH}\"/>");
        }
        for (place, label) in &y.0 {
            let (down, label) = (1.0 - place, solid(label));
            let _ = write!(ys, "<span style=\"top:{:.2}%\">{label}</span> ", 100.0 * down);
            let at = HIGH * down;
            let _ = write!(grid, "<line class=\"grid\" x1=\"0\" y1=\"{at:.1}\" x2=\"{WIDE}\" y2=\"{at:.1}\"/>");
        }
        let [above, below, said] = [names[0], names[1], said].map(escaped);
        let below = if below.is_empty() { below } else { format!("<p class=\"below\">{below}</p>") };
        self.put(format_args!(
            "<figure class=\"{look}\"><figcaption>{above}</figcaption>\n<div class=\"axes\">\
             <div class=\"ys\" aria-hidden=\"true\">{ys}</div><div class=\"area\"><svg viewBox=\"0 0 {WIDE} {HIGH}\" \
             preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{said}\">{grid}{drawing}</svg>{over}</div>\
             <div class=\"xs\" aria-hidden=\"true\">{xs}</div></div>{below}</figure>\n"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.0.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_few() {
        for (end, wanted) in [
            (10.0, ["0 s", "2 s", "4 s", "6 s", "8 s", "10 s"].as_slice()),
            (3.07, &["0 s", "1 s", "2 s", "3 s"]),
            (0.13, &["0 s", "0.05 s", "0.1 s"]),
            (4321.0, &["0 s", "1 000 s", "2 000 s", "3 000 s", "4 000 s"]),
            (9e8, &["0 s", "200 million s", "400 million s", "600 million s", "800 million s"]),
        ] {
            assert_eq!(labels(&Axis::linear(end, STEPS, " s")), wanted, "{end}");
        }
        for end in [0.0, 1e-300, 1e300] {
            assert!(Axis::linear(end, STEPS, "").0.len() < 9, "{end}");
        }
        let axis = Axis::linear(4.0, STEPS, "");
        assert!((axis.0[1].0 - 0.25).abs() < 1e-9 && (axis.0[4].0 - 1.0).abs() < 1e-9);
        assert_eq!([3.0, 411.0, 500.0, 523.0].map(round_up), [3.0, 500.0, 500.0, 600.0]);
    }

    #[test]
    fn decades_are_labelled_and_what_is_between_them_where_there_is_room() {
        let sizes = Axis::logarithmic([3.5, 6.5], size);
        assert_eq!(labels(&sizes), ["10 KB", "100 KB", "1 MB"]);
        assert!((sizes.0[0].0 - 0.5 / 3.0).abs() < 1e-9);
        let rates = Axis::logarithmic([1.9, 3.1], label);
        assert_eq!(labels(&rates), ["100", "200", "500", "1 000"]);
        assert_eq!(labels(&Axis::logarithmic([-2.0, -0.1], label)), ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5"]);
        assert!(Axis::logarithmic([-300.0, 300.0], label).0.len() < 9);
    }
}
