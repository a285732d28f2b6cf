//! `forebay profile`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::bail;
use comfy_table::Table;

use crate::args::{Output, ProfileArgs, ProfileCommand};
use crate::manifest::{self, topic_name};
use crate::output::table;
use crate::profiles::{self, Listed, Solved};
use crate::up::State;

pub(crate) fn run(args: ProfileArgs) -> anyhow::Result<()> {
    match args.command {
        ProfileCommand::Solve { files, name } => solve(&args.output, &files, name.as_deref()),
        ProfileCommand::List { data } => list(&args.output, &data),
    }
}

/// Prints what the solver says; a profile that is not accepted makes the command fail after all have been printed.
fn solve(output: &Output, files: &[PathBuf], name: Option<&str>) -> anyhow::Result<()> {
    let manifests = manifest::read(files)?;
    let partitions: BTreeMap<String, i32> =
        manifests.topics.iter().map(|topic| (topic_name(topic), topic.spec.partitions)).collect();
    let wanted = manifests.profiles.iter().filter(|p| name.is_none_or(|name| p.metadata.name.as_deref() == Some(name)));
    let mut solved = Vec::new();
    for profile in wanted {
        let replicas = manifests.cluster.spec.replicas;
        solved.push(profiles::solved(profile, profiles::declared_subscription(profile, &partitions, replicas)?)?);
    }
    match (solved.as_slice(), name) {
        ([], Some(name)) => bail!("no ConsumerProfile {name:?} in the manifests"),
        ([], None) => bail!("no ConsumerProfile in the manifests"),
        _ => output.print(&solved, |solved| settings_table(solved))?,
    }
    let bad: Vec<&str> = solved.iter().filter(|s| !s.solution.is_accepted()).map(|s| s.name.as_str()).collect();
    if bad.is_empty() { Ok(()) } else { bail!("not accepted: {}", bad.join(", ")) }
}

fn settings_table(solved: &[Solved]) -> Table {
    let mut t = table(["profile", "client", "settings", "verdicts"]);
    for s in solved {
        let settings = s.solution.settings.entries().into_iter().map(|(name, value)| format!("{name}={value}"));
        let verdicts = s.solution.verdicts.iter().map(|v| format!("{:?} {}: {}", v.verdict, v.rule.id(), v.message));
        t.add_row([
            s.name.clone(),
            s.client.as_str().to_owned(),
            settings.collect::<Vec<_>>().join("\n"),
            verdicts.collect::<Vec<_>>().join("\n"),
        ]);
    }
    t
}

fn list(output: &Output, data: &Path) -> anyhow::Result<()> {
    output.print(&State::read(data)?.profiles, |listed| listed_table(listed))
}

fn listed_table(listed: &[Listed]) -> Table {
    let mut t = table(["profile", "group", "client", "verdict", "files"]);
    for l in listed {
        let folder = l.folder.as_ref().map_or_else(|| l.summary.clone(), |folder| folder.display().to_string());
        t.add_row([l.name.clone(), l.group.clone(), l.client.as_str().to_owned(), l.verdict.clone(), folder]);
    }
    t
}
