//! Which brokers there are.

use forebay_broker_wire::messages::describe_cluster::DescribeClusterRequest;
use forebay_broker_wire::types::BrokerId;
use serde::Serialize;

use super::Admin;
use crate::error::RequestError;

/// A broker and where clients reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrokerEndpoint {
    /// The broker's id.
    pub id: BrokerId,
    /// Advertised host.
    pub host: String,
    /// Advertised port.
    pub port: i32,
    /// Its rack, if it has one.
    pub rack: Option<String>,
}

/// The cluster as one broker sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterDescription {
    /// The cluster's id.
    pub cluster_id: String,
    /// The active controller, or a broker that forwards to it.
    pub controller: Option<BrokerId>,
    /// All brokers that are registered and not fenced.
    pub brokers: Vec<BrokerEndpoint>,
}

impl Admin {
    /// Describes the cluster.
    pub async fn describe_cluster(&self) -> Result<ClusterDescription, RequestError> {
        self.client.retry(async || self.describe_cluster_once().await).await
    }

    async fn describe_cluster_once(&self) -> Result<ClusterDescription, RequestError> {
        // The default endpoint type, 1, asks for brokers.
        let response = self.client.any().await?.send(&DescribeClusterRequest::default()).await?;
        RequestError::check(response.error_code, response.error_message.as_ref(), || "describe cluster".to_owned())?;
        let brokers = response.brokers.into_iter().map(|b| BrokerEndpoint {
            id: BrokerId(b.broker_id),
            host: b.host.into(),
            port: b.port,
            rack: b.rack.map(Into::into),
        });
        Ok(ClusterDescription {
            cluster_id: response.cluster_id.into(),
            controller: Some(BrokerId(response.controller_id)).filter(|id| *id != BrokerId::NONE),
            brokers: brokers.collect(),
        })
    }
}
