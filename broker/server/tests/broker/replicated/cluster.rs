//! Three brokers in processes of their own, that can be killed, stopped and started again.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;

use forebay_broker_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use forebay_broker_wire::messages::find_coordinator::FindCoordinatorRequest;
use forebay_broker_wire::messages::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponsePartition,
};
use forebay_broker_wire::types::ErrorCode;
use tempfile::TempDir;

use crate::create_topics;
use crate::group_client::{FETCH_OFFSETS, fetch_request};
use crate::harness::{BrokerProcess, Client, batch, eventually};

pub(super) struct Cluster {
    dirs: Vec<TempDir>,
    ports: Vec<(u16, u16)>,
    /// Of the listener EXTERNAL, if there is one.
    external_ports: Vec<u16>,
    settings: &'static [&'static str],
    pub(super) brokers: Vec<Option<BrokerProcess>>,
}

fn free_port() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

impl Cluster {
    pub(super) fn start(settings: &'static [&'static str]) -> Self {
        Self::start_in((0..3).map(|_| tempfile::tempdir().unwrap()).collect(), settings)
    }

    /// Brokers whose directory has a folder `second` have two log dirs.
    pub(super) fn start_in(dirs: Vec<TempDir>, settings: &'static [&'static str]) -> Self {
        let held: Vec<_> = (0..6).map(|_| free_port()).collect();
        let ports = held.chunks(2).map(|pair| (pair[0].1, pair[1].1)).collect();
        drop(held);
        let brokers = (0..3).map(|_| None).collect();
        let mut cluster = Self { dirs, ports, external_ports: Vec::new(), settings, brokers };
        cluster.start_all();
        cluster
    }

    /// Each broker has a listener EXTERNAL as well, on all interfaces and without an address of its own.
    pub(super) fn start_with_external(settings: &'static [&'static str]) -> Self {
        let held: Vec<_> = (0..9).map(|_| free_port()).collect();
        let ports: Vec<u16> = held.iter().map(|(_, port)| *port).collect();
        drop(held);
        let mut cluster = Self {
            dirs: (0..3).map(|_| tempfile::tempdir().unwrap()).collect(),
            ports: ports[..6].chunks(2).map(|pair| (pair[0], pair[1])).collect(),
            external_ports: ports[6..].to_vec(),
            settings,
            brokers: (0..3).map(|_| None).collect(),
        };
        cluster.start_all();
        cluster
    }

    /// At once: none of them gets far alone.
    pub(super) fn start_all(&mut self) {
        let cluster = &*self;
        let started: Vec<_> = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..3).map(|id| scope.spawn(move || cluster.run(id))).collect();
            starting.into_iter().map(|starting| Some(starting.join().unwrap())).collect()
        });
        self.brokers = started;
    }

    /// SIGTERM, and waits for the end.
    pub(super) fn stop(&mut self, id: usize) {
        assert!(self.brokers[id].take().unwrap().terminate(), "broker {id} ends cleanly");
    }

    fn run(&self, id: usize) -> BrokerProcess {
        let voters: Vec<_> =
            self.ports.iter().enumerate().map(|(id, (_, port))| format!("{id}@127.0.0.1:{port}")).collect();
        let (kafka, controller) = self.ports[id];
        let own = [
            format!("node.id={id}"),
            format!("broker.rack=rack-{id}"),
            format!("listeners=PLAINTEXT://127.0.0.1:{kafka},CONTROLLER://127.0.0.1:{controller}"),
            format!("controller.quorum.voters={}", voters.join(",")),
            "forebay.cluster.id=AAAAAAAAAAAAAAAAAAAAAQ".to_owned(),
        ];
        let (data, second) = (self.data(id), self.second(id));
        let two_dirs = format!("log.dirs={},{}", data.display(), second.display());
        let dirs = second.exists().then_some(&two_dirs);
        let external = self.external_ports.get(id).map_or_else(Vec::new, |port| {
            let listeners = format!(
                "listeners=PLAINTEXT://127.0.0.1:{kafka},CONTROLLER://127.0.0.1:{controller},EXTERNAL://0.0.0.0:{port}"
            );
            let protocols = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT".to_owned();
            vec![listeners, protocols, "forebay.listeners.without.address=EXTERNAL".to_owned()]
        });
        let own = own.iter().chain(dirs).chain(&external).map(String::as_str);
        let settings: Vec<&str> = own.chain(self.settings.iter().copied()).collect();
        BrokerProcess::start_with(self.dirs[id].path(), &settings)
    }

    pub(super) fn kill(&mut self, id: usize) {
        self.brokers[id].take().unwrap().kill();
    }

    pub(super) fn start_again(&mut self, id: usize) {
        self.brokers[id] = Some(self.run(id));
    }

    /// SIGSTOP or SIGCONT.
    pub(super) fn signal(&self, id: usize, signal: &str) {
        let pid = self.brokers[id].as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn address(&self, id: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports[id].0))
    }

    pub(super) fn port(&self, id: usize) -> u16 {
        self.ports[id].0
    }

    pub(super) fn external_port(&self, id: usize) -> u16 {
        self.external_ports[id]
    }

    /// Who coordinates a group, as soon as it does.
    pub(super) fn coordinator(&self, group: &str) -> usize {
        eventually("the group has a coordinator", || {
            let find = FindCoordinatorRequest { key: group.into(), ..FindCoordinatorRequest::default() };
            let found = self.any().call(&find, 3);
            let id = usize::try_from(found.node_id).ok().filter(|id| self.brokers[*id].is_some())?;
            let loaded = self.client(id).call(&fetch_request(group, "nowhere", 0), FETCH_OFFSETS).error_code == 0;
            (found.error_code == 0 && loaded).then_some(id)
        })
    }

    pub(super) fn client(&self, id: usize) -> Client {
        Client::connect(self.address(id))
    }

    /// Of a broker that runs.
    pub(super) fn any(&self) -> Client {
        let id = self.brokers.iter().position(Option::is_some).unwrap();
        self.client(id)
    }

    pub(super) fn create(&self, topic: &CreatableTopic) {
        eventually("the topic is made", || {
            let request = CreateTopicsRequest { topics: vec![topic.clone()], timeout_ms: 10_000, ..Default::default() };
            let result = self.any().call(&request, 7).topics.remove(0);
            (result.error_code == 0 || result.error_code == ErrorCode::TopicAlreadyExists.code()).then_some(())
        });
    }

    pub(super) fn create_replicated(&self, name: &str, replicas: i16, min_in_sync: &str) {
        let topic = create_topics::topic(name, 1, &[("min.insync.replicas", Some(min_in_sync))]);
        self.create(&CreatableTopic { replication_factor: replicas, ..topic });
        eventually("all replicas are in sync", || {
            let partition = self.partition(&mut self.any(), name)?;
            (partition.isr_nodes.len() == usize::try_from(replicas).unwrap()).then_some(())
        });
    }

    /// By index.
    pub(super) fn partitions(&self, client: &mut Client, topic: &str) -> Option<Vec<MetadataResponsePartition>> {
        let topics = vec![MetadataRequestTopic { name: Some(topic.into()), ..MetadataRequestTopic::default() }];
        let request = MetadataRequest { topics: Some(topics), ..MetadataRequest::default() };
        let mut response: MetadataResponse = client.call(&request, 9);
        let mut partitions = response.topics.pop()?.partitions;
        partitions.sort_by_key(|partition| partition.partition_index);
        Some(partitions)
    }

    /// The first one.
    pub(super) fn partition(&self, client: &mut Client, topic: &str) -> Option<MetadataResponsePartition> {
        self.partitions(client, topic)?.into_iter().next()
    }

    /// Its log directory.
    pub(super) fn data(&self, id: usize) -> PathBuf {
        self.dirs[id].path().join("data")
    }

    /// Its other log directory, if it is to have one.
    pub(super) fn second(&self, id: usize) -> PathBuf {
        self.dirs[id].path().join("second")
    }

    /// Who leads partition 0 of a topic, as soon as somebody who runs does and says so itself.
    pub(super) fn leader(&self, topic: &str) -> usize {
        eventually("there is a leader", || {
            let partition = self.partition(&mut self.any(), topic)?;
            let leader = usize::try_from(partition.leader_id).ok().filter(|id| self.brokers[*id].is_some())?;
            let agrees = self.partition(&mut self.client(leader), topic)?;
            (agrees.leader_id == partition.leader_id).then_some(leader)
        })
    }

    /// Sends until it is acknowledged by all in-sync replicas. Gives its offset.
    pub(super) fn produce(&self, topic: &str, value: &str) -> i64 {
        eventually("the record is acknowledged", || {
            let leader = self.leader(topic);
            let answer = self.client(leader).produce(topic, 0, batch(&[value]), -1);
            (answer.error_code == 0).then_some(answer.base_offset)
        })
    }

    pub(super) fn read_all(&self, topic: &str) -> BTreeMap<i64, String> {
        let leader = self.leader(topic);
        self.client(leader).read_all(topic, 0)
    }

    /// A new leader shows what it knows to be safe, which is everything once its followers have fetched from it.
    pub(super) fn await_records(&self, topic: &str, count: usize) {
        eventually("the records are shown", || (self.read_all(topic).len() == count).then_some(()));
    }

    pub(super) fn await_in_sync(&self, topic: &str, count: usize) {
        eventually("the in-sync replicas are as many", || {
            let partition = self.partition(&mut self.any(), topic)?;
            (partition.isr_nodes.len() == count).then_some(())
        });
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (id, broker) in self.brokers.iter().enumerate() {
                let said = broker.as_ref().map(BrokerProcess::all_said).unwrap_or_default();
                println!("broker {id}:\n{}", said[said.len().saturating_sub(40)..].join("\n"));
            }
        }
    }
}
