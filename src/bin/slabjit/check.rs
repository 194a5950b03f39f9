//! `slabjit check`.

use std::collections::HashMap;
use std::ffi::c_int;
use std::fmt::Write as _;
use std::sync::Arc;

use clap::ValueEnum;
use serde_json::{Value, json};
use slabjit::{ChangeKind, Error, Library, LinkPlan, ObjectError, Severity, UndefinedSymbol, program};

use crate::input::{Input, Inputs, name_of};
use crate::output::{self, escaped, escaped_lines};
use crate::scope::Scope;
use crate::words;

/// The output format.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    /// One line for each object.
    #[value(skip)]
    Quiet,
}

/// The verdict on one object.
pub(crate) struct Checked {
    /// The object's name in the library.
    name: String,
    /// The object's path, for JSON.
    path: String,
    pub(crate) plan: Result<LinkPlan, String>,
    /// The reason why it cannot join the objects before it, such as a duplicate definition.
    conflict: Option<String>,
    /// The reason in the library's own words, which a plan has for problems of the object itself.
    refusal: String,
    /// Whether it is for this machine, so that its imports are judged.
    native: bool,
    undefined: Vec<UndefinedSymbol>,
}

impl Checked {
    /// Creates an entry without a verdict.
    fn new(name: String, path: String, native: bool) -> Self {
        let (plan, undefined) = (Err(String::new()), Vec::new());
        Self { name, path, plan, conflict: None, refusal: String::new(), native, undefined }
    }

    fn refused(name: String, path: String, error: &Error) -> Self {
        Self { plan: Err(words::of(error)), ..Self::new(name, path, false) }
    }

    pub(crate) fn loads(&self) -> bool {
        self.plan.as_ref().is_ok_and(LinkPlan::loads) && self.conflict.is_none() && self.undefined.is_empty()
    }

    /// Counts the obstacles to loading it, beside those in its plan.
    pub(crate) fn further_problems(&self) -> usize {
        self.undefined.len() + usize::from(self.conflict.is_some())
    }
}

pub(crate) fn check(format: Format, scope: &Scope, inputs: &Inputs) -> c_int {
    output::outlive_readers();
    let checked = match check_all(scope, inputs) {
        Ok(checked) => checked,
        Err(error) => {
            output::say(&error);
            return 1;
        }
    };
    let text = match format {
        Format::Text => checked.iter().map(text_of).collect(),
        Format::Quiet => checked.iter().map(line_of).collect(),
        Format::Json => format!("{:#}\n", Value::Array(checked.iter().map(json_of).collect())),
    };
    let printed = output::print(&text);
    c_int::from(!printed || !checked.iter().all(Checked::loads))
}

/// Checks the given objects and members of archives: those that the objects need, or all if there is no object.
pub(crate) fn check_all(scope: &Scope, inputs: &Inputs) -> slabjit::Result<Vec<Checked>> {
    let engine = scope.engine(None)?;
    let library = scope.library(&engine)?;
    // References are judged when the library has all objects.
    let (mut checked, mut archives) = (Vec::new(), Vec::new());
    for path in &inputs.paths {
        let path_text = path.display().to_string();
        match inputs.read(path) {
            Ok(input) if input.is_archive() => archives.push((input, path_text)),
            Ok(Input { name, bytes }) => checked.push(add_one(&library, name, path_text, bytes)),
            Err(error) => checked.push((Checked::refused(name_of(path), path_text, &error), None)),
        }
    }
    let alone = checked.is_empty();
    for (archive, path) in &archives {
        let added = match alone {
            true => program::members(&archive.name, &archive.bytes).map(|members| {
                checked.extend(members.into_iter().map(|(name, bytes)| add_member(&library, name, bytes)))
            }),
            false => library.add_archive_named(&archive.name, &archive.bytes),
        };
        if let Err(error) = added {
            checked.push((Checked::refused(archive.name.clone(), path.clone(), &error), None));
        }
    }
    let undefined = library.undefined_symbols();
    let members = program::taken_members(&library)?.into_iter();
    checked.extend(members.map(|(name, bytes)| (Checked::new(name.clone(), name, true), Some(bytes))));
    let (arena, mut taken) = (engine.arena().len() as u64, 0_u64);
    for (object, bytes) in &mut checked {
        let Some(bytes) = bytes else { continue };
        object.plan = library.check_object_named(&object.name, bytes).map_err(|error| words::of(&error));
        match &mut object.plan {
            Ok(plan) if plan.loads() && object.native => taken = taken.saturating_add(plan.arena_bytes),
            Ok(plan) if plan.loads() => {}
            // The plan has the object's own problems.
            Ok(plan) => {
                if let Some(conflict) = object.conflict.take() {
                    let told = plan.problems.iter_mut().filter(|problem| problem.text == object.refusal);
                    told.for_each(|problem| problem.text.clone_from(&conflict));
                }
            }
            Err(_) => object.conflict = None,
        }
        if taken > arena {
            let text = || format!("with the objects before it, it takes {taken} bytes of the arena's {arena}");
            object.conflict.get_or_insert_with(text);
        }
    }
    let mut checked: Vec<_> = checked.into_iter().map(|(object, _)| object).collect();
    match undefined {
        Ok(symbols) => {
            for symbol in symbols {
                for object in &mut checked {
                    if object.native && symbol.referenced_by.contains(&object.name) {
                        object.undefined.push(symbol.clone());
                    }
                }
            }
        }
        // A needed member that cannot be added.
        Err(error) => {
            let names: Vec<_> = archives.iter().map(|(archive, _)| &*archive.name).collect();
            let names = names.join(", ");
            checked.push(Checked::refused(names.clone(), names, &error));
        }
    }
    Ok(checked)
}

