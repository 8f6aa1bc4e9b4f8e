//! Connections that wait for their next request: the last one that came back goes out first, so that those that are
//! too many grow old. They are not shared over a fork, and none goes out on which something waits.

use crate::connection::{Connection, Peer};
use crate::lock::{BRIEF, lock};
use std::collections::HashMap;
use std::process;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a connection waits: servers close them after 5 s (Node), 20 s (S3) and more.
const IDLE: Duration = Duration::from_secs(10);
/// Most connections that wait for one peer.
const WAITING_MAX: usize = 512;

/// The connections that wait.
#[derive(Debug, Default)]
pub struct Pool {
    waiting: Mutex<HashMap<Peer, Vec<Waiting>>>,
}

#[derive(Debug)]
struct Waiting {
    connection: Connection,
    since: Instant,
    /// The process that it belongs to.
    pid: u32,
}

impl Pool {
    /// A connection to `peer` on which nothing waits.
    pub fn take(&self, peer: &Peer) -> Option<Connection> {
        self.take_as(peer, process::id(), Instant::now())
    }

    fn take_as(&self, peer: &Peer, pid: u32, now: Instant) -> Option<Connection> {
        // Dropped without the lock: closing takes a call each.
        let mut dropped = Vec::new();
        let mut waiting = lock(&self.waiting, BRIEF)?;
        let of_peer = waiting.get_mut(peer)?;
        let old = of_peer.iter().take_while(|waiting| now.duration_since(waiting.since) >= IDLE).count();
        dropped.extend(of_peer.drain(..old));
        let mut found = None;
        while let Some(last) = of_peer.pop() {
            if last.pid == pid && last.connection.is_quiet() {
                found = Some(last.connection);
                break;
            }
            dropped.push(last);
        }
        drop(waiting);
        drop(dropped);
        found
    }

    /// Takes a connection back whose answer was read to its end.
    pub fn give(&self, peer: &Peer, connection: Connection) {
        self.give_as(peer, connection, process::id(), Instant::now());
    }

    fn give_as(&self, peer: &Peer, mut connection: Connection, pid: u32, now: Instant) {
        connection.is_used = true;
        let mut dropped = Vec::new();
        let Some(mut waiting) = lock(&self.waiting, BRIEF) else { return };
        let waiting_here = Waiting { connection, since: now, pid };
        match waiting.get_mut(peer) {
            Some(of_peer) => {
                let old = of_peer.iter().take_while(|waiting| now.duration_since(waiting.since) >= IDLE).count();
                let many = (of_peer.len() + 1).saturating_sub(WAITING_MAX);
                dropped.extend(of_peer.drain(..old.max(many)));
                of_peer.push(waiting_here);
            }
            None => {
                waiting.insert(peer.clone(), vec![waiting_here]);
            }
        }
        drop(waiting);
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    struct Server {
        listener: TcpListener,
        peer: Peer,
    }

    impl Server {
        fn new() -> Server {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            Server { listener, peer: Peer { host: "127.0.0.1".to_owned(), port, is_secure: false } }
        }

        fn connect(&self) -> (Connection, TcpStream) {
            let mut connection = Connection::dial(self.listener.local_addr().unwrap()).unwrap();
            let accepted = self.listener.accept().unwrap().0;
            connection.begin(Duration::from_secs(5), Duration::from_secs(5)).unwrap();
            (connection, accepted)
        }
    }

    /// Waits until the kernel has delivered what the other side did.
    fn until_loud(connection: &Connection) {
        let until = Instant::now() + Duration::from_secs(10);
        while connection.is_quiet() {
            assert!(Instant::now() < until, "nothing arrives");
        }
    }

    fn name(connection: &Connection) -> std::net::SocketAddr {
        connection.socket().local_addr().unwrap()
    }

    #[test]
    fn the_last_one_goes_out_first_and_old_ones_not_at_all() {
        let (server, pool, start) = (Server::new(), Pool::default(), Instant::now());
        let (first, _one) = server.connect();
        let (second, _two) = server.connect();
        let second_name = name(&second);
        pool.give_as(&server.peer, first, 1, start);
        pool.give_as(&server.peer, second, 1, start + IDLE / 2);
        let last = pool.take_as(&server.peer, 1, start + IDLE).unwrap();
        assert_eq!((name(&last), last.is_used), (second_name, true));
        assert!(pool.take_as(&server.peer, 1, start + IDLE).is_none(), "the first is too old");
    }

    #[test]
    fn another_process_gets_none() {
        let (server, pool, now) = (Server::new(), Pool::default(), Instant::now());
        let (connection, _kept) = server.connect();
        pool.give_as(&server.peer, connection, 1, now);
        assert!(pool.take_as(&server.peer, 2, now).is_none());
    }

    #[test]
    fn what_has_something_waiting_is_dropped() {
        let (server, pool, now) = (Server::new(), Pool::default(), Instant::now());
        let (ended, other) = server.connect();
        drop(other);
        until_loud(&ended);
        pool.give_as(&server.peer, ended, 1, now);
        let (talks, mut other) = server.connect();
        other.write_all(b"HTTP/1.1 408 x\r\n\r\n").unwrap();
        until_loud(&talks);
        pool.give_as(&server.peer, talks, 1, now);
        assert!(pool.take_as(&server.peer, 1, now).is_none());
    }

    #[test]
    fn they_are_bounded() {
        let (server, pool, now) = (Server::new(), Pool::default(), Instant::now());
        let mut others = Vec::new();
        for _ in 0..20 {
            let (connection, other) = server.connect();
            others.push(other);
            pool.give_as(&server.peer, connection, 1, now);
        }
        assert_eq!(pool.waiting.lock().unwrap()[&server.peer].len(), 20);
        let later = now + IDLE;
        let (connection, _kept) = server.connect();
        pool.give_as(&server.peer, connection, 1, later);
        assert_eq!(pool.waiting.lock().unwrap()[&server.peer].len(), 1, "the old ones left");
    }
}
