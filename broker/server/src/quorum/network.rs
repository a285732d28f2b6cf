//! openraft's calls to the other members.
//!
//! What must hold: a call reaches the disk that it is meant for or nobody; a member that cannot be reached costs the others nothing.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RaftNetworkFactory, RaftNetworkV2};

use super::link::{Link, LinkError};
use super::peers::Peers;
use super::protocol::{QuorumAnswer, QuorumRequest};
use super::types::{Address, Snapshot, Types, Vote, VoterId};

/// A part of a snapshot.
const PART_BYTES: usize = 1 << 20;
/// How long one call may take: a member's disk is waited for, a dead connection is not.
const CALL_MAX: Duration = Duration::from_secs(5);

/// Makes the connections.
#[derive(Debug, Clone)]
pub(super) struct Network {
    pub(super) peers: Arc<Peers>,
}

/// The calls to one member.
#[derive(Debug)]
pub(super) struct Member {
    peers: Arc<Peers>,
    target: VoterId,
    address: Address,
    link: Option<Link>,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Member;

    async fn new_client(&mut self, target: VoterId, node: &Address) -> Member {
        let address = self.peers.address_of(target.broker, node);
        Member { peers: Arc::clone(&self.peers), target, address, link: None }
    }
}

impl Member {
    async fn dial(&self) -> Result<Link, LinkError> {
        let link = self.peers.dial(&self.address).await?;
        if link.welcome.voter != self.target {
            let message = format!("is {}, not {}: its disk is another one", link.welcome.voter, self.target);
            return Err(LinkError::Refused { address: self.address.clone(), message });
        }
        Ok(link)
    }

    async fn call(&mut self, request: &QuorumRequest, rest: &[u8]) -> Result<QuorumAnswer, RPCError<Types>> {
        // Taken out, so that a call that is given up half way takes its connection with it.
        let mut link = match self.link.take() {
            Some(link) => link,
            None => self.dial().await.map_err(|error| {
                self.peers.complain(self.target, &error);
                RPCError::Unreachable(Unreachable::new(&error))
            })?,
        };
        let answer = link.call_quorum(request, rest, CALL_MAX).await;
        let answer = answer.map_err(|error| RPCError::Network(NetworkError::new(&error)))?;
        self.link = Some(link);
        Ok(answer)
    }
}

fn unexpected(answer: &QuorumAnswer) -> RPCError<Types> {
    let message = match answer {
        QuorumAnswer::Failed { message } => message.clone(),
        other => format!("an answer of another kind: {other:?}"),
    };
    RPCError::Network(NetworkError::from_string(message))
}

impl RaftNetworkV2<Types> for Member {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        match self.call(&QuorumRequest::AppendEntries(rpc), &[]).await? {
            QuorumAnswer::AppendEntries(response) => Ok(response),
            other => Err(unexpected(&other)),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self.call(&QuorumRequest::Vote(rpc), &[]).await? {
            QuorumAnswer::Vote(response) => Ok(response),
            other => Err(unexpected(&other)),
        }
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self.call(&QuorumRequest::PreVote(rpc), &[]).await? {
            QuorumAnswer::Vote(response) => Ok(response),
            other => Err(unexpected(&other)),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let send = async {
            let bytes = snapshot.snapshot.len();
            for at in (0..bytes).step_by(PART_BYTES) {
                let part = snapshot.snapshot.slice(at..bytes.min(at + PART_BYTES));
                match self.call(&QuorumRequest::SnapshotPart { at }, &part).await? {
                    QuorumAnswer::SnapshotPart => {}
                    other => return Err(unexpected(&other)),
                }
            }
            match self.call(&QuorumRequest::InstallSnapshot { vote, meta: snapshot.meta, bytes }, &[]).await? {
                QuorumAnswer::InstallSnapshot(response) => Ok(response),
                other => Err(unexpected(&other)),
            }
        };
        tokio::select! {
            sent = send => sent.map_err(StreamingError::from),
            closed = cancel => Err(closed.into()),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        _option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        match self.call(&QuorumRequest::TransferLeader(request), &[]).await? {
            QuorumAnswer::TransferLeader(response) => Ok(response),
            other => Err(unexpected(&other)),
        }
    }
}
