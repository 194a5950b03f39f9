//! LLVM's target machines, for this CPU. They are used again: making one reads LLVM's tables of the CPU, which takes a
//! fifth of the time of a small function's compilation.
#![allow(unsafe_code, reason = "LLVM's types go to other threads")]

use std::ops::Deref;
use std::sync::OnceLock;

use inkwell::OptimizationLevel;
use inkwell::targets::{CodeModel, InitializationConfig, RelocMode, Target, TargetMachine, TargetTriple};

use super::error::text;
use crate::fork_guard::{self, Mutex};

/// So many wait for the next compilation at most.
const IDLE: usize = 16;
/// After so many compilations a machine goes: it keeps what it finds out for each `target-cpu` and `target-features`.
const USES: u32 = 64;

/// A target machine, which goes back to those that wait.
pub(super) struct Machine(Option<Kept>);

struct Kept {
    level: OptimizationLevel,
    machine: TargetMachine,
    uses: u32,
}

// SAFETY: a target machine may be used by any thread, by one at a time.
unsafe impl Send for Kept {}

static WAITING: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

impl Machine {
    /// Returns one for position-independent code in the small model.
    pub(super) fn new(level: OptimizationLevel) -> Result<Self, String> {
        let mut waiting = WAITING.lock();
        if let Some(at) = waiting.iter().rposition(|kept| kept.level == level) {
            return Ok(Self(Some(waiting.swap_remove(at))));
        }
        drop(waiting);
        let Host { triple, cpu, features } = host()?;
        let target = Target::from_triple(triple).map_err(|message| text(message.to_bytes()))?;
        let machine = target.create_target_machine(triple, cpu, features, level, RelocMode::PIC, CodeModel::Small);
        let machine = machine.ok_or_else(|| format!("LLVM has no code generator for {cpu} with {features}"))?;
        Ok(Self(Some(Kept { level, machine, uses: 0 })))
    }
}

impl Deref for Machine {
    type Target = TargetMachine;

    fn deref(&self) -> &TargetMachine {
        match &self.0 {
            Some(kept) => &kept.machine,
            None => unreachable!("it is taken in drop only"),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let Some(mut kept) = self.0.take() else { return };
        kept.uses += 1;
        let mut waiting = WAITING.lock();
        if kept.uses < USES && waiting.len() < IDLE {
            waiting.push(kept);
        }
    }
}

/// What code is compiled for.
pub(super) struct Host {
    pub(super) triple: TargetTriple,
    pub(super) cpu: String,
    pub(super) features: String,
}

// SAFETY: strings of LLVM's, which nobody changes.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

pub(super) fn host() -> Result<&'static Host, String> {
    static HOST: OnceLock<Result<Host, String>> = OnceLock::new();
    let host = fork_guard::once(&HOST, || {
        Target::initialize_native(&InitializationConfig::default())?;
        let [cpu, features] = [TargetMachine::get_host_cpu_name(), TargetMachine::get_host_cpu_features()];
        let [cpu, features] = [cpu, features].map(|string| text(string.to_bytes()));
        Ok(Host { triple: TargetMachine::get_default_triple(), cpu, features })
    });
    host.as_ref().map_err(Clone::clone)
}
