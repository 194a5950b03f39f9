//! What a caller implements to look at, or rewrite, every object before it is linked.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use super::report::{Change, ChangeKind, ChangedSection};
use crate::{Error, Result};

/// A step of object preparation, run on every object that an engine is given: files, bytes in memory and archive members.
///
/// Plugins run in the order in which they were added, after the object was found to be a relocatable ELF object for this
/// machine and before everything built in: what a plugin returns is decoded, harmonised and validated like any other object.
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
    /// A short name for reports and errors.
    fn name(&self) -> &str;

    /// Looks at the object, and returns its bytes as they are or rewritten.
    ///
    /// # Errors
    /// An error refuses the object; it is handed on as the source of [`Error::Plugin`](crate::Error::Plugin).
    fn prepare<'data>(
        &self,
        object: ObjectInput<'data>,
        report: &mut ObjectReport,
    ) -> Result<Cow<'data, [u8]>, Box<dyn StdError + Send + Sync>>;
}

/// An object as a plugin is given it.
#[derive(Clone, Copy)]
pub struct ObjectInput<'data> {
    name: &'data str,
    bytes: &'data [u8],
}

impl<'data> ObjectInput<'data> {
    pub(crate) fn new(name: &'data str, bytes: &'data [u8]) -> Self {
        Self { name, bytes }
    }

    /// The object's name, as errors give it.
    pub fn name(&self) -> &'data str {
        self.name
    }

    /// The object's bytes.
    pub fn bytes(&self) -> &'data [u8] {
        self.bytes
    }
}

impl fmt::Debug for ObjectInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectInput").field("name", &self.name).field("bytes", &self.bytes.len()).finish()
    }
}

/// What preparation did to one object.
///
/// A plugin that rewrites the object may say in its own words what it changed; without that, the report says only that
/// the plugin rewrote it.
#[derive(Debug)]
pub struct ObjectReport {
    plugin: String,
    changes: Vec<Change>,
    problems: Vec<Error>,
    /// Problems beyond the most that are kept.
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

/// The most problems that are kept for one object: hostile input must not fill memory with texts.
const MAX_PROBLEMS: usize = 256;

impl ObjectReport {
    pub(crate) fn new(mode: Mode) -> Self {
        Self { plugin: String::new(), changes: Vec::new(), problems: Vec::new(), dropped: 0, mode }
    }

    /// Records a change, under the name of the plugin that is running.
    pub fn change(&mut self, section: Option<(u32, &str)>, what: ChangeKind) {
        let section = section.map(|(index, name)| ChangedSection { index, name: name.to_owned() });
        self.changes.push(Change { plugin: self.plugin.clone(), section, what });
    }

    /// The changes recorded so far, by all plugins.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Says who is running, for the changes that follow.
    pub(crate) fn begin(&mut self, plugin: &str) {
        self.plugin.clear();
        self.plugin.push_str(plugin);
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

    /// Whether no more problems are kept, so that looking for more is of no use.
    pub(crate) fn is_full(&self) -> bool {
        self.problems.len() >= MAX_PROBLEMS
    }

    /// Whether nothing was refused so far.
    pub(crate) fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    pub(crate) fn into_parts(self) -> (Vec<Change>, Vec<Error>, usize) {
        (self.changes, self.problems, self.dropped)
    }
}
