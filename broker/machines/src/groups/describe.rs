//! What tools and metrics see of a group.

use super::command::{GroupDescription, GroupListing, GroupSummary, MemberDescription, OffsetSummary};
use super::group::{Group, GroupState};
use super::members::Member;

impl Group {
    pub(super) fn describe(&self) -> GroupDescription {
        let stable = self.state == GroupState::Stable;
        let protocol_name = self.protocol_name.clone().filter(|_| stable).unwrap_or_default();
        let describe_member = |member: &Member| MemberDescription {
            member_id: member.id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: member.metadata(&protocol_name),
            assignment: if stable { member.assignment.clone() } else { bytes::Bytes::new() },
        };
        GroupDescription {
            state: self.state,
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            members: self.members.iter().map(describe_member).collect(),
            protocol_name,
        }
    }

    pub(super) fn list(&self) -> GroupListing {
        GroupListing {
            group: self.id.clone(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            state: self.state,
        }
    }

    pub(super) fn summarize(&self) -> GroupSummary {
        let offsets = self.offsets.iter().map(|(topic, partition, committed)| OffsetSummary {
            topic: topic.clone(),
            partition,
            offset: committed.offset,
            commit_timestamp_ms: committed.commit_timestamp_ms,
        });
        GroupSummary {
            group: self.id.clone(),
            state: self.state,
            members: self.members.len(),
            subscribed_topics: self.subscribed_topics().into_iter().flatten().collect(),
            offsets: offsets.collect(),
        }
    }
}
