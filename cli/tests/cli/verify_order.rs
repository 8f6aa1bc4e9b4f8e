//! `verify-order`: what it proves, and how it says so.

use super::*;

#[test]
fn the_order_of_all_ranks_is_proved() {
    let (_folder, dir) = files(100);
    let (out, err) = expect(&mut uringload(&format!("verify-order {dir} --shuffle --batch-size 3 --epoch 4")), 0);
    for told in [
        "shuffled, seed 0, epoch 4, 100 samples",
        "8 ranks       5 batches of up to 3 on each; 4 samples come once more as padding",
        "3 ranks       12 batches of up to 3 on each; 2 samples come once more as padding",
        "100 come exactly once",
        "the same for 8 and for 3 ranks",
        "8 ranks stopped at position 48, 3 ranks went on: the same order",
        "those of all ranks add up to the epoch's",
    ] {
        assert!(out.contains(told), "{told:?} is not in {out}{err}");
    }
    let all = format!("verify-order {dir} --drop-last --world-size 5 --vs 7 --batch-size 4 --vs-batch-size 9");
    let (out, _) = expect(&mut uringload(&all), 0);
    assert!(out.contains("7 ranks       1 batches of up to 9 on each; 37 samples at the end are dropped"), "{out}");
    let told = json(&expect(&mut uringload(&format!("{all} --json")), 0).0);
    assert_eq!(
        (&told["second"]["ranks"], &told["second"]["left_out"], &told["is_same"]),
        (&7.into(), &37.into(), &true.into())
    );
    assert_eq!((&told["samples"], &told["first"]["left_out"]), (&100.into(), &0.into()));
    // The environment has no say in what is played.
    expect(uringload(&format!("verify-order {dir}")).env("RANK", "x").env("WORLD_SIZE", "y"), 0);
}
