//! A simulated world and its turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::gateway::{GatewayError, Handle};
use super::host::{Host, Session, Shared};
use super::simulator::{Loaded, Simulator};

/// A simulated world. It lives as long as its host; when the host dies, its history can be played again in another.
#[derive(Debug)]
pub struct World {
    host: Arc<Host>,
    serial: u64,
    interface: Handle,
    loaded: Option<Loaded>,
    shared: Option<Shared>,
}

impl World {
    /// Makes an empty world; load a task before anything else.
    pub fn new(host: Arc<Host>) -> Result<Self, GatewayError> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let interface = host.interface()?;
        host.world_came();
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        Ok(Self { host, serial, interface, loaded: None, shared: None })
    }

    /// Where it lives.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// The shared state as this world's last turn left it; `None` before the first.
    pub fn shared(&self) -> Option<Shared> {
        self.shared
    }

    /// Makes the next turn begin with this shared state instead of the one the last turn left.
    pub fn set_shared(&mut self, shared: Shared) -> Result<(), GatewayError> {
        self.shared = Some(shared);
        let mut session = self.host.session()?;
        if session.in_charge == Some(self.serial) {
            session.in_charge = None;
        }
        Ok(())
    }

    /// Acts in this world, as the only one in its host while it lasts. After a fatal error the host is dead.
    pub fn turn<T>(
        &mut self,
        work: impl FnOnce(&mut Simulator<'_>) -> Result<T, GatewayError>,
    ) -> Result<T, GatewayError> {
        let host = Arc::clone(&self.host);
        let mut session = host.session()?;
        let outcome = host.clear_up(&mut session).and_then(|()| self.take_turn(&mut session, work));
        host.note(&outcome);
        outcome
    }

    fn take_turn<T>(
        &mut self,
        session: &mut Session,
        work: impl FnOnce(&mut Simulator<'_>) -> Result<T, GatewayError>,
    ) -> Result<T, GatewayError> {
        if session.in_charge != Some(self.serial) {
            session.in_charge = None;
            let simplifications =
                self.loaded.as_ref().map(|loaded| loaded.simplifications.as_str());
            session.set_simplifications(simplifications.unwrap_or_default())?;
            if let Some(shared) = self.shared {
                session.set_shared(shared)?;
            }
            session.in_charge = Some(self.serial);
        }
        let loads = self.loaded.as_ref().map(|loaded| loaded.serial);
        let mut simulator =
            Simulator::new(&mut session.connection, &self.interface, &mut self.loaded);
        let outcome = work(&mut simulator);
        if let Some(loaded) = &self.loaded
            && Some(loaded.serial) != loads
        {
            self.host.task_loaded();
            session.simplifications.clone_from(&loaded.simplifications);
        }
        if !outcome.as_ref().is_err_and(GatewayError::is_fatal) {
            self.shared = Some(session.shared()?);
        }
        outcome
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let handles = self.loaded.take().into_iter().flat_map(Loaded::into_handles);
        self.host.inherit(self.interface.clone(), handles);
        self.host.world_went();
    }
}
