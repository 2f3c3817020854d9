//! TensorBoard event files: TFRecord framing around the few protobuf fields that scalars need.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::TrainError;
use crate::files::Journal;

/// Writes scalars for TensorBoard.
#[derive(Debug)]
pub struct EventWriter {
    journal: Journal,
}

impl EventWriter {
    /// Starts a new event file in `folder` for a session that goes on after `done` steps. TensorBoard then forgets what
    /// an earlier session wrote beyond that step.
    pub fn create(folder: &Path, done: u64) -> Result<Self, TrainError> {
        std::fs::create_dir_all(folder).map_err(TrainError::file("make", folder))?;
        // TensorBoard reads the files of a folder in the order of their names, so sessions are numbered.
        let session = sessions(folder) + 1;
        let path = folder.join(format!("events.out.tfevents.{session:010}.lens"));
        let mut writer = Self { journal: Journal::open(&path, 0)? };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let mut version = Vec::new();
        put_double(&mut version, 1, now);
        put_bytes(&mut version, 3, b"brain.Event:2");
        writer.record(&version)?;
        if session > 1 {
            // SessionLog { status: START } purges events of earlier files from its step on.
            let mut log = Vec::new();
            put_varint(&mut log, 1, 1);
            let mut event = Vec::new();
            put_double(&mut event, 1, now);
            put_varint(&mut event, 2, done + 1);
            put_bytes(&mut event, 7, &log);
            writer.record(&event)?;
        }
        Ok(writer)
    }

    /// Adds one scalar, measured at `now` (seconds since 1970).
    pub fn scalar(&mut self, now: f64, tag: &str, step: u64, value: f64) -> Result<(), TrainError> {
        let mut point = Vec::new();
        put_bytes(&mut point, 1, tag.as_bytes());
        put_float(&mut point, 2, value as f32);
        let mut summary = Vec::new();
        put_bytes(&mut summary, 1, &point);
        let mut event = Vec::new();
        put_double(&mut event, 1, now);
        put_varint(&mut event, 2, step);
        put_bytes(&mut event, 5, &summary);
        self.record(&event)
    }

    fn record(&mut self, data: &[u8]) -> Result<(), TrainError> {
        let length = (data.len() as u64).to_le_bytes();
        let mut frame = Vec::with_capacity(data.len() + 16);
        frame.extend(length);
        frame.extend(masked_crc(&length).to_le_bytes());
        frame.extend(data);
        frame.extend(masked_crc(data).to_le_bytes());
        self.journal.bytes(&frame)
    }
}

/// The number of the last session that wrote into `folder`.
fn sessions(folder: &Path) -> u64 {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let numbers = names.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix("events.out.tfevents.")?.split('.').next()?.parse().ok()
    });
    numbers.max().unwrap_or(0)
}

fn put_key(out: &mut Vec<u8>, field: u32, wire: u32) {
    raw_varint(out, u64::from(field << 3 | wire));
}

fn raw_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_varint(out: &mut Vec<u8>, field: u32, value: u64) {
    put_key(out, field, 0);
    raw_varint(out, value);
}

fn put_double(out: &mut Vec<u8>, field: u32, value: f64) {
    put_key(out, field, 1);
    out.extend(value.to_le_bytes());
}

fn put_float(out: &mut Vec<u8>, field: u32, value: f32) {
    put_key(out, field, 5);
    out.extend(value.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    put_key(out, field, 2);
    raw_varint(out, value.len() as u64);
    out.extend(value);
}

/// CRC-32C (Castagnoli), rotated and offset as TFRecord asks.
fn masked_crc(data: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut crc = !0_u32;
    for &byte in data {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
        }
    }
    (!crc).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnolis() {
        // CRC-32C of "123456789" is 0xe3069283 in every catalog of checksums.
        let unmasked = masked_crc(b"123456789").wrapping_sub(0xa282_ead8).rotate_left(15);
        assert_eq!(unmasked, 0xe306_9283);
    }

    /// The events of a file, checksums verified.
    fn events(path: &Path) -> Vec<Vec<u8>> {
        let bytes = std::fs::read(path).expect("it can be read");
        let mut rest = bytes.as_slice();
        let mut events = Vec::new();
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().expect("eight bytes")) as usize;
            assert_eq!(rest[8..12], masked_crc(&rest[..8]).to_le_bytes());
            let data = &rest[12..12 + length];
            assert_eq!(rest[12 + length..16 + length], masked_crc(data).to_le_bytes());
            events.push(data.to_vec());
            rest = &rest[16 + length..];
        }
        events
    }

    #[test]
    fn records_are_framed_and_hold_the_scalar_and_its_time() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut writer = EventWriter::create(folder.path(), 0).expect("it can be made");
        writer.scalar(1.75e9, "train/loss", 300, 0.5).expect("it can be written");
        drop(writer);
        let events = events(&folder.path().join("events.out.tfevents.0000000001.lens"));
        assert_eq!(events.len(), 2);
        let scalar = &events[1];
        assert_eq!(scalar[1..9], 1.75e9_f64.to_le_bytes());
        assert_eq!(scalar[9..12], [0x10, 0xac, 0x02], "step 300 as a varint in field 2");
        assert!(scalar.windows(10).any(|window| window == b"train/loss"));
        assert!(scalar.ends_with(&0.5_f32.to_le_bytes()));
    }

    #[test]
    fn a_second_session_purges_what_lies_beyond_the_checkpoint() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        drop(EventWriter::create(folder.path(), 0).expect("it can be made"));
        drop(EventWriter::create(folder.path(), 40).expect("it can be made"));
        let events = events(&folder.path().join("events.out.tfevents.0000000002.lens"));
        // Field 2 is the first step to forget, field 7 a SessionLog with status START.
        assert_eq!(events[1][9..], [0x10, 41, 0x3a, 2, 0x08, 1]);
    }
}
