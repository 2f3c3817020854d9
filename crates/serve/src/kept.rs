//! Sessions that outlive their sockets: made and ended by `POST /mcp`, played through `/ws?session_id=ID`.
//!
//! A socket on plain `/ws` owns its session and takes it down. A kept session waits for the next socket instead, so that a
//! client can resume an episode after its connection broke; one that nobody uses for long is dropped.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::catalog::{Catalog, Place};
use crate::session::Session;

/// The kept sessions of a server.
#[derive(Default)]
pub(crate) struct Kept(Mutex<HashMap<String, Entry>>);

struct Entry {
    /// Counts the session among the server's, also while no socket is attached.
    _place: Place,
    /// `None` while a socket plays it.
    session: Option<Session>,
    /// Whether it ends when its socket goes.
    closing: bool,
    used: Instant,
}

/// A name that cannot be guessed from others.
pub(crate) fn new_id() -> String {
    // Every state is keyed at random.
    let part = |number: u8| RandomState::new().hash_one(number);
    format!("{:016x}{:016x}", part(0), part(1))
}

impl Kept {
    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what no socket has used for so long.
    pub(crate) fn sweep(&self, idle: Duration) {
        self.entries().retain(|_, entry| entry.session.is_none() || entry.used.elapsed() < idle);
    }

    /// Makes a session; the error is how many there are already.
    pub(crate) fn create(&self, catalog: &Arc<Catalog>, most: usize) -> Result<String, usize> {
        let place = catalog.enter(most)?;
        let id = new_id();
        let session = Some(Session::new(Arc::clone(catalog), id.clone()));
        let entry = Entry { _place: place, session, closing: false, used: Instant::now() };
        self.entries().insert(id.clone(), entry);
        Ok(id)
    }

    pub(crate) fn knows(&self, id: &str) -> bool {
        self.entries().contains_key(id)
    }

    /// Takes a session for a socket; the error is what the client is told.
    pub(crate) fn attach(&self, id: &str) -> Result<Session, String> {
        let mut entries = self.entries();
        let entry = entries.get_mut(id).ok_or_else(|| format!("Unknown session_id: {id}"))?;
        let taken = entry.session.take();
        taken.ok_or_else(|| format!("Session {id} already has an attached WebSocket"))
    }

    /// Gives a session back; `None` means that it was lost.
    pub(crate) fn detach(&self, id: &str, session: Option<Session>) {
        let mut entries = self.entries();
        let ends = session.is_none() || entries.get(id).is_some_and(|entry| entry.closing);
        if ends {
            entries.remove(id);
        } else if let Some(entry) = entries.get_mut(id) {
            (entry.session, entry.used) = (session, Instant::now());
        }
    }

    /// Ends a session, at once or when its socket goes; whether it is over, `None` where there is no such session.
    pub(crate) fn close(&self, id: &str) -> Option<bool> {
        let mut entries = self.entries();
        let entry = entries.get_mut(id)?;
        entry.closing = true;
        let over = entry.session.is_some();
        if over {
            entries.remove(id);
        }
        Some(over)
    }
}
