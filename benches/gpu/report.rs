//! The results, as a table for people and as JSON for programs.

use crate::machine::Gpu;
use serde_json::{Map, Value, json};
use std::fmt::Write;

pub struct Report {
    lines: Vec<[String; 4]>,
    numbers: Map<String, Value>,
    is_mock: bool,
    /// The fastest plain copy from pinned memory, in bytes per second, once it is known.
    pub h2d_peak: Option<f64>,
}

impl Report {
    /// A report that goes on with what an earlier one wrote, if there is one.
    pub fn new(gpu: &Gpu, is_mock: bool, before: Option<&str>) -> Report {
        let info = gpu.context.info();
        let mut numbers: Map<String, Value> =
            before.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
        let lines = numbers.remove("table").and_then(|lines| serde_json::from_value(lines).ok()).unwrap_or_default();
        let h2d_peak = numbers.get("h2d").and_then(|h2d| h2d["peak_bytes_per_s"].as_f64());
        numbers.insert("version".into(), json!(1));
        numbers.insert("is_mock".into(), json!(is_mock));
        let compute = format!("{}.{}", info.compute.0, info.compute.1);
        let (driver, memory) = (gpu.context.driver().version(), info.memory_bytes);
        let device = json!({
            "name": info.name, "compute": compute, "multiprocessors": info.multiprocessors, "memory_bytes": memory,
            "pci": info.pci, "driver_cuda_version": driver,
            "numa_node": uringload_sys::system::numa_node_of_pci(&info.pci),
        });
        numbers.insert("device".into(), device);
        let host = json!({
            "kernel": uringload_sys::system::kernel_release(),
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "memory_available_bytes": uringload_sys::system::memory_available(),
        });
        numbers.insert("host".into(), host);
        Report { lines, numbers, is_mock, h2d_peak }
    }

    /// Stores numbers under a name.
    pub fn put(&mut self, name: &str, numbers: Value) {
        self.numbers.insert(name.into(), numbers);
    }

    /// Adds a line to the table for a figure without a target.
    pub fn tell(&mut self, what: impl Into<String>, measured: impl Into<String>) {
        self.lines.push([what.into(), measured.into(), String::new(), String::new()]);
    }

    /// Adds a line to the table that says whether a figure reaches its target.
    pub fn judge(&mut self, what: &str, measured: String, promised: &str, is_reached: bool) {
        let verdict = if is_reached { "reached" } else { "MISSED" };
        self.lines.push([what.into(), measured, promised.into(), verdict.into()]);
        let judged = self.numbers.entry("judged").or_insert_with(|| json!({}));
        if let Value::Object(judged) = judged {
            judged.insert(what.into(), json!(is_reached));
        }
    }

    /// Adds a line for a section that could not be measured.
    pub fn failed(&mut self, section: &str, error: &str) {
        self.lines.push([section.into(), error.into(), String::new(), "FAILED".into()]);
        self.numbers.insert(format!("{section}_error"), json!(error));
    }

    pub fn json(&self) -> String {
        let mut numbers = self.numbers.clone();
        numbers.insert("table".into(), json!(self.lines));
        format!("{:#}\n", Value::Object(numbers))
    }

    pub fn table(&self) -> String {
        let width = |column: usize| self.lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let (what, measured, promised) = (width(0), width(1), width(2));
        let mut table = String::new();
        if self.is_mock {
            table.push_str("A MOCK OF THE DRIVER: NO NUMBER MEANS ANYTHING\n");
        }
        for [a, b, c, d] in &self.lines {
            let line = format!("{a:what$}  {b:measured$}  {c:promised$}  {d}");
            let _ = writeln!(table, "{}", line.trim_end());
        }
        table
    }
}

/// Gigabytes per second.
pub fn gb(bytes_per_second: f64) -> String {
    format!("{:.2} GB/s", bytes_per_second / 1e9)
}
