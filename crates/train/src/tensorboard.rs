//! TensorBoard event files: TFRecord framing around the few protobuf fields that scalars need.

use std::path::Path;

use crate::error::TrainError;
use crate::files::Journal;

/// Writes scalars for TensorBoard.
#[derive(Debug)]
pub struct EventWriter {
    journal: Journal,
}

impl EventWriter {
    /// Starts a new event file in `folder` for an attempt that continues after `resumed_at` steps; TensorBoard then
    /// forgets what an earlier attempt wrote beyond that step. Times are step numbers, so that files do not depend on
    /// the clock.
    pub fn create(folder: &Path, attempt: u64, resumed_at: u64) -> Result<Self, TrainError> {
        std::fs::create_dir_all(folder).map_err(TrainError::file("make", folder))?;
        let path = folder.join(format!("events.out.tfevents.{attempt:010}.lens"));
        let mut writer = Self { journal: Journal::open(&path, 0)? };
        let mut version = Vec::new();
        put_double(&mut version, 1, 0.0);
        put_bytes(&mut version, 3, b"brain.Event:2");
        writer.record(&version)?;
        if resumed_at > 0 {
            // SessionLog { status: START } at a step purges later events of earlier files.
            let mut log = Vec::new();
            put_varint(&mut log, 1, 1);
            let mut event = Vec::new();
            put_double(&mut event, 1, resumed_at as f64);
            put_varint(&mut event, 2, resumed_at);
            put_bytes(&mut event, 7, &log);
            writer.record(&event)?;
        }
        Ok(writer)
    }

    /// Adds one scalar.
    pub fn scalar(&mut self, tag: &str, step: u64, value: f64) -> Result<(), TrainError> {
        let mut point = Vec::new();
        put_bytes(&mut point, 1, tag.as_bytes());
        put_float(&mut point, 2, value as f32);
        let mut summary = Vec::new();
        put_bytes(&mut summary, 1, &point);
        let mut event = Vec::new();
        put_double(&mut event, 1, step as f64);
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
        // CRC-32C of "123456789" is 0xe3069283 in every catalogue of checksums.
        let unmasked = masked_crc(b"123456789").wrapping_sub(0xa282_ead8).rotate_left(15);
        assert_eq!(unmasked, 0xe306_9283);
    }

    #[test]
    fn records_are_framed_and_hold_the_scalar() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut writer = EventWriter::create(folder.path(), 1, 0).expect("it can be made");
        writer.scalar("loss", 300, 0.5).expect("it can be written");
        drop(writer);
        let path = std::fs::read_dir(folder.path()).expect("a folder").next().expect("a file");
        let bytes = std::fs::read(path.expect("an entry").path()).expect("it can be read");
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
        assert_eq!(events.len(), 2);
        let scalar = &events[1];
        assert_eq!(scalar[9..12], [0x10, 0xac, 0x02], "step 300 as a varint in field 2");
        assert!(scalar.windows(4).any(|window| window == b"loss"));
        assert!(scalar.ends_with(&0.5_f32.to_le_bytes()));
    }
}
