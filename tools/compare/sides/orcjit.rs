//! apache-tvm-ffi-orcjit: LLJIT with JITLink of an LLVM of its own, from Python, in a process that does what it is told
//! on its standard input. What it costs is measured there, with Python's own part; how the bytes get there is not in
//! it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::{Hold, Loaded, Object, Side};
use crate::measure::Cost;

/// What Python runs.
const SCRIPT: &str = include_str!("orcjit.py");
/// What the name of a symbol has before the name of its function.
const PREFIX: &str = "__tvm_ffi_";
/// Bytes of an answer, at most: what is given as a Python may be something else.
const LONGEST: u64 = 1 << 20;

struct Orcjit(Mutex<Python>);

struct Python {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// A file, so that Python never waits for somebody to read it.
    errors: File,
    /// Of the last command, until somebody asks.
    cost: Option<Cost>,
}

/// Nothing: Python keeps what it loads.
struct Held;

/// One.
pub fn orcjit(python: Option<&Path>) -> Result<Box<dyn Side>, String> {
    let python = python.ok_or("--python PATH says which Python has apache-tvm-ffi-orcjit")?;
    Ok(Box::new(Orcjit(Mutex::new(Python::start(python)?))))
}

impl Python {
    fn start(path: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let errors = tempfile::tempfile().map_err(failed)?;
        let mut command = Command::new(path);
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.stderr(errors.try_clone().map_err(failed)?).spawn().map_err(failed)?;
        let (commands, answers) = (process.stdin.take(), process.stdout.take());
        let (Some(commands), Some(answers)) = (commands, answers) else { return Err("no pipes".into()) };
        let mut python = Self { process, commands, answers: BufReader::new(answers), errors, cost: None };
        python.answer()?;
        Ok(python)
    }

    fn ask(&mut self, what: &str, objects: &[Object]) -> Result<(), String> {
        self.cost = None;
        let header = |object: &Object| {
            let symbol = object.entry.to_str().map_err(|error| error.to_string())?;
            let name = symbol.strip_prefix(PREFIX).ok_or_else(|| format!("{symbol} is not named {PREFIX}..."))?;
            Ok(json!([name, object.bytes.len(), object.question.0, object.question.1]))
        };
        let headers = objects.iter().map(header).collect::<Result<Vec<_>, String>>()?;
        let mut text = format!("{}\n", json!([what, headers])).into_bytes();
        objects.iter().for_each(|object| text.extend_from_slice(&object.bytes));
        if self.commands.write_all(&text).is_err() {
            return Err(self.ended());
        }
        self.cost = Some(self.answer()?);
        Ok(())
    }

    fn answer(&mut self) -> Result<Cost, String> {
        let mut line = Vec::new();
        let read = (&mut self.answers).take(LONGEST).read_until(b'\n', &mut line);
        if read.is_err() || line.last() != Some(&b'\n') {
            return Err(self.ended());
        }
        let answer: Result<Cost, String> = serde_json::from_slice(&line)
            .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&line).trim_end()))?;
        // Texts of Python's exceptions may have many lines.
        answer.map_err(|error| error.lines().next().unwrap_or_default().to_owned())
    }

    /// How, and with which last words.
    fn ended(&mut self) -> String {
        // Its end may come a little after that of its answers.
        let has_ended = |_| {
            let status = self.process.try_wait().ok().flatten();
            if status.is_none() {
                thread::sleep(Duration::from_millis(10));
            }
            status
        };
        let Some(status) = (0..100).find_map(has_ended) else { return "Python neither answers nor ends".into() };
        let mut said = Vec::new();
        // What cannot be read is not said.
        let _ = self.errors.rewind().and_then(|()| self.errors.read_to_end(&mut said));
        let said = String::from_utf8_lossy(&said);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).map_or(String::new(), |line| format!(": {line}"));
        format!("Python has ended ({status}){last}")
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // Its answers are here, and it may be anything: nobody waits for it to free what it has. If it has ended, both
        // do nothing.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Orcjit {
    fn python(&self) -> MutexGuard<'_, Python> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn loaded(&self, how: &str, objects: &[Object]) -> Result<Vec<Loaded>, String> {
        self.python().ask(how, objects)?;
        Ok(objects.iter().map(|_| Loaded { address: None, hold: Box::new(Held) }).collect())
    }
}

impl Side for Orcjit {
    fn load(&self, object: &mut Object) -> Result<Loaded, String> {
        let loaded = self.load_each(std::slice::from_mut(object))?.pop();
        loaded.ok_or_else(|| "nothing was loaded".into())
    }

    fn load_each(&self, objects: &mut [Object]) -> Result<Vec<Loaded>, String> {
        self.loaded("each", objects)
    }

    fn load_together(&self, objects: &mut [Object]) -> Result<Vec<Loaded>, String> {
        self.loaded("together", objects)
    }

    fn unload(&self, _: Vec<Loaded>) -> Result<(), String> {
        self.python().ask("unload", &[])
    }

    fn keep(&self) {
        // A Python that has ended says so when it is told to do something else.
        let _ = self.python().ask("keep", &[]);
    }

    fn cost(&self) -> Option<Cost> {
        self.python().cost.take()
    }
}

impl Hold for Held {
    fn unload(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}
