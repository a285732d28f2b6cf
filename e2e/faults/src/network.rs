//! A bridge with the clients' address, and a network namespace with an address for each broker. A link is cut at its receiver:
//! packets vanish without a word, as on a dead cable; each direction on its own.
//!
//! All of it is inside the program's own network namespace and goes with it.

use anyhow::{Context, Result};

use crate::command::sh;

/// Somebody on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// Producers and consumers.
    Clients,
    /// The broker with this id.
    Broker(i32),
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Clients => f.write_str("the clients"),
            Self::Broker(id) => write!(f, "broker {id}"),
        }
    }
}

impl Peer {
    /// Its address.
    #[must_use]
    pub fn address(self) -> String {
        match self {
            Self::Clients => "10.83.0.1".to_owned(),
            Self::Broker(id) => format!("10.83.0.{}", 10 + id),
        }
    }

    fn run(self, program: &str, arguments: &[&str]) -> Result<String> {
        match self {
            Self::Clients => sh(program, arguments),
            Self::Broker(id) => {
                let within = format!("--net={}", path(id));
                sh("nsenter", &[&[within.as_str(), "--", program], arguments].concat())
            }
        }
    }
}

/// The file that stands for a broker's network namespace.
#[must_use]
pub fn path(id: i32) -> String {
    format!("/run/netns/broker-{id}")
}

/// Makes bridge, namespaces and links. Only inside [`crate::namespaces`].
///
/// # Errors
/// When a command of the system fails.
pub fn up(brokers: i32) -> Result<()> {
    // The host's /run/netns stays as it is.
    sh("mount", &["-t", "tmpfs", "faults", "/run"])?;
    std::fs::create_dir("/run/netns").context("can't create /run/netns")?;
    sh("ip", &["link", "set", "lo", "up"])?;
    sh("ip", &["link", "add", "br0", "type", "bridge"])?;
    sh("ip", &["addr", "add", &format!("{}/24", Peer::Clients.address()), "dev", "br0"])?;
    sh("ip", &["link", "set", "br0", "up"])?;
    filter(Peer::Clients)?;
    for id in 0..brokers {
        let (name, link, peer) = (format!("broker-{id}"), format!("b{id}"), Peer::Broker(id));
        sh("ip", &["netns", "add", &name])?;
        sh("ip", &["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &name])?;
        sh("ip", &["link", "set", &link, "master", "br0", "up"])?;
        peer.run("ip", &["addr", "add", &format!("{}/24", peer.address()), "dev", "eth0"])?;
        peer.run("ip", &["link", "set", "lo", "up"])?;
        peer.run("ip", &["link", "set", "eth0", "up"])?;
        filter(peer)?;
    }
    Ok(())
}

fn filter(peer: Peer) -> Result<()> {
    for rule in [
        "add table inet faults",
        "add set inet faults cut { type ipv4_addr; }",
        "add chain inet faults input { type filter hook input priority 0; }",
        "add rule inet faults input ip saddr @cut drop",
    ] {
        peer.run("nft", &[rule])?;
    }
    Ok(())
}

/// From now on nothing of `from` arrives at `to`.
///
/// # Errors
/// When `nft` fails.
pub fn cut(from: Peer, to: Peer) -> Result<()> {
    to.run("nft", &[&format!("add element inet faults cut {{ {} }}", from.address())]).map(|_| ())
}

/// It arrives again.
///
/// # Errors
/// When `nft` fails.
pub fn mend(from: Peer, to: Peer) -> Result<()> {
    to.run("nft", &[&format!("delete element inet faults cut {{ {} }}", from.address())]).map(|_| ())
}
