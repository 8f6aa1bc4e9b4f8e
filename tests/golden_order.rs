//! Orders, generators and fingerprints, frozen: a checkpoint stays valid in every later version.
//!
//! The numbers come from an implementation in another language, written from the documentation of `sampler` and of
//! `fingerprint`, and agree with this one.
//!
//! If one of these fails, the change breaks every checkpoint that users have. Do not update the numbers.

use rand_xoshiro::rand_core::Rng;
use uringload::dataset::{Dataset, FileTable, Folder, RecordOptions, Records, SampleId};
use uringload::sampler::{Cursor, Sampler, Shuffled, sample_rng};

#[test]
fn orders() {
    for (len, seed, epoch, first) in ORDERS {
        let sampler = Shuffled::new(*len, *seed);
        let ids: Vec<u64> = (0..16.min(*len)).map(|position| sampler.at(Cursor::new(*epoch, position)).0).collect();
        assert_eq!(ids, *first, "the first of {len} samples, seed {seed}, epoch {epoch}");
    }
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
    assert_eq!(Folder::from_files(files.clone()).fingerprint(), FOLDER);
    let options = RecordOptions { record_bytes: 16, header_bytes: 48, ..Default::default() };
    assert_eq!(Records::from_files(files, &options).unwrap().fingerprint(), RECORDS);
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
