//! Lists the objects below a URL, reads each in ranges of 1 MiB, and prints its name in hexadecimal, its size and a sum
//! of its bytes: `cargo run -p uringload-remote --example objects -- s3://bucket/prefix`, with the variables that AWS's
//! tools read.

use std::io::Write;
use std::ops::ControlFlow;
use std::time::Instant;
use uringload_core::store::{Interrupt, ListOptions, Object, Store as _};
use uringload_remote::{Access, AccessOptions, Store, Url};

const RANGE_BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: objects URL")?;
    let access = Access::from_environment(AccessOptions::default(), std::env::vars_os())?;
    let store = Store::open(&Url::parse(url.as_bytes())?, &access)?;
    let start = Instant::now();
    let mut objects: Vec<Object> = Vec::new();
    let listed = store.list(store.url().key(), &ListOptions::default(), &Interrupt::new(), &mut |page| {
        objects.extend(page.objects);
        ControlFlow::Continue(())
    });
    let listed = listed.map_err(|failure| failure.into_error(&store.shown(store.url().key())))?;
    eprintln!("{listed:?} in {:?}", start.elapsed());
    let mut out = std::io::stdout().lock();
    let mut bytes = vec![0; RANGE_BYTES];
    for object in objects {
        let (mut at, mut sum) = (0, 0u64);
        while at < object.size {
            let read = store.read(&object.key, at, &mut bytes, object.version, &Interrupt::new());
            let read = read.map_err(|failure| failure.into_error(&store.shown(&object.key)))?;
            assert_eq!(read.total, Some(object.size), "the size of the listing");
            sum = bytes[..read.bytes].iter().fold(sum, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            at += read.bytes as u64;
        }
        let name: String = object.key.iter().map(|&byte| format!("{byte:02x}")).collect();
        writeln!(out, "{name} {} {sum:016x} {:?}", object.size, object.version)?;
    }
    eprintln!("notes: {:?}", store.notes());
    Ok(())
}
