//! `--check`, what `helm test` runs: whether the API server knows our kinds and lets this service account list them, and
//! whether an operator answers.

use anyhow::{Context, Result, ensure};
use forebay_crds::{Cluster, ConsumerProfile, Topic};
use kube::api::{Api, ListParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::args::Args;

/// An operator's answer is some kilobytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Fails at the first thing that is not as it should be.
pub(crate) async fn run(args: &Args, address: &str) -> Result<()> {
    let client = Client::try_default().await.context("find the Kubernetes API")?;
    let namespaces: Vec<Option<&str>> = match args.watch_namespaces.as_slice() {
        [] => vec![None],
        some => some.iter().map(|namespace| Some(namespace.as_str())).collect(),
    };
    for namespace in namespaces {
        listed::<Cluster>(&client, namespace).await?;
        listed::<Topic>(&client, namespace).await?;
        listed::<ConsumerProfile>(&client, namespace).await?;
    }
    let ready = get(address, "/readyz").await?;
    ensure!(is_ok(&ready), "{address}/readyz answers {:?}", ready.lines().next());
    let metrics = get(address, "/metrics").await?;
    ensure!(metrics.contains("forebay_operator_build_info"), "{address}/metrics is not an operator's");
    println!("{address} is an operator and ready");
    Ok(())
}

async fn listed<K>(client: &Client, namespace: Option<&str>) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let (kind, place) = (K::kind(&()), namespace.unwrap_or("all namespaces"));
    api.list_metadata(&ListParams::default().limit(1))
        .await
        .with_context(|| format!("list {kind} objects of {place}"))?;
    println!("{kind} objects of {place} can be listed");
    Ok(())
}

async fn get(address: &str, path: &str) -> Result<String> {
    let what = || format!("ask {address}{path}");
    let mut stream = TcpStream::connect(address).await.with_context(what)?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await.with_context(what)?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).await.with_context(what)?;
    Ok(answer)
}

fn is_ok(answer: &str) -> bool {
    answer.split(' ').nth(1) == Some("200")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_200_is_an_answer() {
        assert!(is_ok("HTTP/1.0 200 OK\r\n\r\nok"));
        assert!(!is_ok("HTTP/1.0 503 Service Unavailable\r\n\r\n200"));
        assert!(!is_ok(""));
    }
}
