//! Consumer groups: which there are, who is in them, delete.

use std::collections::{BTreeMap, BTreeSet};

use forebay_broker_wire::messages::Data;
use forebay_broker_wire::messages::data::consumer_protocol_assignment::ConsumerProtocolAssignment;
use forebay_broker_wire::messages::delete_groups::DeleteGroupsRequest;
use forebay_broker_wire::messages::describe_groups::{DescribeGroupsRequest, DescribedGroup, DescribedGroupMember};
use forebay_broker_wire::messages::list_groups::ListGroupsRequest;
use forebay_broker_wire::types::{BrokerId, Str};
use serde::Serialize;

use super::{Admin, Each, TopicPartition};
use crate::error::{Refused, RequestError};

/// A group, as lists have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupListing {
    /// Its id.
    pub group: String,
    /// `Empty`, `Stable`, `PreparingRebalance`, ...; empty from old brokers.
    pub state: String,
    /// `classic` or `consumer`; empty from old brokers.
    pub kind: String,
    /// `consumer` for consumers.
    pub protocol_type: String,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupMember {
    /// The id the coordinator gave.
    pub member_id: String,
    /// The static member's own id, if it is one.
    pub instance_id: Option<String>,
    /// What the client calls itself.
    pub client_id: String,
    /// Where it comes from.
    pub host: String,
    /// The partitions it has; none while it waits for its assignment.
    pub assigned: Vec<TopicPartition>,
}

/// A group and its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupDescription {
    /// Its id.
    pub group: String,
    /// `Empty`, `Stable`, `PreparingRebalance`, `CompletingRebalance`, `Dead`.
    pub state: String,
    /// `consumer` for consumers.
    pub protocol_type: String,
    /// The assignor in use.
    pub assignor: String,
    /// Its members.
    pub members: Vec<GroupMember>,
}

impl Admin {
    /// The groups of all brokers.
    pub async fn list_groups(&self) -> Result<Vec<GroupListing>, RequestError> {
        let brokers = self.describe_cluster().await?.brokers;
        self.client.refresh().await?;
        let mut all = BTreeMap::new();
        for broker in brokers {
            let send = async || {
                let response = self.client.broker(broker.id).await?.send(&ListGroupsRequest::default()).await?;
                let what = || format!("list groups of broker {}", broker.id);
                RequestError::check(response.error_code, None, what).map(|()| response.groups)
            };
            all.extend(self.client.retry(send).await?.into_iter().map(|g| {
                let listing = GroupListing {
                    group: g.group_id.into(),
                    state: g.group_state.into(),
                    kind: g.group_type.into(),
                    protocol_type: g.protocol_type.into(),
                };
                (listing.group.clone(), listing)
            }));
        }
        Ok(all.into_values().collect())
    }

    /// The named groups with their members. A group that nobody knows is refused or, by older brokers, `Dead`.
    pub async fn describe_groups(&self, groups: &[&str]) -> Result<Each<String, GroupDescription>, RequestError> {
        let mut all = Each::new();
        for (coordinator, groups) in self.by_coordinator(groups).await? {
            let request = DescribeGroupsRequest { groups: names(&groups), ..Default::default() };
            let send = async || Ok(self.client.broker(coordinator).await?.send(&request).await?.groups);
            all.extend(self.client.retry(send).await?.into_iter().map(described));
        }
        Ok(all)
    }

    /// Deletes groups that have no members, and their offsets.
    pub async fn delete_groups(&self, groups: &[&str]) -> Result<Each<String, ()>, RequestError> {
        let mut all = Each::new();
        for (coordinator, groups) in self.by_coordinator(groups).await? {
            let request = DeleteGroupsRequest { groups_names: names(&groups) };
            let send = async || Ok(self.client.broker(coordinator).await?.send(&request).await?.results);
            let results = self.client.retry(send).await?.into_iter();
            all.extend(results.map(|g| (g.group_id.into(), Refused::check(g.error_code, g.error_message.as_ref()))));
        }
        Ok(all)
    }

    async fn by_coordinator<'a>(
        &self,
        groups: &[&'a str],
    ) -> Result<BTreeMap<BrokerId, BTreeSet<&'a str>>, RequestError> {
        let mut by_coordinator = BTreeMap::<BrokerId, BTreeSet<&str>>::new();
        for group in groups {
            let id = self.client.retry(async || self.client.coordinator_id(group).await).await?;
            by_coordinator.entry(id).or_default().insert(group);
        }
        Ok(by_coordinator)
    }
}

fn names(groups: &BTreeSet<&str>) -> Vec<Str> {
    groups.iter().map(|group| Str::from(*group)).collect()
}

fn described(group: DescribedGroup) -> (String, Result<GroupDescription, Refused>) {
    let name: String = group.group_id.into();
    let result = Refused::check(group.error_code, group.error_message.as_ref()).map(|()| GroupDescription {
        group: name.clone(),
        state: group.group_state.into(),
        protocol_type: group.protocol_type.into(),
        assignor: group.protocol_data.into(),
        members: group.members.into_iter().map(member).collect(),
    });
    (name, result)
}

fn member(member: DescribedGroupMember) -> GroupMember {
    GroupMember {
        assigned: assigned(member.member_assignment),
        member_id: member.member_id.into(),
        instance_id: member.group_instance_id.map(Into::into),
        client_id: member.client_id.into(),
        host: member.client_host.into(),
    }
}

/// A consumer's assignment; what other kinds of members keep there is theirs, and counts as none.
pub(crate) fn assigned(bytes: bytes::Bytes) -> Vec<TopicPartition> {
    let Ok(assignment) = ConsumerProtocolAssignment::from_prefixed_bytes(bytes) else { return Vec::new() };
    let topics = assignment.assigned_partitions.iter();
    topics.flat_map(|t| t.partitions.iter().map(|p| TopicPartition::new(&t.topic, *p))).collect()
}
