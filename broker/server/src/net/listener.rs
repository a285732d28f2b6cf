//! Accepts connections, bounds their number (`max.connections`, `max.connections.per.ip`), and ends them at shutdown.
//!
//! What must hold: a connection beyond a limit is closed at once and counted, never parked; running out of file
//! descriptors slows accepting down but does not end it; nobody is let in while the disk of the metadata hangs; `serve` returns only when every connection has ended.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use forebay_broker_config::{BrokerConfig, Listener};
use parking_lot::Mutex;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::connection::Connection;
use crate::broker::Broker;

/// Waited after a failed accept, which is mostly "too many open files": trying again at once would spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

const REFUSED_TOLD_EVERY: Duration = Duration::from_secs(10);

/// What the configuration says about sockets.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) request_max_bytes: u32,
    pub(crate) connections_max: usize,
    pub(crate) connections_per_ip_max: usize,
    pub(crate) idle_max: Duration,
    /// Produce requests that one connection may have on their way; more wait in its socket.
    pub(crate) in_flight_max: usize,
    /// `None` leaves the kernel's choice and its autotuning.
    pub(crate) send_buffer_bytes: Option<usize>,
    pub(crate) backlog: i32,
}

/// Open connections, all and by address.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    open: Mutex<Open>,
    refused: Mutex<Refused>,
}

/// Refusals come in crowds: they are told together.
#[derive(Debug, Default)]
struct Refused {
    untold: u64,
    told_at: Option<Instant>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_ip: HashMap<IpAddr, usize>,
}

/// A connection's place in the count; given back when dropped.
#[derive(Debug)]
struct Admitted {
    admission: Arc<Admission>,
    ip: IpAddr,
}

impl Admission {
    fn admit(self: &Arc<Self>, ip: IpAddr, limits: &Limits) -> Option<Admitted> {
        let mut open = self.open.lock();
        let of_ip = open.by_ip.get(&ip).copied().unwrap_or_default();
        if open.all >= limits.connections_max || of_ip >= limits.connections_per_ip_max {
            return None;
        }
        open.all += 1;
        open.by_ip.insert(ip, of_ip + 1);
        Some(Admitted { admission: Arc::clone(self), ip })
    }

    fn tell_refused(&self, client: IpAddr, limits: &Limits) {
        let mut refused = self.refused.lock();
        refused.untold += 1;
        if refused.told_at.is_some_and(|told_at| told_at.elapsed() < REFUSED_TOLD_EVERY) {
            return;
        }
        let (count, open) = (std::mem::take(&mut refused.untold), self.open());
        refused.told_at = Some(Instant::now());
        drop(refused);
        let (max, per_ip_max) = (limits.connections_max, limits.connections_per_ip_max);
        tracing::warn!(%client, count, open, max, per_ip_max, "connections refused: as many are open as max.connections or max.connections.per.ip allow");
    }

    pub(crate) fn open(&self) -> usize {
        self.open.lock().all
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut open = self.admission.open.lock();
        open.all -= 1;
        if let Some(of_ip) = open.by_ip.get_mut(&self.ip) {
            *of_ip -= 1;
            if *of_ip == 0 {
                open.by_ip.remove(&self.ip);
            }
        }
    }
}

/// A socket that has its address but lets nobody in yet: clients are refused, not kept waiting, until the broker is ready.
#[derive(Debug)]
pub(crate) struct BoundListener {
    pub(crate) address: SocketAddr,
    name: Arc<str>,
    socket: Socket,
}

impl BoundListener {
    pub(crate) fn listen(self, backlog: i32) -> io::Result<(TcpListener, Arc<str>)> {
        self.socket.listen(backlog)?;
        Ok((TcpListener::from_std(self.socket.into())?, self.name))
    }
}

/// Takes the addresses of all `listeners`.
pub(crate) async fn bind_all(config: &BrokerConfig) -> anyhow::Result<Vec<BoundListener>> {
    let mut bound = Vec::new();
    for listener in &config.listeners {
        let shown = format!("{}://{}:{}", listener.name, listener.host, listener.port);
        let socket = bind(listener, config).await.with_context(|| format!("cannot listen on {shown} (listeners)"))?;
        bound.push(socket);
    }
    Ok(bound)
}

