//! What was found: for programs, and as a profile.

use super::Outcome;
use super::knobs::words;
use super::turns::{Judgement, interval, median};
use crate::bench::machine::{Command, Machine};
use crate::text::{self, one_line};
use serde_json::{Value, json};
use uringload_sys::{cgroup, system};

/// Of what is printed as JSON.
const VERSION: u32 = 1;

impl Outcome<'_> {
    /// All figures.
    pub fn report(&self) -> Value {
        let (outcome, profile) = (self, self.profile());
        let dataset = &outcome.tune.subject.dataset;
        let [now, best] = outcome.rates();
        let tried = outcome.tried.iter().map(|tried| {
            json!({ "what": tried.what, "samples_per_s": tried.rate, "gain": tried.gain, "why_not": tried.why })
        });
        let others = outcome
            .others
            .iter()
            .map(|other| json!({ "what": other.what, "samples_per_s": other.rate, "gain": other.gain }));
        let verdict = &outcome.verdict;
        let settings = profile.settings().into_iter().map(|(key, value)| (key.to_owned(), number(value)));
        json!({
            "version": VERSION,
            "uringload": env!("CARGO_PKG_VERSION"),
            "run": Command::now(),
            "machine": Machine::here(&**dataset),
            "limits": {
                "processors": cgroup::processors_allowed(),
                "processor_quota": cgroup::processor_quota().map(|quota| quota.processors),
                "memory_available_bytes": system::memory_available(),
                "memory_room_bytes": cgroup::memory().map(|group| group.room()),
            },
            "dataset": { "format": dataset.format(), "samples": dataset.len(), "bytes": dataset.bytes() },
            "took_s": outcome.begun.elapsed().as_secs_f64(),
            "device": outcome.points,
            "raw_read_bytes_per_s": outcome.raw(),
            "now": {
                "what": words(&outcome.tune.config),
                "samples_per_s": now,
                "route": outcome.now.route.to_string(),
                "fallbacks": outcome.now.route.fallbacks.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "bottleneck": verdict.bottleneck.name(),
                "share": verdict.share,
                "advice": verdict.advice,
            },
            "tried": tried.collect::<Vec<_>>(),
            "spread": outcome.spread,
            "found": outcome.found.as_ref().map(|found| json!({
                "what": words(found),
                "gain": median(&outcome.gains()),
                "interval": interval(&outcome.gains()),
                "pairs": outcome.pairs,
            })),
            "judgement": outcome.judgement.map(Judgement::name),
            "best": { "what": words(&outcome.best), "samples_per_s": best, "gain": outcome.gain() },
            "others": others.collect::<Vec<_>>(),
            "profile": settings.collect::<serde_json::Map<_, _>>(),
            "interrupted": outcome.is_interrupted,
        })
    }

    /// The file: who wrote it and what it brings, as comments, and the settings.
    pub fn profile_text(&self) -> String {
        let (outcome, profile) = (self, self.profile());
        let [now, best] = outcome.rates().map(|rate| text::count(rate.round() as u64));
        let given = words(&outcome.tune.config);
        let (run, machine) = (json!(Command::now()), json!(Machine::here(&*outcome.tune.subject.dataset)));
        let text =
            |value: &Value| value.as_str().map_or_else(|| "unknown".to_owned(), |text| one_line(text).into_owned());
        let paths = outcome.tune.paths.iter().map(|path| one_line(&path.to_string_lossy()).into_owned());
        let paths = paths.collect::<Vec<_>>().join(", ");
        let brings = match outcome.gain() {
            1.0 => format!("# {now} samples/s, as what was given ({}): nothing was shown to be faster.", given),
            gain => format!("# {best} samples/s, {gain:.2} times what was given ({given}) by turns."),
        };
        format!(
            "# Written by `uringload tune`, {}. How to read {paths}\n# on {}, Linux {}, {}:\n{brings}\n\
             # What is given by name wins over it: `--profile FILE`, `Builder::profile`,\n\
             # `DataLoader(profile=FILE)`.\n{profile}",
            text(&run["time"]),
            text(&machine["host"]),
            text(&machine["kernel"]),
            text(&machine["device"]),
        )
    }
}

fn number(text: String) -> Value {
    text.parse::<u64>().map_or(Value::String(text), Value::from)
}