type AndBytes = (Checked, Option<Vec<u8>>);

fn add_member(library: &Library, name: String, bytes: Vec<u8>) -> AndBytes {
    add_one(library, name.clone(), name, bytes)
}

/// Adds an object and keeps its bytes for its plan.
fn add_one(library: &Library, name: String, path: String, bytes: Vec<u8>) -> AndBytes {
    let mut checked = Checked::new(name, path, true);
    match library.add_object_named(&checked.name, &bytes) {
        Ok(()) => {}
        Err(Error::Object(ObjectError::WrongMachine { .. })) => checked.native = false,
        Err(error) => (checked.conflict, checked.refusal) = (Some(words::of(&error)), error.to_string()),
    }
    (checked, Some(bytes))
}

fn text_of(checked: &Checked) -> String {
    let mut s = String::new();
    let _ = match &checked.plan {
        Ok(plan) => writeln!(s, "{}", with_names_escaped(plan)),
        Err(error) => writeln!(s, "{}: {error}", escaped(&checked.name)),
    };
    if let Some(conflict) = &checked.conflict {
        let _ = writeln!(s, "  conflict: {conflict}");
    }
    for symbol in &checked.undefined {
        let _ = writeln!(s, "  undefined: {}", undefined(symbol));
    }
    let prepares = checked.plan.as_ref().is_ok_and(LinkPlan::loads);
    if prepares && !checked.native {
        s.push_str("  imports are not judged: the object is for another machine\n");
    }
    if prepares && !checked.loads() {
        s.push_str("does not load with what was given\n");
    }
    s.push('\n');
    s
}

fn undefined(symbol: &UndefinedSymbol) -> String {
    let name = escaped(&symbol.name);
    match (symbol.exported_by.as_slice(), symbol.hint()) {
        ([], Some(hint)) => format!("{name} ({})", words::of_name(hint)),
        ([], None) => format!("{name} (nothing given defines it; see --library and --define)"),
        (paths, _) => format!("{name} (exported by {}; add --library)", words::paths(paths)),
    }
}

fn line_of(checked: &Checked) -> String {
    let name = escaped(&checked.name);
    if checked.loads() {
        return format!("{name}: loads\n");
    }
    let mut reasons: Vec<String> = Vec::new();
    match &checked.plan {
        Ok(plan) => {
            let errors = plan.problems.iter().filter(|problem| problem.severity == Severity::Error);
            reasons.extend(errors.map(|problem| problem.text.clone()));
        }
        Err(error) => reasons.push(error.clone()),
    }
    reasons.extend(checked.conflict.clone());
    if !checked.undefined.is_empty() {
        let names: Vec<_> = checked.undefined.iter().map(|symbol| &*symbol.name).collect();
        reasons.push(format!("undefined: {}", names.join(", ")));
    }
    // Texts may have several lines.
    let reasons = reasons.iter().flat_map(|reason| reason.lines()).map(|line| escaped(line.trim()));
    format!("{name}: does not load: {}\n", reasons.collect::<Vec<_>>().join(" "))
}

/// Escapes the names in a plan for printing, as they come from a file.
fn with_names_escaped(plan: &LinkPlan) -> LinkPlan {
    let mut plan = plan.clone();
    let mut names: Vec<&mut String> = vec![&mut plan.object];
    names.extend(plan.sections.iter_mut().map(|section| &mut section.name));
    for change in &mut plan.changes {
        names.extend(change.section.iter_mut().map(|section| &mut section.name));
        match &mut change.what {
            ChangeKind::Renamed { to } => names.push(to),
            ChangeKind::Symbol { name, to } => names.extend([name, to]),
            _ => {}
        }
    }
    names.extend(plan.definitions.iter_mut().map(|definition| &mut definition.name));
    names.extend(plan.imports.iter_mut().map(|import| &mut import.name));
    names.into_iter().for_each(|name| *name = escaped(name));
    // References share their names, as they are many.
    let mut shared: HashMap<Arc<str>, Arc<str>> = HashMap::new();
    let mut escape = |name: &mut Arc<str>| {
        *name = Arc::clone(shared.entry(Arc::clone(name)).or_insert_with(|| escaped(name).into()));
    };
    for reference in &mut plan.references {
        [&mut reference.section, &mut reference.symbol].into_iter().for_each(&mut escape);
        reference.function.iter_mut().chain(&mut reference.note).for_each(&mut escape);
    }
    plan.problems.iter_mut().for_each(|problem| problem.text = escaped_lines(&problem.text));
    plan
}

fn json_of(checked: &Checked) -> Value {
    let mut value = match &checked.plan {
        Ok(plan) => json!({ "plan": plan }),
        Err(error) => json!({ "error": error }),
    };
    value["object"] = json!(checked.path);
    value["loads"] = json!(checked.loads());
    value["imports_judged"] = json!(checked.native);
    value["undefined"] = checked.undefined.iter().map(|symbol| json!(symbol.name)).collect();
    let exported = checked.undefined.iter().filter(|symbol| !symbol.exported_by.is_empty());
    value["exported_by"] = exported.map(|symbol| (symbol.name.clone(), json!(symbol.exported_by))).collect();
    if let Some(conflict) = &checked.conflict {
        value["conflict"] = json!(conflict);
    }
    value
}
