//! The drawings of the page. They hold no words, because words in a drawing shrink with it: what they say stands beside
//! them as text, and in their labels.

use super::{Page, count, escaped, list, text};
use serde_json::Value;

/// Width and height of a drawing, in its own units.
const WIDE: f64 = 800.0;
const HIGH: f64 = 160.0;
/// Of the roof.
const ROOF: f64 = 320.0;

/// Activities by color: work has colors of its own, waits are gray, and waiting for the consumer is sand.
const COLORS: [(&str, &str); 18] = [
    ("plan", "s5"),
    ("submit", "s3"),
    ("take_memory", "s6"),
    ("assemble", "s2"),
    ("copy", "s4"),
    ("read", "s1"),
    ("decode", "s7"),
    ("transform", "s7"),
    ("collate", "s2"),
    ("step", "s1"),
    ("wait_for_storage", "w3"),
    ("wait_for_batch", "w3"),
    ("wait_for_memory", "s6"),
    ("wait_for_stage", "w2"),
    ("wait_for_device", "w2"),
    ("wait_for_consumer", "w4"),
    ("wait_for_input", "w1"),
    ("idle", "w1"),
];

fn number(value: &Value) -> f64 {
    value.as_f64().filter(|number| number.is_finite()).unwrap_or(0.0)
}

impl Page {
    /// The rate over time, of the last round.
    pub(super) fn over_time(&mut self, report: &Value) {
        let rounds = list(&report["rounds"]);
        let points = rounds.last().map_or(&[][..], |round| list(&round["series"]));
        let rate = |pair: &[Value]| {
            let seconds = number(&pair[1]["s"]) - number(&pair[0]["s"]);
            let samples = number(&pair[1]["samples"]) - number(&pair[0]["samples"]);
            (seconds > 0.0).then(|| (number(&pair[1]["s"]), samples / seconds))
        };
        let rates: Vec<(f64, f64)> = points.windows(2).filter_map(rate).collect();
        let Some(&(end, _)) = rates.last().filter(|_| rates.len() > 1) else { return };
        let most = rates.iter().map(|(_, rate)| *rate).fold(1.0, f64::max);
        let least = rates.iter().map(|(_, rate)| *rate).fold(most, f64::min);
        let at = |(s, rate): &(f64, f64)| format!("{:.1},{:.1}", WIDE * s / end, HIGH * (1.0 - 0.95 * rate / most));
        let line: Vec<String> = rates.iter().map(at).collect();
        let of = |rate: f64| text::count(rate.round() as u64);
        let told = format!("from {} to {} samples/s, over {end:.1} s", of(least), of(most));
        self.put(format_args!(
            "<h2>Throughput over time</h2>\n<p>{told}.</p>\n<svg class=\"plot\" viewBox=\"0 0 {WIDE} {HIGH}\" \
             preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{told}\"><polyline points=\"{}\"/></svg>\n\
             <div class=\"ends\"><span>0 s</span><span>{end:.1} s</span></div>\n",
            line.join(" ")
        ));
    }

