//! One conversation with the gateway: a request, then its answer, then the next.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use super::wire::{Answer, Argument, Handle, Value};
use super::{GatewayError, Patience};

/// Separates the elements of a list that crosses the wire as one string. It occurs in no text of the simulator.
const SEPARATOR: &str = "\u{1}";

/// The longest answer that is believed. The largest list seen is 312 kB.
const LONGEST_ANSWER: usize = 64 << 20;

/// A connection. Answers come strictly in the order of requests, so a connection that failed in the middle of an
/// answer refuses every further call.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// Bytes received and not yet consumed; between calls it is empty.
    received: Vec<u8>,
    request: String,
    patience: Patience,
    broken: bool,
}

impl Connection {
    /// Connects and, where the gateway asks for one, sends the token.
    pub fn open(
        address: SocketAddr,
        token: Option<&str>,
        patience: Patience,
    ) -> Result<Self, GatewayError> {
        let stream = TcpStream::connect_timeout(&address, patience.time)?;
        stream.set_nodelay(true)?;
        let mut connection = Self {
            stream,
            received: Vec::with_capacity(1 << 14),
            request: String::new(),
            patience,
            broken: false,
        };
        if let Some(token) = token {
            connection.request = format!("A\n{token}\n");
            match connection.exchange()? {
                Answer::Returned(_) => {}
                other => {
                    connection.broken = true;
                    return Err(GatewayError::Fatal(format!(
                        "the token was not accepted ({other:?})"
                    )));
                }
            }
        }
        Ok(connection)
    }

