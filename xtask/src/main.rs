//! The project's own tasks: `cargo xtask --help`. One file per task, named by it; each has its `Args` and a `run`.

mod bench;
mod chart;
mod check;
mod e2e;
mod faults;
mod fuzz;
mod generate;
mod image;
mod instructions;
mod run;
mod sim;
mod test;

use clap::Parser;

/// The project's own tasks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Measurements of the broker as released; figures that a run must meet are printed as pass or fail.
    Bench(bench::Args),
    /// Format, lints, licences, documentation: what needs no running broker.
    Check(check::Args),
    /// Real brokers killed, frozen, cut off and robbed of their disks under load; nothing acknowledged may be lost.
    Faults(faults::Args),
    /// The wire's decoders fed with damaged messages and batches, for a given time.
    Fuzz(fuzz::Args),
    /// What is written by a program and committed; `--check` proves it fresh.
    Generate(generate::Args),
    /// The chart: lint, golden renders, refusals.
    Chart(chart::Args),
    /// The tests on a real Kubernetes cluster.
    E2e(e2e::Args),
    /// The container images, as docker archives in target/images, without a daemon or a base image.
    Image(image::Args),
    /// Instructions that a produced and a fetched batch costs the broker, beside a committed baseline: a check that no noise upsets.
    Instructions(instructions::Args),
    /// Simulated clusters under faults, one for each seed.
    Sim(sim::Args),
    /// Every test there is, from unit tests to a real Kubernetes cluster; installs what it needs.
    Test(test::Args),
}

fn main() -> anyhow::Result<()> {
    match Task::parse() {
        Task::Bench(args) => bench::run(&args),
        Task::Check(args) => check::run(&args),
        Task::Faults(args) => faults::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Generate(args) => generate::run(&args),
        Task::Chart(args) => chart::run(&args),
        Task::E2e(args) => e2e::run(&args),
        Task::Image(args) => image::run(&args),
        Task::Instructions(args) => instructions::run(&args),
        Task::Sim(args) => sim::run(&args),
        Task::Test(args) => test::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn every_task_can_be_asked_for() {
        super::Task::command().debug_assert();
    }
}
