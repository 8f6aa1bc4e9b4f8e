//! Worlds in which stretches of files are read whole and kept.

use super::{Grid, Joining, Keep, Reactor, Rng, SeedableRng, World, Xoshiro256PlusPlus};

impl World {
    /// Applies some of the settings below, which depend on the locations of samples.
    pub(super) fn with_locality(self) -> World {
        self.with_joining().with_stretches()
    }

    /// In one of three worlds, joins spans near each other. Other worlds stay the same.
    fn with_joining(mut self) -> World {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ 0x901e);
        let mut pick = |below: u64| random.next_u64() % below;
        if pick(3) > 0 {
            return self;
        }
        let (gap, room) = (1 << (9 + pick(8)), 1 << (10 + pick(11)));
        self.pool_bytes += room as usize + 2 * 4096;
        self.joining = Joining { gap, room, ..Joining::default() };
        self
    }

    /// In two of three worlds, reads stretches of files whole. Other worlds stay the same.
    fn with_stretches(mut self) -> World {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ 0x5743);
        let mut pick = |below: u64| random.next_u64() % below;
        if pick(3) == 0 {
            return self;
        }
        let bytes = 4096 << pick(4);
        let files = self.dataset.files();
        let grid = Grid::of_bytes(files, bytes).unwrap();
        let room = self.dataset.bytes() * pick(5) / 2;
        let keep = match pick(4) {
            0 | 1 => Keep::Share(grid.share_that_fits(files, room).0),
            2 if pick(2) == 0 => Keep::Latest(room),
            2 => Keep::Tried(room),
            _ => Keep::Small(room),
        };
        self.pool_bytes += 2 * (bytes as usize + 4 * 4096);
        self.stretches = Some((grid, keep));
        self
    }

    /// In worlds that try to read stretches, begins and ends that at any time.
    pub(super) fn turn_whole(&mut self, reactor: &mut Reactor) {
        if reactor.planner.is_whole().is_some() && self.chance(5) {
            reactor.reads.depth.turn_whole();
        }
    }
}
