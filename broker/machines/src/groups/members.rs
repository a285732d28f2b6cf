//! The members of one group, with the counts that make a join cheap however many there are.
//!
//! Always true: `static_ids` names each member with an instance id exactly once; `awaiting_join` is the number of
//! members whose join is unanswered; `supporters` counts for each protocol the members that offer it.

use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::command::{Join, Protocol, RequestToken};
use super::ids::{InstanceId, MemberId};
use super::record::MemberMetadata;

/// A member and what it waits for.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) id: MemberId,
    pub(super) instance_id: Option<InstanceId>,
    pub(super) client_id: Arc<str>,
    pub(super) client_host: Arc<str>,
    pub(super) session_timeout_ms: i32,
    pub(super) rebalance_timeout_ms: i32,
    /// In the member's order of preference. After a restart only the chosen one is known.
    pub(super) protocols: Vec<Protocol>,
    pub(super) assignment: Bytes,
    pub(super) awaiting_sync: Option<RequestToken>,
    /// In its first rebalance: it may not know its id yet, so it cannot send heartbeats.
    pub(super) is_new: bool,
    /// Gone unless heard of by then.
    pub(super) deadline_ms: i64,
    awaiting_join: Option<RequestToken>,
}

impl Member {
    pub(super) fn new(id: MemberId, request: &Join, deadline_ms: i64) -> Self {
        Self {
            id,
            instance_id: request.instance_id.clone(),
            client_id: request.client_id.clone(),
            client_host: request.client_host.clone(),
            session_timeout_ms: request.session_timeout_ms,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            protocols: owned(&request.protocols),
            assignment: Bytes::new(),
            awaiting_sync: None,
            is_new: true,
            deadline_ms,
            awaiting_join: None,
        }
    }

    pub(super) fn restored(record: &MemberMetadata, protocol_name: Option<&Arc<str>>) -> Self {
        let protocols = protocol_name
            .map(|name| Protocol { name: name.clone(), metadata: record.subscription.clone() })
            .into_iter()
            .collect();
        Self {
            id: record.member_id.clone(),
            instance_id: record.instance_id.clone(),
            client_id: record.client_id.clone(),
            client_host: record.client_host.clone(),
            session_timeout_ms: record.session_timeout_ms,
            rebalance_timeout_ms: record.rebalance_timeout_ms,
            protocols,
            assignment: record.assignment.clone(),
            awaiting_sync: None,
            is_new: false,
            deadline_ms: 0,
            awaiting_join: None,
        }
    }

    /// The metadata for the protocol, empty if it does not offer it.
    pub(super) fn metadata(&self, protocol_name: &str) -> Bytes {
        let offered = self.protocols.iter().find(|protocol| &*protocol.name == protocol_name);
        offered.map(|protocol| protocol.metadata.clone()).unwrap_or_default()
    }

    pub(super) fn is_awaiting_join(&self) -> bool {
        self.awaiting_join.is_some()
    }

    pub(super) fn record(&self, protocol_name: &str) -> MemberMetadata {
        MemberMetadata {
            member_id: self.id.clone(),
            instance_id: self.instance_id.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            session_timeout_ms: self.session_timeout_ms,
            subscription: self.metadata(protocol_name),
            assignment: self.assignment.clone(),
        }
    }
}

/// Copies what a request lent: a slice of its frame would keep the whole frame in memory for the member's life.
pub(super) fn owned(protocols: &[Protocol]) -> Vec<Protocol> {
    let copy = |protocol: &Protocol| Protocol {
        name: protocol.name.clone(),
        metadata: Bytes::copy_from_slice(&protocol.metadata),
    };
    protocols.iter().map(copy).collect()
}

/// All members of a group.
#[derive(Debug, Default)]
pub(super) struct Members {
    by_id: BTreeMap<MemberId, Member>,
    static_ids: HashMap<InstanceId, MemberId>,
    awaiting_join: usize,
    supporters: HashMap<Arc<str>, usize>,
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn awaiting_join(&self) -> usize {
        self.awaiting_join
    }

