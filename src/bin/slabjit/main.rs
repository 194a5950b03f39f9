//! `slabjit`: runs and checks objects from the command line.
#![no_main]
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

mod cache;
#[cfg(feature = "shared-cache")]
mod cache_store;
mod check;
mod cpu;
mod doctor;
mod input;
mod link;
mod manual;
mod map;
mod output;
mod run;
mod scope;
mod svg;
mod words;

use std::ffi::{OsString, c_char, c_int};
use std::path::PathBuf;

use check::Format;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use input::Inputs;
use scope::Scope;
use scope::Settings;

/// Loads relocatable ELF objects without a linker.
#[derive(Parser)]
#[command(name = "slabjit", version = version(), max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// The exit status of `run` for failures that are not the object's own.
const OUR_FAILURE: c_int = 125;

#[derive(Subcommand)]
enum Command {
    /// Load objects or an image into one library, call `int NAME(int argc, char **argv, char **envp)` and exit with its
    /// result.
    ///
    /// Initialisers run before, exit handlers and finalisers after, as in a linked program. If slabjit itself fails, it
    /// exits with 125, and no code of the objects has run.
    Run {
        /// The function to call; it may be hidden.
        #[arg(long, value_name = "NAME", default_value = "main")]
        entry: String,
        /// Compile each function of LLVM IR when it is first called, instead of everything before the start.
        ///
        /// Objects and members of archives are linked when they are needed, too. A function that cannot be compiled or
        /// linked then ends the process with SIGABRT.
        #[cfg(feature = "inkwell")]
        #[arg(long)]
        lazy: bool,
        /// Report a crash in loaded code on standard error: the function, object and library, what was removed, and the
        /// calls that lead there.
        ///
        /// Handles SIGSEGV, SIGBUS, SIGILL, SIGTRAP and SIGFPE; a handler that the program installs replaces the
        /// report's. The process then ends by the same signal. The main thread gets an alternate signal stack, so that
        /// an overflow of its stack is reported, too. Without this, signals are as in a fresh process.
        #[arg(long)]
        crash_report: bool,
        #[command(flatten)]
        scope: Scope,
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        inputs: Inputs,
        /// Arguments of the function, after the first object's name as argv[0].
        #[arg(last = true, value_name = "ARG")]
        arguments: Vec<OsString>,
    },
    /// Print the effects of loading objects; exit with 0 if all would load, else with 1.
    ///
    /// Objects may be for x86-64 or AArch64; imports of objects for the other machine are listed, not judged. The
    /// members of archives that the objects need are checked; if only archives are given, all of their members.
    Check {
        /// The output format.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
        /// Print one line for each object: whether it would load, and if not, why.
        #[arg(short, long, conflicts_with = "format")]
        quiet: bool,
        /// Print instead what each function of objects, archives and images needs of the CPU, by its instructions; exit
        /// with 0 if this CPU has it all, else with 1.
        ///
        /// A function that asks the CPU before it uses more counts as one that needs it.
        #[arg(long)]
        cpu: bool,
        #[command(flatten)]
        scope: Scope,
        #[command(flatten)]
        inputs: Inputs,
    },
    /// Link objects into an image: a shared object that `slabjit run`, programs that embed slabjit, and dlopen load.
    ///
    /// Members of archives are linked when they are needed; if only archives are given, all of them. References inside
    /// are bound to the image, as by `ld -Bsymbolic`. Exits with 0 if the file was written, else with 1.
    Link {
        #[command(flatten)]
        inputs: Inputs,
        /// The file to write.
        #[arg(short, long, value_name = "FILE.so")]
        output: PathBuf,
        /// Have the image need this shared library, and take the versions of its symbols.
        #[arg(long = "library", value_name = "SO")]
        libraries: Vec<PathBuf>,
        /// The image's name for the dynamic loader (DT_SONAME).
        #[arg(long, value_name = "NAME")]
        soname: Option<String>,
        /// Say what a function needs of the CPU, in place of what its instructions need: features as `slabjit check
        /// --cpu` names them, none for a function that asks the CPU before it uses more.
        #[arg(long = "cpu", value_name = "FUNCTION=[FEATURE,...]", value_parser = link::function_needs)]
        cpu: Vec<(String, Vec<String>)>,
        /// Give kernels their signatures, from a file of such lines: `scale(x: in f32[n], y: out f32[n], n: i64)`.
        #[arg(long = "contract", value_name = "FILE")]
        contracts: Vec<PathBuf>,
        /// Keep the debug information of objects that were compiled with `-g`.
        #[arg(short = 'g', long)]
        debug_info: bool,
        /// Pack relative relocations (DT_RELR), as `ld -z pack-relative-relocs` does. dlopen of the image wants glibc
        /// 2.36.
        #[arg(long)]
        pack_relative_relocs: bool,
    },
    /// Draw the sections of objects by permission, and their references by reach, to an SVG file.
    ///
    /// Nothing is linked. Exits with 0 if the file was written, even if objects would not load; else with 1.
    Map {
        #[command(flatten)]
        scope: Scope,
        #[command(flatten)]
        inputs: Inputs,
        /// The file to write.
        #[arg(short, long, value_name = "FILE.svg")]
        output: PathBuf,
    },
    /// Look after an object cache: its size, its bounds, its files.
    Cache {
        #[command(subcommand)]
        action: cache::Action,
    },
    /// Print a script that completes this command's arguments in a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual, for `man -l -`.
    Man,
}

