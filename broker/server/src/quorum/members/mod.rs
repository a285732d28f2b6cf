//! Who belongs to the quorum: how a cluster is founded, how a broker finds it again, and who votes.
//!
//! What must hold: a cluster is founded once, by all its voters together: only when each of them says that it knows of none, because one
//! that is silent may be the last that has the data; nor by a broker that has partitions, which has lost its metadata. A broker whose disk is new joins as a learner, and votes in the place of its lost
//! disk only when it has the log; so two disks lost at once never make a majority that knows nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_broker_wire::types::BrokerId;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::{ChangeMembers, RaftMetrics, ServerState};

use crate::quorum::failover;
use crate::quorum::node::Quorum;
use crate::quorum::protocol::{Leader, QuorumAnswer, QuorumRequest, Welcome};
use crate::quorum::types::{Address, Membership, Types, VoterId};

/// Between two questions to the voters.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// A leader that was not heard of for so long is looked for.
const UNHEARD_MAX: Duration = Duration::from_secs(3);
/// How long a call may take.
const CALL_MAX: Duration = Duration::from_secs(5);
/// A learner that is no broker of the cluster any more, and was not heard of for so long, is forgotten.
const LEARNER_GONE: Duration = Duration::from_secs(60);
/// Entries that a learner may miss when it is made a voter.
const LEARNER_LAG_MAX: u64 = 64;

/// What a broker that is not led does next.
#[derive(Debug, PartialEq)]
enum Step {
    /// Found the cluster with these.
    Found(BTreeMap<VoterId, Address>),
    /// Ask the leader to be let in.
    Join(Leader),
    /// Ask again; the words say what for.
    Wait(String),
}

