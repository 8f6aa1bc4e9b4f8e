//! Masks and boxes against torchvision's results for the same ones (`follow.py`).

mod common;

use common::lines;
use uringload_images::{Chain, Image, Plan, Rectangle, Scratch};

const HEIGHT: u32 = 90;
const WIDTH: u32 = 121;
const BOXES: [Rectangle; 6] = [
    [0.0, 0.0, 121.0, 90.0],
    [10.0, 5.0, 40.0, 60.0],
    [100.5, 70.25, 120.0, 89.0],
    [0.0, 0.0, 3.0, 3.0],
    [60.0, 40.0, 61.5, 80.0],
    [30.0, 30.0, 30.5, 60.0],
];

fn mask() -> Image {
    let level = |y: u32, x: u32| ((y * 5 / 7 + x * x / 11) % 19 + 1) as u8;
    let pixels = (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| level(y, x))).collect();
    Image::new(HEIGHT, WIDTH, 1, pixels).unwrap()
}

fn plan(chain: &str) -> Plan {
    let chain: Chain = chain.parse().unwrap_or_else(|error| panic!("{chain}: {error}"));
    chain.draw(1, 2, 3, HEIGHT, WIDTH).unwrap()
}

fn fnv(bytes: &[u8]) -> String {
    let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix))
}

/// The lines of one kind: chain, and its results.
fn golden(kind: &str) -> Vec<(String, Vec<String>)> {
    let of_line = |line: String| {
        let mut words = line.split('|').map(|word| word.trim().to_owned());
        (words.next().as_deref() == Some(kind)).then(|| (words.next().expect("a chain"), words.collect()))
    };
    let all: Vec<_> = lines("follow.txt").into_iter().filter_map(of_line).collect();
    assert!(all.len() >= 15, "{kind}: {}", all.len());
    all
}

#[test]
fn masks_become_what_torchvision_makes_of_them() {
    let mut wrong = Vec::new();
    for (chain, wanted) in golden("mask") {
        let made = plan(&chain).mask(&mask(), 0, &mut Scratch::default()).unwrap();
        let seen = [format!("{} {}", made.height(), made.width()), fnv(made.pixels())];
        if seen != wanted[..] {
            wrong.push(format!("{chain}: {seen:?}, not {wanted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn boxes_become_what_torchvision_makes_of_them() {
    for (chain, wanted) in golden("boxes") {
        let plan = plan(&chain);
        // As `SanitizeBoundingBoxes(min_size=1)`.
        let is_left = |edges: &Rectangle| edges[2] - edges[0] >= 1.0 && edges[3] - edges[1] >= 1.0;
        let seen: Vec<(usize, Rectangle)> = BOXES
            .iter()
            .enumerate()
            .filter_map(|(number, edges)| Some((number, plan.rectangle(*edges).filter(is_left)?)))
            .collect();
        let parsed = |word: &str| {
            let (number, edges) = word.split_once(':').expect("a number and edges");
            let edges: Vec<f32> = edges.split(',').map(|edge| edge.parse().expect("an edge")).collect();
            (number.parse::<usize>().expect("a number"), edges)
        };
        let wanted: Vec<(usize, Vec<f32>)> = wanted[0].split_whitespace().map(parsed).collect();
        assert_eq!(seen.len(), wanted.len(), "{chain}: {seen:?}, not {wanted:?}");
        for ((number, edges), (wanted_number, wanted)) in seen.iter().zip(&wanted) {
            let is_near = edges.iter().zip(wanted).all(|(edge, wanted)| (edge - wanted).abs() < 2e-3);
            assert!(number == wanted_number && is_near, "{chain}: box {number} {edges:?}, not {wanted:?}");
        }
    }
}