/// Takes the controller listener's address; none in a cluster of one broker.
pub(crate) async fn bind_controller(config: &BrokerConfig) -> anyhow::Result<Option<BoundListener>> {
    let Some(quorum) = &config.quorum else { return Ok(None) };
    let listener = &quorum.listener;
    let shown = format!("{}://{}:{}", listener.name, listener.host, listener.port);
    bind(listener, config).await.with_context(|| format!("cannot listen on {shown} (listeners)")).map(Some)
}

async fn bind(listener: &Listener, config: &BrokerConfig) -> anyhow::Result<BoundListener> {
    // An empty host is every interface, of both families where the system has both.
    let addresses: Vec<SocketAddr> = if listener.host.is_empty() {
        vec![(Ipv6Addr::UNSPECIFIED, listener.port).into(), (Ipv4Addr::UNSPECIFIED, listener.port).into()]
    } else {
        tokio::net::lookup_host((listener.host.as_str(), listener.port)).await?.collect()
    };
    let mut last_error = anyhow::anyhow!("the host has no address");
    for address in addresses {
        match bind_one(address, config) {
            Ok(socket) => {
                let address = socket.local_addr()?.as_socket().context("not an IP address")?;
                return Ok(BoundListener { address, name: listener.name.as_str().into(), socket });
            }
            Err(error) => last_error = error.into(),
        }
    }
    Err(last_error)
}

fn bind_one(address: SocketAddr, config: &BrokerConfig) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    // A port that the system chooses is to be nobody else's: with this option it may be one that is bound, but not listened on yet.
    socket.set_reuse_address(address.port() != 0)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // Set before listening: the window scale of a connection is settled in its handshake.
    if let Some(bytes) = config.network.socket_receive_buffer_bytes {
        socket.set_recv_buffer_size(usize::try_from(bytes).unwrap_or(usize::MAX))?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Serves until shutdown, then waits for the connections to write their last answers; dropped, it ends them.
pub(crate) async fn serve(broker: Arc<Broker>, listener: TcpListener, name: Arc<str>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            biased;
            () = broker.shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        if broker.metadata.quorum().is_away() {
            // Whoever comes had better go to another broker: nothing can be written here.
            continue;
        }
        let Some(admitted) = broker.admission.admit(address.ip(), &broker.limits) else {
            broker.admission.tell_refused(address.ip(), &broker.limits);
            continue;
        };
        if let Err(error) = configure(&stream, &broker.limits) {
            tracing::debug!(client = %address.ip(), %error, "connection lost before it was configured");
            continue;
        }
        broker.metrics.connections_total.inc();
        let line = broker.lines.add(stream);
        let connection = Connection::new(Arc::clone(&broker), line, address, Arc::clone(&name));
        connections.spawn(async move {
            let _admitted = admitted;
            connection.serve().await;
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

fn configure(stream: &TcpStream, limits: &Limits) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new())?;
    socket.set_keepalive(true)?;
    if let Some(bytes) = limits.send_buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(connections_max: usize, connections_per_ip_max: usize) -> Limits {
        Limits {
            request_max_bytes: 1,
            connections_max,
            connections_per_ip_max,
            idle_max: Duration::from_secs(1),
            in_flight_max: 1,
            send_buffer_bytes: None,
            backlog: 1,
        }
    }

    #[test]
    fn no_more_than_the_limit_of_one_address_and_of_all_are_admitted() {
        let admission = Arc::new(Admission::default());
        let [a, b] = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2])];
        let limits = limits(3, 2);
        let first = admission.admit(a, &limits).unwrap();
        let _second = admission.admit(a, &limits).unwrap();
        assert!(admission.admit(a, &limits).is_none(), "a third of the same address");
        let _other = admission.admit(b, &limits).unwrap();
        assert!(admission.admit(b, &limits).is_none(), "a fourth in all");
        drop(first);
        assert_eq!(admission.open(), 2);
        assert!(admission.admit(a, &limits).is_some(), "a place given back is free again");
    }
}
