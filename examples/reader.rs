//! A service that decides itself what is read when: `cargo run --release --example reader -- FILE...`.
//!
//! One task owns the [`Reader`]. Others send it what they want and await the bytes; whoever stops waiting (a client
//! that hung up, a timeout) has its read taken back. No thread of the runtime ever blocks on a disk.

use bytes::Bytes;
use std::collections::HashMap;
use std::error::Error;
use std::future::poll_fn;
use std::path::Path;
use std::task::Poll;
use tokio::sync::{mpsc, oneshot};
use uringload::dataset::{FileId, FileTable, Span};
use uringload::{Reader, ReaderOptions, Result};

/// What a client sends: where its bytes lie, and where they should go.
type Wanted = (Span, oneshot::Sender<Result<Bytes>>);

/// What a service waits for.
enum Event {
    Asked(Option<Wanted>),
    Read(u64, Result<Bytes>),
}

/// Answers what comes in until no more requests can come. Returns how many reads were taken back.
pub async fn serve(mut reader: Reader, mut wanted: mpsc::Receiver<Wanted>) -> u64 {
    let mut clients: HashMap<u64, oneshot::Sender<Result<Bytes>>> = HashMap::new();
    let (mut next_id, mut taken_back, mut is_open) = (0, 0, true);
    while is_open || reader.in_flight() > 0 {
        let event = poll_fn(|context| {
            if is_open && let Poll::Ready(asked) = wanted.poll_recv(context) {
                return Poll::Ready(Event::Asked(asked));
            }
            match reader.poll_next(context) {
                Poll::Ready(Some((id, bytes))) => Poll::Ready(Event::Read(id, bytes)),
                // Nothing is in flight: only a client can wake this task, and it is asked above.
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            }
        });
        match event.await {
            Event::Asked(None) => is_open = false,
            Event::Asked(Some((span, client))) => {
                next_id += 1;
                match reader.submit(next_id, &[span]) {
                    Ok(()) => drop(clients.insert(next_id, client)),
                    // If it cannot be sent, it is not waited for.
                    Err(error) => drop(client.send(Err(error))),
                }
            }
            Event::Read(id, bytes) => {
                if let Some(client) = clients.remove(&id) {
                    drop(client.send(bytes));
                }
            }
        }
        // Clients that have gone: here after every event, in a large service now and then.
        let gone: Vec<u64> = clients.iter().filter(|(_, client)| client.is_closed()).map(|(&id, _)| id).collect();
        for id in gone {
            clients.remove(&id);
            taken_back += u64::from(reader.cancel(id));
        }
    }
    taken_back
}

/// The first bytes of each file, all asked for at the same time.
async fn heads(reader: Reader, bytes: u64) -> Vec<Result<Bytes>> {
    let spans: Vec<Span> = (0..reader.files().len() as u32)
        .map(|file| Span { file: FileId(file), offset: 0, len: bytes.min(reader.files().size(FileId(file))) })
        .collect();
    let (ask, wanted) = mpsc::channel(64);
    let service = tokio::spawn(serve(reader, wanted));
    let mut answers = Vec::new();
    for span in spans {
        let (client, answer) = oneshot::channel();
        // The service ends only when `ask` is dropped.
        let _ = ask.send((span, client)).await;
        answers.push(answer);
    }
    let mut heads = Vec::new();
    for answer in answers {
        heads.extend(answer.await);
    }
    drop(ask);
    let _ = service.await;
    heads
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut files = FileTable::new();
    files.push_root("/");
    for path in std::env::args_os().skip(1) {
        let path = Path::new(&path).canonicalize()?;
        let name = path.strip_prefix("/")?.as_os_str().as_encoded_bytes();
        files.push(name, path.metadata()?.len()).ok_or("too many files")?;
    }
    let reader = Reader::new(files, &ReaderOptions::default())?;
    println!("{}", reader.route());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    for head in runtime.block_on(heads(reader, 64 << 10)) {
        println!("{} bytes", head?.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader() -> (tempfile::TempDir, Reader) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut files = FileTable::new();
        files.push_root(folder.path());
        for number in 0..30_u8 {
            std::fs::write(folder.path().join(number.to_string()), vec![number; 50_000]).expect("a file");
            files.push(number.to_string().as_bytes(), 50_000).expect("room");
        }
        (folder, Reader::new(files, &ReaderOptions::default()).expect("a reader"))
    }

    #[test]
    fn every_client_gets_its_bytes() {
        let (_folder, reader) = reader();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let heads = runtime.block_on(heads(reader, 10_000));
        assert_eq!(heads.len(), 30);
        for (number, head) in heads.into_iter().enumerate() {
            assert_eq!(head.expect("no error")[..], vec![number as u8; 10_000]);
        }
    }

    #[test]
    fn a_client_that_has_gone_is_not_read_for() {
        let (_folder, reader) = reader();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let taken_back = runtime.block_on(async {
            let (ask, wanted) = mpsc::channel(64);
            let span = |file| Span { file: FileId(file), offset: 0, len: 50_000 };
            let (stays, answer) = oneshot::channel();
            for file in 0..20 {
                ask.send((span(file), oneshot::channel().0)).await.expect("it serves");
            }
            ask.send((span(29), stays)).await.expect("it serves");
            let refused = oneshot::channel();
            ask.send((Span { len: 60_000, ..span(0) }, refused.0)).await.expect("it serves");
            drop(ask);
            let taken_back = serve(reader, wanted).await;
            assert_eq!(answer.await.expect("an answer").expect("no error")[..], [29; 50_000]);
            assert!(refused.1.await.expect("an answer").is_err(), "the file is shorter");
            taken_back
        });
        assert!(taken_back > 0, "all 20 had gone before they were asked for");
    }
}
