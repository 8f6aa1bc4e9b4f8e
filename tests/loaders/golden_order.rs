//! Orders, generators and fingerprints, frozen: a checkpoint stays valid in every later version.
//!
//! The numbers come from an implementation in another language, written from the documentation of `sampler` and of
//! `fingerprint`, and agree with this one.
//!
//! If one of these fails, the change breaks every checkpoint that users have. Do not update the numbers. If an order
//! must change, raise the version of its algorithm (`OrderId`), so that old states are refused.

use rand_xoshiro::rand_core::Rng;
use std::sync::Arc;
use uringload::dataset::{self, Concat, Dataset, FileTable, Options, SampleId, View};
use uringload::inspect::sample_rng;
use uringload::inspect::{Sharded, Shuffled, Windowed};
use uringload::sampler::{Cursor, Mixed, Sampler, Stopping};

#[test]
fn orders() {
    for (len, seed, epoch, first) in ORDERS {
        let sampler = Shuffled::new(*len, *seed);
        let ids: Vec<u64> = (0..16.min(*len)).map(|position| sampler.at(Cursor::new(*epoch, position)).0).collect();
        assert_eq!(ids, *first, "the first of {len} samples, seed {seed}, epoch {epoch}");
    }
}

fn ids(sampler: &dyn Sampler, epoch: u64, from: u64, count: usize) -> Vec<u64> {
    (from..sampler.len()).take(count).map(|position| sampler.at(Cursor::new(epoch, position)).0).collect()
}

#[test]
fn windows() {
    for (len, window, seed, epoch, from, some) in WINDOWS {
        let sampler = Windowed::new(*len, *window, *seed).unwrap();
        let what = format!("from {from} of {len} samples in windows of {window}, seed {seed}, epoch {epoch}");
        assert_eq!(ids(&sampler, *epoch, *from, some.len()), *some, "{what}");
    }
}

#[test]
fn shards() {
    let hundreds: Vec<u64> = (1..=200).map(|shard| shard * 100).collect();
    for (ends, mixed, seed, epoch, first) in SHARDS {
        let ends = if ends.is_empty() { &hundreds[..] } else { ends };
        let sampler = Sharded::new(ends, *mixed, *seed).unwrap();
        assert_eq!(ids(&sampler, *epoch, 0, first.len()), *first, "{ends:?} by {mixed}, seed {seed}, epoch {epoch}");
    }
    let pieces = Sharded::pieces(36869, 4, 11).unwrap();
    assert_eq!(ids(&pieces, 1, 0, 16), PIECES);
}

#[test]
fn mixtures() {
    let lens = [1000, 20, 300];
    let orders = (42..).zip(lens).map(|(seed, len)| Arc::new(Shuffled::new(len, seed)) as Arc<dyn Sampler>).collect();
    let mixed = Mixed::new(orders, &[1000, 1020, 1320], &[0.5, 0.2, 0.3], Stopping::After(100_000), 42).unwrap();
    assert_eq!(ids(&mixed, 2, 0, 16), MIXTURE);
    assert_eq!(ids(&mixed, 2, 70_000, 12), MIXTURE_FROM_70000);
}

#[test]
fn generators() {
    for (seed, epoch, id, numbers) in GENERATORS {
        let mut generator = sample_rng(*seed, *epoch, SampleId(*id));
        let drawn = [generator.next_u64(), generator.next_u64()];
        assert_eq!(drawn, *numbers, "seed {seed}, epoch {epoch}, sample {id}");
    }
}