    /// How long a call may take.
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// Changes how long a call may take.
    pub fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Calls a method of an object.
    pub fn call(
        &mut self,
        object: &Handle,
        method: &str,
        arguments: &[Argument<'_>],
    ) -> Result<Value, GatewayError> {
        self.request = format!("c\n{}\n{method}\n", object.id());
        self.finish(method, arguments)
    }

    /// Calls a static method of a class.
    pub fn call_static(
        &mut self,
        class: &str,
        method: &str,
        arguments: &[Argument<'_>],
    ) -> Result<Value, GatewayError> {
        self.request = format!("c\nz:{class}\n{method}\n");
        self.finish(method, arguments)
    }

    /// Makes an object.
    pub fn construct(
        &mut self,
        class: &str,
        arguments: &[Argument<'_>],
    ) -> Result<Handle, GatewayError> {
        self.request = format!("i\n{class}\n");
        let value = self.finish(class, arguments)?;
        object(class, value)
    }

    /// Makes an array of objects and fills it.
    pub fn array(
        &mut self,
        class: &str,
        elements: &[Argument<'_>],
    ) -> Result<Handle, GatewayError> {
        "a\nc\n".clone_into(&mut self.request);
        let length = Argument::Int(elements.len() as i32);
        let value = self.finish(class, &[Argument::Text(class), length])?;
        let array = object(class, value)?;
        for (index, element) in elements.iter().enumerate() {
            self.request = format!("a\ns\n{}\n", array.id());
            self.finish("array element", &[Argument::Int(index as i32), *element])?;
        }
        Ok(array)
    }

    /// Lets go of an object.
    pub fn release(&mut self, object: &Handle) -> Result<(), GatewayError> {
        self.request = format!("m\nd\n{}\n", object.id());
        self.finish("release", &[]).map(drop)
    }

    /// Calls a method that gives a text.
    pub fn text(
        &mut self,
        on: &Handle,
        method: &str,
        arguments: &[Argument<'_>],
    ) -> Result<String, GatewayError> {
        match self.call(on, method, arguments)? {
            Value::Text(text) => Ok(text),
            other => Err(GatewayError::unexpected(method, "a string", &other)),
        }
    }

    /// Calls a method that gives an object.
    pub fn object(
        &mut self,
        on: &Handle,
        method: &str,
        arguments: &[Argument<'_>],
    ) -> Result<Handle, GatewayError> {
        let value = self.call(on, method, arguments)?;
        object(method, value)
    }

    /// Calls a method that gives a list of strings. The list crosses the wire as one string instead of one element a
    /// round trip, and is released.
    pub fn texts(&mut self, on: &Handle, method: &str) -> Result<Vec<String>, GatewayError> {
        let list = self.object(on, method, &[])?;
        let texts = self.list_of_texts(&list);
        self.release_after(&list, texts)
    }

    /// The strings in a list.
    pub fn list_of_texts(&mut self, list: &Handle) -> Result<Vec<String>, GatewayError> {
        let elements = [Argument::Text(SEPARATOR), Argument::Object(list)];
        match self.call_static("java.lang.String", "join", &elements)? {
            // An empty list and a list of one empty string join to the same text.
            Value::Text(text) if text.is_empty() => match self.call(list, "isEmpty", &[])? {
                Value::Bool(true) => Ok(Vec::new()),
                Value::Bool(false) => Ok(vec![String::new()]),
                other => Err(GatewayError::unexpected("isEmpty", "a boolean", &other)),
            },
            Value::Text(text) => Ok(text.split(SEPARATOR).map(str::to_owned).collect()),
            other => Err(GatewayError::unexpected("join", "a string", &other)),
        }
    }

    /// Calls a method that gives a list of integers; released like [`Connection::texts`].
    pub fn integers(&mut self, on: &Handle, method: &str) -> Result<Vec<i32>, GatewayError> {
        let list = self.object(on, method, &[])?;
        let numbers = self.text(&list, "toString", &[]).and_then(|text| {
            parse_integers(&text).ok_or_else(|| {
                GatewayError::unexpected(method, "a list of integers", &Value::Text(text.clone()))
            })
        });
        self.release_after(&list, numbers)
    }

    /// Releases `handle` whatever came of the work done with it; the work's own failure is the one reported.
    fn release_after<T>(
        &mut self,
        handle: &Handle,
        outcome: Result<T, GatewayError>,
    ) -> Result<T, GatewayError> {
        if self.broken {
            return outcome;
        }
        let released = self.release(handle);
        let value = outcome?;
        released?;
        Ok(value)
    }

    /// Completes the request that `self.request` began, and reads its answer.
    fn finish(&mut self, method: &str, arguments: &[Argument<'_>]) -> Result<Value, GatewayError> {
        for argument in arguments {
            argument.write(&mut self.request);
        }
        self.request.push_str("e\n");
        match self.exchange()? {
            Answer::Returned(value) => Ok(value),
            Answer::Refused(reason) => {
                Err(GatewayError::Refused { method: method.to_owned(), reason })
            }
            Answer::Fatal(reason) => {
                self.broken = true;
                Err(GatewayError::Fatal(reason))
            }
            Answer::Thrown(exception) => {
                let trace = self.trace(&exception)?;
                self.release(&exception)?;
                Err(GatewayError::Thrown { method: method.to_owned(), trace })
            }
        }
    }

    /// The stack trace of an exception that is being held.
    fn trace(&mut self, exception: &Handle) -> Result<String, GatewayError> {
        self.request = format!("p\nr{}\ne\n", exception.id());
        match self.exchange()? {
            Answer::Returned(Value::Text(trace)) => Ok(trace),
            other => Ok(format!("an exception whose trace could not be read ({other:?})")),
        }
    }

    /// Sends the request and reads one answer line.
    fn exchange(&mut self) -> Result<Answer, GatewayError> {
        if self.broken {
            return Err(GatewayError::Closed);
        }
        let answer = self.converse();
        if answer.as_ref().is_err_and(GatewayError::is_fatal) {
            self.broken = true;
        }
        answer
    }

    fn converse(&mut self) -> Result<Answer, GatewayError> {
        self.stream.set_write_timeout(Some(self.patience.time))?;
        self.stream.write_all(self.request.as_bytes()).map_err(|error| self.io_error(error))?;
        let length = self.read_line()?;
        let line = std::str::from_utf8(&self.received[..length])
            .map_err(|_| GatewayError::malformed(&String::from_utf8_lossy(&self.received)))?;
        let answer = Answer::parse(line);
        // One line answers one request: anything behind it would be taken for the next answer.
        if self.received.len() != length + 1 {
            return Err(GatewayError::malformed("bytes after the end of an answer"));
        }
        self.received.clear();
        answer
    }

    /// Reads up to the end of a line; gives the line's length without its break.
    fn read_line(&mut self) -> Result<usize, GatewayError> {
        let mut chunk = [0_u8; 1 << 14];
        let mut wait = self.patience.begin();
        let mut end = Instant::now() + wait.slice();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if wait.is_over() {
                    return Err(GatewayError::Deadline(self.patience.time));
                }
                end = Instant::now() + wait.slice();
                continue;
            }
            self.stream.set_read_timeout(Some(left))?;
            // The Java side leaves Nagle's algorithm on and writes in pieces of 8 kB: without an immediate
            // acknowledgement each piece after the first waits 40 ms. Linux forgets the setting, so it is set again.
            #[cfg(target_os = "linux")]
            std::os::linux::net::TcpStreamExt::set_quickack(&self.stream, true)?;
            let count = match self.stream.read(&mut chunk) {
                Ok(0) => return Err(GatewayError::Closed),
                Ok(count) => count,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut
                    ) =>
                {
                    continue;
                }
                Err(error) => return Err(self.io_error(error)),
            };
            let searched = self.received.len();
            self.received.extend_from_slice(&chunk[..count]);
            if let Some(index) = self.received[searched..].iter().position(|byte| *byte == b'\n') {
                return Ok(searched + index);
            }
            if self.received.len() > LONGEST_ANSWER {
                return Err(GatewayError::malformed("an answer without an end"));
            }
        }
    }

    /// The system's words for a passed deadline and a closed connection, in ours.
    fn io_error(&self, error: std::io::Error) -> GatewayError {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                GatewayError::Deadline(self.patience.time)
            }
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
                GatewayError::Closed
            }
            _ => GatewayError::Io(error),
        }
    }
}

fn object(method: &str, value: Value) -> Result<Handle, GatewayError> {
    match value {
        Value::Object(handle) => Ok(handle),
        other => Err(GatewayError::unexpected(method, "an object", &other)),
    }
}

fn parse_integers(text: &str) -> Option<Vec<i32>> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner.split(", ").map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
