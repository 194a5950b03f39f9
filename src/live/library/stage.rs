//! The stages of a library, and their transitions.
//!
//! ```text
//! Idle ──begin──▶ Linking ──linked──▶ Initialising ──end──▶ Idle
//!                    │                     │  └──begin (by an initialiser)──▶ Linking … back to Initialising
//!                    └──end (it failed)────┴──▶ the stage before
//! any ──remove──▶ Removed
//! ```
//!
//! The thread that has the library's `InitLock` takes all steps but the last.

use std::mem;

use crate::live::lifetime::loaded_library::CodeRef;
use crate::live::resolve::prepared::Pending;

/// The stage of a library. All but the last hold its code.
#[derive(Debug)]
pub(super) enum Stage {
    /// Objects may wait; nothing is under way.
    Idle { code: CodeRef },
    /// A batch is being linked: others may be bound to its definitions already.
    Linking { code: CodeRef, undo: Undo },
    /// Initialisers of a batch run. They may add objects and link those.
    Initialising { code: CodeRef, undo: Undo },
    /// The names are gone. A batch that was under way still has something to undo if it fails.
    Removed { undo: Undo },
}

/// The state that an outermost batch has to undo if its initialisation fails.
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// The lowest number of its objects.
    first: u32,
    /// A caller was given an address in an object from `first` on.
    pub(super) taken: bool,
    /// Batches that its initialisers have linked: they may refer to it.
    pub(super) nested: Vec<Pending>,
}

/// The stage that a batch returns to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// It is the outermost.
    Idle,
    /// Something called during a link asked for the library: a plugin that prepares an archive's member, say.
    Linking,
    /// An initialiser asked for its own library.
    Initialising,
}

impl Stage {
    /// Returns the code, unless the library was removed.
    pub(super) fn code(&self) -> Option<&CodeRef> {
        match self {
            Self::Idle { code } | Self::Linking { code, .. } | Self::Initialising { code, .. } => Some(code),
            Self::Removed { .. } => None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self, Self::Idle { .. })
    }

    /// Begins a batch whose lowest number is `first`; `None` for a removed library.
    pub(super) fn begin(&mut self, first: u32) -> Option<(CodeRef, Before)> {
        let before = match self {
            Self::Idle { .. } => Before::Idle,
            Self::Linking { .. } => Before::Linking,
            Self::Initialising { .. } => Before::Initialising,
            Self::Removed { .. } => return None,
        };
        self.change(|code, undo| {
            let undo = undo.unwrap_or(Undo { first, taken: false, nested: Vec::new() });
            Self::Linking { code, undo }
        });
        self.code().map(|code| (code.clone(), before))
    }

    /// Records that the batch is linked, and its initialisers are about to run.
    pub(super) fn linked(&mut self) {
        self.change(|code, undo| Self::Initialising { code, undo: undo.unwrap_or_default() });
    }

    /// Ends a batch. Returns the state that the outermost one would have had to undo.
    pub(super) fn end(&mut self, before: Before) -> Option<Undo> {
        let undo = (before == Before::Idle).then(|| self.undo().map(mem::take)).flatten();
        self.change(|code, undo| match (before, undo) {
            (Before::Linking, Some(undo)) => Self::Linking { code, undo },
            (Before::Initialising, Some(undo)) => Self::Initialising { code, undo },
            (Before::Idle, _) | (_, None) => Self::Idle { code },
        });
        undo
    }

    /// Removes the library, and returns its code. A batch that is under way keeps what it has to undo.
    pub(super) fn remove(&mut self) -> Option<CodeRef> {
        let undo = self.undo().map(mem::take).unwrap_or_default();
        match mem::replace(self, Self::Removed { undo }) {
            Self::Idle { code } | Self::Linking { code, .. } | Self::Initialising { code, .. } => Some(code),
            Self::Removed { .. } => None,
        }
    }

    /// Returns the state that the outermost batch has to undo, if one is under way.
    pub(super) fn undo(&mut self) -> Option<&mut Undo> {
        match self {
            Self::Idle { .. } => None,
            Self::Linking { undo, .. } | Self::Initialising { undo, .. } | Self::Removed { undo } => Some(undo),
        }
    }

    /// Records that a caller gets an address in the object of this number: its memory has to stay even if
    /// initialisation fails.
    pub(super) fn note_taken(&mut self, object: u32) {
        if let Some(undo) = self.undo().filter(|undo| object >= undo.first) {
            undo.taken = true;
        }
    }

    /// Replaces the stage of a library that was not removed.
    fn change(&mut self, to: impl FnOnce(CodeRef, Option<Undo>) -> Self) {
        *self = match mem::replace(self, Self::Removed { undo: Undo::default() }) {
            Self::Idle { code } => to(code, None),
            Self::Linking { code, undo } | Self::Initialising { code, undo } => to(code, Some(undo)),
            removed @ Self::Removed { .. } => removed,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::live::lifetime::loaded_library::LoadedLibrary;
    use crate::name::Name;

    fn idle() -> Stage {
        let code = LoadedLibrary::new(Name::Number(0), false, Vec::new(), &Arc::default());
        Stage::Idle { code: CodeRef::first(code) }
    }

    fn begin(stage: &mut Stage, first: u32) -> Before {
        let (code, before) = stage.begin(first).unwrap();
        assert!(matches!(stage, Stage::Linking { code: held, .. } if held.is_same(&code)));
        before
    }

    #[test]
    fn a_batch_ends_in_the_stage_before_it() {
        let mut stage = idle();
        assert_eq!(begin(&mut stage, 3), Before::Idle);
        // Something called during the link asks for the library.
        assert_eq!(begin(&mut stage, 4), Before::Linking);
        assert!(stage.end(Before::Linking).is_none());
        assert!(matches!(stage, Stage::Linking { .. }));
        stage.linked();
        assert!(matches!(stage, Stage::Initialising { .. }));
        // An initialiser does.
        assert_eq!(begin(&mut stage, 5), Before::Initialising);
        stage.linked();
        assert!(stage.end(Before::Initialising).is_none());
        assert!(matches!(stage, Stage::Initialising { .. }) && !stage.is_idle());
        // The outermost is undone from its own first object.
        assert_eq!(stage.end(Before::Idle).map(|undo| undo.first), Some(3));
        assert!(stage.is_idle() && stage.undo().is_none());
    }

    #[test]
    fn an_address_counts_as_given_out_if_its_object_would_be_undone() {
        let mut stage = idle();
        stage.note_taken(0);
        begin(&mut stage, 3);
        stage.note_taken(2);
        assert!(!stage.undo().unwrap().taken);
        stage.linked();
        stage.note_taken(3);
        // A batch within it forgets nothing.
        begin(&mut stage, 7);
        stage.end(Before::Initialising);
        assert!(stage.end(Before::Idle).unwrap().taken);
    }

    #[test]
    fn removal_within_a_batch_keeps_what_it_has_to_undo() {
        let mut stage = idle();
        begin(&mut stage, 1);
        stage.linked();
        stage.note_taken(1);
        assert!(stage.remove().is_some() && stage.remove().is_none());
        assert!(stage.code().is_none() && stage.begin(2).is_none());
        assert!(stage.end(Before::Idle).unwrap().taken);
        assert!(matches!(stage, Stage::Removed { .. }));
    }
}
