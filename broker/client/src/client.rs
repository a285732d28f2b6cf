//! Which broker to ask: bootstrap addresses, the brokers they name, and one connection to each, opened when first needed.
//! Addresses come from the newest metadata at every dial, so a broker that moved is found again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_broker_wire::messages::find_coordinator::FindCoordinatorRequest;
use forebay_broker_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use forebay_broker_wire::types::{BrokerId, ErrorCode, PartitionIndex, Str};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::config::ClientConfig;
use crate::connection::Connection;
use crate::error::{ConnectError, RequestError};

/// `FindCoordinator` asks for a group's coordinator.
const KEY_TYPE_GROUP: i8 = 0;

/// A client of one cluster; cheap to clone, all clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: ClientConfig,
    bootstrap: Vec<String>,
    known: Mutex<Known>,
}

/// What the newest metadata said, and the connections in use.
#[derive(Debug, Default)]
struct Known {
    brokers: BTreeMap<BrokerId, String>,
    controller: Option<BrokerId>,
    connections: BTreeMap<BrokerId, Arc<Connection>>,
    /// A connection to a bootstrap address; which broker is behind it is not known.
    any: Option<Arc<Connection>>,
}

impl Client {
    /// A client that knows where to begin; nothing is dialled yet. `bootstrap` is a comma-separated list of `host:port`.
    #[must_use]
    pub fn new(bootstrap: &str, config: ClientConfig) -> Self {
        let bootstrap = bootstrap.split(',').map(str::trim).filter(|a| !a.is_empty()).map(str::to_owned).collect();
        Self { inner: Arc::new(Inner { config, bootstrap, known: Mutex::default() }) }
    }

    /// A client that has reached a broker.
    pub async fn connect(bootstrap: &str, config: ClientConfig) -> Result<Self, RequestError> {
        let client = Self::new(bootstrap, config);
        client.refresh().await?;
        Ok(client)
    }

    /// A client of the same cluster with connections of its own: for requests that the broker answers late (long polls, joining
    /// a group), because it answers those of one connection in order.
    #[must_use]
    pub fn separate(&self) -> Self {
        let Inner { config, bootstrap, .. } = &*self.inner;
        let (config, bootstrap) = (config.clone(), bootstrap.clone());
        Self { inner: Arc::new(Inner { config, bootstrap, known: Mutex::default() }) }
    }

