//! The result of `bench` as one page: no network, no script, readable on a phone, on paper, in the dark, and as text
//! alone. It is made of the JSON, so both say the same.

mod charts;
pub mod thumbnails;

use serde_json::Value;
use std::fmt::Write as _;
use std::time::Duration;
use uringload_measure::text;
use uringload_measure::text::one_line;

/// The look. Colors follow the reader's choice; bars keep theirs on paper.
const STYLE: &str = include_str!("html/style.css");

/// The page of a report, with the pictures of its dearest samples.
pub fn page(report: &Value, pictures: &[Option<String>]) -> String {
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
    page.roof(report);
    page.over_time(report);
    page.waits(report);
    page.dearest(report, pictures);
    page.timeline(report);
    page.threads(report);
    page.memory(report);
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
            let rate = text::count((report["samples_per_s"].as_f64().unwrap_or(0.0) * gain) as u64);
            self.put(format_args!("<p>If that part took no time: {gain:.1} times as fast, {rate} samples/s.</p>"));
        }
        let remedies = list(&verdict["remedies"]);
        // Who reads no further than this has all that matters.
        if let Some(best) = remedies.first() {
            let brings = best["gain"].as_f64().map_or_else(
                || "what it brings was not measured".to_owned(),
                |gain| format!("{gain:.1} times as fast, {} samples/s", count(&best["samples_per_s"])),
            );
            self.put(format_args!("<p><b>Try first: {}</b>: {brings}.</p>", text(&best["what"])));
        }
        self.put(format_args!("</div>\n"));
        if !remedies.is_empty() {
            self.put(format_args!(
                "<h2>What to try</h2>\n<table><tr><th>remedy<th class=\"n\">gain<th class=\"n\">samples/s</tr>"
            ));
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
            self.bar(name, &format!("{}/s", text::bytes(rate)), rate / most);
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
        self.put(format_args!("\n<tr><td>{name}<td class=\"n\">{value}<td class=\"g\">"));
        self.put(format_args!("<div class=\"bar\" style=\"width:{width:.1}%\"></div></tr>"));
    }

    fn waits(&mut self, report: &Value) {
        self.put(format_args!("<h2>Latency</h2>\n<div class=\"wide\"><table>"));
        self.put(format_args!(
            "<tr><th><th class=\"n\">count<th class=\"n\">p50<th class=\"n\">p90<th class=\"n\">p99\
             <th class=\"n\">p99.9</tr>"
        ));
        self.latencies("a wait for a batch", &report["batches"], &report["batch_wait_ms"], 1e3);
        self.latencies("a read", &report["reads"], &report["read_latency_us"], 1.0);
        let mut from = 0;
        for class in list(&report["read_latency_by_size"]) {
            let name = match class["up_to_bytes"].as_u64() {
                Some(up_to) => format!("reads of up to {}", text::binary(up_to)),
                None => format!("reads of more than {}", text::binary(from)),
            };
            from = class["up_to_bytes"].as_u64().unwrap_or(from);
            self.latencies(&name, &class["reads"], class, 1.0);
        }
        let amplification = report["read_amplification"].as_f64().unwrap_or(1.0);
        self.put(format_args!(
            "</table></div>\n<p>{} reads, {:.1} in flight on average; {amplification:.2} bytes read for each byte \
             wanted.</p>\n",
            count(&report["reads"]),
            report["in_flight_mean"].as_f64().unwrap_or(0.0)
        ));
    }

    /// A row of percentiles. `micros` is the unit that they have.
    fn latencies(&mut self, name: &str, number: &Value, of: &Value, micros: f64) {
        let cell = |percent: &str| {
            let time = of[percent].as_f64().filter(|time| (0.0..1e15).contains(time));
            time.map_or_else(|| "-".to_owned(), |time| text::time(Duration::from_secs_f64(time * micros / 1e6)))
        };
        self.put(format_args!("\n<tr><td>{}<td class=\"n\">{}", escaped(name), count(number)));
        for percent in ["p50", "p90", "p99", "p999"] {
            self.put(format_args!("<td class=\"n\">{}", cell(percent)));
        }
        self.put(format_args!("</tr>"));
    }

    /// The samples that took longest.
    fn dearest(&mut self, report: &Value, pictures: &[Option<String>]) {
        let dearest = list(&report["dearest_samples"]);
        if dearest.is_empty() {
            return;
        }
        self.put(format_args!(
            "<h2>Dearest samples</h2>\n<p class=\"soft\">Those that took longest to read and to decode. Samples that \
             came in one read have its time.</p>\n<div class=\"wide\"><table><tr><th>sample<th class=\"n\">read\
             <th class=\"n\">decode</tr>"
        ));
        for (place, sample) in dearest.iter().enumerate() {
            let (index, key) = (text(&sample["index"]), text(&sample["key"]));
            let time = |name: &str| {
                let millis = sample[name].as_f64().unwrap_or(0.0).clamp(0.0, 1e12);
                if millis > 0.0 { text::time(Duration::from_secs_f64(millis / 1e3)) } else { "-".to_owned() }
            };
            let (read, made) = (time("read_ms"), time("made_ms"));
            self.put(format_args!("\n<tr><td>{index} {key}"));
            if let Some(picture) = pictures.get(place).and_then(Option::as_ref) {
                self.put(format_args!("<img alt=\"sample {index}\" src=\"{}\">", escaped(picture)));
            }
            self.put(format_args!("<td class=\"n\">{read}<td class=\"n\">{made}</tr>"));
        }
        self.put(format_args!("</table></div>\n"));
    }

    /// Who held how much of the memory that there may be.
    fn memory(&mut self, report: &Value) {
        let memory = &report["memory"];
        let (limit, holders) = (memory["limit_bytes"].as_f64().unwrap_or(0.0), list(&memory["holders"]));
        if holders.is_empty() || limit <= 0.0 {
            return;
        }
        self.put(format_args!(
            "<h2>Memory for samples</h2>\n<p>The limit is {}. Bars show the mean, and behind it the most that was \
             seen.</p>\n<table>",
            text::binary(limit as u64)
        ));
        for holder in holders {
            let bytes = |name: &str| holder[name].as_f64().unwrap_or(0.0);
            let (mean, most) = (bytes("mean_bytes"), bytes("most_bytes"));
            let wide = |bytes: f64| 100.0 * (bytes / limit).clamp(0.0, 1.0);
            let (name, part) = (text(&holder["name"]), if most > 0.0 { (mean / most).min(1.0) } else { 0.0 });
            let told = format!("{}, at most {}", text::binary(mean as u64), text::binary(most as u64));
            self.put(format_args!(
                "\n<tr><td>{name}<td class=\"n\">{told}<td class=\"g\"><div class=\"most\" style=\"width:{:.1}%\">\
                 <div class=\"bar\" style=\"width:{:.1}%\"></div></div></tr>",
                wide(most),
                100.0 * part
            ));
        }
        self.put(format_args!("</table>\n"));
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
        self.put(format_args!("<h2>Rounds</h2>\n<table><tr><th>round<th class=\"n\">samples/s<th></tr>"));
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
    value.as_f64().map_or_else(|| "-".to_owned(), |number| text::count(number.round() as u64))
}

