//! Weights on their way from the worker to the student's servers: through a folder, or straight into their memory.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::check::Finding;
use super::dialect::Member;
use super::served::Served;
use super::worker::Worker;
use crate::deadline::Deadline;
use crate::error::EngineError;
use crate::http::Endpoint;

/// The name of the group that the worker forms with its servers.
const GROUP: &str = "lens";

/// How weights get to the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transfer {
    /// The worker writes a folder, and the servers load it.
    #[default]
    Disk,
    /// The worker sends tensors over NCCL, and the servers receive them.
    Nccl,
}

/// A group of the worker and its servers, and what travels within it, in this order.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Group {
    /// "nccl"; "gloo" from a worker on the CPU.
    pub(super) backend: String,
    /// What a server must be told to join.
    pub(super) rendezvous: serde_json::Map<String, Value>,
    /// The type of every tensor, as torch calls it.
    pub(super) dtype: String,
    pub(super) names: Vec<String>,
    pub(super) shapes: Vec<Vec<u64>>,
}

impl Group {
    /// The tensors, cut into pieces of at most `limit` bytes, one tensor at least.
    pub(super) fn pieces(&self, limit: u64) -> Vec<std::ops::Range<usize>> {
        let item = if self.dtype == "float32" { 4 } else { 2 };
        let (mut pieces, mut start, mut bytes) = (Vec::new(), 0, 0);
        for (index, shape) in self.shapes.iter().enumerate() {
            let size = item * shape.iter().product::<u64>();
            if index > start && bytes + size > limit {
                pieces.push(start..index);
                (start, bytes) = (index, 0);
            }
            bytes += size;
        }
        pieces.push(start..self.names.len());
        pieces
    }
}

impl Served {
    /// How many processes of each server will be members of the worker's group; an error if a server cannot join.
    pub(super) fn member_counts(&self, limit: Duration) -> Result<Vec<u64>, EngineError> {
        self.each(|_, endpoint| self.kind().member_count(endpoint, Deadline::after(limit)))
    }

    /// Makes every server a member of the worker's group.
    fn join(&self, members: &[Member], limit: Duration) -> Result<(), EngineError> {
        let join = |index: usize, endpoint: &Endpoint| {
            self.kind().join(endpoint, &members[index], Deadline::after(limit))
        };
        self.each(join).map(|_| ())
    }

    /// Makes every server ready to receive weights that will be called `label`.
    fn prepare(&self, label: &str, limit: Duration) -> Result<(), EngineError> {
        let prepare =
            |_, endpoint: &Endpoint| self.kind().prepare(endpoint, label, Deadline::after(limit));
        self.each(prepare).map(|_| ())
    }

    /// Makes every server receive what the worker sends meanwhile.
    fn receive(&self, group: &Group, label: &str, limit: Duration) -> Result<(), EngineError> {
        let receive = |_, endpoint: &Endpoint| {
            self.kind().receive(endpoint, group, label, Deadline::after(limit))
        };
        self.each(receive).map(|_| ())
    }

    /// Makes every server go on with what it received, and reads its label back.
    fn finish(&self, label: &str, limit: Duration) -> Result<(), EngineError> {
        let finish =
            |_, endpoint: &Endpoint| self.kind().finish(endpoint, label, Deadline::after(limit));
        self.each(finish).map(|_| ())
    }
}

/// Makes the worker and all servers one group.
pub(super) fn join(
    worker: &Arc<Worker>,
    students: &Arc<Served>,
    limit: Duration,
) -> Result<Arc<Group>, EngineError> {
    const OPEN: &str = "/v1/open_transfer";
    let counts = students.member_counts(limit)?;
    let world_size = 1 + counts.iter().sum::<u64>();
    let wanted = json!({
        "rendezvous": students.kind().rendezvous(), "world_size": world_size, "group": GROUP, "address": worker.host(),
    });
    let group: Group = serde_json::from_value(worker.command(OPEN, &wanted)?)
        .map_err(|_| worker.lacks(OPEN, "rendezvous"))?;
    if group.names.is_empty() || group.names.len() != group.shapes.len() {
        return Err(worker.lacks(OPEN, "names"));
    }
    let group = Arc::new(group);
    let mut next = 1;
    let members = counts.into_iter().map(|count| {
        let rank_offset = next;
        next += count;
        Member { group: group.clone(), rank_offset, world_size }
    });
    let members: Vec<Member> = members.collect();
    let (worker, students) = (worker.clone(), students.clone());
    together(
        move || worker.command_once("/v1/join_transfer", &json!({})),
        move || students.join(&members, limit),
    )?;
    Ok(group)
}