#[test]
fn fingerprints() {
    let mut files = FileTable::new();
    files.push_root("/anywhere");
    files.push(b"a/1.bin", 128).unwrap();
    files.push(b"b/\xff\n.bin", 64).unwrap();
    let folder: Arc<dyn Dataset> =
        dataset::inspect::of_files(files.clone(), &Options::new().set("labels", false)).unwrap();
    assert_eq!(folder.fingerprint(), FOLDER);
    let options = Options::new().format("records").set("record_bytes", 16).set("header_bytes", 48);
    let records: Arc<dyn Dataset> = dataset::inspect::of_files(files, &options).unwrap();
    assert_eq!(records.fingerprint(), RECORDS);

    let records = || Arc::clone(&records);
    assert_eq!(Concat::new(vec![folder, records()]).unwrap().fingerprint(), CONCAT);
    assert_eq!(View::of(records(), vec![5, 0, 0]).unwrap().fingerprint(), SUBSET_LIST);
    assert_eq!(View::range(records(), 1..4).unwrap().fingerprint(), SUBSET_RANGE);
    assert_eq!(View::without(records(), vec![4, 1]).unwrap().fingerprint(), SUBSET_WITHOUT);
    assert_eq!(View::repeat(records(), 3).unwrap().fingerprint(), REPEAT);
}

/// Length, seed, epoch, and the first samples.
const ORDERS: &[(u64, u64, u64, &[u64])] = &[
    (1, 0, 0, &[0]),
    (2, 0, 0, &[0, 1]),
    (5, 42, 0, &[4, 2, 0, 3, 1]),
    (10, 42, 0, &[1, 8, 9, 6, 4, 3, 5, 2, 7, 0]),
    (10, 42, 1, &[3, 0, 4, 5, 9, 7, 1, 2, 8, 6]),
    (10, 43, 0, &[1, 0, 2, 5, 6, 9, 7, 8, 4, 3]),
    (128, 7, 2, &[44, 3, 57, 127, 114, 77, 8, 15, 71, 25, 113, 73, 61, 2, 107, 99]),
    (129, 7, 2, &[124, 23, 95, 92, 83, 39, 42, 21, 76, 81, 115, 0, 17, 113, 98, 96]),
    (1000, 0, 0, &[894, 0, 167, 743, 153, 129, 343, 535, 844, 609, 508, 691, 100, 558, 451, 281]),
    (
        20000,
        42,
        0,
        &[16453, 11767, 1727, 8287, 12169, 14103, 16586, 14089, 14632, 226, 15673, 15318, 19288, 17647, 8727, 1275],
    ),
    (
        20000,
        42,
        1,
        &[10217, 3011, 3629, 13787, 5933, 3420, 10501, 17713, 13800, 13293, 11303, 13612, 16089, 17496, 15998, 3548],
    ),
    (
        65537,
        1,
        0,
        &[6908, 7979, 7844, 48269, 15650, 27378, 11670, 13569, 4562, 41105, 29919, 31538, 38556, 58952, 12109, 55305],
    ),
    (
        1281167,
        42,
        0,
        &[
            295200, 464214, 894558, 392502, 698976, 565648, 1248956, 539286, 322874, 217127, 489105, 1071112, 588361,
            120955, 310328, 1006374,
        ],
    ),
    (
        1281167,
        42,
        89,
        &[
            819256, 113824, 163993, 424684, 1191586, 31059, 125552, 820328, 147814, 1035352, 319128, 63052, 498054,
            1062714, 903153, 682586,
        ],
    ),
    (
        4294967296,
        3,
        1,
        &[
            2042108800, 4154229561, 3179389101, 1591137889, 1015413509, 1970774062, 3177804502, 2793949982, 989513577,
            471954805, 1938126963, 1660384549, 642574759, 2883793520, 1721734476, 1148468998,
        ],
    ),
    (
        1099511627777,
        18446744073709551615,
        18446744073709551615,
        &[
            554819511131,
            771869767949,
            78278825165,
            824784261209,
            1093853881823,
            828300086809,
            188142502564,
            343829406127,
            990305952437,
            1067897238500,
            182774488663,
            18571866966,
            64248741632,
            533995606926,
            86343365978,
            781453278525,
        ],
    ),
];