fn bytes(value: &Value) -> String {
    value.as_f64().map_or_else(|| "unknown".to_owned(), text::bytes)
}

/// Names come from whoever made the data.
fn escaped(text: &str) -> String {
    one_line(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report() -> Value {
        let series = json!([{"s": 0.0, "samples": 0}, {"s": 1.0, "samples": 5}, {"s": 2.0, "samples": 9}]);
        json!({
            "dataset": {"format": "<script>", "samples": 4, "bytes": 1e7}, "samples": 4, "bytes": 1e7, "batches": 2,
            "samples_per_s": 400.0, "bytes_per_s": 1e9, "raw_read_bytes_per_s": 2e9, "reads": 1234,
            "verdict": {"bottleneck": "latency", "share": 0.97, "advice": "a read takes 20 ms", "gain": 4.0,
                "remedies": [{"what": "queue_depth = 16", "gain": 3.9, "samples_per_s": 1560.0}], "without": ["PSI"]},
            "threads": [{"role": "reactor", "shares": {"wait_for_storage": 0.97}}],
            "read_latency_us": {"p50": 1500.0, "p90": 2000.0, "p99": 3e6},
            "read_latency_by_size": [{"up_to_bytes": 4096, "reads": 7, "p50": 90.0},
                {"up_to_bytes": null, "reads": 8, "p50": 8000.0}],
            "ceilings": [{"part": "storage", "samples_per_s": 800.0, "bytes_per_s": 2e9, "from": "a raw read"},
                {"part": "trainer", "samples_per_s": 5000.0, "bytes_per_s": null, "from": "steps"}],
            "dearest_samples": [{"index": 3, "key": "<b>&3.jpg", "read_ms": 21.5, "made_ms": 3.0}],
            "memory": {"limit_bytes": 1 << 30, "holders":
                [{"name": "reading", "mean_bytes": 100 << 20, "most_bytes": 200 << 20}]},
            "timeline": {"until_s": [0.5, 2.0], "lanes": [
                {"role": "reactor", "threads": 1, "shares": {"plan": [0.25, 0.0], "wait_for_storage": [0.75, 1.0]}},
                {"role": "io", "threads": 8, "shares": {"read": [1.0, 1.0]}}]},
            "rounds": [{"samples_per_s": 400.0, "series": series}, {"samples_per_s": 300.0, "series": series}],
            "run": {"command": ["uringload", "bench", "\"&"]},
        })
    }

    /// What a browser shows of a page, without its drawings.
    fn words(page: &str) -> String {
        let body = &page[page.find("<body>").unwrap()..];
        let mut is_tag = false;
        let text: String = body
            .chars()
            .map(|letter| {
                is_tag |= letter == '<';
                let shown = if is_tag { ' ' } else { letter };
                is_tag &= letter != '>';
                shown
            })
            .collect();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// A person who sees the first screen, or the text of it alone, can name bottleneck, remedy and gain.
    #[test]
    fn the_first_screen_names_bottleneck_remedy_and_gain() {
        // A terminal of 80 by 24 shows as much.
        let screen: String = words(&page(&report(), &[])).chars().take(80 * 12).collect();
        for said in
            ["Bottleneck: latency", "97 % of the time", "a read takes 20 ms", "If that part took no time: 4.0 times"]
        {
            assert!(screen.contains(said), "{said} is missing in {screen}");
        }
        assert!(screen.contains("Try first: queue_depth = 16 : 3.9 times as fast, 1 560 samples/s"), "{screen}");
        // Where nothing was computed, it says so and does not make up a number.
        let mut unknown = report();
        unknown["verdict"]["remedies"] = json!([{"what": "longer reads", "gain": null, "samples_per_s": null}]);
        let text = words(&page(&unknown, &[]));
        assert!(text.contains("Try first: longer reads : what it brings was not measured"), "{text}");
    }

    #[test]
    fn the_page_has_every_part_and_fetches_nothing() {
        let page = page(&report(), &[Some("data:image/jpeg;base64,AAAA".to_owned())]);
        let text = words(&page);
        for said in [
            "PSI",
            "Roofline",
            "storage 800 a raw read (2.00 GB/s)",
            "trainer 5 000 steps",
            "Throughput over time from 4 to 5 samples/s, over 2.0 s",
            "reads of up to 4 KiB 7 90",
            "reads of more than 4 KiB 8 8.0",
            "3 &lt;b&gt;&amp;3.jpg 21.5",
            "io, 8 threads",
            "wait for storage 88 %",
            "The limit is 1024 MiB",
            "reading 100 MiB, at most 200 MiB",
            "Rounds",
        ] {
            assert!(text.contains(said), "{said} is missing in {text}");
        }
        assert!(page.contains("<polyline") && page.contains("<circle") && page.matches("<path").count() == 3);
        assert!(page.contains("src=\"data:image/jpeg;base64,AAAA\""), "{page}");
        assert!(!page.contains("<script") && page.contains("&quot;&amp;"), "{page}");
        assert!(!page.contains("http") && page.matches("src=").count() == 1 && !page.contains("url("), "it fetches");
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
        for pair in
            ["table", "div", "p", "h1", "h2", "svg", "body", "html", "style", "code", "span", "i", "b", "title", "head"]
        {
            let (open, close) = (format!("<{pair}"), format!("</{pair}>"));
            let opened = page.matches(&format!("{open}>")).count() + page.matches(&format!("{open} ")).count();
            assert_eq!(opened, page.matches(&close).count(), "{pair}");
        }
    }

    #[test]
    fn any_report_makes_a_page() {
        let odd = json!({"rounds": [1], "verdict": {"remedies": [7]}, "threads": [{"shares": []}],
            "timeline": {"until_s": [1.0, "x"], "lanes": [3, {"shares": {"plan": [7]}}]}, "ceilings": [1, {}],
            "dearest_samples": [1], "memory": {"limit_bytes": 5, "holders": [{}]}, "read_latency_by_size": [2],
            "samples_per_s": 1e300});
        for odd in [json!(null), odd] {
            assert!(page(&odd, &[None]).ends_with("</html>\n"));
        }
    }
}