    /// What each part could give, over the bytes of a sample: slopes where bytes limit, levels where time does.
    pub(super) fn roof(&mut self, report: &Value) {
        let roofs: Vec<&Value> =
            list(&report["ceilings"]).iter().filter(|one| number(&one["samples_per_s"]) > 0.0).collect();
        let run = number(&report["samples_per_s"]);
        if roofs.is_empty() || run <= 0.0 {
            return;
        }
        let samples = number(&report["samples"]).max(1.0);
        let size = (number(&report["bytes"]) / samples).max(1.0);
        let rates = || roofs.iter().map(|one| number(&one["samples_per_s"])).chain([run]);
        // Three decades of sizes around this dataset's; as many rates as it takes.
        let (left, right) = (size.log10() - 1.5, size.log10() + 1.5);
        let (low, high) = (rates().fold(run, f64::min).log10() - 0.7, rates().fold(run, f64::max).log10() + 0.7);
        let x = |size: f64| WIDE * (size.log10() - left) / (right - left);
        let y = |rate: f64| ROOF * (1.0 - (rate.log10() - low) / (high - low));
        self.put(format_args!(
            "<h2>Roofline</h2>\n<p>What each part could give if nothing else limited it, against the bytes of a \
             sample (both logarithmic): slopes where bytes limit, levels where time does. The dot is this run.</p>\n\
             <svg class=\"roof\" viewBox=\"0 0 {WIDE} {ROOF}\" role=\"img\" aria-label=\"roofline; the table below has \
             its figures\"><line class=\"axis\" x1=\"0\" y1=\"{ROOF}\" x2=\"{WIDE}\" y2=\"{ROOF}\"/>\
             <line class=\"axis\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"{ROOF}\"/>"
        ));
        for (index, roof) in roofs.iter().enumerate() {
            let rate = number(&roof["samples_per_s"]);
            // A part that bytes limit gives ten times the samples where they are a tenth as long.
            let slope = if roof["bytes_per_s"].is_null() { 1.0 } else { 10f64.powf(1.5) };
            let (from, to) = (y(rate * slope), y(rate / slope));
            self.put(format_args!(
                "<line class=\"s{}\" x1=\"0\" y1=\"{from:.1}\" x2=\"{WIDE}\" y2=\"{to:.1}\"/>",
                index % 6 + 1
            ));
        }
        let (from, to) = (text::bytes(10f64.powf(left)), text::bytes(10f64.powf(right)));
        self.put(format_args!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"7\"/></svg>\n<div class=\"ends\"><span>{from} a sample</span>\
             <span>{to} a sample</span></div>\n<div class=\"wide\"><table>",
            x(size),
            y(run)
        ));
        self.put(format_args!("<tr><th>part<th class=\"n\">samples/s<th>from</tr>"));
        for (index, roof) in roofs.iter().enumerate() {
            let bytes = roof["bytes_per_s"].as_f64();
            let bytes = bytes.map_or_else(String::new, |rate| format!(" ({}/s)", text::bytes(rate)));
            let (part, rate, from) = (text(&roof["part"]), count(&roof["samples_per_s"]), text(&roof["from"]));
            let color = index % 6 + 1;
            self.put(format_args!(
                "\n<tr><td><i class=\"s{color}\"></i>{part}<td class=\"n\">{rate}<td>{from}{bytes}</tr>"
            ));
        }
        let run = count(&report["samples_per_s"]);
        self.put(format_args!("\n<tr><th>this run<th class=\"n\">{run}<th></tr></table></div>\n"));
    }

    /// What the threads of each kind did over time.
    pub(super) fn timeline(&mut self, report: &Value) {
        let until: Vec<f64> = list(&report["timeline"]["until_s"]).iter().map(number).collect();
        let Some(&end) = until.last().filter(|end| **end > 0.0) else { return };
        self.put(format_args!(
            "<h2>Threads over time</h2>\n<p class=\"soft\">Shares of the time of all threads of a kind.</p>\n"
        ));
        for lane in list(&report["timeline"]["lanes"]) {
            let (role, threads) = (text(&lane["role"]), number(&lane["threads"]));
            let of = if threads < 2.0 { String::new() } else { format!(", {threads:.0} threads") };
            self.put(format_args!("<p class=\"lane-name\">{role}{of}</p>"));
            self.lane(&lane["shares"], &until, end, &format!("{role} over time"));
        }
        self.put(format_args!("<div class=\"ends\"><span>0 s</span><span>{end:.2} s</span></div>\n"));
    }

    fn lane(&mut self, shares: &Value, until: &[f64], end: f64, label: &str) {
        self.put(format_args!(
            "<svg class=\"lane\" viewBox=\"0 0 {WIDE} 100\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{label}\">"
        ));
        let mut below = vec![0.0; until.len()];
        let mut legend = Vec::new();
        for (name, color) in COLORS.iter().filter(|(name, _)| shares[*name].is_array()) {
            let (mut path, mut start) = (String::new(), 0.0);
            for ((&until, share), below) in until.iter().zip(list(&shares[*name])).zip(&mut below) {
                let (share, x) = (100.0 * number(share).clamp(0.0, 1.0), WIDE * start / end);
                let wide = WIDE * (until - start) / end;
                if share > 0.0 {
                    path += &format!("M{x:.1} {:.1}h{wide:.1}v-{share:.1}h-{wide:.1}z", 100.0 - *below);
                }
                *below += share;
                start = until;
            }
            self.put(format_args!("<path class=\"{color}\" d=\"{path}\"/>"));
            let words = escaped(&name.replace('_', " "));
            let mean = list(&shares[*name]).iter().map(number).sum::<f64>() / until.len() as f64;
            // What cannot be seen needs no name.
            if mean >= 0.01 {
                legend.push(format!("<span><i class=\"{color}\"></i>{words} {:.0} %</span>", 100.0 * mean));
            }
        }
        self.put(format_args!("</svg>\n<p class=\"soft legend\">{}</p>\n", legend.join(" ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringload::stats::Doing;

    #[test]
    fn every_activity_has_a_color() {
        for doing in Doing::ALL {
            let name = doing.name().replace(' ', "_");
            assert!(COLORS.iter().any(|(of, _)| *of == name), "{name}");
        }
    }
}
