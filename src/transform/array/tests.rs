//! Parts of an array whose elements are their positions.

use super::*;

/// An array whose elements are their numbers.
fn counted(shape: &[u64]) -> Vec<u8> {
    (0..shape.iter().product::<u64>() as i32).flat_map(i32::to_le_bytes).collect()
}

fn numbers(bytes: &[u8]) -> Vec<i32> {
    bytes.as_chunks().0.iter().map(|&bytes| i32::from_le_bytes(bytes)).collect()
}

fn field(shape: Option<&[u64]>) -> Field {
    let shape = shape.map_or(Shape::Ragged, |shape| Shape::Fixed(shape.to_vec()));
    Field { name: "x".into(), dtype: DType::I32, shape }
}

/// The result of `text` for an array of this shape, for the sample `id`, with the shape of the column.
fn made(text: &str, shape: &[u64], id: u64) -> (Vec<u64>, Vec<i32>) {
    let map = text.parse::<Array>().and_then(|array| array.map(&field(Some(shape)))).expect("a map");
    let Shape::Fixed(column) = map.output().shape.clone() else { panic!("not dense") };
    let mut out = vec![0; map.output().bytes() as usize];
    let arrays = Arrays { steps: text.parse().expect("steps"), stored: DType::I32 };
    let of = (&counted(shape)[..], Some(shape));
    arrays.run(of, (3, 1, SampleId(id)), (&mut out, DType::I32)).expect("an array");
    (column, numbers(&out))
}

#[test]
fn slices_are_those_of_numpy() {
    assert_eq!(made("array(slice(1:3))", &[4, 2], 0), (vec![2, 2], vec![2, 3, 4, 5]));
    assert_eq!(made("array(slice(:, -1:))", &[3, 3], 0), (vec![3, 1], vec![2, 5, 8]));
    assert_eq!(made("array(slice(-9:2, 1:99))", &[3, 3], 0), (vec![2, 2], vec![1, 2, 4, 5]));
    assert_eq!(made("array(center_crop(2))", &[2, 5], 0), (vec![2, 2], vec![1, 2, 6, 7]));
    assert_eq!(made("array(slice(:, :, 1:), center_crop(1x1))", &[1, 3, 3], 0), (vec![1, 1, 1], vec![4]));
    assert_eq!(made("array(random_flip(1, p=1))", &[2, 3], 0), (vec![2, 3], vec![2, 1, 0, 5, 4, 3]));
    assert_eq!(made("array(random_flip(0, p=1), slice(0:1))", &[3, 2], 0), (vec![1, 2], vec![4, 5]));
    assert_eq!(
        made("array(random_flip(1, 1), slice(:, 0:2), random_flip(1, 1))", &[1, 5], 0),
        (vec![1, 2], vec![3, 4])
    );
}

#[test]
fn random_parts_are_together_and_everywhere() {
    let shape = [5, 7, 6];
    let mut corners = std::collections::BTreeSet::new();
    for id in 0..600 {
        let (column, seen) = made("array(random_crop(3x4x5))", &shape, id);
        assert_eq!(column, [3, 4, 5]);
        assert_eq!(made("array(random_crop(3x4x5))", &shape, id).1, seen, "of the sample alone");
        let corner = seen[0];
        corners.insert(corner);
        for (at, &number) in seen.iter().enumerate() {
            let (z, y, x) = (at / 20, at / 5 % 4, at % 5);
            assert_eq!(number, corner + (z * 42 + y * 6 + x) as i32);
        }
    }
    assert_eq!(corners.len(), 3 * 4 * 2, "every place");
    let flips = (0..1000).filter(|&id| made("array(random_flip(0, 0.25))", &[2], id).1 == [1, 0]).count();
    assert!((190..310).contains(&flips), "{flips}");
}

#[test]
fn arrays_of_several_shapes_become_one() {
    let array: Array = "array(random_crop(2x2), random_flip(1), cast(f32))".parse().unwrap();
    let map = array.map(&field(None)).unwrap();
    assert_eq!((map.output().dtype, &map.output().shape), (DType::F32, &Shape::Fixed(vec![2, 2])));
    let arrays = Arrays { steps: array, stored: DType::I32 };
    let run = |shape: Option<&[u64]>, elements: &[u64]| {
        let mut out = vec![0; 16];
        arrays.run((&counted(elements), shape), (0, 0, SampleId(0)), (&mut out, DType::F32)).map_err(|e| e.to_string())
    };
    assert_eq!((run(Some(&[2, 3]), &[2, 3]), run(Some(&[9, 2]), &[9, 2])), (Ok(16), Ok(16)));
    for (shape, elements, words) in [
        (Some(&[1, 3][..]), &[1, 3][..], "larger than [1, 3] along axis 0"),
        (Some(&[6][..]), &[6][..], "fewer dimensions"),
        (Some(&[2, 2, 2][..]), &[2, 2, 2][..], "becomes one of [2, 2, 2]"),
        (Some(&[2, 2][..]), &[5][..], "has 20 bytes"),
        (None, &[2, 2][..], "does not know the shape"),
    ] {
        let error = run(shape, elements).expect_err(words);
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for text in [
        "",
        "array()",
        "array",
        "array(crop(3))",
        "array(random_crop(0x3))",
        "array(cast(f31))",
        "array(slice(3))",
        "array(random_flip(x))",
        "array(random_flip(0, p=2))",
        "mask(a)",
        "array(cast(f32)",
    ] {
        let error = text.parse::<Array>().expect_err(text);
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("array(random_crop")), "{error}");
    }
    for (text, shape, words) in [
        ("array(random_crop(9))", Some(&[3][..]), "larger than [3]"),
        ("array(slice(0:1, 0:1))", Some(&[3][..]), "fewer dimensions"),
        ("array(random_flip(2))", Some(&[3, 3][..]), "axis 2"),
        ("array(slice(2:2))", Some(&[3][..]), "no elements"),
        ("array(cast(f8e4m3))", Some(&[3][..]), "not cast"),
        ("array(cast(f32))", None, "differ in shape"),
        ("array(random_flip(0), random_crop(2x2))", None, "differ in shape"),
    ] {
        let error = text.parse::<Array>().expect(text).map(&field(shape)).expect_err(text);
        assert!(error.to_string().contains(words) && error.to_string().contains("\"x\""), "{error}");
    }
}

