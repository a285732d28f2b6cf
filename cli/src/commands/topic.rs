//! `forebay topic`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use comfy_table::Table;
use forebay_broker_client::Admin;
use forebay_broker_client::admin::{
    ConfigChange, ConfigEntry, ConfigResource, ConfigSource, Each, NewTopic, TopicDescription,
};
use forebay_broker_client::types::ErrorCode;
use forebay_broker_config::{ConfigError, validate_topic};
use serde::Serialize;

use super::all_done;
use crate::args::{Output, TopicArgs, TopicCommand};
use crate::output::table;

pub(crate) async fn run(args: TopicArgs) -> anyhow::Result<()> {
    let admin = args.remote.admin().await?;
    let output = &args.remote.output;
    match args.command {
        TopicCommand::List { internal } => list(&admin, output, internal).await,
        TopicCommand::Describe { topics } => describe(&admin, output, &topics).await,
        TopicCommand::Create { topic, partitions, replication_factor, config, if_not_exists } => {
            must_differ(config.iter().map(|(name, _)| name))?;
            let configs = config.into_iter().collect();
            let new = NewTopic { name: topic, partitions, replication_factor, configs, ..NewTopic::default() };
            create(&admin, output, new, if_not_exists).await
        }
        TopicCommand::Alter { topic, partitions, set, unset } => {
            must_differ(set.iter().map(|(name, _)| name).chain(&unset))?;
            let set = set.into_iter().map(|(name, value)| ConfigChange::Set { name, value });
            let unset = unset.into_iter().map(|name| ConfigChange::Delete { name });
            alter(&admin, output, &topic, partitions, set.chain(unset).collect()).await
        }
        TopicCommand::Delete { topics, if_exists } => delete(&admin, output, &topics, if_exists).await,
    }
}

/// No setting is given twice: which one counts would be a guess.
fn must_differ<'a>(names: impl Iterator<Item = &'a String>) -> anyhow::Result<()> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            bail!("{name} is given twice: keep one of them");
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct Listed {
    topic: String,
    partitions: usize,
    replication_factor: usize,
    internal: bool,
}

async fn list(admin: &Admin, output: &Output, internal: bool) -> anyhow::Result<()> {
    let topics = all_done(admin.list_topics().await?, "topic")?;
    let shown = topics.into_iter().filter(|(_, topic)| internal || !topic.internal);
    let rows: Vec<Listed> = shown
        .map(|(name, topic)| Listed {
            topic: name,
            partitions: topic.partitions.len(),
            replication_factor: topic.replication_factor(),
            internal: topic.internal,
        })
        .collect();
    output.print(&rows, |rows| {
        let mut t = table(["topic", "partitions", "replicas"]);
        rows.iter().for_each(|r| {
            t.add_row([r.topic.clone(), r.partitions.to_string(), r.replication_factor.to_string()]);
        });
        t
    })
}

#[derive(Serialize)]
struct Described {
    #[serde(flatten)]
    topic: TopicDescription,
    /// What is set on the topic itself.
    config: BTreeMap<String, Option<String>>,
}

async fn describe(admin: &Admin, output: &Output, names: &[String]) -> anyhow::Result<()> {
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    let topics = all_done(admin.describe_topics(&asked).await?, "topic")?;
    let resources: Vec<_> = names.iter().map(|name| ConfigResource::Topic(name.clone())).collect();
    let mut configs = admin.describe_configs(&resources).await?;
    let described = topics.into_iter().map(|(name, topic)| {
        let own = configs.remove(&ConfigResource::Topic(name)).and_then(Result::ok).unwrap_or_default();
        Described { topic, config: set_on_topic(own) }
    });
    output.print(&described.collect::<Vec<_>>(), |rows| shown(rows))
}

fn set_on_topic(entries: Vec<ConfigEntry>) -> BTreeMap<String, Option<String>> {
    entries.into_iter().filter(|e| e.source == ConfigSource::TopicConfig).map(|e| (e.name, e.value)).collect()
}

fn shown(rows: &[Described]) -> Table {
    let mut t = table(["topic", "partition", "leader", "replicas", "in sync", "set on the topic"]);
    for row in rows {
        for (n, p) in row.topic.partitions.iter().enumerate() {
            let ids = |ids: &[_]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let config = row.config.iter().map(|(k, v)| format!("{k}={}", v.as_deref().unwrap_or_default()));
            t.add_row([
                if n == 0 { row.topic.name.clone() } else { String::new() },
                p.index.to_string(),
                p.leader.map_or("none".to_owned(), |id| id.to_string()),
                ids(&p.replicas),
                ids(&p.isr),
                if n == 0 { config.collect::<Vec<_>>().join("\n") } else { String::new() },
            ]);
        }
    }
    t
}

#[derive(Serialize)]
struct Changed {
    topics: Vec<String>,
    changed: bool,
}

async fn create(admin: &Admin, output: &Output, new: NewTopic, if_not_exists: bool) -> anyhow::Result<()> {
    let name = new.name.clone();
    let results = admin.create_topics(&[new], false).await?;
    let there = results.values().any(|r| r.as_ref().is_err_and(|e| e.code == ErrorCode::TopicAlreadyExists));
    if !(there && if_not_exists) {
        all_done(results, "topic")?;
    }
    let changed = Changed { topics: vec![name], changed: !there };
    output.say(&changed, |c| format!("{} {}", c.topics[0], if c.changed { "created" } else { "is there already" }))
}

async fn alter(
    admin: &Admin,
    output: &Output,
    topic: &str,
    partitions: Option<i32>,
    changes: Vec<ConfigChange>,
) -> anyhow::Result<()> {
    for change in &changes {
        // Brokers take the removal of what is not set, also of a name that nothing has.
        if let ConfigChange::Delete { name } = change
            && let Err(error @ ConfigError::Unknown { .. }) = validate_topic(name, "")
        {
            return Err(error.into());
        }
    }
    if !changes.is_empty() {
        let changes = [(ConfigResource::Topic(topic.to_owned()), changes)];
        all_done(admin.incremental_alter_configs(&changes, false).await?, "settings of")?;
    }
    if let Some(count) = partitions {
        all_done(admin.create_partitions(&[(topic, count)], false).await?, "topic")?;
    }
    output.say(&Changed { topics: vec![topic.to_owned()], changed: true }, |c| format!("{} altered", c.topics[0]))
}

async fn delete(admin: &Admin, output: &Output, topics: &[String], if_exists: bool) -> anyhow::Result<()> {
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    let mut results: Each<String, ()> = admin.delete_topics(&names).await?;
    if if_exists {
        results.retain(|_, r| !r.as_ref().is_err_and(|e| e.code == ErrorCode::UnknownTopicOrPartition));
    }
    let deleted: Vec<String> = all_done(results, "topic")?.into_iter().map(|(name, ())| name).collect();
    let changed = !deleted.is_empty();
    output.say(&Changed { topics: deleted, changed }, |c| match c.topics.as_slice() {
        [] => "nothing to delete".to_owned(),
        names => format!("{} deleted", names.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_given_twice_is_refused() {
        let names = ["retention.ms", "flush.ms"].map(str::to_owned);
        assert!(must_differ(names.iter()).is_ok());
        let error = must_differ(names.iter().chain(&names[..1])).unwrap_err().to_string();
        assert_eq!(error, "retention.ms is given twice: keep one of them");
    }
}
