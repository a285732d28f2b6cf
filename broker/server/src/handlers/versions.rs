//! Which APIs are offered in which versions: the one table that ApiVersions answers from and requests are checked against.
//!
//! What must hold: topic ids are all or nothing (Fetch 13, Produce 13 and OffsetCommit/OffsetFetch 10 are offered because
//! every topic has an id); only what is served is offered. `advertised` begins below `served` where old clients derive
//! features from it: without Produce 0 librdkafka before 2.8 silently drops compression, without FindCoordinator 0 and
//! JoinGroup 0 it turns off lz4 and SASL.

use std::ops::RangeInclusive;

use forebay_broker_wire::types::ApiKey;

/// One API: what clients are told, and the lowest version that is really served.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Api {
    pub(crate) key: ApiKey,
    pub(crate) min: i16,
    pub(crate) max: i16,
    served_from: i16,
}

const fn api(key: ApiKey, min: i16, max: i16) -> Api {
    Api { key, min, max, served_from: min }
}

pub(crate) const TABLE: &[Api] = &[
    Api { key: ApiKey::Produce, min: 0, max: 13, served_from: 3 },
    api(ApiKey::Fetch, 4, 18),
    api(ApiKey::ListOffsets, 1, 11),
    api(ApiKey::Metadata, 0, 13),
    api(ApiKey::OffsetCommit, 2, 10),
    api(ApiKey::OffsetFetch, 1, 10),
    api(ApiKey::FindCoordinator, 0, 6),
    api(ApiKey::JoinGroup, 0, 9),
    api(ApiKey::Heartbeat, 0, 4),
    api(ApiKey::LeaveGroup, 0, 5),
    api(ApiKey::SyncGroup, 0, 5),
    api(ApiKey::DescribeGroups, 0, 6),
    api(ApiKey::ListGroups, 0, 5),
    api(ApiKey::ApiVersions, 0, 5),
    api(ApiKey::DeleteGroups, 0, 3),
    api(ApiKey::OffsetDelete, 0, 0),
    api(ApiKey::InitProducerId, 0, 5),
    api(ApiKey::OffsetForLeaderEpoch, 2, 4),
    api(ApiKey::CreateTopics, 2, 7),
    api(ApiKey::DeleteTopics, 1, 6),
    api(ApiKey::DeleteRecords, 0, 2),
    api(ApiKey::DescribeConfigs, 1, 4),
    api(ApiKey::AlterConfigs, 0, 2),
    api(ApiKey::AlterReplicaLogDirs, 1, 2),
    api(ApiKey::DescribeLogDirs, 1, 5),
    api(ApiKey::CreatePartitions, 0, 3),
    api(ApiKey::IncrementalAlterConfigs, 0, 1),
    api(ApiKey::ElectLeaders, 0, 2),
    api(ApiKey::AlterPartitionReassignments, 0, 1),
    api(ApiKey::ListPartitionReassignments, 0, 0),
    api(ApiKey::DescribeQuorum, 0, 2),
    api(ApiKey::DescribeCluster, 0, 2),
    api(ApiKey::UnregisterBroker, 0, 0),
    api(ApiKey::ListConfigResources, 0, 1),
    api(ApiKey::DescribeTopicPartitions, 0, 0),
];

pub(crate) fn find(key: ApiKey) -> Option<&'static Api> {
    TABLE.iter().find(|api| api.key == key)
}

/// The versions of an API that are answered.
pub(crate) fn served(key: ApiKey) -> Option<RangeInclusive<i16>> {
    find(key).map(|api| api.served_from..=api.max)
}

#[cfg(test)]
mod tests {
    use forebay_broker_wire::messages::api_info;

    use super::*;

    #[test]
    fn only_versions_with_messages_are_served() {
        for api in TABLE {
            let info = api_info(api.key).unwrap();
            assert!(api.served_from >= info.min && api.max <= info.max_unstable, "{}", api.key);
            assert!(api.min <= api.served_from && api.served_from <= api.max, "{}", api.key);
        }
    }

    #[test]
    fn each_api_is_there_once() {
        let mut keys: Vec<_> = TABLE.iter().map(|api| api.key).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), TABLE.len());
    }

    #[test]
    fn old_librdkafka_finds_the_versions_it_derives_features_from() {
        assert_eq!(find(ApiKey::Produce).unwrap().min, 0);
        assert!(find(ApiKey::Fetch).unwrap().max >= 10);
        assert_eq!(served(ApiKey::Produce), Some(3..=13));
    }
}
