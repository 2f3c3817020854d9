//! `lens env serve`: an environment as an OpenEnv server.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lens_serve::{ServeError, ServeOptions, Server};

use super::source::Source;
use crate::failure::Failure;
use crate::interrupt::stop_flag_saying;

/// Serve an environment by OpenEnv's protocol, for trainers in other languages.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    source: Source,
    /// Where to listen. Addresses that other machines reach need --token-variable.
    #[arg(long, default_value = "127.0.0.1:8000")]
    address: SocketAddr,
    /// The environment variable with the token that clients have to show.
    #[arg(long, value_name = "NAME")]
    token_variable: Option<String>,
    /// The most sessions at a time.
    #[arg(long, value_name = "N", default_value_t = 512)]
    max_sessions: usize,
    /// Close sessions that are not used for so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    idle: u64,
    /// End episodes after so many turns; clients count by default.
    #[arg(long, value_name = "TURNS")]
    turn_limit: Option<usize>,
}

impl Serve {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let token = match &self.token_variable {
            None => None,
            Some(name) => Some(std::env::var(name).map_err(|_| {
                Failure::user(format!("--token-variable: the variable {name} is not set"))
            })?),
        };
        let options = ServeOptions {
            address: self.address,
            max_sessions: self.max_sessions,
            idle: Duration::from_secs(self.idle.max(1)),
            token,
            turn_limit: self.turn_limit,
            ..ServeOptions::default()
        };
        let stop = stop_flag_saying("sessions are closed first");
        let server = Server::start(self.source.open()?, &options).map_err(|error| match error {
            ServeError::Threads(_) => Failure::Runtime(error.into()),
            _ => Failure::User(error.into()),
        })?;
        writeln!(out, "{} at http://{} (Ctrl-C ends it)", self.source.benchmark, server.address())?;
        writeln!(out, "play it in a browser, or connect any OpenEnv client to this address")?;
        out.flush()?;
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(100));
        }
        writeln!(out, "stopped with {} sessions open", server.sessions())?;
        Ok(())
    }
}
