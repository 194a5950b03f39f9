//! `slabjit`: runs and checks objects from the command line.

mod check;
mod input;
mod map;
mod run;
mod svg;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use input::Inputs;
use slabjit::{JitEngine, Library};

/// Loads relocatable ELF objects, and LLVM IR, without a linker.
#[derive(Parser)]
#[command(name = "slabjit", version = version(), max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load objects into one library, call `int NAME(int argc, char **argv)` and exit with its result.
    ///
    /// Initialisers run before, exit handlers and finalisers after. Failures of slabjit itself exit with 125.
    Run {
        /// The function to call.
        #[arg(long, value_name = "NAME", default_value = "main")]
        entry: String,
        #[command(flatten)]
        scope: Scope,
        #[command(flatten)]
        inputs: Inputs,
        /// Arguments of the function, after the first object's name as argv[0].
        #[arg(last = true, value_name = "ARG")]
        arguments: Vec<String>,
    },
    /// Print what loading objects would do; exit with 0 if all would load, else with 1.
    ///
    /// Objects may be for x86-64 or AArch64; imports of objects for the other machine are listed, not judged.
    Check {
        /// How to print.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
        #[command(flatten)]
        scope: Scope,
        #[command(flatten)]
        inputs: Inputs,
    },
    /// Draw the sections of objects by permission, and their references by reach, to an SVG file.
    ///
    /// Nothing is linked. Exits with 0 if the file was written, also for objects that would not load; else with 1.
    Map {
        #[command(flatten)]
        scope: Scope,
        #[command(flatten)]
        inputs: Inputs,
        /// The file to write.
        #[arg(short, long, value_name = "FILE.svg")]
        output: PathBuf,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Where imports are looked for, beside the objects and the process.
#[derive(clap::Args)]
struct Scope {
    /// A shared library to look in. Opened RTLD_LOCAL; its initialisers run.
    #[arg(long = "library", value_name = "SO")]
    libraries: Vec<PathBuf>,
    /// A folder in which shared libraries are looked for: those given by name, and those that export what is missing, to name them.
    #[arg(short = 'L', long = "library-path", value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// A symbol at a fixed address.
    #[arg(long = "define", value_name = "NAME=ADDR", value_parser = definition)]
    definitions: Vec<(String, usize)>,
}

impl Scope {
    fn library(&self, engine: &JitEngine) -> slabjit::Result<Library> {
        let builder = self.folders.iter().fold(engine.library("slabjit"), |b, folder| b.search_path(folder));
        let builder = self.libraries.iter().fold(builder, |b, path| b.shared_library(path));
        let define = |b: slabjit::LibraryBuilder, (name, address): &(String, usize)| {
            b.symbol(name, std::ptr::without_provenance(*address))
        };
        let builder = self.definitions.iter().fold(builder, define);
        run::build(builder)
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            let run = std::env::args_os().nth(1).is_some_and(|a| a == "run");
            return match (error.use_stderr(), run) {
                (false, _) => ExitCode::SUCCESS,
                (true, true) => ExitCode::from(run::OUR_FAILURE),
                (true, false) => ExitCode::from(2),
            };
        }
    };
    match arguments.command {
        Command::Run { entry, scope, inputs, arguments } => run::run(&entry, &scope, &inputs, arguments),
        Command::Check { format, scope, inputs } => check::check(format, &scope, &inputs),
        Command::Map { scope, inputs, output } => map::map(&scope, &inputs, &output),
    }
}

fn version() -> String {
    format!("{} (LLVM {})", env!("CARGO_PKG_VERSION"), slabjit::llvm_version_string())
}

fn definition(text: &str) -> Result<(String, usize), String> {
    let (name, address) = text.split_once('=').ok_or("expected NAME=ADDR, such as host_log=0x401000")?;
    let parsed = match address.strip_prefix("0x").or_else(|| address.strip_prefix("0X")) {
        Some(hex) => usize::from_str_radix(hex, 16),
        None => address.parse(),
    };
    match parsed {
        Ok(_) if name.is_empty() => Err("the name is empty".to_owned()),
        Ok(address) => Ok((name.to_owned(), address)),
        Err(error) => Err(format!("'{address}' is no address: {error}")),
    }
}
