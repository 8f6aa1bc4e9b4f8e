//! dev
use std::sync::Arc;
use std::time::Instant;
use uringload::config::*;
use uringload::dataset::*;
use uringload::loader::Loader;

fn main() -> uringload::Result<()> {
    let mut args = std::env::args().skip(1);
    let (kind, dir, batch) = (args.next().unwrap(), args.next().unwrap(), args.next().unwrap().parse().unwrap());
    let engine = match args.next().as_deref() {
        Some("threads") => EngineChoice::Threads,
        _ => EngineChoice::Auto,
    };
    let depth: Option<usize> = args.next().and_then(|d| d.parse().ok()).filter(|d| *d > 0);
    let io = match args.next().as_deref() {
        Some("buffered") => IoChoice::Buffered,
        Some("auto") => IoChoice::Auto,
        _ => IoChoice::Direct,
    };
    let threads: Option<usize> = args.next().and_then(|d| d.parse().ok());
    let t0 = Instant::now();
    let dataset: Arc<dyn Dataset> = match kind.as_str() {
        "records" => {
            Arc::new(Records::open(&[dir], &RecordOptions { record_bytes: 150528, ..RecordOptions::default() })?)
        }
        _ => Arc::new(Folder::open(&[dir])?),
    };
    let opened = t0.elapsed();
    let cpu0 = uringload_sys::system::cpu_time();
    let config = Config {
        batch_size: batch,
        shuffle: true,
        engine,
        queue_depth: depth,
        io,
        io_threads: threads,
        ..Config::default()
    };
    let t1 = Instant::now();
    let mut loader = Loader::builder(dataset).config(config).build()?;
    let route = loader.route();
    let stats = loader.stats();
    let (mut samples, mut bytes, mut first) = (0, 0, None);
    while let Some(b) = loader.next() {
        let b = b?;
        first.get_or_insert_with(|| t1.elapsed());
        samples += b.len();
        bytes += b.bytes();
    }
    let wall = t1.elapsed().as_secs_f64();
    let cpu = (uringload_sys::system::cpu_time() - cpu0).as_secs_f64();
    let gb = bytes as f64 / 1e9;
    let s = stats.snapshot();
    println!(
        "{:?} {samples} open {opened:?} first {:?} {:.0} MB/s cpu {:.4} s/GB depth mean {:.0} max {} reads {} amp {:.3} p50 {:?} p99 {:?} peak {} MiB turns {}",
        route.engine,
        first.unwrap(),
        gb * 1e3 / wall,
        cpu / gb,
        s.in_flight_mean(),
        s.in_flight_max,
        s.count.reads,
        s.read_amplification().unwrap(),
        s.read_latency.percentile(50.0).unwrap(),
        s.read_latency.percentile(99.0).unwrap(),
        uringload_sys::system::peak_memory().unwrap() >> 20,
        s.count.turns
    );
    for t in &s.threads {
        if t.role != uringload::stats::Role::Io {
            print!("{}: ", t.role);
            for d in uringload::stats::Doing::ALL {
                let x = t.on(d).as_secs_f64() / t.total().as_secs_f64();
                if x > 0.005 {
                    print!("{d} {:.1}% ", x * 100.0);
                }
            }
            println!();
        }
    }
    Ok(())
}
