//! Virtual machines kept ready for worlds, replaced when they fail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::host::{Failure, Host};
use super::java::Java;
use super::jvm::{Death, JvmLimits};
use super::package::Package;
use super::world::World;
use crate::EnvError;

/// How long a machine that closed its connection is given to finish dying, so that its last words can be read.
const EXIT_GRACE: Duration = Duration::from_secs(2);

/// What the pool may use and when it loses patience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLimits {
    /// How many virtual machines. Each carries out one action at a time, so this bounds the processors used.
    pub hosts: usize,
    /// Each one's heap, in MiB. A machine that runs out of memory is replaced by one with twice the heap, up to
    /// four times.
    pub heap_mib: usize,
    /// A machine whose resident memory is larger than this, in MiB, gets no new worlds and ends with its last one.
    pub resident_mib: u64,
    /// The same after this many tasks, whatever its size.
    pub loads: usize,
    /// How long a machine may take to start.
    pub start: Duration,
    /// How long one call may take before a machine that is not working counts as hung; one that works gets up to ten
    /// times as long.
    pub call: Duration,
}

impl Default for PoolLimits {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            hosts: processors.min(8),
            heap_mib: 256,
            resident_mib: 1024,
            loads: 5000,
            start: Duration::from_mins(2),
            call: Duration::from_mins(1),
        }
    }
}

/// What went wrong so far, and was mended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Incidents {
    /// Machines that exited or were killed.
    pub died: usize,
    /// Machines that did not answer in time and were killed.
    pub hung: usize,
    /// Machines that ran out of memory.
    pub out_of_memory: usize,
    /// Machines that answered nonsense and were killed.
    pub garbled: usize,
    /// Machines that were let go because they had grown too large or too old.
    pub retired: usize,
}

impl Incidents {
    /// All failures; a machine that was retired did not fail.
    pub fn failures(&self) -> usize {
        self.died + self.hung + self.out_of_memory + self.garbled
    }
}

/// The machines.
#[derive(Debug)]
pub struct Pool {
    java: Java,
    package: Package,
    limits: PoolLimits,
    slots: Vec<Slot>,
    incidents: Mutex<Incidents>,
}

/// A place for one machine, whichever it is at the moment.
#[derive(Debug)]
struct Slot {
    host: Mutex<Option<Arc<Host>>>,
    /// Worlds that live here or are about to.
    seats: AtomicUsize,
    heap_mib: AtomicUsize,
}

/// A world and the place it takes in the pool.
#[derive(Debug)]
pub struct Seat {
    world: World,
    // After the world, which must be gone before its place counts as free.
    _place: Place,
}

#[derive(Debug)]
struct Place {
    pool: Arc<Pool>,
    slot: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool.slots[self.slot].seats.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Seat {
    /// The world.
    pub fn world(&mut self) -> &mut World {
        &mut self.world
    }

    /// The machine it lives in.
    pub fn host(&self) -> &Arc<Host> {
        self.world.host()
    }
}

impl Pool {
    /// A pool whose machines start when they are first needed, or by [`Pool::warm`].
    pub fn new(java: Java, package: Package, limits: PoolLimits) -> Self {
        let slot = || Slot {
            host: Mutex::new(None),
            seats: AtomicUsize::new(0),
            heap_mib: AtomicUsize::new(limits.heap_mib),
        };
        Self {
            java,
            package,
            limits,
            slots: (0..limits.hosts.max(1)).map(|_| slot()).collect(),
            incidents: Mutex::new(Incidents::default()),
        }
    }

    /// The simulator's files.
    pub fn package(&self) -> &Package {
        &self.package
    }

    /// The Java runtime.
    pub fn java(&self) -> &Java {
        &self.java
    }

    /// What the pool may use.
    pub fn limits(&self) -> PoolLimits {
        self.limits
    }