/// Looks for the cluster whenever no leader is heard of; founds it if there is none.
pub(super) async fn find_cluster(quorum: Arc<Quorum>) {
    loop {
        if quorum.is_led(UNHEARD_MAX) {
            quorum.waiting_for.lock().clear();
            tokio::time::sleep(UNHEARD_MAX).await;
            continue;
        }
        let answers = ask_voters(&quorum).await;
        failover::stand_if_nobody_leads(&quorum, answers.values().flatten().map(|(welcome, _)| welcome)).await;
        let voters: Vec<BrokerId> = quorum.voters().collect();
        match next_step(&quorum.welcome(), &quorum.address, &voters, &answers) {
            Step::Found(members) => found(&quorum, members).await,
            Step::Join(leader) => join(&quorum, &leader).await,
            Step::Wait(text) => {
                let mut waiting_for = quorum.waiting_for.lock();
                if *waiting_for != text {
                    tracing::info!("metadata quorum: waiting for {text}");
                    *waiting_for = text;
                }
            }
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

type Answers = BTreeMap<BrokerId, Result<(Welcome, Address), String>>;

async fn ask_voters(quorum: &Quorum) -> Answers {
    let asked = quorum.peers.voters().map(|(id, address)| async move {
        match quorum.peers.dial(address).await {
            Ok(link) if link.welcome.voter.broker == id => (id, Ok((link.welcome, address.clone()))),
            Ok(link) => (id, Err(format!("{address}: is broker {}", link.welcome.voter.broker.0))),
            Err(error) => (id, Err(error.to_string())),
        }
    });
    futures::future::join_all(asked).await.into_iter().collect()
}

/// Who leads, in its own words.
pub(super) async fn leader_elsewhere(quorum: &Quorum) -> Option<Leader> {
    let answers = ask_voters(quorum).await;
    let leaders = answers.values().flatten().filter(|(welcome, _)| welcome.voter != quorum.own);
    leaders.filter_map(|(welcome, _)| welcome.leader.clone().filter(|leader| leader.voter == welcome.voter)).next()
}

/// Decides from what the other voters say. `voters` are those that the configuration names, this broker among them or not.
fn next_step(own: &Welcome, address: &Address, voters: &[BrokerId], answers: &Answers) -> Step {
    let known: Vec<&Welcome> = answers.values().flatten().map(|(welcome, _)| welcome).collect();
    let leaders = known.iter().filter(|welcome| !welcome.pristine).filter_map(|welcome| welcome.leader.as_ref());
    // One that is still named by its followers may be gone; whoever says it of itself is there.
    let own_words = |leader: &&Leader| known.iter().any(|welcome| welcome.voter == leader.voter);
    let leader = leaders.clone().find(own_words).or(leaders.clone().next());
    if let Some(leader) = leader.filter(|leader| leader.voter != own.voter) {
        return Step::Join(leader.clone());
    }
    let silent: Vec<String> = answers
        .iter()
        .filter_map(|(id, answer)| answer.as_ref().err().map(|error| format!("broker {} ({error})", id.0)))
        .collect();
    if !own.pristine || known.iter().any(|welcome| !welcome.pristine) {
        let silent = if silent.is_empty() { String::new() } else { format!("; not heard of: {}", silent.join(", ")) };
        return Step::Wait(format!("a leader of the metadata quorum{silent}"));
    }
    if !silent.is_empty() {
        return Step::Wait(format!(
            "all voters, since no metadata is known of yet; not heard of: {}",
            silent.join(", ")
        ));
    }
    let founder = voters.iter().min();
    if founder != Some(&own.voter.broker) {
        return Step::Wait(format!("broker {} to found the cluster", founder.map_or(-1, |id| id.0)));
    }
    let mut members: BTreeMap<VoterId, Address> =
        answers.values().flatten().map(|(welcome, address)| (welcome.voter, address.clone())).collect();
    members.insert(own.voter, address.clone());
    Step::Found(members)
}

async fn found(quorum: &Quorum, members: BTreeMap<VoterId, Address>) {
    let names: Vec<String> = members.keys().map(VoterId::to_string).collect();
    match quorum.raft.initialize(members).await {
        Ok(()) => tracing::info!(voters = names.join(","), "metadata quorum: the cluster is founded"),
        Err(error) => tracing::warn!(%error, "metadata quorum: the cluster is not founded"),
    }
}

async fn join(quorum: &Quorum, leader: &Leader) {
    let asked = async {
        let mut link = quorum.peers.dial(&leader.address).await.map_err(|error| error.to_string())?;
        let request = QuorumRequest::Join { address: quorum.address.clone() };
        match link.call_quorum(&request, &[], CALL_MAX).await.map_err(|error| error.to_string())? {
            QuorumAnswer::Joined => Ok(()),
            QuorumAnswer::NotLeader { .. } => Err("it leads no more".to_owned()),
            QuorumAnswer::Failed { message } => Err(message),
            other => Err(format!("{other:?}")),
        }
    };
    let text = match asked.await {
        Ok(()) => format!("the metadata from broker {}", leader.voter.broker.0),
        Err(error) => format!("broker {} to let this broker in ({error})", leader.voter.broker.0),
    };
    *quorum.waiting_for.lock() = text;
}

/// Lets a broker follow, on the leader. Its older disks follow no more.
pub(super) async fn let_in(quorum: &Quorum, voter: VoterId, address: Address) -> QuorumAnswer {
    let (membership, leads) = {
        let metrics = quorum.raft.metrics();
        let metrics = metrics.borrow_watched();
        (metrics.membership_config.membership().clone(), metrics.state == ServerState::Leader)
    };
    if !leads {
        return QuorumAnswer::NotLeader { leader: quorum.leader() };
    }
    if membership.get_node(&voter) == Some(&address) {
        return QuorumAnswer::Joined;
    }
    let older: BTreeSet<VoterId> =
        membership.learner_ids().filter(|id| id.broker == voter.broker && *id != voter).collect();
    let mut changes = vec![ChangeMembers::SetNodes(BTreeMap::from([(voter, address)]))];
    if !older.is_empty() {
        changes.push(ChangeMembers::RemoveNodes(older));
    }
    tracing::info!(%voter, "metadata quorum: a broker joins");
    match change(quorum, ChangeMembers::Batch(changes), true).await {
        Ok(()) => QuorumAnswer::Joined,
        Err(message) => QuorumAnswer::Failed { message },
    }
}

/// Changes who belongs to the quorum. One change at a time: openraft takes no second one, and calls that an error.
async fn change(quorum: &Quorum, change: Change, retain: bool) -> Result<(), String> {
    let turn = async {
        let turn = quorum.changing.lock().await;
        let mut metrics = quorum.raft.metrics();
        loop {
            let settled = is_settled(&metrics.borrow_watched());
            // What the last leader began may be under way still.
            if settled || metrics.changed().await.is_err() {
                return turn;
            }
        }
    };
    let turn = tokio::time::timeout(CALL_MAX, turn).await;
    let _turn = turn.map_err(|_elapsed| "another change of its members is under way".to_owned())?;
    quorum.raft.change_membership(change, retain).await.map(drop).map_err(|error| error.to_string())
}

fn is_settled(metrics: &RaftMetrics<Types>) -> bool {
    metrics.membership_config.membership().get_joint_config().len() == 1
        && metrics.membership_config.log_id() == metrics.committed_membership_config.log_id()
}

/// On the leader: makes learners voters and voters learners, until the voters are the ones that the configuration names.
pub(super) async fn keep(quorum: Arc<Quorum>) {
    let wanted: BTreeSet<BrokerId> = quorum.voters().collect();
    let mut metrics = quorum.raft.metrics();
    let mut led_since = (0, Instant::now());
    loop {
        let wanted_change = {
            let metrics = metrics.borrow_watched();
            if led_since.0 != metrics.current_term {
                led_since = (metrics.current_term, Instant::now());
            }
            let image = quorum.machine.image();
            let is_gone = |learner: &VoterId| {
                image.broker(learner.broker).is_none() && unheard(&metrics, learner, led_since.1) > LEARNER_GONE
            };
            next_change(&metrics, &wanted, &is_gone)
        };
        if let Some((wanted_change, retain)) = wanted_change {
            tracing::info!(change = %wanted_change, "metadata quorum: its voters change");
            if let Err(error) = change(&quorum, wanted_change, retain).await {
                tracing::warn!(%error, "metadata quorum: its voters could not be changed");
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

type Change = ChangeMembers<VoterId, Address>;

/// How long the leader has not heard of a member.
fn unheard(metrics: &RaftMetrics<Types>, member: &VoterId, led_since: Instant) -> Duration {
    let heard = metrics.heartbeat.as_ref().and_then(|heard| heard.get(member)).and_then(Option::as_ref);
    heard.map_or_else(|| led_since.elapsed(), |at| openraft::Instant::elapsed(&**at))
}

/// The next change of who votes and who listens, one broker at a time, and whether those who vote no more go on listening.
fn next_change(
    metrics: &RaftMetrics<Types>,
    wanted: &BTreeSet<BrokerId>,
    is_gone: &dyn Fn(&VoterId) -> bool,
) -> Option<(Change, bool)> {
    let replication = metrics.replication.as_ref().filter(|_| metrics.state == ServerState::Leader)?;
    let membership = metrics.membership_config.membership();
    if !is_settled(metrics) {
        return None;
    }
    let last = metrics.last_log_index.unwrap_or_default();
    let caught_up = |voter: &VoterId| {
        let matched = replication.get(voter).and_then(|matched| matched.map(|log_id| log_id.index));
        matched.is_some_and(|matched| matched + LEARNER_LAG_MAX >= last)
    };
    change_of(membership, wanted, &caught_up).or_else(|| {
        let gone = membership.learner_ids().find(is_gone)?;
        Some((ChangeMembers::RemoveNodes(BTreeSet::from([gone])), true))
    })
}

fn change_of(
    membership: &Membership,
    wanted: &BTreeSet<BrokerId>,
    caught_up: &dyn Fn(&VoterId) -> bool,
) -> Option<(Change, bool)> {
    let voters: BTreeSet<VoterId> = membership.voter_ids().collect();
    let ready = |id: &VoterId| wanted.contains(&id.broker) && caught_up(id);
    if let Some(learner) = membership.learner_ids().find(ready) {
        let lost: BTreeSet<VoterId> = voters.iter().filter(|voter| voter.broker == learner.broker).copied().collect();
        let mut changes = vec![ChangeMembers::AddVoterIds(BTreeSet::from([learner]))];
        if !lost.is_empty() {
            changes.push(ChangeMembers::RemoveVoters(lost));
        }
        return Some((ChangeMembers::Batch(changes), false));
    }
    // Fewer only when those who are to vote all do.
    let all_vote = wanted.iter().all(|id| voters.iter().any(|voter| voter.broker == *id));
    let surplus = voters.iter().find(|voter| !wanted.contains(&voter.broker)).filter(|_| all_vote)?;
    Some((ChangeMembers::RemoveVoters(BTreeSet::from([*surplus])), true))
}

#[cfg(test)]
mod tests;