    /// The client's settings.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.inner.config
    }

    /// A connection to any broker.
    pub async fn any(&self) -> Result<Arc<Connection>, ConnectError> {
        let mut known = self.inner.known.lock().await;
        if let Some(open) = known.any.iter().chain(known.connections.values()).find(|c| !c.is_closed()) {
            return Ok(Arc::clone(open));
        }
        let addresses: Vec<String> = self.inner.bootstrap.iter().chain(known.brokers.values()).cloned().collect();
        let mut last = ConnectError::Address { address: String::new() };
        for address in &addresses {
            match Connection::open(address, &self.inner.config).await {
                Ok(connection) => {
                    let connection = Arc::new(connection);
                    known.any = Some(Arc::clone(&connection));
                    return Ok(connection);
                }
                Err(error) => last = error,
            }
        }
        Err(ConnectError::NoBootstrap { addresses: addresses.join(","), last: Box::new(last) })
    }

    /// A connection to the broker with this id.
    pub async fn broker(&self, id: BrokerId) -> Result<Arc<Connection>, RequestError> {
        if !self.inner.known.lock().await.brokers.contains_key(&id) {
            self.refresh().await?;
        }
        let mut known = self.inner.known.lock().await;
        if let Some(open) = known.connections.get(&id).filter(|c| !c.is_closed()) {
            return Ok(Arc::clone(open));
        }
        let address =
            known.brokers.get(&id).cloned().ok_or_else(|| RequestError::NoBroker { what: format!("id {id}") })?;
        let connection = Arc::new(Connection::open(&address, &self.inner.config).await?);
        known.connections.insert(id, Arc::clone(&connection));
        Ok(connection)
    }

    /// A connection to the controller, which carries out changes of topics.
    pub async fn controller(&self) -> Result<Arc<Connection>, RequestError> {
        let known = self.inner.known.lock().await.controller;
        let id = match known {
            Some(id) => Some(id),
            None => {
                self.refresh().await?;
                self.inner.known.lock().await.controller
            }
        };
        match id {
            Some(id) => self.broker(id).await,
            None => Ok(self.any().await?), // a broker that names no controller forwards
        }
    }

    /// A connection to the coordinator of a group.
    pub async fn coordinator(&self, group: &str) -> Result<Arc<Connection>, RequestError> {
        let id = self.coordinator_id(group).await?;
        self.broker(id).await
    }

    /// The broker that coordinates a group.
    pub async fn coordinator_id(&self, group: &str) -> Result<BrokerId, RequestError> {
        let connection = self.any().await?;
        let version = connection.version_of::<FindCoordinatorRequest>()?;
        let mut request = FindCoordinatorRequest { key_type: KEY_TYPE_GROUP, ..Default::default() };
        if version >= 4 {
            request.coordinator_keys = vec![Str::from(group)];
        } else {
            request.key = Str::from(group);
        }
        let response = connection.send(&request).await?;
        let what = || format!("coordinator of group {group}");
        let (code, message, id, host, port) = match response.coordinators.first() {
            Some(c) => (c.error_code, c.error_message.clone(), c.node_id, c.host.clone(), c.port),
            None if version >= 4 => return Err(RequestError::NoBroker { what: what() }),
            None => (response.error_code, response.error_message, response.node_id, response.host, response.port),
        };
        RequestError::check(code, message.as_ref(), what)?;
        self.inner.known.lock().await.brokers.insert(BrokerId(id), format!("{host}:{port}"));
        Ok(BrokerId(id))
    }

    /// Asks anew who the brokers and the controller are.
    pub async fn refresh(&self) -> Result<(), RequestError> {
        self.metadata(Some(&[])).await.map(|_| ())
    }

    /// Metadata of the named topics, or of all; never creates a topic.
    pub async fn metadata(&self, topics: Option<&[&str]>) -> Result<MetadataResponse, RequestError> {
        let connection = self.any().await?;
        let version = connection.version_of::<MetadataRequest>()?;
        let named = |name: &&str| MetadataRequestTopic { name: Some(Str::from(*name)), ..Default::default() };
        let mut request = MetadataRequest {
            topics: topics.map(|topics| topics.iter().map(named).collect()),
            allow_auto_topic_creation: version < 4,
            ..Default::default()
        };
        if version == 0 && request.topics.is_none() {
            request.topics = Some(Vec::new()); // version 0 has no null; empty means all there
        }
        let response = connection.send(&request).await?;
        let mut known = self.inner.known.lock().await;
        known.brokers =
            response.brokers.iter().map(|b| (BrokerId(b.node_id), format!("{}:{}", b.host, b.port))).collect();
        known.controller = Some(BrokerId(response.controller_id)).filter(|id| id.0 >= 0);
        let Known { brokers, connections, .. } = &mut *known;
        connections.retain(|id, c| !c.is_closed() && brokers.get(id).is_some_and(|address| address == c.address()));
        Ok(response)
    }

    /// The leaders of partitions of one topic.
    pub async fn leaders(&self, topic: &str) -> Result<BTreeMap<PartitionIndex, BrokerId>, RequestError> {
        let response = self.metadata(Some(&[topic])).await?;
        let what = || format!("topic {topic}");
        let found = response.topics.iter().find(|t| t.name.as_deref() == Some(topic));
        let found = found.ok_or_else(|| RequestError::NoBroker { what: what() })?;
        RequestError::check(found.error_code, None, what)?;
        let led = found.partitions.iter().filter(|p| p.leader_id >= 0);
        Ok(led.map(|p| (PartitionIndex(p.partition_index), BrokerId(p.leader_id))).collect())
    }

    /// Repeats `attempt` while it fails in a way that another try can cure, at most for the operation timeout.
    pub async fn retry<T, F>(&self, mut attempt: impl FnMut() -> F) -> Result<T, RequestError>
    where
        F: Future<Output = Result<T, RequestError>>,
    {
        let deadline = Instant::now() + self.inner.config.operation_timeout;
        let mut pause = self.inner.config.retry_backoff;
        loop {
            match attempt().await {
                Err(error) if error.is_transient() && Instant::now() + pause < deadline => {
                    if error.code() == Some(ErrorCode::NotController) {
                        self.inner.known.lock().await.controller = None;
                    }
                    if matches!(error, RequestError::Connect(_) | RequestError::NoBroker { .. }) {
                        // Brokers may be elsewhere by now. When nobody can be asked, the next try says so.
                        let _ = self.refresh().await;
                    }
                    tracing::debug!(%error, "trying again");
                    sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                done => return done,
            }
        }
    }
}
