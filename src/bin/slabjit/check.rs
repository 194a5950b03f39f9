//! `slabjit check`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use slabjit::{Error, JitEngine, Library, LinkPlan, UndefinedSymbol};

use crate::input::Inputs;
use crate::{Format, Scope};

/// One object's verdict.
pub(crate) struct Checked {
    path: PathBuf,
    pub(crate) plan: Result<LinkPlan, String>,
    /// Why it cannot join the objects before it, such as a name that is defined twice.
    conflict: Option<String>,
    /// Whether it is for this machine, so that its imports are judged.
    native: bool,
    undefined: Vec<UndefinedSymbol>,
}

impl Checked {
    pub(crate) fn loads(&self) -> bool {
        self.plan.as_ref().is_ok_and(LinkPlan::loads) && self.conflict.is_none() && self.undefined.is_empty()
    }

    /// How many things keep it from being loaded, beside those that its plan has.
    pub(crate) fn further_problems(&self) -> usize {
        self.undefined.len() + usize::from(self.conflict.is_some())
    }
}

pub(crate) fn check(format: Format, scope: &Scope, inputs: &Inputs) -> ExitCode {
    let checked = match check_all(scope, inputs) {
        Ok(checked) => checked,
        Err(error) => {
            eprintln!("slabjit: {error}");
            return ExitCode::FAILURE;
        }
    };
    match format {
        Format::Text => checked.iter().for_each(print_text),
        Format::Json => println!("{:#}", Value::Array(checked.iter().map(to_json).collect())),
    }
    if checked.iter().all(Checked::loads) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

pub(crate) fn check_all(scope: &Scope, inputs: &Inputs) -> slabjit::Result<Vec<Checked>> {
    let engine = JitEngine::new()?;
    let library = scope.library(&engine)?;
    // References are judged when the library has all objects.
    let mut checked: Vec<_> = inputs.paths.iter().map(|path| add_one(&library, inputs, path)).collect();
    let (arena, mut taken) = (engine.arena().len() as u64, 0_u64);
    for (object, bytes) in &mut checked {
        let Some(bytes) = bytes else { continue };
        let plan = library.check_object_named(&object.path.display().to_string(), bytes);
        object.plan = plan.map_err(|error| error.to_string());
        match &object.plan {
            Ok(plan) if plan.loads() && object.native => taken = taken.saturating_add(plan.arena_bytes),
            Ok(plan) if plan.loads() => {}
            // It says what is wrong with the object itself.
            _ => object.conflict = None,
        }
        if taken > arena {
            let text = || format!("with the objects before it, it takes {taken} bytes of the arena's {arena}");
            object.conflict.get_or_insert_with(text);
        }
    }
    let mut checked: Vec<_> = checked.into_iter().map(|(object, _)| object).collect();
    for symbol in library.undefined_symbols()? {
        for object in &mut checked {
            if object.native && symbol.referenced_by.iter().any(|by| *by == object.path.display().to_string()) {
                object.undefined.push(symbol.clone());
            }
        }
    }
    Ok(checked)
}

/// An object and its bytes, if it can be read.
fn add_one(library: &Library, inputs: &Inputs, path: &Path) -> (Checked, Option<Vec<u8>>) {
    let name = path.display().to_string();
    let mut checked = Checked {
        path: path.to_owned(),
        plan: Err(String::new()),
        conflict: None,
        native: false,
        undefined: Vec::new(),
    };
    let bytes = match inputs.read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            checked.plan = Err(error.to_string());
            return (checked, None);
        }
    };
    match library.add_object_named(&name, &bytes) {
        Ok(()) => checked.native = true,
        Err(Error::WrongMachine { .. }) => {}
        Err(error) => {
            checked.native = true;
            checked.conflict = Some(error.to_string());
        }
    }
    (checked, Some(bytes))
}

fn print_text(checked: &Checked) {
    match &checked.plan {
        Ok(plan) => println!("{plan}"),
        Err(error) => println!("{}: {error}", checked.path.display()),
    }
    if let Some(conflict) = &checked.conflict {
        println!("  conflict: {conflict}");
    }
    for symbol @ UndefinedSymbol { name, exported_by, .. } in &checked.undefined {
        match (exported_by.as_slice(), symbol.hint()) {
            ([], Some(hint)) => println!("  undefined: {name} ({hint})"),
            ([], None) => println!("  undefined: {name} (nothing given defines it; see --library and --define)"),
            (paths, _) => println!("  undefined: {name} (exported by {}; add --library)", paths_text(paths)),
        }
    }
    let prepares = checked.plan.as_ref().is_ok_and(LinkPlan::loads);
    if prepares && !checked.native {
        println!("  imports are not judged: the object is for another machine");
    }
    if prepares && !checked.loads() {
        println!("does not load with what was given");
    }
    println!();
}

fn paths_text(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn to_json(checked: &Checked) -> Value {
    let mut value = match &checked.plan {
        Ok(plan) => json!({ "plan": plan }),
        Err(error) => json!({ "error": error }),
    };
    value["object"] = json!(checked.path.display().to_string());
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
