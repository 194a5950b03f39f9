//! The trait [`ObjectPlugin`], with which a caller inspects or rewrites every object before it is linked.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use super::report::{Change, ChangeKind, ChangedSection};
use crate::{Error, Result};

/// A step of object preparation, run on every object of an engine: files, bytes in memory and archive members.
///
/// Plugins run in the order in which they were added. They run after the check for a relocatable ELF object of this
/// machine and before all built-in steps, so a plugin's result is decoded, harmonised and validated like any other
/// object.
///
/// ```
/// use std::borrow::Cow;
/// use slabjit::{ObjectInput, ObjectPlugin, ObjectReport};
///
/// struct SizeLimit;
///
/// impl ObjectPlugin for SizeLimit {
///     fn name(&self) -> &str {
///         "size-limit"
///     }
///
///     fn prepare<'data>(
///         &self,
///         object: ObjectInput<'data>,
///         _report: &mut ObjectReport,
///     ) -> Result<Cow<'data, [u8]>, Box<dyn std::error::Error + Send + Sync>> {
///         if object.bytes().len() > 1 << 20 {
///             return Err("kernels of this application have less than 1 MiB".into());
///         }
///         Ok(Cow::Borrowed(object.bytes()))
///     }
/// }
/// ```
pub trait ObjectPlugin: Send + Sync {
    /// Returns a short name for reports and errors.
    fn name(&self) -> &str;

    /// Inspects the object, and returns its bytes, unchanged or rewritten.
    ///
    /// # Errors
    /// An error refuses the object and becomes the source of [`ObjectError::Plugin`](crate::ObjectError::Plugin).
    fn prepare<'data>(
        &self,
        object: ObjectInput<'data>,
        report: &mut ObjectReport,
    ) -> Result<Cow<'data, [u8]>, Box<dyn StdError + Send + Sync>>;
}

/// The input of a plugin: an object's name and bytes.
#[derive(Clone, Copy)]
pub struct ObjectInput<'data> {
    name: &'data str,
    bytes: &'data [u8],
}

impl<'data> ObjectInput<'data> {
    pub(crate) fn new(name: &'data str, bytes: &'data [u8]) -> Self {
        Self { name, bytes }
    }

    /// Returns the object's name, as it appears in errors.
    pub fn name(&self) -> &'data str {
        self.name
    }

    /// Returns the object's bytes.
    pub fn bytes(&self) -> &'data [u8] {
        self.bytes
    }
}

impl fmt::Debug for ObjectInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectInput").field("name", &self.name).field("bytes", &self.bytes.len()).finish()
    }
}

/// The changes that preparation made to one object.
///
/// A plugin may describe its changes in its own words; otherwise the report only says that it rewrote the object.
#[derive(Debug)]
pub struct ObjectReport {
    plugin: Cow<'static, str>,
    changes: Vec<Change>,
    problems: Vec<Error>,
    /// Number of problems beyond the largest number that is kept.
    dropped: usize,
    mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The first refusal ends preparation.
    Load,
    /// Refusals are collected.
    Check,
}

/// The largest number of problems that are kept for one object: hostile input must not fill memory with texts.
const MAX_PROBLEMS: usize = 256;

impl ObjectReport {
    pub(crate) fn new(mode: Mode) -> Self {
        Self { plugin: Cow::Borrowed(""), changes: Vec::new(), problems: Vec::new(), dropped: 0, mode }
    }

    /// Records a change, under the name of the plugin that is running.
    pub fn change(&mut self, section: Option<(u32, &str)>, what: ChangeKind) {
        let section = section.map(|(index, name)| ChangedSection { index, name: name.to_owned() });
        self.changes.push(Change { plugin: self.plugin.to_string(), section, what });
    }

    /// Returns the changes recorded so far, by all plugins.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Sets the name of the running plugin, for the changes that follow.
    pub(crate) fn begin(&mut self, plugin: impl Into<Cow<'static, str>>) {
        self.plugin = plugin.into();
    }

    /// Refuses the object: ends preparation when loading, and goes on when checking.
    pub(crate) fn refuse(&mut self, error: impl FnOnce() -> Error) -> Result<()> {
        match self.mode {
            Mode::Load => Err(error()),
            Mode::Check if self.problems.len() < MAX_PROBLEMS => {
                self.problems.push(error());
                Ok(())
            }
            Mode::Check => {
                self.dropped += 1;
                Ok(())
            }
        }
    }

    /// Returns whether no more problems are kept, so that looking for more is useless.
    pub(crate) fn is_full(&self) -> bool {
        self.problems.len() >= MAX_PROBLEMS
    }

    /// Returns whether nothing was refused so far.
    pub(crate) fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    pub(crate) fn into_parts(self) -> (Vec<Change>, Vec<Error>, usize) {
        (self.changes, self.problems, self.dropped)
    }
}
