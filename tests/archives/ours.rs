//! A member through this crate.

use std::collections::BTreeMap;
use std::fmt::Debug;

use slabjit::{ArenaPlacement, Error, ImageBuilder, JitEngine, Library};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::low;

/// Adds a member and others, and links them; `as_image`: into an image, which is loaded. `linked` is called as soon as
/// it is linked, before anything of it could run.
pub fn link(
    name: &str,
    bytes: &[u8],
    imports: &BTreeMap<String, usize>,
    companions: &[&[u8]],
    as_image: bool,
    linked: impl Fn() + Send + Sync + 'static,
) -> Result<Library, Error> {
    let place = if cfg!(target_arch = "x86_64") {
        ArenaPlacement::Low2GiB
    } else {
        ArenaPlacement::Near { address: low::near() }
    };
    let engine = JitEngine::builder().arena_placement(place).arena_size(512 << 20).build()?;
    let given = |builder: slabjit::LibraryBuilder, (name, address): (&String, &usize)| {
        // SAFETY: nothing runs that could use the addresses.
        unsafe { builder.symbol(name, std::ptr::without_provenance(*address)) }
    };
    let library = imports.iter().fold(engine.library("member"), given).build()?;
    if as_image {
        let builder = ImageBuilder::new().object(name, bytes);
        let builder = companions.iter().fold(builder, |builder, bytes| builder.object("companion", *bytes));
        library.add_image_named(name, builder.link()?)?;
    } else {
        library.add_object_named(name, bytes)?;
        companions.iter().try_for_each(|bytes| library.add_object_named("companion", *bytes))?;
    }
    tracing::subscriber::with_default(Linked(Box::new(linked)), || {
        // SAFETY: the caller ends the process in `linked` where there is anything that would run.
        unsafe { library.initialize() }
    })?;
    Ok(library)
}

/// Waits for the event that the crate documents for each linked object.
struct Linked(Box<dyn Fn() + Send + Sync>);

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Linked {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "slabjit"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        if message.0 == "linked" {
            (self.0)();
        }
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
