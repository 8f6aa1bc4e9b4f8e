//! The drawings of the page, each in a section under its heading. They hold no words, because words in a drawing shrink
//! with it: what they say stands beside them as text, and in their labels.

use super::axes::{Axis, HIGH, STEPS, WIDE, label, round_up, size};
use super::{Page, bytes_per_second, count, escaped, list, solid, text};
use serde_json::Value;

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
        let most = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let least = rates.iter().map(|(_, rate)| *rate).fold(most, f64::min);
        let top = round_up(most);
        let at = |(s, rate): &(f64, f64)| format!("{:.1},{:.1}", WIDE * s / end, HIGH * (1.0 - rate / top));
        let line: Vec<String> = rates.iter().map(at).collect();
        let of = |rate: f64| if rate < 10.0 { format!("{rate:.1}") } else { solid(&text::count(rate.round() as u64)) };
        let said = format!("The rate was {} to {} samples/s over {end:.1}\u{a0}s.", of(least), of(most));
        let axes = [&Axis::linear(end, STEPS, " s"), &Axis::linear(top, STEPS, "")];
        let line = format!("<polyline points=\"{}\"/>", line.join(" "));
        self.section("Throughput over time", |page| {
            page.put(format_args!("<p>{said}</p>\n"));
            page.chart("plot", ["samples/s", "time since the start"], &said, axes, &line, "");
        });
    }

    /// What each part could give, over the bytes of a sample: slopes where bytes limit, levels where time does.
    pub(super) fn roof(&mut self, report: &Value) {
        let roofs: Vec<&Value> =
            list(&report["ceilings"]).iter().filter(|one| number(&one["samples_per_s"]) > 0.0).collect();
        let run = number(&report["samples_per_s"]);
        if roofs.is_empty() || run <= 0.0 {
            return;
        }
        let here = (number(&report["bytes"]) / number(&report["samples"]).max(1.0)).max(1.0).log10();
        let rates = || roofs.iter().map(|one| number(&one["samples_per_s"])).chain([run]);
        // Three decades of sizes, with this dataset's in the middle where it can be; as many rates as it takes.
        let left = (here - 1.5).max(0.0);
        let right = left + 3.0;
        let (low, high) = (rates().fold(run, f64::min).log10() - 0.7, rates().fold(run, f64::max).log10() + 0.7);
        let down = |log: f64| 1.0 - (log - low) / (high - low);
        let mut lines = String::new();
        for (index, roof) in roofs.iter().enumerate() {
            let log = number(&roof["samples_per_s"]).log10();
            // A part that bytes limit gives ten times the samples where they are a tenth as long.
            let slope = if roof["bytes_per_s"].is_null() { 0.0 } else { 1.0 };
            let [from, to] = [left, right].map(|size| HIGH * down(log + slope * (here - size)));
            let color = index % 6 + 1;
            lines += &format!("<line class=\"s{color}\" x1=\"0\" y1=\"{from:.1}\" x2=\"{WIDE}\" y2=\"{to:.1}\"/>");
        }
        let (across, down) = (100.0 * (here - left) / (right - left), 100.0 * down(run.log10()));
        let dot = format!("<i class=\"dot\" style=\"left:{across:.2}%;top:{down:.2}%\"></i>");
        let axes = [&Axis::logarithmic([left, right], size), &Axis::logarithmic([low, high], label)];
        self.section("Roofline", |page| {
            page.put(format_args!(
                "<p>Each line shows what one part could give if nothing else limited it, over the bytes of a sample. \
                 A line slopes where bytes limit the part, and is level where time does. The dot is this run. Both \
                 axes are logarithmic.</p>\n"
            ));
            let names = ["samples/s", "bytes of a sample"];
            page.chart("roof", names, "roofline; the table below has its figures", axes, &lines, &dot);
            page.roofs(&roofs, report);
        });
    }

    /// The legend of the roofline, with its figures.
    fn roofs(&mut self, roofs: &[&Value], report: &Value) {
        self.put(format_args!(
            "<div class=\"wide\"><table><thead><tr><th>part<th class=\"n\">samples/s<th class=\"n\">bytes/s<th>from\
             </tr></thead>"
        ));
        for (index, roof) in roofs.iter().enumerate() {
            let [part, from] = [&roof["part"], &roof["from"]].map(text);
            let (samples, color) = (count(&roof["samples_per_s"]), index % 6 + 1);
            let bytes = bytes_per_second(&roof["bytes_per_s"]);
            self.put(format_args!(
                "\n<tr><td><i class=\"s{color}\"></i>{part}<td class=\"n\">{samples}<td class=\"n\">{bytes}\
                 <td class=\"why\">{from}</tr>"
            ));
        }
        let (samples, bytes) = (count(&report["samples_per_s"]), bytes_per_second(&report["stored_bytes_per_s"]));
        self.put(format_args!(
            "\n<tr><th><i class=\"dot\"></i>this run<th class=\"n\">{samples}<th class=\"n\">{bytes}<th></tr></table>\
             </div>\n"
        ));
    }

    /// What the threads of each kind did over time.
    pub(super) fn timeline(&mut self, report: &Value) {
        let until: Vec<f64> = list(&report["timeline"]["until_s"]).iter().map(number).collect();
        let Some(&end) = until.last().filter(|end| **end > 0.0) else { return };
        self.section("Threads over time", |page| {
            page.put(format_args!(
                "<p class=\"soft\">Each chart shows the threads of one kind: what share of their time they spent on \
                 what. Its legend has the means. The reactor is the thread that plans and reads, and the consumer the \
                 one that asks for batches.</p>\n"
            ));
            for lane in list(&report["timeline"]["lanes"]) {
                let (role, threads) = (lane["role"].as_str().unwrap_or_default(), number(&lane["threads"]));
                let of = if threads < 2.0 { String::new() } else { format!(", {threads:.0} threads") };
                page.lane(&lane["shares"], &until, end, &format!("{role}{of}"));
            }
        });
    }

    fn lane(&mut self, shares: &Value, until: &[f64], end: f64, name: &str) {
        let mut below = vec![0.0; until.len()];
        let (mut legend, mut paths) = (String::new(), String::new());
        for (doing, color) in COLORS.iter().filter(|(doing, _)| shares[*doing].is_array()) {
            let (mut path, mut start) = (String::new(), 0.0);
            for ((&until, share), below) in until.iter().zip(list(&shares[*doing])).zip(&mut below) {
                let (share, x) = (HIGH * number(share).clamp(0.0, 1.0), WIDE * start / end);
                let wide = WIDE * (until - start) / end;
                if share > 0.0 {
                    path += &format!("M{x:.1} {:.1}h{wide:.1}v-{share:.1}h-{wide:.1}z", HIGH - *below);
                }
                *below += share;
                start = until;
            }
            paths += &format!("<path class=\"{color}\" d=\"{path}\"/>");
            let mean = list(&shares[*doing]).iter().map(number).sum::<f64>() / until.len() as f64;
            // What cannot be seen needs no name.
            if mean >= 0.01 {
                let of = solid(&format!("{} {:.0} %", doing.replace('_', " "), 100.0 * mean));
                legend += &format!("<span><i class=\"{color}\"></i>{}</span> ", escaped(&of));
            }
        }
        let axes = [&Axis::linear(end, STEPS, " s"), &Axis::linear(100.0, 2.0, " %")];
        self.chart("lane", [name, ""], &format!("{name}, over time"), axes, &paths, "");
        self.put(format_args!("<p class=\"soft legend\">{legend}</p>\n"));
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
