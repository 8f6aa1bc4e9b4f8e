//! Batches on the streams of cudarc, with whatever driver the system finds: a GPU's, or the mock of this repository
//! (`adapters/run.sh`). Without one the test says so.

use cudarc::driver::{CudaContext, DeviceSlice};
use uringload::dataset::{self, Options};
use uringload::{ErrorKind, Loader};
use uringload_cudarc::{View, device, shared};

/// SAFETY: it only looks for the library.
fn is_there() -> bool {
    // SAFETY: loading CUDA's driver runs its initialisers and nothing else of it.
    unsafe { cudarc::driver::sys::is_culib_present() }
}

#[test]
fn columns_are_read_by_streams_of_the_trainer() {
    if !is_there() {
        println!("skipped: no CUDA driver, and no mock of it");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.bin");
    let content: Vec<u8> = (0..65 * 40_u32).map(|n| (n * 7) as u8).collect();
    std::fs::write(&path, &content).expect("a file");
    let options = Options::new().format("records").set("record_fields", "label:u8, image:u8[8,8]");
    let dataset = dataset::open(&[path], &options).expect("records");

    let context = CudaContext::new(0).expect("a GPU");
    let (stream, other) = (context.new_stream().expect("a stream"), context.new_stream().expect("a stream"));
    let builder = Loader::builder(dataset).batch_size(8).epochs(3).device(device(&context));
    let mut kept = Vec::new();
    for (number, batch) in builder.build().expect("a loader").enumerate() {
        let batch = batch.expect("no error");
        batch.wait_on(shared(&stream)).expect("it waits");
        let images = View::<u8>::new(batch.column("image").expect("images"), &stream).expect("a view");
        assert_eq!(images.len(), 8 * 64);
        let wrong = View::<f32>::new(batch.column("image").expect("images"), &stream).expect_err("bytes");
        assert_eq!(wrong.kind(), ErrorKind::InvalidArgument);
        // The batch may go: the view holds its memory.
        drop(batch);
        let first = (number % 5) * 8 * 65;
        let wanted: Vec<u8> =
            content[first..first + 8 * 65].chunks(65).flat_map(|record| &record[1..]).copied().collect();
        assert_eq!(stream.clone_dtoh(&images).expect("bytes"), wanted);
        assert_eq!(other.clone_dtoh(&images).expect("bytes"), wanted);
        let mine = images.to_slice().expect("a copy");
        drop(images);
        kept.push((mine, wanted));
    }
    assert_eq!(kept.len(), 15);
    for (mine, wanted) in kept {
        assert_eq!(stream.clone_dtoh(&mine).expect("bytes"), wanted);
    }
}
