//! `slabjit check --cpu`.

use std::ffi::c_int;
use std::fmt::Write as _;

use serde_json::{Value, json};
use slabjit::{CpuFeature, FunctionNeeds, cpu_needs, program};

use crate::check::Format;
use crate::input::Inputs;
use crate::output::{self, escaped};
use crate::words;

/// An object's name, and its functions or the reason why they are not known.
type Checked = (String, Result<Vec<FunctionNeeds>, String>);

/// Prints what functions need of the CPU; 0 if this one runs all.
pub(crate) fn check(format: Format, inputs: &Inputs) -> c_int {
    output::outlive_readers();
    let mut checked = Vec::new();
    for path in &inputs.paths {
        let objects = inputs.read(path).and_then(|input| match input.is_archive() {
            true => program::members(&input.name, &input.bytes),
            false => Ok(vec![(input.name, input.bytes)]),
        });
        match objects {
            Ok(objects) => checked.extend(objects.into_iter().map(|(name, bytes)| {
                let needs = cpu_needs(&name, &bytes).map_err(|error| words::of(&error));
                (name, needs)
            })),
            Err(error) => checked.push((path.display().to_string(), Err(words::of(&error)))),
        }
    }
    let text = match format {
        Format::Text => checked.iter().map(|object| text_of(object, true)).collect(),
        Format::Quiet => checked.iter().map(|object| text_of(object, false)).collect(),
        Format::Json => format!("{:#}\n", Value::Array(checked.iter().map(json_of).collect())),
    };
    let printed = output::print(&text);
    c_int::from(!printed || !checked.iter().all(runs))
}

fn is_missing(feature: &CpuFeature) -> bool {
    feature.present == Some(false)
}

fn runs((_, functions): &Checked) -> bool {
    functions.as_ref().is_ok_and(|all| all.iter().all(|function| !function.features.iter().any(is_missing)))
}

/// Returns lines about an object: `all`, or those about what this CPU has not got.
fn text_of((name, functions): &Checked, all: bool) -> String {
    let name = escaped(name);
    let functions = match functions {
        Ok(functions) => functions,
        Err(error) => return format!("{name}: {error}\n"),
    };
    let mut text = String::new();
    for FunctionNeeds { function, features, unknown, .. } in functions {
        let told = features.iter().filter(|feature| all || is_missing(feature)).map(|feature| {
            let missing = if is_missing(feature) { " (not in this CPU)" } else { "" };
            format!("{} at +{:#x}{missing}", escaped(&feature.name), feature.offset)
        });
        let mut told: Vec<_> = told.collect();
        if all && *unknown {
            told.push(
                "something that is not known (it has no size, or bytes that are no known instruction)".to_owned(),
            );
        }
        if !told.is_empty() {
            let _ = writeln!(text, "{name}: {} needs {}", escaped(function), told.join(", "));
        }
    }
    if text.is_empty() {
        let of = if all { "every CPU" } else { "this CPU" };
        let _ = writeln!(text, "{name}: its functions run on {of}");
    }
    text
}

fn json_of((name, functions): &Checked) -> Value {
    let functions = match functions {
        Ok(functions) => functions,
        Err(error) => return json!({ "object": name, "error": error }),
    };
    let feature = |of: &CpuFeature| json!({ "name": of.name, "offset": of.offset, "present": of.present });
    let function = |of: &FunctionNeeds| {
        let features: Vec<_> = of.features.iter().map(feature).collect();
        json!({ "function": of.function, "features": features, "unknown": of.unknown })
    };
    json!({ "object": name, "functions": functions.iter().map(function).collect::<Vec<_>>() })
}
