//! The server as a command: it prints its URL and runs until it is ended by a signal.
#![forbid(unsafe_code)]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::ExitCode;
use uringload_objects::{Options, Server};

fn main() -> ExitCode {
    // A connection takes two files, and the usual limit is 1024 of them.
    let most = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    let started = Options::parse(std::env::args().skip(1))
        .and_then(|options| Server::start(options).map_err(|error| error.to_string()));
    match started {
        Ok(server) => {
            println!("{}", server.url());
            server.wait();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("uringload-objects: {error}");
            ExitCode::from(2)
        }
    }
}
