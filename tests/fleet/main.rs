//! A shared store behind the object cache, on real servers: moto's S3, Redis, nginx with WebDAV. `ci/fleet` installs
//! them; what is not there is left out, and said.
//!
//! The servers listen on the loopback interface. `SLABJIT_FLEET_WORKER` makes this program a process of a test.

mod commands;
mod figures;
mod liars;
mod processes;
mod servers;
mod stores;

use libtest_mimic::{Arguments, Trial};

fn main() -> std::process::ExitCode {
    if let Ok(worker) = std::env::var("SLABJIT_FLEET_WORKER") {
        return processes::work(&worker);
    }
    let mut arguments = Arguments::from_args();
    // The figures are measured, and the servers are few.
    arguments.test_threads = Some(1);
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let tests = vec![
        trial("stores::s3", stores::s3),
        trial("stores::redis", stores::redis),
        trial("stores::http", stores::http),
        trial("stores::bazel", stores::bazel),
        trial("stores::webdav", stores::webdav),
        trial("stores::urls", stores::urls),
        trial("processes::two_machines_s3", processes::two_machines_s3),
        trial("processes::two_machines_redis", processes::two_machines_redis),
        trial("processes::ranks", processes::ranks),
        trial("processes::killed_processes", processes::killed_processes),
        trial("processes::killed_server", processes::killed_server),
        trial("processes::forks", processes::forks),
        trial("liars::endless_values", liars::endless_values),
        trial("liars::slow_and_broken_servers", liars::slow_and_broken_servers),
        trial("liars::refusals_are_not_taken_for_success", liars::refusals_are_not_taken_for_success),
        trial("liars::poisoned_bucket", liars::poisoned_bucket),
        trial("commands::a_builder_and_a_worker", commands::a_builder_and_a_worker),
        trial("commands::mistakes", commands::mistakes),
        trial("figures::folders", figures::folders),
        trial("figures::misses", figures::misses),
    ];
    libtest_mimic::run(&arguments, tests).exit_code()
}
