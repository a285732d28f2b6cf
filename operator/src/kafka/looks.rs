//! One look at all topics of a Cluster, shared: whoever asks while a look is young enough gets it, whoever asks while one
//! is being taken waits for it. A failed look is shared too, so that an unreachable cluster costs one attempt, not one
//! per topic.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_broker_client::admin::{ConfigResource, Each, TopicDescription};
use forebay_broker_client::types::ErrorCode;
use forebay_broker_client::{Admin, Refused};
use tokio::sync::Mutex;

use super::{TopicSeen, TopicState};

/// How long a look is good for, unless the topic was changed after it.
const GOOD_FOR: Duration = Duration::from_secs(2);

/// All topics that were asked about, at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    topics: BTreeMap<String, TopicSeen>,
}

impl Look {
    pub(crate) fn topic(&self, name: &str) -> TopicSeen {
        self.topics.get(name).cloned().unwrap_or(TopicSeen::Absent)
    }
}

/// A look with when it was begun (what was changed later is not in it) and ended (how old it is: a failed one may have
/// taken long).
#[derive(Clone, Debug)]
struct Taken {
    begun: Instant,
    ended: Instant,
    look: Result<Arc<Look>, String>,
}

/// The newest look at a Cluster's topics, and when this operator changed which topic.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    newest: Mutex<Option<Taken>>,
    changed: parking_lot::Mutex<HashMap<String, Instant>>,
}

impl Looks {
    /// A look that has `name` in it and is not older than the last change to it.
    pub(crate) async fn at(
        &self,
        admin: &Admin,
        name: &str,
        all: impl FnOnce() -> BTreeSet<String>,
    ) -> Result<Arc<Look>, String> {
        let mut newest = self.newest.lock().await;
        let changed = self.changed.lock().get(name).copied();
        if let Some(taken) = newest.as_ref()
            && is_good(taken, changed, Instant::now())
            && taken.look.as_ref().map_or(true, |look| look.topics.contains_key(name))
        {
            return taken.look.clone();
        }
        let mut names = all();
        names.insert(name.to_owned());
        let begun = Instant::now();
        let look = take(admin, &names).await.map(Arc::new);
        *newest = Some(Taken { begun, ended: Instant::now(), look: look.clone() });
        // What was changed before this look is in it; the map stays as small as what changes within one look.
        self.changed.lock().retain(|_, at| *at >= begun);
        look
    }

    /// Says that this operator has just changed a topic.
    pub(crate) fn changed(&self, name: &str) {
        self.changed.lock().insert(name.to_owned(), Instant::now());
    }
}

fn is_good(taken: &Taken, changed: Option<Instant>, now: Instant) -> bool {
    now.duration_since(taken.ended) < GOOD_FOR && changed.is_none_or(|changed| changed < taken.begun)
}

async fn take(admin: &Admin, names: &BTreeSet<String>) -> Result<Look, String> {
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    let described = admin.describe_topics(&asked).await.map_err(|error| error.to_string())?;
    let present = described.iter().filter(|(_, topic)| topic.is_ok());
    let resources: Vec<ConfigResource> = present.map(|(name, _)| ConfigResource::Topic(name.clone())).collect();
    let configs = match resources.is_empty() {
        true => Each::new(),
        false => admin.describe_configs(&resources).await.map_err(|error| error.to_string())?,
    };
    let topics = names.iter().map(|name| {
        let seen = match described.get(name) {
            None => TopicSeen::Absent,
            Some(Err(refused)) => refused_or_absent(refused),
            Some(Ok(topic)) => match configs.get(&ConfigResource::Topic(name.clone())) {
                Some(Ok(configs)) => TopicSeen::Present(state(topic, configs.clone())),
                Some(Err(refused)) => refused_or_absent(refused), // deleted between the two calls
                None => TopicSeen::Refused("brokers did not describe its configuration".to_owned()),
            },
        };
        (name.clone(), seen)
    });
    Ok(Look { topics: topics.collect() })
}

fn refused_or_absent(refused: &Refused) -> TopicSeen {
    match refused.code {
        ErrorCode::UnknownTopicOrPartition => TopicSeen::Absent,
        _ => TopicSeen::Refused(refused.to_string()),
    }
}

fn state(topic: &TopicDescription, configs: Vec<forebay_broker_client::admin::ConfigEntry>) -> TopicState {
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let leaders: BTreeSet<i32> = topic.partitions.iter().filter_map(|p| p.leader.map(|id| id.0)).collect();
    TopicState {
        topic_id: topic.topic_id.to_string(),
        partitions: count(topic.partitions.len()),
        replication_factor: count(topic.replication_factor()),
        leaders: leaders.into_iter().collect(),
        configs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_good_while_young_and_only_for_topics_not_changed_after_it() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let taken = |begun, ended| Taken { begun: at(begun), ended: at(ended), look: Err("unreachable".to_owned()) };
        assert!(is_good(&taken(0, 0), None, at(1999)));
        assert!(!is_good(&taken(0, 0), None, at(2000)));
        assert!(is_good(&taken(0, 3000), None, at(4000)), "one that took long is shared by those who waited");
        assert!(!is_good(&taken(0, 7), Some(at(5)), at(10)), "the change came while it was taken");
        assert!(is_good(&taken(6, 7), Some(at(5)), at(10)));
    }
}
