//! The topics that the broker makes for itself, when something first needs them.

use forebay_broker_config::BrokerConfig;
use forebay_broker_machines::metadata::{CONSUMER_OFFSETS_TOPIC, MetadataImage, NewTopic, Settings};

/// `__consumer_offsets`: groups and committed offsets, compacted. It gets as many replicas as are asked for, or as the cluster has
/// brokers, so that a cluster of one broker can commit. Voters count although they may not have come yet: whoever asks first, while the
/// others start, must not leave all groups with one replica for ever.
pub(crate) fn consumer_offsets(config: &BrokerConfig, image: &MetadataImage) -> NewTopic {
    let voters = config.quorum.as_ref().map_or(0, |quorum| quorum.voters.len());
    let brokers = i16::try_from(image.brokers().len().max(voters)).unwrap_or(i16::MAX);
    let setting = |name: &str, value: String| (name.to_owned(), value);
    NewTopic {
        name: CONSUMER_OFFSETS_TOPIC.to_owned(),
        partitions: Some(config.offsets.topic_num_partitions),
        replication_factor: Some(config.offsets.topic_replication_factor.min(brokers.max(1))),
        assignment: None,
        config: Settings::from([
            setting("cleanup.policy", "compact".to_owned()),
            setting("compression.type", "producer".to_owned()),
            setting("segment.bytes", config.offsets.topic_segment_bytes.to_string()),
        ]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voters_that_have_not_come_yet_count() {
        let file = "node.id=0\nlog.dirs=/x\nlisteners=PLAINTEXT://localhost:0,CONTROLLER://localhost:9093\n\
                    forebay.cluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n\
                    controller.quorum.voters=0@localhost:9093,1@localhost:9094,2@localhost:9095\n";
        let config = BrokerConfig::parse(file, &[]).unwrap();
        let topic = consumer_offsets(&config, &MetadataImage::default());
        assert_eq!(topic.replication_factor, Some(3));
    }

    #[test]
    fn a_cluster_of_one_broker_gets_one_replica() {
        let file = "node.id=0\nlog.dirs=/x\nlisteners=PLAINTEXT://localhost:0\noffsets.topic.num.partitions=9\n";
        let config = BrokerConfig::parse(file, &[]).unwrap();
        let topic = consumer_offsets(&config, &MetadataImage::default());
        assert_eq!((topic.partitions, topic.replication_factor), (Some(9), Some(1)));
        assert_eq!(topic.config["cleanup.policy"], "compact");
    }
}