/// What is sent, and under which name.
#[derive(Debug, Clone)]
pub(super) struct Shipment {
    /// The version the worker must be at.
    pub(super) version: u64,
    /// What the servers call it.
    pub(super) label: String,
    /// Whether the worker keeps a copy.
    pub(super) keep: bool,
}

/// Sends the worker's weights to every server.
pub(super) fn send(
    worker: &Arc<Worker>,
    students: &Arc<Served>,
    group: &Arc<Group>,
    shipment: &Shipment,
    limit: Duration,
) -> Result<(), EngineError> {
    let Shipment { version, label, keep } = shipment;
    students.prepare(label, limit)?;
    let answer = {
        let (worker, students) = (worker.clone(), students.clone());
        let (group, label) = (group.clone(), label.clone());
        let wanted = json!({"version": version, "keep": keep});
        together(
            move || worker.command_once("/v1/transfer", &wanted),
            move || students.receive(&group, &label, limit),
        )?
    };
    worker.check_version(*version, answer.get("version").and_then(Value::as_u64))?;
    students.finish(label, limit)
}

/// Lets the worker send its weights to the servers once, as every publication will.
pub fn check_transfer(worker: Worker, students: &Arc<Served>, limit: Duration) -> Finding {
    let worker = Arc::new(worker);
    let attempt = || {
        let version = worker.info()?.version;
        let group = join(&worker, students, limit)?;
        let shipment = Shipment { version, label: "check".to_owned(), keep: false };
        send(&worker, students, &group, &shipment, limit)?;
        Ok(format!("{} tensors sent over {} and read back", group.names.len(), group.backend))
    };
    let result = attempt().map_err(|error: EngineError| error.to_string());
    Finding { what: "publish over NCCL", result }
}

/// Both sides at once. The first error ends the wait: it is why the other side waits, which gives up in its own time.
fn together(
    worker: impl FnOnce() -> Result<Value, EngineError> + Send + 'static,
    servers: impl FnOnce() -> Result<(), EngineError> + Send + 'static,
) -> Result<Value, EngineError> {
    let (from_worker, answers) = mpsc::channel();
    let from_servers = from_worker.clone();
    std::thread::spawn(move || from_worker.send(worker().map(Some)));
    std::thread::spawn(move || from_servers.send(servers().map(|()| None)));
    let mut found = None;
    for answer in answers {
        found = answer?.or(found);
    }
    found.ok_or_else(|| {
        EngineError::Request("the worker's side of a transfer ended early".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::*;

    #[test]
    fn tensors_are_cut_into_pieces_that_fit() {
        let group = Group {
            backend: "nccl".to_owned(),
            rendezvous: serde_json::Map::new(),
            dtype: "bfloat16".to_owned(),
            names: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
            shapes: vec![vec![2, 5], vec![10], vec![100], vec![1]],
        };
        assert_eq!(group.pieces(40), [0..2, 2..3, 3..4]);
        assert_eq!(group.pieces(u64::MAX), std::slice::from_ref(&(0..4)));
        let wide = Group { dtype: "float32".to_owned(), ..group };
        assert_eq!(wide.pieces(40), [0..1, 1..2, 2..3, 3..4]);
    }

    #[test]
    fn an_error_of_one_side_is_told_while_the_other_still_waits() {
        let began = Instant::now();
        let waiting = || {
            std::thread::sleep(Duration::from_secs(30));
            Ok(json!({}))
        };
        let refused = || Err(EngineError::Request("the flag is missing".to_owned()));
        let error = together(waiting, refused).expect_err("refused").to_string();
        assert!(error.contains("the flag is missing"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(20));
        let found = together(|| Ok(json!(7)), || Ok(())).expect("both are done");
        assert_eq!(found, json!(7));
    }
}
