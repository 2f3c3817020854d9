//! A child process that is asked one line and answers one line, with a deadline.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::PROTOCOL;
use crate::error::EnvError;
use crate::remote::failed;

/// How much of the program's last words on standard error is kept for messages.
const LAST_WORDS: usize = 2000;
/// How long a program that was told to end may take before it is killed.
const GOODBYE: Duration = Duration::from_millis(200);

/// A running program.
pub(super) struct Process {
    child: Child,
    /// Lines for the thread that writes; `None` once the program is told to end.
    input: Option<SyncSender<String>>,
    lines: Receiver<Result<String, String>>,
    last_words: Arc<Mutex<Vec<u8>>>,
}

impl Process {
    pub(super) fn start(command: &[String], longest: usize) -> Result<Self, EnvError> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| failed(PROTOCOL, "environment.command names no program"))?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(PROTOCOL, format!("{program:?} cannot be started: {error}")))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(output), Some(errors)) = pipes else {
            return Err(failed(PROTOCOL, "it has no pipes"));
        };
        // A program that does not read its input must not block the caller, so a thread writes.
        let (input, outgoing) = sync_channel(1);
        thread::spawn(move || write_lines(stdin, &outgoing));
        let (send, lines) = sync_channel(1);
        // The thread ends when the program closes its output, or when nobody takes its lines any more.
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            while let Some(line) = read_line(&mut output, longest) {
                let failed = line.is_err();
                if send.send(line).is_err() || failed {
                    return;
                }
            }
        });
        let last_words = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&last_words);
        thread::spawn(move || listen(errors, &heard));
        Ok(Self { child, input: Some(input), lines, last_words })
    }

    /// Sends a line and waits for the answer.
    pub(super) fn exchange(
        &mut self,
        line: String,
        patience: Duration,
    ) -> Result<String, EnvError> {
        let sent = self.input.as_ref().is_some_and(|input| input.try_send(line).is_ok());
        if !sent {
            return Err(failed(PROTOCOL, self.with_last_words("it ended")));
        }
        match self.lines.recv_timeout(patience) {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(problem)) => Err(failed(PROTOCOL, problem)),
            Err(RecvTimeoutError::Timeout) => Err(failed(
                PROTOCOL,
                format!(
                    "it did not answer within {} s (environment.answer_seconds, \
                     environment.connect_seconds at the start)",
                    patience.as_secs_f64()
                ),
            )),
            Err(RecvTimeoutError::Disconnected) => {
                Err(failed(PROTOCOL, self.with_last_words("it ended without an answer")))
            }
        }
    }

    fn with_last_words(&mut self, message: &str) -> String {
        // Its last words may still be on the way.
        let deadline = std::time::Instant::now() + GOODBYE;
        let status = self.wait_until(deadline);
        let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        let words = String::from_utf8_lossy(&words);
        let status = status.map_or_else(String::new, |status| format!(" ({status})"));
        match words.trim() {
            "" => format!("{message}{status}"),
            words => format!("{message}{status}; its last words: {words}"),
        }
    }

    fn wait_until(&mut self, deadline: std::time::Instant) -> Option<std::process::ExitStatus> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if std::time::Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(5));
                }
                _ => return None,
            }
        }
    }
}

impl Drop for Process {
    /// Closing its input tells the program to end; one that does not is killed.
    fn drop(&mut self) {
        self.input = None;
        if self.wait_until(std::time::Instant::now() + GOODBYE).is_none() {
            // Failing means that it has ended meanwhile.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Writes lines until there are no more, or the program has ended. Dropping the pipe tells the program to end.
fn write_lines(mut stdin: ChildStdin, lines: &Receiver<String>) {
    for mut line in lines {
        line.push('\n');
        if stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).is_err() {
            return;
        }
    }
}

/// The next line; `None` at the end.
fn read_line(output: &mut impl BufRead, longest: usize) -> Option<Result<String, String>> {
    let mut line = Vec::new();
    match output.by_ref().take(longest as u64 + 1).read_until(b'\n', &mut line) {
        Ok(0) => None,
        Ok(_) if line.len() > longest => Some(Err(format!(
            "its answer is longer than {} MiB (environment.max_message_mib)",
            longest >> 20
        ))),
        Ok(_) => {
            Some(String::from_utf8(line).map_err(|_| "its answer is not UTF-8 text".to_owned()))
        }
        Err(error) => Some(Err(format!("its answer cannot be read: {error}"))),
    }
}

/// Keeps the end of what the program writes to standard error.
fn listen(mut errors: impl Read, heard: &Mutex<Vec<u8>>) {
    let mut piece = [0; 1024];
    while let Ok(read @ 1..) = errors.read(&mut piece) {
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.extend_from_slice(&piece[..read]);
        let surplus = heard.len().saturating_sub(LAST_WORDS);
        heard.drain(..surplus);
    }
}
