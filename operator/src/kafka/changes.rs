//! Changes of topics, many in one request: who wants one while a request is under way is part of the next.

use std::collections::BTreeMap;

use forebay_broker_client::admin::{ConfigChange, ConfigResource, Each, NewTopic};
use forebay_broker_client::types::{BrokerId, ErrorCode};
use forebay_broker_client::{Admin, RequestError, TopicPartition};

use super::batch::Batch;

/// Topics in one request: the controller answers it within its time also when each has some dozen partitions.
const TOPICS_A_REQUEST: usize = 200;

type Changed = Result<(), String>;

/// The changes that wait, by what they are.
#[derive(Debug)]
pub(crate) struct Changes {
    creations: Batch<NewTopic, Changed>,
    growths: Batch<(String, i32), Changed>,
    settings: Batch<(String, Vec<ConfigChange>), Changed>,
    deletions: Batch<String, Changed>,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            creations: Batch::new(TOPICS_A_REQUEST),
            growths: Batch::new(TOPICS_A_REQUEST),
            settings: Batch::new(TOPICS_A_REQUEST),
            deletions: Batch::new(TOPICS_A_REQUEST),
        }
    }
}

impl Changes {
    pub(crate) async fn create(&self, admin: &Admin, topic: NewTopic) -> Changed {
        let call = async |topics: Vec<NewTopic>| {
            let outcome = admin.create_topics(&topics, false).await;
            answers(outcome, topics.into_iter().map(|topic| topic.name))
        };
        told(self.creations.ask(topic, call).await)
    }

    pub(crate) async fn grow(&self, admin: &Admin, name: &str, partitions: i32) -> Changed {
        let call = async |topics: Vec<(String, i32)>| {
            let counts: Vec<_> = topics.iter().map(|(name, count)| (name.as_str(), *count)).collect();
            let outcome = admin.create_partitions(&counts, false).await;
            answers(outcome, topics.into_iter().map(|(name, _)| name))
        };
        told(self.growths.ask((name.to_owned(), partitions), call).await)
    }

    pub(crate) async fn configure(&self, admin: &Admin, name: &str, changes: &[ConfigChange]) -> Changed {
        let call = async |topics: Vec<(String, Vec<ConfigChange>)>| {
            let resource = |(name, changes): (String, Vec<ConfigChange>)| (ConfigResource::Topic(name), changes);
            let resources: Vec<_> = topics.into_iter().map(resource).collect();
            let outcome = admin.incremental_alter_configs(&resources, false).await;
            answers(outcome, resources.into_iter().map(|(resource, _)| resource))
        };
        told(self.settings.ask((name.to_owned(), changes.to_vec()), call).await)
    }

    /// A topic that is not there is deleted.
    pub(crate) async fn delete(&self, admin: &Admin, name: &str) -> Changed {
        let call = async |topics: Vec<String>| {
            let names: Vec<&str> = topics.iter().map(String::as_str).collect();
            let outcome = admin.delete_topics(&names).await.map(|mut outcome| {
                for done in outcome.values_mut() {
                    if done.as_ref().is_err_and(|refused| refused.code == ErrorCode::UnknownTopicOrPartition) {
                        *done = Ok(());
                    }
                }
                outcome
            });
            answers(outcome, topics)
        };
        told(self.deletions.ask(name.to_owned(), call).await)
    }

    /// Gives partitions of one topic other replicas.
    pub(crate) async fn reassign(&self, admin: &Admin, name: &str, moves: &BTreeMap<i32, Vec<i32>>) -> Changed {
        let moves: Vec<_> = moves
            .iter()
            .map(|(index, replicas)| {
                (TopicPartition::new(name, *index), Some(replicas.iter().copied().map(BrokerId).collect()))
            })
            .collect();
        let outcome = admin.alter_partition_reassignments(&moves).await.map_err(|error| error.to_string())?;
        match outcome.iter().find_map(|(partition, done)| done.as_ref().err().map(|why| (partition, why))) {
            Some((partition, why)) => Err(format!("{partition}: {why}")),
            None => Ok(()),
        }
    }
}

/// The answer about each that was asked, in order.
fn answers<K: Ord, T>(outcome: Result<Each<K, T>, RequestError>, asked: impl IntoIterator<Item = K>) -> Vec<Changed> {
    let mut outcome = outcome.map_err(|error| error.to_string());
    let one = |key| match &mut outcome {
        Err(error) => Err(error.clone()),
        Ok(each) => match each.remove(&key) {
            Some(done) => done.map(drop).map_err(|refused| refused.to_string()),
            None => Err("brokers gave no answer about it".to_owned()),
        },
    };
    asked.into_iter().map(one).collect()
}

fn told(answer: Option<Changed>) -> Changed {
    answer.unwrap_or_else(|| Err("the request was broken off".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_broker_client::Refused;

    #[test]
    fn each_gets_its_own_answer_and_a_failed_request_is_everybodys() {
        let refused = Refused::of(ErrorCode::InvalidPartitions);
        let outcome = Each::from([("a".to_owned(), Ok(7)), ("b".to_owned(), Err(refused.clone()))]);
        let asked = ["b", "a", "c"].map(str::to_owned);
        let found = answers(Ok(outcome), asked.clone());
        assert_eq!(found[0], Err(refused.to_string()));
        assert_eq!(found[1], Ok(()));
        assert!(found[2].as_ref().unwrap_err().contains("no answer"));
        let gone: Result<Each<String, ()>, _> = Err(RequestError::NoBroker { what: "id 3".into() });
        assert!(answers(gone, asked).iter().all(|answer| answer.as_ref().unwrap_err().contains("id 3")));
    }
}
