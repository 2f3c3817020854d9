//! A client of the py4j gateway, as far as driving a simulator needs one.
//!
//! py4j is the text protocol by which the simulator's own Python package talks to its JVM. It is small, it is spoken
//! over a loopback socket, and the server side is already inside the simulator's JAR, so nothing has to be built or
//! shipped for the Java side. [`wire`] is the format, [`Connection`] the conversation.

mod connection;
mod error;
mod patience;
pub mod wire;

pub use connection::Connection;
pub use error::GatewayError;
pub use patience::Patience;
pub(super) use patience::processor_time;
pub use wire::{Argument, Handle, Value};
