//! The plain commands: one file for each thing that is administered. They ask, print and end; exit code 0 means all was done.

pub(crate) mod consume;
mod consumer_settings;
pub(crate) mod group;
pub(crate) mod produce;
pub(crate) mod profile;
pub(crate) mod status;
pub(crate) mod topic;

use std::fmt::Display;
use std::time::Duration;

use anyhow::bail;
use forebay_broker_client::admin::Each;
use forebay_broker_client::{Admin, ClientConfig};

use crate::args::Remote;

impl Remote {
    /// Connects. People wait here, so that a broker that is not there is told soon.
    pub(crate) async fn admin(&self) -> anyhow::Result<Admin> {
        Ok(Admin::connect(&self.bootstrap, config()).await?)
    }
}

/// Client settings of a command that a person waits for.
pub(crate) fn config() -> ClientConfig {
    ClientConfig {
        client_id: "forebay-cli".to_owned(),
        operation_timeout: Duration::from_secs(15),
        ..ClientConfig::default()
    }
}

/// Splits results: what worked is returned; what was refused is an error that names each thing.
pub(crate) fn all_done<K: Display + Ord, T>(results: Each<K, T>, what: &str) -> anyhow::Result<Vec<(K, T)>> {
    let (mut done, mut refused) = (Vec::new(), Vec::new());
    for (key, result) in results {
        match result {
            Ok(value) => done.push((key, value)),
            Err(error) => refused.push(format!("{what} {key}: {error}")),
        }
    }
    if refused.is_empty() { Ok(done) } else { bail!(refused.join("\n")) }
}
