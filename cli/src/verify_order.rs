//! `uringload verify-order`: proves an order, and prints what was proved.

use crate::Done;
use crate::arguments::{VerifyOrder, ordered};
use crate::data::Data;
use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::{self, Table};
use crate::progress::Doing;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::sampler::Cursor;
use uringload::{Error, ErrorKind};
use uringload_measure::text::{count, time};
use uringload_measure::verify_order::{Passed, Play, Proof, World};

/// Number of ranks, unless given.
const RANKS: u64 = 8;

/// Checks the order of one epoch.
pub fn run(options: &VerifyOrder) -> Done {
    let start = Instant::now();
    Interrupt::end_at_once();
    let order = &options.order;
    if order.rank.is_some() {
        let error = Error::new(ErrorKind::InvalidArgument, "--rank cannot be used: all ranks are played");
        return Err(Failure::Loader(error));
    }
    let data = Data::choose(&options.paths, &options.format.0, &options.chosen)?;
    let config = ordered(order);
    let sampler = data.sampler(&config, &options.chosen)?;
    let world = |ranks, batch_size| World { ranks, batch_size, drop_last: order.drop_last };
    let play = Play {
        dataset: Arc::clone(&data.dataset),
        sampler,
        repeats: options.chosen.repeats(),
        epoch: options.epoch,
        first: world(order.world_size.unwrap_or(RANKS), order.batch_size),
        second: world(options.vs, options.vs_batch_size.unwrap_or(order.batch_size)),
    };
    let doing = Doing::new("playing the epoch on all ranks", None);
    let proof = play.prove()?;
    drop(doing);
    if options.json {
        output::print(&format!("{:#}\n", play.report(&proof, start.elapsed())))?;
    } else {
        output::print_table(&table(&play, &proof, start.elapsed()), NAMES)?;
    }
    Ok(Exit::Done)
}

/// Columns of the names of rows.
const NAMES: usize = 13;

fn table(play: &Play, proof: &Proof, elapsed: Duration) -> String {
    let mut table = Table::new(NAMES);
    let len = play.sampler.len_of(play.epoch);
    let order = play.sampler.describe();
    table.row("order", format!("{}, epoch {}, {} samples", order.escape_debug(), play.epoch, count(len)));
    for (world, passed) in [(play.first, proof.first), (play.second, proof.second)] {
        let batches = if world.drop_last {
            len / (world.ranks * world.batch_size)
        } else {
            len.div_ceil(world.ranks * world.batch_size)
        };
        let mut line = format!("{} batches of up to {} on each", count(batches), count(world.batch_size));
        match (passed.left_out, passed.padding) {
            (0, 0) => {}
            (0, padding) => line += &format!("; {padding} samples come once more as padding"),
            (left_out, _) => line += &format!("; {} samples at the end are dropped, as asked", count(left_out)),
        }
        table.row(&format!("{} ranks", world.ranks), line);
    }
    let (first, second) = (play.first.ranks, play.second.ranks);
    let Passed { digest, again, .. } = proof.first;
    let once = count(digest.samples - again);
    match (again, play.dataset.len().saturating_sub(digest.samples - again)) {
        (0, 0) => table.row("samples", format!("{once} come exactly once")),
        (0, absent) => table.row("samples", format!("{once} come exactly once, {} not in this epoch", count(absent))),
        (again, absent) => {
            let line = format!("{once} come, and {} times one comes once more, as the mixture asks", count(again));
            table.row(
                "samples",
                if absent == 0 { line } else { format!("{line}; {} not in this epoch", count(absent)) },
            );
        }
    }
    table.row("global order", format!("the same for {first} and for {second} ranks"));
    match proof.stop {
        Some(Cursor { position, .. }) => {
            let stop =
                format!("{first} ranks stopped at position {}, {second} ranks went on: the same", count(position));
            table.row("resumed", stop + " order");
        }
        None => table.row("resumed", "not played: there are fewer than two batches".into()),
    }
    table.row("digest", format!("{:016x}: those of all ranks add up to the epoch's", proof.first.digest.sum));
    table.row("checked in", time(elapsed));
    table.text
}
