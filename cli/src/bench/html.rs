//! The result of `bench` as one page: no network, no script, readable on a phone, on paper, in the dark, and as text
//! alone. It is made of the JSON, so both say the same.

use super::super::output::one_line;
use super::super::units;
use serde_json::Value;
use std::fmt::Write as _;

/// The look. Colors follow the reader's choice; bars keep theirs on paper.
const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1c1e21;--back:#fff;--soft:#667085;--line:#d5d9e0;--accent:#2563eb;--good:#15803d}
@media(prefers-color-scheme:dark){:root{--ink:#e8eaed;--back:#15171b;--soft:#9aa4b2;--line:#343a46;--accent:#6ea8fe;
--good:#4ade80}}
*{box-sizing:border-box}body{margin:0 auto;max-width:60rem;padding:1rem;background:var(--back);color:var(--ink);
font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem;border-bottom:1px solid var(--line)}
.verdict{border-left:.3rem solid var(--accent);padding:.2rem 1rem}.verdict b{font-size:1.2rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.25rem .5rem .25rem 0;vertical-align:top;
border-bottom:1px solid var(--line)}th{font-weight:600}td.n{text-align:right;white-space:nowrap}
.bar{background:var(--accent);height:.7rem;min-width:1px;print-color-adjust:exact;-webkit-print-color-adjust:exact}
.soft{color:var(--soft)}svg{width:100%;height:auto}polyline{fill:none;stroke:var(--accent);stroke-width:2}
svg text{fill:var(--soft);font-size:14px}svg line{stroke:var(--line)}
code{font-size:.9em}@media(max-width:30rem){td,th{font-size:.9rem}}@media print{body{max-width:none;padding:0}
h2{break-after:avoid}table,svg{break-inside:avoid}}
";

/// The page of a report.
pub fn page(report: &Value) -> String {
    let mut page = Page(String::new());
    let subject = format!(
        "{} of {} samples, {}",
        text(&report["dataset"]["format"]),
        count(&report["dataset"]["samples"]),
        bytes(&report["dataset"]["bytes"])
    );
    page.put(format_args!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>uringload bench: {0}</title><style>{STYLE}</style></head><body><h1>uringload bench: {0}</h1>\n",
        escaped(&subject)
    ));
    page.verdict(report);
    page.rates(report);
    page.over_time(report);
    page.waits(report);
    page.threads(report);
    page.rounds(report);
    page.how(report);
    page.0 + "</body></html>\n"
}

struct Page(String);

impl Page {
    fn put(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.0.write_fmt(what);
    }

    fn verdict(&mut self, report: &Value) {
        let verdict = &report["verdict"];
        let share = 100.0 * verdict["share"].as_f64().unwrap_or(0.0);
        let (what, advice) = (text(&verdict["bottleneck"]), text(&verdict["advice"]));
        self.put(format_args!("<div class=\"verdict\"><p><b>Bottleneck: {what}</b> ({share:.0} % of the time)</p>"));
        self.put(format_args!("<p>{advice}.</p>"));
        if let Some(gain) = verdict["gain"].as_f64() {
            let rate = units::count((report["samples_per_s"].as_f64().unwrap_or(0.0) * gain) as u64);
            self.put(format_args!("<p>If that part took no time: {gain:.1} times as fast, {rate} samples/s.</p>"));
        }
        self.put(format_args!("</div>\n"));
        let remedies = list(&verdict["remedies"]);
        if !remedies.is_empty() {
            self.put(format_args!("<h2>What to try</h2>\n<table><tr><th>remedy<th>gain<th>samples/s</tr>"));
        }
        for remedy in remedies {
            let gain = remedy["gain"].as_f64().map_or_else(|| "not measured".to_owned(), |gain| format!("{gain:.1}x"));
            let (what, rate) = (text(&remedy["what"]), count(&remedy["samples_per_s"]));
            self.put(format_args!("\n<tr><td>{what}<td class=\"n\">{gain}<td class=\"n\">{rate}</tr>"));
        }
        if !remedies.is_empty() {
            self.put(format_args!("</table>\n"));
        }
        for missing in list(&verdict["without"]) {
            self.put(format_args!("<p class=\"soft\">Could not be read on this machine: {}.</p>\n", text(missing)));
        }
    }

    /// What was reached, beside what the storage and the bus gave with nothing in the way.
    fn rates(&mut self, report: &Value) {
        let rates = [
            ("delivered", &report["bytes_per_s"]),
            ("raw read of the same files", &report["raw_read_bytes_per_s"]),
            ("copies to the GPU", &report["device"]["h2d_bytes_per_s"]),
        ];
        let most = rates.iter().filter_map(|(_, rate)| rate.as_f64()).fold(1.0, f64::max);
        self.put(format_args!("<h2>Rates</h2>\n<table>"));
        for (name, rate) in rates.iter().filter_map(|(name, rate)| Some((name, rate.as_f64()?))) {
            self.bar(name, &format!("{}/s", units::bytes(rate)), rate / most);
        }
        self.put(format_args!("</table>\n<p>{} samples/s", count(&report["samples_per_s"])));
        if let Some(busy) = report["au_percent"].as_f64() {
            self.put(format_args!("; the accelerator was busy for {busy:.1} % of the time"));
        }
        self.put(format_args!(".</p>\n"));
    }

    fn bar(&mut self, name: &str, value: &str, share: f64) {
        let width = 100.0 * share.clamp(0.0, 1.0);
        let (name, value) = (escaped(name), escaped(value));
        self.put(format_args!("\n<tr><td>{name}<td class=\"n\">{value}<td style=\"width:50%\">"));
        self.put(format_args!("<div class=\"bar\" style=\"width:{width:.1}%\"></div></tr>"));
    }

    /// The rate over time, of the last round.
    fn over_time(&mut self, report: &Value) {
        let rounds = list(&report["rounds"]);
        let points = rounds.last().map_or(&[][..], |round| list(&round["series"]));
        let at = |point: &Value, name: &str| point[name].as_f64().unwrap_or(0.0);
        let rate = |pair: &[Value]| {
            let seconds = at(&pair[1], "s") - at(&pair[0], "s");
            (seconds > 0.0).then(|| (at(&pair[1], "s"), (at(&pair[1], "bytes") - at(&pair[0], "bytes")) / seconds))
        };
        let rates: Vec<(f64, f64)> = points.windows(2).filter_map(rate).collect();
        let Some(&(end, _)) = rates.last().filter(|_| rates.len() > 1) else { return };
        let most = rates.iter().map(|(_, rate)| *rate).fold(1.0, f64::max);
        let line: Vec<String> = rates
            .iter()
            .map(|(s, rate)| format!("{:.1},{:.1}", 10.0 + 780.0 * s / end, 190.0 - 160.0 * rate / most))
            .collect();
        let told = format!("up to {}/s, over {end:.1} s", units::bytes(most));
        self.put(format_args!(
            "<h2>Throughput over time</h2>\n<svg viewBox=\"0 0 800 220\" role=\"img\" aria-label=\"{told}\">\
             <line x1=\"10\" y1=\"190\" x2=\"790\" y2=\"190\"/><polyline points=\"{}\"/>\
             <text x=\"10\" y=\"20\">{told}</text><text x=\"10\" y=\"212\">0 s</text>\
             <text x=\"790\" y=\"212\" text-anchor=\"end\">{end:.1} s</text></svg>\n",
            line.join(" ")
        ));
    }

    fn waits(&mut self, report: &Value) {
        self.put(format_args!("<h2>Latency</h2>\n<table><tr><th><th>p50<th>p99<th>p99.9</tr>"));
        for (name, unit, of) in
            [("a read", "µs", &report["read_latency_us"]), ("a wait for a batch", "ms", &report["batch_wait_ms"])]
        {
            let cell = |of: &Value| of.as_f64().map_or_else(|| "-".to_owned(), |time| format!("{time:.1} {unit}"));
            let [p50, p99, p999] = ["p50", "p99", "p999"].map(|percent| cell(&of[percent]));
            self.put(format_args!(
                "\n<tr><td>{name}<td class=\"n\">{p50}<td class=\"n\">{p99}<td class=\"n\">{p999}</tr>"
            ));
        }
        let amplification = report["read_amplification"].as_f64().unwrap_or(1.0);
        self.put(format_args!(
            "</table>\n<p>{} reads, {:.1} in flight on average; {amplification:.2} bytes read for each byte \
             wanted.</p>\n",
            count(&report["reads"]),
            report["in_flight_mean"].as_f64().unwrap_or(0.0)
        ));
    }

    /// What each thread did, and what it got of the processors.
    fn threads(&mut self, report: &Value) {
        self.put(format_args!("<h2>Threads</h2>\n<table>"));
        for thread in list(&report["threads"]) {
            let mut shares: Vec<(String, f64)> = thread["shares"].as_object().map_or_else(Vec::new, |shares| {
                shares.iter().filter_map(|(name, share)| Some((name.replace('_', " "), share.as_f64()?))).collect()
            });
            shares.sort_by(|a, b| b.1.total_cmp(&a.1));
            let role = thread["role"].as_str().unwrap_or_default();
            for (name, share) in shares.iter().filter(|(_, share)| *share >= 0.01) {
                self.bar(&format!("{role}: {name}"), &format!("{:.0} %", 100.0 * share), *share);
            }
        }
        let seconds =
            |value: &Value| value.as_f64().map_or_else(|| "unknown".to_owned(), |time| format!("{time:.2} s"));
        let (used, throttled) = (&report["processors"]["used_s"], &report["processors"]["throttled_s"]);
        self.put(format_args!(
            "</table>\n<p>CPU time {}, kept from running by a quota for {}; most memory {} of which up to {} for \
             samples.</p>\n",
            seconds(used),
            seconds(throttled),
            bytes(&report["peak_rss_bytes"]),
            bytes(&report["pool_bytes"])
        ));
    }

    fn rounds(&mut self, report: &Value) {
        let rounds = list(&report["rounds"]);
        if rounds.len() < 2 {
            return;
        }
        let outliers: Vec<u64> = list(&report["spread"]["outliers"]).iter().filter_map(Value::as_u64).collect();
        self.put(format_args!("<h2>Rounds</h2>\n<table><tr><th>round<th>samples/s<th></tr>"));
        for (number, round) in rounds.iter().enumerate() {
            let rate = count(&round["samples_per_s"]);
            let note = if outliers.contains(&(number as u64 + 1)) { "an outlier" } else { "" };
            self.put(format_args!("\n<tr><td>{}<td class=\"n\">{rate}<td>{note}</tr>", number + 1));
        }
        self.put(format_args!("</table>\n"));
    }

    /// By which way, on which machine, by which command.
    fn how(&mut self, report: &Value) {
        let (route, machine, run) = (&report["route"], &report["machine"], &report["run"]);
        self.put(format_args!("<h2>Route and machine</h2>\n<table>"));
        let words = |words: &Value| list(words).iter().map(text).collect::<Vec<_>>().join(" ");
        let direct = if route["direct_io"] == true { "past the page cache" } else { "through the page cache" };
        let depth = format!("{}, {direct}, {} reads in flight", text(&route["engine"]), count(&route["queue_depth"]));
        self.put(format_args!("\n<tr><th>route<td>{depth}</tr>"));
        for step in list(&route["fallbacks"]) {
            let [wanted, got, reason, remedy] = ["wanted", "got", "reason", "remedy"].map(|name| text(&step[name]));
            self.put(format_args!("\n<tr><th>fallback<td>{got} instead of {wanted}: {reason}; {remedy}</tr>"));
        }
        for (name, value) in [
            ("host", text(&machine["host"])),
            ("kernel", text(&machine["kernel"])),
            ("processors", format!("{} of {}", text(&machine["processors"]), text(&machine["cpu"]))),
            ("device", format!("{}, {}", text(&machine["filesystem"]), text(&machine["device"]))),
            ("time", text(&run["time"])),
            ("commit", text(&run["commit"])),
            ("command", format!("<code>{}</code>", words(&run["command"]))),
            ("uringload", text(&report["uringload"])),
        ] {
            self.put(format_args!("\n<tr><th>{name}<td>{value}</tr>"));
        }
        self.put(format_args!("</table>\n"));
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A value as text of a page.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => escaped(text),
        Value::Null => "unknown".to_owned(),
        other => escaped(&other.to_string()),
    }
}

fn count(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |number| units::count(number.round() as u64))
}