    pub(super) fn get(&self, id: &MemberId) -> Option<&Member> {
        self.by_id.get(id)
    }

    /// For what the counts don't depend on; the rest has its own methods.
    pub(super) fn get_mut(&mut self, id: &MemberId) -> Option<&mut Member> {
        self.by_id.get_mut(id)
    }

    pub(super) fn contains(&self, id: &MemberId) -> bool {
        self.by_id.contains_key(id)
    }

    pub(super) fn static_id(&self, instance: &InstanceId) -> Option<&MemberId> {
        self.static_ids.get(instance)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.by_id.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.by_id.values_mut()
    }

    pub(super) fn ids(&self) -> Vec<MemberId> {
        self.by_id.keys().cloned().collect()
    }

    pub(super) fn insert(&mut self, member: Member) {
        self.remove(&member.id.clone());
        if let Some(instance) = &member.instance_id {
            self.static_ids.insert(instance.clone(), member.id.clone());
        }
        self.awaiting_join += usize::from(member.awaiting_join.is_some());
        self.count(&member.protocols);
        self.by_id.insert(member.id.clone(), member);
    }

    pub(super) fn remove(&mut self, id: &MemberId) -> Option<Member> {
        let member = self.by_id.remove(id)?;
        if let Some(instance) = &member.instance_id
            && self.static_ids.get(instance) == Some(id)
        {
            self.static_ids.remove(instance);
        }
        self.awaiting_join -= usize::from(member.awaiting_join.is_some());
        self.discount(&member.protocols);
        Some(member)
    }

    /// Lets the member's join wait for the rebalance; gives back an earlier request that still waited.
    pub(super) fn park_join(&mut self, id: &MemberId, token: RequestToken) -> Option<RequestToken> {
        let member = self.by_id.get_mut(id)?;
        let earlier = member.awaiting_join.replace(token);
        self.awaiting_join += usize::from(earlier.is_none());
        earlier
    }

    pub(super) fn take_join(&mut self, id: &MemberId) -> Option<RequestToken> {
        let token = self.by_id.get_mut(id)?.awaiting_join.take();
        self.awaiting_join -= usize::from(token.is_some());
        token
    }

    /// What a member says anew with each join.
    pub(super) fn update(&mut self, id: &MemberId, request: &Join) {
        let Some(mut member) = self.by_id.remove(id) else { return };
        self.discount(&member.protocols);
        member.protocols = owned(&request.protocols);
        member.session_timeout_ms = request.session_timeout_ms;
        member.rebalance_timeout_ms = request.rebalance_timeout_ms;
        member.client_id = request.client_id.clone();
        member.client_host = request.client_host.clone();
        self.count(&member.protocols);
        self.by_id.insert(id.clone(), member);
    }

    /// Whether every member offers the protocol.
    pub(super) fn all_support(&self, protocol_name: &str) -> bool {
        self.supporters.get(protocol_name) == Some(&self.by_id.len())
    }

    fn count(&mut self, protocols: &[Protocol]) {
        for name in distinct_names(protocols) {
            *self.supporters.entry(name.clone()).or_default() += 1;
        }
    }

    fn discount(&mut self, protocols: &[Protocol]) {
        for name in distinct_names(protocols) {
            if let Some(count) = self.supporters.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    self.supporters.remove(name);
                }
            }
        }
    }
}

/// A client may name a protocol twice; it is one supporter all the same.
fn distinct_names(protocols: &[Protocol]) -> impl Iterator<Item = &Arc<str>> {
    let is_first = |index: usize, name: &str| protocols.iter().take(index).all(|earlier| &*earlier.name != name);
    protocols.iter().enumerate().filter(move |(index, protocol)| is_first(*index, &protocol.name)).map(|(_, p)| &p.name)
}