    /// What went wrong so far.
    pub fn incidents(&self) -> Incidents {
        *self.incidents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machines that run now.
    pub fn hosts(&self) -> Vec<Arc<Host>> {
        self.slots.iter().filter_map(|slot| slot.lock().clone()).collect()
    }

    /// Starts every machine in the background and loads the simulator's classes, so that the first episodes find them
    /// ready. Failures show when a world is asked for.
    pub fn warm(self: &Arc<Self>) {
        for slot in 0..self.slots.len() {
            let pool = Arc::downgrade(self);
            std::thread::spawn(move || {
                let Some(pool) = pool.upgrade() else { return };
                let Ok(host) = pool.host(slot) else { return };
                drop(pool);
                if let Ok(mut world) = World::new(host) {
                    let _ = world.turn(|simulator| {
                        simulator.load("boil", 0, "easy")?;
                        simulator.step("look around")?;
                        simulator.valid_actions()
                    });
                }
            });
        }
    }

    /// A new world, in the machine that has the fewest.
    pub fn seat(self: &Arc<Self>) -> Result<Seat, EnvError> {
        let slot = self.reserve();
        let place = Place { pool: Arc::clone(self), slot };
        let mut failures = 0;
        loop {
            let host = self.host(slot)?;
            match World::new(Arc::clone(&host)) {
                Ok(world) => return Ok(Seat { world, _place: place }),
                Err(error) => {
                    self.failed(&host);
                    failures += 1;
                    if failures == 3 {
                        return Err(EnvError::Backend {
                            backend: "ScienceWorld",
                            message: format!(
                                "the Java virtual machine failed to start three times: {error}"
                            ),
                        });
                    }
                }
            }
        }
    }

    /// Takes note that a world of `host` met a fatal error: ends the machine, counts the incident once, however many
    /// worlds met it, and frees the place for another machine.
    pub fn failed(&self, host: &Arc<Host>) {
        let slot = self.slots.iter().find(|slot| slot.holds(host));
        match slot {
            Some(slot) => {
                let mut current = slot.lock();
                if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, host)) {
                    *current = None;
                }
                self.record_failure(host, Some(slot));
            }
            // It had been retired, or another world noticed first.
            None => self.record_failure(host, None),
        }
    }

    fn record_failure(&self, host: &Host, slot: Option<&Slot>) {
        let death = match host.failure() {
            Some(Failure::Lost) => host.jvm().await_death(EXIT_GRACE),
            _ => None,
        };
        host.kill();
        if host.mark_recorded() {
            return;
        }
        let mut incidents = self.incidents.lock().unwrap_or_else(PoisonError::into_inner);
        match (host.failure(), death) {
            (_, Some(Death::OutOfMemory)) => {
                incidents.out_of_memory += 1;
                if let Some(slot) = slot {
                    slot.grow(self.limits.heap_mib);
                }
            }
            (Some(Failure::Hung), _) => incidents.hung += 1,
            (Some(Failure::Garbled), _) => incidents.garbled += 1,
            (Some(Failure::Lost) | None, _) => incidents.died += 1,
        }
    }

    fn reserve(&self) -> usize {
        // Two threads may choose the same place at once; it is a matter of balance, not of correctness.
        let fewest = (0..self.slots.len())
            .min_by_key(|slot| self.slots[*slot].seats.load(Ordering::Relaxed))
            .unwrap_or(0);
        self.slots[fewest].seats.fetch_add(1, Ordering::Relaxed);
        fewest
    }

    /// The machine of a slot, started if need be.
    fn host(&self, slot: usize) -> Result<Arc<Host>, EnvError> {
        let slot = &self.slots[slot];
        let mut current = slot.lock();
        if let Some(host) = current.as_ref() {
            if host.failure().is_some() {
                self.record_failure(host, Some(slot));
            } else if self.is_worn(host) {
                let mut incidents = self.incidents.lock().unwrap_or_else(PoisonError::into_inner);
                incidents.retired += 1;
            } else {
                return Ok(Arc::clone(host));
            }
        }
        let limits = JvmLimits {
            heap_mib: slot.heap_mib.load(Ordering::Relaxed),
            // One thread plays; another compiles and collects.
            processors: 2,
            start: self.limits.start,
            call: self.limits.call,
        };
        let host = Arc::new(Host::start(&self.java, &self.package, limits)?);
        *current = Some(Arc::clone(&host));
        Ok(host)
    }

    /// Whether a machine is fit for another task.
    pub(super) fn keeps(&self, host: &Host) -> bool {
        host.failure().is_none() && !self.is_worn(host)
    }

    fn is_worn(&self, host: &Host) -> bool {
        let resident = host.jvm().resident_bytes().unwrap_or(0);
        host.loads() >= self.limits.loads || resident > self.limits.resident_mib << 20
    }
}

impl Slot {
    fn holds(&self, host: &Arc<Host>) -> bool {
        self.lock().as_ref().is_some_and(|current| Arc::ptr_eq(current, host))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Host>>> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn grow(&self, from: usize) {
        let grown = (self.heap_mib.load(Ordering::Relaxed) * 2).min(from * 4);
        self.heap_mib.store(grown, Ordering::Relaxed);
    }
}
