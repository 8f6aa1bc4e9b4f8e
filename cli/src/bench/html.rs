//! The result of `bench` as one page: no network, no script, readable on a phone, on paper, in the dark, and as text
//! alone. It is made of the JSON, so both say the same.

mod axes;
mod charts;
pub mod thumbnails;

use serde_json::Value;
use std::fmt::Write as _;
use std::time::Duration;
use uringload_measure::text;
use uringload_measure::text::one_line;

/// The look. Colors follow the reader's choice, and drawings keep theirs on paper.
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

    /// A heading and what stands under it.
    fn section(&mut self, heading: &str, body: impl FnOnce(&mut Page)) {
        self.put(format_args!("<section><h2>{heading}</h2>\n"));
        body(self);
        self.put(format_args!("</section>\n"));
    }

    fn verdict(&mut self, report: &Value) {
        let verdict = &report["verdict"];
        let share = 100.0 * verdict["share"].as_f64().unwrap_or(0.0);
        let (what, advice) = (text(&verdict["bottleneck"]), sentence(&text(&verdict["advice"])));
        self.put(format_args!(
            "<div class=\"verdict\"><p><b>Bottleneck: {what}</b> ({share:.0}\u{a0}% of the time)</p><p>{advice}</p>"
        ));
        if let Some(gain) = verdict["gain"].as_f64() {
            let rate = whole(report["samples_per_s"].as_f64().unwrap_or(0.0) * gain);
            self.put(format_args!(
                "<p>The run would be {gain:.1} times as fast, {rate} samples/s, if that part took no time.</p>"
            ));
        }
        let remedies = list(&verdict["remedies"]);
        // Who reads no further than this has all that matters.
        if let Some(best) = remedies.first() {
            let brings = best["gain"].as_f64().map_or_else(
                || "What it brings was not measured.".to_owned(),
                |gain| format!("It would be {gain:.1} times as fast, {} samples/s.", count(&best["samples_per_s"])),
            );
            self.put(format_args!("<p><b>Try first: {}</b>. {brings}</p>", text(&best["what"])));
        }
        self.put(format_args!("</div>\n"));
        if !remedies.is_empty() {
            self.section("What to try", |page| {
                page.put(format_args!(
                    "<table><thead><tr><th>remedy<th class=\"n\">gain<th class=\"n\">samples/s</tr></thead>"
                ));
                for remedy in remedies {
                    let gain = remedy["gain"].as_f64();
                    let gain = gain.map_or_else(|| "not measured".to_owned(), |gain| format!("{gain:.1}x"));
                    let (what, rate) = (text(&remedy["what"]), count(&remedy["samples_per_s"]));
                    page.put(format_args!("\n<tr><td>{what}<td class=\"n\">{gain}<td class=\"n\">{rate}</tr>"));
                }
                page.put(format_args!("</table>\n"));
            });
        }
        for missing in list(&verdict["without"]) {
            self.put(format_args!("<p class=\"soft\">This machine does not tell: {}.</p>\n", text(missing)));
        }
    }

    /// What was reached, beside what the storage and the bus gave with nothing in the way: each row is one quantity in
    /// one unit.
    fn rates(&mut self, report: &Value) {
        let number = |value: &Value| value.as_f64();
        let (device, wall) = (&report["device"], number(&report["wall_s"]).filter(|wall| *wall > 0.0));
        let storage = list(&report["ceilings"]).iter().find(|one| one["part"] == "storage");
        let copied = number(&device["bytes_copied"]).zip(wall).map(|(bytes, wall)| bytes / wall);
        let is_disturbed = report["raw_read"]["disturbed"] == true;
        let raw = number(&report["raw_read_bytes_per_s"]).filter(|_| !is_disturbed);
        let rows = [
            ("samples/s", number(&report["samples_per_s"]), storage.and_then(|one| number(&one["samples_per_s"]))),
            ("bytes/s, as stored", number(&report["stored_bytes_per_s"]), raw),
            ("bytes/s, as delivered", number(&report["bytes_per_s"]), None),
            ("bytes/s to the GPU", copied, number(&device["h2d_bytes_per_s"])),
        ];
        let most = rows[1..].iter().flat_map(|(_, run, alone)| [*run, *alone]).flatten().fold(0.0, f64::max);
        self.section("Rates", |page| {
            page.put(format_args!(
                "<p>Alone is what the same part gave with nothing else at work: a raw read of the same files, and \
                 plain copies to the GPU.</p>\n<table><thead><tr><th>rate<th class=\"n\">this run<th class=\"n\">alone\
                 <th class=\"n\">share<th class=\"g\">{}</tr></thead>",
                scale("0 %", "100 %")
            ));
            for (row, (name, run, alone)) in rows.into_iter().enumerate() {
                let Some(run) = run else { continue };
                let share = alone.filter(|alone| *alone > 0.0).map(|alone| run / alone);
                let told = |rate: f64| if row == 0 { whole(rate) } else { beside(rate, most) };
                let (run, alone) = (told(run), alone.map_or_else(|| "-".to_owned(), told));
                page.put(format_args!("\n<tr><td>{name}<td class=\"n\">{run}<td class=\"n\">{alone}"));
                page.share(share);
            }
            page.put(format_args!("</table>\n"));
            if is_disturbed {
                page.put(format_args!(
                    "<p>Something disturbed the raw read, which gave less than the loader: it says nothing.</p>\n"
                ));
            }
            if let Some(busy) = number(&report["au_percent"]) {
                page.put(format_args!("<p>The accelerator was busy for {busy:.1}\u{a0}% of the time.</p>\n"));
            }
        });
    }

    /// The last two cells of a row: a share in percent, and as a bar.
    fn share(&mut self, share: Option<f64>) {
        let Some(share) = share else { return self.put(format_args!("<td class=\"n\">-<td class=\"g\"></tr>")) };
        let (told, width) = (100.0 * share, 100.0 * share.clamp(0.0, 1.0));
        self.put(format_args!(
            "<td class=\"n\">{told:.0}\u{a0}%<td class=\"g\"><div class=\"bar\" style=\"width:{width:.1}%\"></div></tr>"
        ));
    }

    fn waits(&mut self, report: &Value) {
        self.section("Latency", |page| {
            page.put(format_args!(
                "<div class=\"wide\"><table><thead><tr><th>time of<th class=\"n\">count<th class=\"n\">p50\
                 <th class=\"n\">p90<th class=\"n\">p99<th class=\"n\">p99.9</tr></thead>"
            ));
            page.latencies("a wait for a batch", &report["batches"], &report["batch_wait_ms"], 1e3);
            page.latencies("a read", &report["reads"], &report["read_latency_us"], 1.0);
            let mut from = 0;
            for class in list(&report["read_latency_by_size"]) {
                let name = match class["up_to_bytes"].as_u64() {
                    Some(up_to) => format!("reads of up to {}", solid(&text::binary(up_to))),
                    None => format!("reads of more than {}", solid(&text::binary(from))),
                };
                from = class["up_to_bytes"].as_u64().unwrap_or(from);
                page.latencies(&name, &class["reads"], class, 1.0);
            }
            let amplification = report["read_amplification"].as_f64().unwrap_or(1.0);
            page.put(format_args!(
                "</table></div>\n<p>The run made {} reads, with {:.1} in flight on average. It read {amplification:.2} \
                 bytes for each byte wanted.</p>\n",
                count(&report["reads"]),
                report["in_flight_mean"].as_f64().unwrap_or(0.0)
            ));
        });
    }

    /// A row of percentiles. `micros` is the unit that they have.
    fn latencies(&mut self, name: &str, number: &Value, of: &Value, micros: f64) {
        let cell = |percent: &str| {
            let told = of[percent].as_f64().filter(|time| (0.0..1e15).contains(time));
            told.map_or_else(|| "-".to_owned(), |number| time(number * micros / 1e6))
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
        self.section("Dearest samples", |page| {
            page.put(format_args!(
                "<p class=\"soft\">These samples took longest to read and to decode. Samples that came in one read \
                 have its time.</p>\n<div class=\"wide\"><table><thead><tr><th>sample<th class=\"n\">read\
                 <th class=\"n\">decode</tr></thead>"
            ));
            for (place, sample) in dearest.iter().enumerate() {
                let (index, key) = (text(&sample["index"]), name(&text(&sample["key"])));
                let time = |name: &str| {
                    let millis = sample[name].as_f64().unwrap_or(0.0).clamp(0.0, 1e12);
                    if millis > 0.0 { time(millis / 1e3) } else { "-".to_owned() }
                };
                let (read, made) = (time("read_ms"), time("made_ms"));
                page.put(format_args!("\n<tr><td class=\"name\">{index} {key}"));
                if let Some(picture) = pictures.get(place).and_then(Option::as_ref) {
                    page.put(format_args!("<img alt=\"sample {index}\" src=\"{}\">", escaped(picture)));
                }
                page.put(format_args!("<td class=\"n\">{read}<td class=\"n\">{made}</tr>"));
            }
            page.put(format_args!("</table></div>\n"));
        });
    }

    /// Who held how much of the memory that there may be.
    fn memory(&mut self, report: &Value) {
        let memory = &report["memory"];
        let (limit, holders) = (memory["limit_bytes"].as_f64().unwrap_or(0.0), list(&memory["holders"]));
        if holders.is_empty() || limit <= 0.0 {
            return;
        }
        let binary = |bytes: f64| solid(&text::binary(bytes as u64));
        self.section("Memory for samples", |page| {
            page.put(format_args!(
                "<p>The limit is {0}. A bar shows the mean, and after it the most that was seen.</p>\n<table><thead>\
                 <tr><th>held for<th class=\"n\">mean<th class=\"n\">most<th class=\"g\">{1}</tr></thead>",
                binary(limit),
                scale("0", &binary(limit))
            ));
            for holder in holders {
                let bytes = |name: &str| holder[name].as_f64().unwrap_or(0.0);
                let (mean, most) = (bytes("mean_bytes"), bytes("most_bytes"));
                let wide = 100.0 * (most / limit).clamp(0.0, 1.0);
                let part = if most > 0.0 { 100.0 * (mean / most).min(1.0) } else { 0.0 };
                let (name, mean, most) = (text(&holder["name"]), binary(mean), binary(most));
                page.put(format_args!(
                    "\n<tr><td>{name}<td class=\"n\">{mean}<td class=\"n\">{most}<td class=\"g\"><div class=\"most\" \
                     style=\"width:{wide:.1}%\"><div class=\"bar\" style=\"width:{part:.1}%\"></div></div></tr>"
                ));
            }
            page.put(format_args!("</table>\n"));
        });
    }

    /// What each thread did, and what it got of the processors.
    fn threads(&mut self, report: &Value) {
        let seconds = |value: &Value| value.as_f64().map_or_else(|| "an unknown time".to_owned(), time);
        let memory = |value: &Value| {
            value.as_u64().map_or_else(|| "an unknown amount".to_owned(), |bytes| solid(&text::binary(bytes)))
        };
        self.section("Threads", |page| {
            page.put(format_args!(
                "<table><thead><tr><th>thread and what it did<th class=\"n\">share<th class=\"g\">{}</tr></thead>",
                scale("0 %", "100 %")
            ));
            for thread in list(&report["threads"]) {
                let mut shares: Vec<(String, f64)> = thread["shares"].as_object().map_or_else(Vec::new, |shares| {
                    shares.iter().filter_map(|(name, share)| Some((name.replace('_', " "), share.as_f64()?))).collect()
                });
                shares.sort_by(|a, b| b.1.total_cmp(&a.1));
                let role = thread["role"].as_str().unwrap_or_default();
                for (name, share) in shares.iter().filter(|(_, share)| *share >= 0.01) {
                    page.put(format_args!("\n<tr><td>{}", escaped(&format!("{role}: {name}"))));
                    page.share(Some(*share));
                }
            }
            page.put(format_args!(
                "</table>\n<p>The process used {} of CPU time; a quota kept it from running for {}. It held at most {} \
                 of memory, up to {} of it for samples.</p>\n",
                seconds(&report["processors"]["used_s"]),
                seconds(&report["processors"]["throttled_s"]),
                memory(&report["peak_rss_bytes"]),
                memory(&report["pool_bytes"])
            ));
        });
    }

    fn rounds(&mut self, report: &Value) {
        let rounds = list(&report["rounds"]);
        if rounds.len() < 2 {
            return;
        }
        let outliers: Vec<u64> = list(&report["spread"]["outliers"]).iter().filter_map(Value::as_u64).collect();
        self.section("Rounds", |page| {
            page.put(format_args!("<table><thead><tr><th>round<th class=\"n\">samples/s<th></tr></thead>"));
            for (number, round) in rounds.iter().enumerate() {
                let rate = count(&round["samples_per_s"]);
                let note = if outliers.contains(&(number as u64 + 1)) { "an outlier" } else { "" };
                page.put(format_args!("\n<tr><td>{}<td class=\"n\">{rate}<td>{note}</tr>", number + 1));
            }
            page.put(format_args!("</table>\n"));
        });
    }

    /// By which way, on which machine, by which command.
    fn how(&mut self, report: &Value) {
        let (route, machine, run) = (&report["route"], &report["machine"], &report["run"]);
        let words = |words: &Value| list(words).iter().map(text).collect::<Vec<_>>().join(" ");
        let direct = match (route["direct_io"] == true, &*text(&route["engine"])) {
            (true, _) => "past the page cache",
            (false, "remote") => "by requests to a store",
            (false, _) => "through the page cache",
        };
        let depth = format!("{}, {direct}, {} reads in flight", text(&route["engine"]), count(&route["queue_depth"]));
        let fallbacks = list(&route["fallbacks"]).iter().map(|step| {
            let [wanted, got, reason, remedy] = ["wanted", "got", "reason", "remedy"].map(|name| text(&step[name]));
            ("fallback", format!("{got} instead of {wanted}: {reason}; {remedy}"))
        });
        let rows = [
            ("host", text(&machine["host"])),
            ("kernel", text(&machine["kernel"])),
            ("processors", format!("{} of {}", text(&machine["processors"]), text(&machine["cpu"]))),
            ("device", format!("{}, {}", text(&machine["filesystem"]), text(&machine["device"]))),
            ("time", text(&run["time"])),
            ("commit", text(&run["commit"])),
            ("command", format!("<code>{}</code>", name(&words(&run["command"])))),
            ("uringload", text(&report["uringload"])),
        ];
        self.section("Route and machine", |page| {
            page.put(format_args!("<table>"));
            for (name, value) in [("route", depth)].into_iter().chain(fallbacks).chain(rows) {
                page.put(format_args!("\n<tr><th>{name}<td class=\"name\">{value}</tr>"));
            }
            page.put(format_args!("</table>\n"));
        });
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
    value.as_f64().map_or_else(|| "-".to_owned(), whole)
}

fn whole(number: f64) -> String {
    solid(&text::count(number.round() as u64))
}

fn bytes(value: &Value) -> String {
    value.as_f64().map_or_else(|| "unknown".to_owned(), |bytes| solid(&text::bytes(bytes)))
}

fn bytes_per_second(value: &Value) -> String {
    if value.is_null() { "-".to_owned() } else { bytes(value) + "/s" }
}

fn time(seconds: f64) -> String {
    solid(&text::time(Duration::from_secs_f64(seconds.clamp(0.0, 1e12))))
}

/// A rate of bytes in the unit of the greatest beside it, so that their digits can be compared.
fn beside(rate: f64, most: f64) -> String {
    let units = [(1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "KB/s")];
    let (of, unit) = units.into_iter().find(|(of, _)| most >= 0.9995 * of).unwrap_or((1.0, "B/s"));
    let places = if rate >= 0.0995 * of { 2 } else { 4 };
    format!("{:.places$}\u{a0}{unit}", rate / of)
}

/// The ends of a scale over its bars.
fn scale(from: &str, to: &str) -> String {
    format!("<span class=\"ends\"><span>{}</span><span>{}</span></span>", solid(from), solid(to))
}

/// A sentence of what was said within one.
fn sentence(said: &str) -> String {
    let mut letters = said.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).chain(['.']).collect())
}

