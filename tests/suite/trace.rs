//! Spans and events.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use slabjit::Symbol;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::common::{Checked, compile_bytes, tests};

// Which spans and events anybody wants is kept for the whole process (tracing's callsite cache), so another test's
// subscriber that comes or goes can hide some.
tests![; alone: spans_name_object_and_slab, failures_of_finalisers_are_error_events];

/// Writes down spans as `name field=value …`, and events as `LEVEL field=value …`.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "slabjit"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(span.metadata().name().to_owned());
        span.record(&mut line);
        let mut lines = self.0.lock().unwrap();
        lines.push(line.0);
        Id::from_u64(lines.len() as u64)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

pub fn recorded(body: impl FnOnce()) -> Vec<String> {
    let recorder = Recorder::default();
    tracing::subscriber::with_default(recorder.clone(), body);
    recorder.0.lock().unwrap().split_off(0)
}

fn spans_name_object_and_slab() {
    let bytes = compile_bytes("traced.c", "int traced(void) { return 1; }", &[]);
    let lines = recorded(|| {
        let engine = Checked::new();
        let library = engine.add_object_named("traced.o", &bytes).unwrap();
        // SAFETY: the type is that of the source.
        let traced: Symbol<unsafe extern "C" fn() -> i32> = unsafe { library.get("traced").unwrap() };
        drop((traced, library));
        engine.finish();
    });
    let position = |start: &str, rest: &str| {
        let found = lines.iter().position(|l| l.starts_with(start) && l.contains(rest));
        found.unwrap_or_else(|| panic!("no {start} with {rest} in {lines:#?}"))
    };
    let prepared = position("slabjit::prepare ", &format!("object=\"traced.o\" bytes={}", bytes.len()));
    let linked = position("slabjit::link ", "library=\"traced.o\"");
    let placed = position("DEBUG", "slab=");
    let removed = position("slabjit::remove ", "library=\"traced.o\"");
    assert!(prepared < linked && linked < placed && placed < removed, "{lines:#?}");
}

fn failures_of_finalisers_are_error_events() {
    let bytes = compile_bytes(
        "oops.cc",
        "struct Oops {}; extern \"C\" int here(void) { return 1; }
         __attribute__((destructor)) static void fails() { throw Oops(); }",
        &[],
    );
    let lines = recorded(|| {
        let engine = Checked::new();
        let library = engine.add_object_named("oops.o", &bytes).unwrap();
        // SAFETY: the initialisers are none; the finaliser throws, which the crate says it ends.
        unsafe { library.initialize().unwrap() };
        drop(library);
        engine.finish();
    });
    let said = lines.iter().find(|l| l.starts_with("ERROR"));
    assert!(said.is_some_and(|l| l.contains("oops.o") && l.contains("Oops")), "{lines:#?}");
}
