//! The part of a game that changes.

use super::bits::Rows;

/// Rows of [`State::marks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Mark {
    Clean,
    Hot,
    Cool,
    Sliced,
    /// Switched on once; never taken back.
    Toggled,
}

impl Mark {
    const COUNT: usize = 5;
}

/// Where everything is and what has been done to it. Cloning one is a handful of small copies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The place the agent stands at; `None` in the middle of the room, where it starts.
    pub(crate) place: Option<u16>,
    /// The object in the agent's hand.
    pub(crate) held: Option<u16>,
    /// For each receptacle, the objects in it.
    pub(crate) inside: Rows,
    /// For each receptacle, the objects that were taken out of it and not put back; `look` needs it.
    pub(crate) removed: Rows,
    /// For each place, the objects that are there.
    pub(crate) around: Rows,
    /// What has been done to the objects, one row per [`Mark`].
    pub(crate) marks: Rows,
    /// The receptacles that have been opened.
    pub(crate) opened: Rows,
}

impl State {
    pub(crate) fn new(receptacles: usize, objects: usize, places: usize) -> Self {
        Self {
            place: None,
            held: None,
            inside: Rows::new(receptacles, objects),
            removed: Rows::new(receptacles, objects),
            around: Rows::new(places, objects),
            marks: Rows::new(Mark::COUNT, objects),
            opened: Rows::new(1, receptacles),
        }
    }

    pub(crate) fn is(&self, mark: Mark, object: u16) -> bool {
        self.marks.has(mark as usize, object as usize)
    }

    pub(crate) fn mark(&mut self, mark: Mark, object: u16, value: bool) {
        self.marks.set(mark as usize, object as usize, value);
    }

    /// The heap bytes it holds.
    pub fn heap_bytes(&self) -> usize {
        [&self.inside, &self.removed, &self.around, &self.marks, &self.opened]
            .iter()
            .map(|rows| rows.heap_bytes())
            .sum()
    }
}