/// Length, window, seed, epoch, position, and the samples from there on.
#[expect(clippy::type_complexity, reason = "a row of a table")]
const WINDOWS: &[(u64, u64, u64, u64, u64, &[u64])] = &[
    (10, 3, 42, 0, 0, &[0, 1, 2, 3, 6, 4, 5, 8, 9, 7]),
    (1000, 64, 42, 0, 500, &[516, 493, 515, 477, 508, 489, 523, 491, 524, 478, 518, 509]),
    (1000, 64, 42, 1, 500, &[505, 531, 528, 517, 484, 493, 506, 503, 481, 509, 532, 490]),
    (
        1281167,
        8192,
        7,
        3,
        640000,
        &[635083, 640130, 636509, 639473, 638418, 633925, 637042, 638143, 638470, 640236, 636059, 635541],
    ),
    (
        1099511627776,
        100000,
        1,
        2,
        549755813888,
        &[
            549755795359,
            549755891826,
            549755815482,
            549755879129,
            549755820088,
            549755804748,
            549755795775,
            549755834314,
            549755830059,
            549755817615,
            549755799226,
            549755848273,
        ],
    ),
];

/// Ends of shards (none: 200 shards of 100 samples), how many are mixed, seed, epoch, and the first samples.
#[expect(clippy::type_complexity, reason = "a row of a table")]
const SHARDS: &[(&[u64], u64, u64, u64, &[u64])] = &[
    (&[4, 4, 9, 12], 2, 42, 0, &[10, 9, 11, 6, 3, 4, 5, 7, 2, 0, 8, 1]),
    (&[4, 4, 9, 12], 2, 42, 1, &[3, 0, 2, 1, 11, 5, 10, 6, 8, 7, 4, 9]),
    (
        &[],
        16,
        3,
        5,
        &[18742, 172, 5548, 18707, 18783, 11124, 3171, 3155, 143, 1619, 5502, 16113, 2239, 3153, 18750, 7905],
    ),
];

/// The first of 36869 samples without shards, 4 pieces mixed, seed 11, epoch 1.
const PIECES: [u64; 16] =
    [29783, 25286, 32337, 1086, 959, 31605, 24816, 26536, 27643, 26665, 1858, 27723, 31512, 25980, 28533, 2592];

const MIXTURE: [u64; 16] = [1102, 942, 102, 311, 115, 869, 1001, 758, 273, 1018, 1002, 432, 80, 1074, 1007, 1012];
const MIXTURE_FROM_70000: [u64; 12] = [929, 651, 105, 531, 748, 82, 1002, 1024, 1017, 741, 1316, 1274];

/// Seed, epoch, sample, and the first two numbers.
const GENERATORS: &[(u64, u64, u64, [u64; 2])] = &[
    (0, 0, 0, [0x8003d5cef36d0c0b, 0x768e49977eafa0ff]),
    (42, 0, 0, [0x5e70cc982a53908e, 0x85a0d458bef0445c]),
    (42, 0, 1, [0x6f87e57e3e4678a7, 0x85baae55660eeab1]),
    (42, 1, 0, [0x85a2bca26fd519b2, 0xfc7da80a02f8ab20]),
    (0, 42, 0, [0x0289376423bef963, 0x7fb7d106aee7fb9b]),
    (18446744073709551615, 18446744073709551615, 18446744073709551615, [0x3d60c8be99ffe2cf, 0x638fc4185c7e5c94]),
];

const FOLDER: u64 = 0x5118b3e0e0052d1f;
const RECORDS: u64 = 0x7162f6ab96062e5e;
const CONCAT: u64 = 0xd92b7b5000ca461e;
const SUBSET_LIST: u64 = 0x362a12b431df045;
const SUBSET_RANGE: u64 = 0x70833db80cbaeabf;
const SUBSET_WITHOUT: u64 = 0x7a6ccb7b1842f910;
const REPEAT: u64 = 0x746a4129516d69f3;