/// Called by the C library without Rust's own start-up code, which ignores SIGPIPE, and handles SIGSEGV and SIGBUS on a
/// stack of its own. Programs that run here do not expect that.
#[allow(unsafe_code, reason = "the name is the C library's")]
#[unsafe(no_mangle)]
extern "C-unwind" fn main(_count: c_int, _arguments: *const *const c_char) -> c_int {
    output::open_streams();
    let status = run_command();
    // This writes the buffers of Rust's standard output.
    std::process::exit(status)
}

fn run_command() -> c_int {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            if error.kind() == ErrorKind::DisplayVersion && std::env::args_os().any(|argument| argument == "--version")
            {
                doctor::print();
            }
            let run = std::env::args_os().nth(1).is_some_and(|a| a == "run");
            return match (error.use_stderr(), run) {
                (false, _) => 0,
                (true, true) => OUR_FAILURE,
                (true, false) => 2,
            };
        }
    };
    if let Command::Run { crash_report: true, .. } = arguments.command
        && let Err(error) = run::report_crashes()
    {
        output::complain(&format!("cannot report crashes: {error}"));
        return OUR_FAILURE;
    }
    match arguments.command {
        #[cfg(feature = "inkwell")]
        Command::Run { entry, lazy: true, scope, settings, inputs, arguments, .. } => {
            run::run_lazily(&entry, &scope, &settings, &inputs, arguments)
        }
        Command::Run { entry, scope, settings, inputs, arguments, .. } => {
            run::run(&entry, &scope, &settings, &inputs, arguments)
        }
        Command::Check { format, quiet, cpu, scope, inputs } => {
            let format = if quiet { Format::Quiet } else { format };
            if cpu { cpu::check(format, &inputs) } else { check::check(format, &scope, &inputs) }
        }
        Command::Link { inputs, output, libraries, soname, cpu, contracts, debug_info, pack_relative_relocs } => {
            let soname = soname.as_deref();
            let options = link::Options { libraries, soname, cpu, contracts, debug_info, pack_relative_relocs };
            link::link(&inputs, &options, &output)
        }
        Command::Map { scope, inputs, output } => map::map(&scope, &inputs, &output),
        Command::Cache { action } => cache::act(&action),
        Command::Completions { shell } => manual::completions(shell, Arguments::command()),
        Command::Man => manual::pages(Arguments::command()),
    }
}

fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match slabjit::llvm_version() {
        0 => format!("{version} (without LLVM: images only)"),
        _ => format!("{version} (LLVM {})", slabjit::llvm_version_string()),
    }
}