/// Text that lines do not divide: a number, and the unit after it.
fn solid(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}

/// A name that may be too long for its line is divided after its separators.
fn name(escaped: &str) -> String {
    escaped.replace('/', "/<wbr>").replace('_', "_<wbr>")
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
            "samples_per_s": 400.0, "bytes_per_s": 1e9, "stored_bytes_per_s": 9e8, "raw_read_bytes_per_s": 2e9,
            "reads": 1234,
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
        for said in [
            "Bottleneck: latency",
            "97 % of the time",
            "A read takes 20 ms.",
            "The run would be 4.0 times as fast, 1 600",
        ] {
            assert!(screen.contains(said), "{said} is missing in {screen}");
        }
        assert!(
            screen.contains("Try first: queue_depth = 16 . It would be 3.9 times as fast, 1 560 samples/s."),
            "{screen}"
        );
        // Where nothing was computed, it says so and does not make up a number.
        let mut unknown = report();
        unknown["verdict"]["remedies"] = json!([{"what": "longer reads", "gain": null, "samples_per_s": null}]);
        let text = words(&page(&unknown, &[]));
        assert!(text.contains("Try first: longer reads . What it brings was not measured."), "{text}");
    }

    #[test]
    fn the_page_has_every_part_and_fetches_nothing() {
        let page = page(&report(), &[Some("data:image/jpeg;base64,AAAA".to_owned())]);
        let text = words(&page);
        for said in [
            "PSI",
            "Roofline",
            "storage 800 2.00 GB/s a raw read",
            "trainer 5 000 - steps",
            "samples/s 400 800 50 %",
            "bytes/s, as stored 0.90 GB/s 2.00 GB/s 45 %",
            "bytes/s, as delivered 1.00 GB/s - -",
            "Throughput over time The rate was 4.0 to 5.0 samples/s over 2.0 s.",
            "reads of up to 4 KiB 7 90",
            "reads of more than 4 KiB 8 8.0",
            "3 &lt;b&gt;&amp;3.jpg 21.5",
            "io, 8 threads",
            "wait for storage 88 %",
            "The limit is 1024 MiB.",
            "reading 100 MiB 200 MiB",
            "Rounds",
        ] {
            assert!(text.contains(said), "{said} is missing in {text}");
        }
        assert!(page.contains("<polyline") && page.contains("class=\"dot\"") && page.matches("<path").count() == 3);
        assert!(page.contains("src=\"data:image/jpeg;base64,AAAA\""), "{page}");
        assert!(!page.contains("<script") && page.contains("&quot;&amp;"), "{page}");
        assert!(!page.contains("http") && page.matches("src=").count() == 1 && !page.contains("url("), "it fetches");
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
        for pair in [
            "table",
            "thead",
            "section",
            "figure",
            "figcaption",
            "div",
            "p",
            "h1",
            "h2",
            "svg",
            "body",
            "html",
            "style",
            "code",
            "span",
            "i",
            "b",
            "title",
            "head",
        ] {
            let (open, close) = (format!("<{pair}"), format!("</{pair}>"));
            let opened = page.matches(&format!("{open}>")).count() + page.matches(&format!("{open} ")).count();
            assert_eq!(opened, page.matches(&close).count(), "{pair}");
        }
    }

    /// The parts of a page between `open` and `close`.
    fn parts<'a>(page: &'a str, open: &'a str, close: &'a str) -> Vec<&'a str> {
        page.split(open).skip(1).map(|part| part.split(close).next().unwrap()).collect()
    }

    /// A chart stands in a section that begins with its heading, and both of its axes have values with their units.
    #[test]
    fn every_drawing_has_a_heading_and_axes() {
        let page = page(&report(), &[]);
        let sections = parts(&page, "<section>", "</section>");
        assert!(sections.iter().all(|section| section.starts_with("<h2>") && section.matches("<h2>").count() == 1));
        assert_eq!(sections.len(), page.matches("<h2>").count());
        let drawn: usize = sections.iter().map(|section| section.matches("<svg").count()).sum();
        let charts = parts(&page, "<figure", "</figure>");
        assert_eq!((drawn, charts.len(), page.matches("<svg").count()), (4, 4, 4));
        for chart in charts {
            assert!(chart.contains("<figcaption>") && chart.matches("class=\"grid\"").count() > 4, "{chart}");
            for side in ["xs", "ys"] {
                let axis = parts(chart, &format!("<div class=\"{side}\" aria-hidden=\"true\">"), "</div>").concat();
                let labels = parts(&axis, "%\">", "</span>");
                assert!(labels.len() > 2, "{side} of {chart}");
                // Within the drawing, evenly on a linear axis, and each another value.
                assert!(labels.windows(2).all(|pair| pair[0] != pair[1]) && !axis.contains(":-"), "{axis}");
            }
        }
        let text = words(&page);
        for axis in [
            "samples/s 0 1 2 3 4 5 0 s 0.5 s 1 s 1.5 s 2 s time since the start",
            "samples/s 100 200 500 1 000 2 000 5 000 10 000 20 000 100 KB 1 MB 10 MB bytes of a sample",
            "io, 8 threads 0 % 50 % 100 % 0 s 0.5 s 1 s 1.5 s 2 s read 100 %",
        ] {
            assert!(text.contains(axis), "{axis} is missing in {text}");
        }
    }

    #[test]
    fn rates_beside_each_other_have_one_unit() {
        assert_eq!(
            [9e8, 2e9, 2.21e7].map(|rate| beside(rate, 2e9)),
            ["0.90\u{a0}GB/s", "2.00\u{a0}GB/s", "0.0221\u{a0}GB/s"]
        );
        assert_eq!(beside(2.5e6, 2.5e6), "2.50\u{a0}MB/s");
        let mut slow = report();
        slow["bytes_per_s"] = json!(4.2e7);
        let text = words(&page(&slow, &[]));
        assert!(
            text.contains("bytes/s, as stored 0.90 GB/s 2.00 GB/s 45 % bytes/s, as delivered 0.0420 GB/s"),
            "{text}"
        );
    }

    /// A line never ends between a number and its unit, and a long name is divided after its separators.
    #[test]
    fn no_word_is_broken() {
        let mut long = report();
        long["dearest_samples"][0]["key"] = json!("train/n01440764/n01440764_10026.jpg");
        let page = page(&long, &[]);
        assert!(page.contains("train/<wbr>n01440764/<wbr>n01440764_<wbr>10026.jpg"), "{page}");
        for unit in ["samples", "%", "s", "ms", "KB", "MB", "GB", "MB/s", "GB/s", "KiB", "MiB"] {
            let after: Vec<&str> = page.split(&format!(" {unit}<")).collect();
            let is_number = |part: &&str| part.ends_with(|sign: char| sign.is_ascii_digit());
            assert!(!after[..after.len() - 1].iter().any(is_number), "{unit}");
        }
        let cut = STYLE.matches("anywhere").count();
        assert!(cut == 1 && STYLE.contains(".name{overflow-wrap:anywhere"), "names alone may be cut anywhere");
    }

    #[test]
    fn paper_keeps_a_chart_with_its_heading() {
        let paper = &STYLE[STYLE.find("@media print").unwrap()..];
        for rule in ["break-after:avoid", "break-inside:avoid", "--ink:#000"] {
            assert!(paper.contains(rule), "{rule}");
        }
        assert!(STYLE.contains("print-color-adjust:exact"));
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
