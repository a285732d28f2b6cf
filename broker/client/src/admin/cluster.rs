//! Which brokers there are, and which will not come again.

use forebay_broker_wire::messages::describe_cluster::DescribeClusterRequest;
use forebay_broker_wire::messages::unregister_broker::UnregisterBrokerRequest;
use forebay_broker_wire::types::{BrokerId, ErrorCode};
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
    /// All brokers that are registered and not fenced, or those that were asked for.
    pub brokers: Vec<BrokerEndpoint>,
}

impl Admin {
    /// Describes the cluster.
    pub async fn describe_cluster(&self) -> Result<ClusterDescription, RequestError> {
        self.client.retry(async || self.describe_cluster_once(false).await).await
    }

    /// Describes the cluster with the brokers that are registered and can't be relied on, stopped ones among them.
    pub async fn describe_cluster_with_fenced(&self) -> Result<ClusterDescription, RequestError> {
        self.client.retry(async || self.describe_cluster_once(true).await).await
    }

    /// Takes a stopped broker off the list; one that is not on it is no error.
    pub async fn unregister_broker(&self, broker: BrokerId) -> Result<(), RequestError> {
        let request = UnregisterBrokerRequest { broker_id: broker.0 };
        let send = async || {
            let response = self.client.controller().await?.send_waiting(&request, self.change_timeout()).await?;
            if ErrorCode::from_code(response.error_code) == ErrorCode::BrokerIdNotRegistered {
                return Ok(());
            }
            let what = || format!("unregister broker {broker}");
            RequestError::check(response.error_code, response.error_message.as_ref(), what)
        };
        self.client.retry(send).await
    }

    async fn describe_cluster_once(&self, include_fenced_brokers: bool) -> Result<ClusterDescription, RequestError> {
        // The default endpoint type, 1, asks for brokers.
        let request = DescribeClusterRequest { include_fenced_brokers, ..DescribeClusterRequest::default() };
        let response = self.client.any().await?.send(&request).await?;
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