/// For any part of any array: the bytes read contain all needed ones and few others, and give the same result.
#[test]
fn what_is_needed_makes_what_all_of_it_makes() {
    let mut random = sample_rng(1, 2, SampleId(3));
    let mut pick = |end: u64| below(random.next_u64(), end);
    let (mut narrowed, mut in_rows) = (0, 0);
    for round in 0..3000 {
        let shape: Vec<u64> = (0..1 + pick(4)).map(|_| 1 + pick(12)).collect();
        let first = pick(shape.len() as u64) as usize;
        let sides: Vec<u64> = shape[first..].iter().map(|&side| 1 + pick(side)).collect();
        let mut steps = Array::default();
        for _ in 0..pick(3) {
            steps = steps.random_flip(pick(shape.len() as u64) as usize, 0.5);
        }
        steps = steps.random_crop(sides).random_flip(0, 0.5);
        let Ok(map) = steps.map(&field(Some(&shape))) else { panic!("{shape:?}") };
        let arrays = Arrays { steps, stored: DType::I32 };
        let (whole, of, least) = (counted(&shape), (5, 1, SampleId(round)), 1 + pick(300));
        let parts = arrays.needed((whole.len() as u64, &shape), of, least);
        let made = |bytes: &[u8]| {
            let mut out = vec![0; map.output().bytes() as usize];
            arrays.run((bytes, Some(&shape)), of, (&mut out, DType::I32)).map(|_| out)
        };
        let wanted = made(&whole).expect("an array");
        let (Some(head), Some(tail)) = (parts.first(), parts.last()) else { continue };
        narrowed += 1;
        in_rows += usize::from(parts.len() > 1);
        let read: u64 = parts.iter().map(|part| part.end - part.start).sum();
        let most = whole.len() as u64 * 3 / 4;
        assert!(read <= most && parts.windows(2).all(|pair| pair[0].end + least <= pair[1].start), "{parts:?}");
        // Bytes that are not read differ.
        let mut bytes = vec![0xee; whole.len()];
        for part in &parts {
            let part = part.start as usize..part.end as usize;
            bytes[part.clone()].copy_from_slice(&whole[part]);
        }
        let part = head.start as usize..tail.end as usize;
        assert!(made(&bytes[part.clone()]).expect("a part") == wanted, "{shape:?} {parts:?}");
        // Bytes before and after the needed ones are not read either, except to reach the minimum.
        let needed = numbers(&wanted).into_iter().map(|number| number as usize * 4);
        let (low, high) = (needed.clone().min().unwrap(), needed.max().unwrap() + 4);
        assert!(part.start <= low && high <= part.end, "{part:?}");
        assert!(part.len() <= 64 || (part.start, part.end) == (low, high), "{part:?} {low} {high}");
        // A part of another length is no part of it.
        assert!(part.len() < 8 || made(&bytes[part.start..part.end - 4]).is_err());
    }
    assert!(narrowed > 500 && in_rows > 300, "{narrowed} {in_rows}");
}

#[test]
fn what_saves_little_is_read_whole() {
    let needed = |text: &str, shape: &[u64], least: u64| {
        let whole = shape.iter().product::<u64>() * 4;
        let arrays = Arrays { steps: text.parse().expect("steps"), stored: DType::I32 };
        let needed = arrays.needed((whole, shape), (0, 0, SampleId(0)), least);
        needed.iter().map(|range| (range.start, range.end)).collect::<Vec<_>>()
    };
    assert_eq!(needed("array(slice(0:3))", &[4, 25], 1), [(0, 300)], "a quarter is left out");
    assert!(needed("array(slice(0:31))", &[40, 25], 1).is_empty(), "less than a quarter");
    assert!(needed("array(slice(0:2))", &[4, 25], 201).is_empty(), "less than what it costs to read it");
    // Ten rows of 400 bytes with 3600 between them, in each of two blocks of 80 000 bytes.
    let rows: Vec<_> = (0..20).map(|row| row / 10 * 80_000 + row % 10 * 4000).map(|at| (at, at + 400)).collect();
    assert_eq!(needed("array(slice(0:2, 0:10, 0:100))", &[4, 20, 1000], 3600), rows);
    assert_eq!(
        needed("array(slice(0:2, 0:10, 0:100))", &[4, 20, 1000], 3601),
        [(0, 36_400), (80_000, 116_400)],
        "gaps are read along where they cost less than reads"
    );
    assert_eq!(needed("array(slice(0:2, 0:10, 0:100))", &[4, 20, 1000], 50_000), [(0, 116_400)]);
    assert_eq!(needed("array(slice(0:1))", &[1000], 1), [(0, 64)], "no value is as short as a label");
    assert_eq!(needed("array(slice(-1:))", &[1000], 1), [(3936, 4000)]);
    let ragged = Arrays { steps: Array::default().random_crop([2, 2]), stored: DType::I32 };
    let of = (0, 0, SampleId(0));
    assert!(ragged.needed((400, &[1, 100]), of, 1).is_empty(), "an error once it was read");
    assert!(ragged.needed((401, &[10, 10]), of, 1).is_empty(), "and so is another length");
}