fn bytes(value: &Value) -> String {
    value.as_f64().map_or_else(|| "unknown".to_owned(), units::bytes)
}

/// Names come from whoever made the data.
fn escaped(text: &str) -> String {
    one_line(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_text_of_the_page_names_bottleneck_remedy_and_gain() {
        let series = json!([{"s": 0.0, "bytes": 0}, {"s": 1.0, "bytes": 5}, {"s": 2.0, "bytes": 9}]);
        let report = json!({
            "dataset": {"format": "<script>", "samples": 4, "bytes": 1e7},
            "samples_per_s": 400.0, "bytes_per_s": 1e9, "raw_read_bytes_per_s": 2e9,
            "verdict": {"bottleneck": "latency", "share": 0.97, "advice": "a read takes 20 ms", "gain": 4.0,
                "remedies": [{"what": "queue_depth = 16", "gain": 3.9, "samples_per_s": 1560.0}], "without": ["PSI"]},
            "threads": [{"role": "reactor", "shares": {"wait_for_storage": 0.97}}],
            "rounds": [{"samples_per_s": 400.0, "series": series}, {"samples_per_s": 300.0, "series": series}],
            "run": {"command": ["uringload", "bench", "\"&"]},
        });
        let page = page(&report);
        for said in ["Bottleneck: latency", "97 %", "4.0 times as fast", "queue_depth = 16", "3.9x", "PSI", "polyline"]
        {
            assert!(page.contains(said), "{said} is missing in {page}");
        }
        assert!(!page.contains("<script") && page.contains("&quot;&amp;"), "{page}");
        assert!(!page.contains("http") && !page.contains("src="), "nothing is fetched");
        for pair in ["table", "div", "p", "h2", "svg", "body", "html", "style", "code"] {
            let (open, close) = (format!("<{pair}"), format!("</{pair}>"));
            let opened = page.matches(&format!("{open}>")).count() + page.matches(&format!("{open} ")).count();
            assert_eq!(opened, page.matches(&close).count(), "{pair}");
        }
    }

    #[test]
    fn any_report_makes_a_page() {
        for odd in [json!(null), json!({"rounds": [1], "verdict": {"remedies": [7]}, "threads": [{"shares": []}]})] {
            assert!(page(&odd).ends_with("</html>\n"));
        }
    }
}
