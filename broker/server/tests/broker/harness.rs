//! Starts brokers and speaks to them: one frame out, one frame in, nothing hidden.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_broker_config::BrokerConfig;
use forebay_broker_server::{Started, run};
use forebay_broker_wire::frame::{decode_response_header, encode_request};
use forebay_broker_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData};
use forebay_broker_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use forebay_broker_wire::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData,
};
use forebay_broker_wire::messages::{Message, Request};
use forebay_broker_wire::primitives::{Decoder, Part, Records};
use forebay_broker_wire::records::{BatchBuilder, NewRecord, batches};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Versions with topic names, which are shorter to write down than ids.
pub(crate) const PRODUCE: i16 = 9;
pub(crate) const FETCH: i16 = 12;
const PATIENCE: Duration = Duration::from_secs(30);

/// A broker in this process.
pub(crate) struct TestBroker {
    pub(crate) started: Started,
    shutdown: CancellationToken,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
    dir: Option<TempDir>,
}

fn properties(dir: &Path) -> String {
    format!(
        "node.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={}\nforebay.http.listener=127.0.0.1:0\n\
         num.partitions=2\nnum.network.threads=2\nnum.io.threads=2\noffsets.topic.num.partitions=2\n\
         forebay.log.dir.reserve.bytes=0\n",
        dir.join("data").display()
    )
}

impl TestBroker {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(settings: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), settings)
    }

    pub(crate) fn start_in(dir: TempDir, settings: &[&str]) -> Self {
        let overrides: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let config = BrokerConfig::parse(&properties(dir.path()), &overrides).unwrap();
        let shutdown = CancellationToken::new();
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn({
            let shutdown = shutdown.clone();
            move || {
                let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
                runtime.block_on(run(config, shutdown, move |started| sender.send(started).unwrap()))
            }
        });
        let started = receiver.recv_timeout(PATIENCE).expect("the broker starts");
        Self { started, shutdown, thread: Some(thread), dir: Some(dir) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.started.kafka_address)
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.as_ref().unwrap().path()
    }

    /// Stops cleanly and gives the directory back, to start again in.
    pub(crate) fn stop(mut self) -> TempDir {
        self.end();
        self.dir.take().unwrap()
    }

    pub(crate) fn http_get(&self, path: &str) -> String {
        http_get(self.started.http_address, path)
    }

    fn end(&mut self) {
        self.shutdown.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the broker does not panic").expect("the broker stops cleanly");
        }
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

fn http_get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: broker\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A broker in a process of its own, to be killed.
pub(crate) struct BrokerProcess {
    child: Child,
    pub(crate) kafka_address: SocketAddr,
    http_address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
}

impl BrokerProcess {
    pub(crate) fn start(dir: &Path) -> Self {
        Self::start_with(dir, &[])
    }

    pub(crate) fn start_with(dir: &Path, settings: &[&str]) -> Self {
        Self::try_start(dir, settings).unwrap_or_else(|log| panic!("the broker did not start:\n{}", log.join("\n")))
    }

    /// A broker that may have so many files open.
    pub(crate) fn start_with_nofile(dir: &Path, settings: &[&str], nofile: u32) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {nofile}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_forebay-broker")]);
        Self::run(command, dir, settings).unwrap_or_else(|log| panic!("the broker did not start:\n{}", log.join("\n")))
    }

    /// A broker that does not start gives what it said.
    pub(crate) fn try_start(dir: &Path, settings: &[&str]) -> Result<Self, Vec<String>> {
        Self::run(Command::new(env!("CARGO_BIN_EXE_forebay-broker")), dir, settings)
    }

    fn run(mut command: Command, dir: &Path, settings: &[&str]) -> Result<Self, Vec<String>> {
        let config = dir.join("broker.properties");
        std::fs::write(&config, properties(dir)).unwrap();
        let mut child = command
            .args(["--config".as_ref(), config.as_os_str()])
            .args(settings.iter().flat_map(|setting| ["--set", setting]))
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let value = |line: &str, name: &str| Some(line.split_once(name)?.1.split(' ').next()?.parse().unwrap());
        let (kafka_address, http_address) = loop {
            let Some(line) = log.next() else {
                child.wait().unwrap();
                return Err(said);
            };
            said.push(line.unwrap());
            let line = said.last().unwrap();
            if let (Some(kafka), Some(http)) = (value(line, "kafka_address="), value(line, "http_address=")) {
                break (kafka, http);
            }
        };
        let said = Arc::new(Mutex::new(said));
        let saying = Arc::clone(&said);
        // Keeps the pipe from filling up.
        std::thread::spawn(move || log.map_while(Result::ok).for_each(|line| saying.lock().unwrap().push(line)));
        Ok(Self { child, kafka_address, http_address, log: said })
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.kafka_address)
    }

    pub(crate) fn http_get(&self, path: &str) -> String {
        http_get(self.http_address, path)
    }

    /// All that it has said so far.
    pub(crate) fn all_said(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// The first line of its log with these words in it, if it has been said.
    pub(crate) fn said(&self, words: &str) -> Option<String> {
        self.log.lock().unwrap().iter().find(|line| line.contains(words)).cloned()
    }

    /// SIGTERM; true when the end was a clean one.
    pub(crate) fn terminate(self) -> bool {
        assert!(Command::new("kill").args(["-TERM", &self.id().to_string()]).status().unwrap().success());
        self.wait()
    }

    /// SIGKILL: nothing is flushed, closed or said.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end; true when it was a clean one.
    pub(crate) fn wait(mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
    }
}

/// One connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    correlation_id: i32,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, correlation_id: 0 }
    }

    /// Sends without waiting; gives the correlation id.
    pub(crate) fn send<R: Request>(&mut self, request: &R, version: i16) -> i32 {
        self.try_send(request, version).unwrap()
    }

    pub(crate) fn try_send<R: Request>(&mut self, request: &R, version: i16) -> io::Result<i32> {
        self.correlation_id += 1;
        let parts = encode_request(request, version, self.correlation_id, Some("test".into())).unwrap();
        for part in parts {
            match part {
                Part::Bytes(bytes) => self.stream.write_all(&bytes)?,
                Part::Region { .. } => unreachable!("requests are in memory"),
            }
        }
        Ok(self.correlation_id)
    }

    /// The next answer, with its correlation id.
    pub(crate) fn receive<R: Request>(&mut self, version: i16) -> (i32, R::Response) {
        read::<R>(self.receive_frame(), version)
    }

    pub(crate) fn try_receive<R: Request>(&mut self, version: i16) -> io::Result<R::Response> {
        self.try_receive_frame().map(|frame| read::<R>(frame, version).1)
    }

    pub(crate) fn receive_frame(&mut self) -> Bytes {
        self.try_receive_frame().unwrap()
    }

    fn try_receive_frame(&mut self) -> io::Result<Bytes> {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size)?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(size)).unwrap()];
        self.stream.read_exact(&mut frame)?;
        Ok(frame.into())
    }

    pub(crate) fn call<R: Request>(&mut self, request: &R, version: i16) -> R::Response {
        let sent = self.send(request, version);
        let (received, response) = self.receive::<R>(version);
        assert_eq!(sent, received);
        response
    }

    /// True when the broker has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 1]), Ok(0) | Err(_))
    }

    /// Creates a topic by asking for it.
    pub(crate) fn create_topic(&mut self, topic: &str) {
        let topics = vec![MetadataRequestTopic { name: Some(topic.into()), ..MetadataRequestTopic::default() }];
        let response = self.call(&MetadataRequest { topics: Some(topics), ..MetadataRequest::default() }, 9);
        assert_eq!(response.topics[0].error_code, 0);
    }

    pub(crate) fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        records: Bytes,
        acks: i16,
    ) -> PartitionProduceResponse {
        let mut response = self.call(&produce(topic, partition, records, acks), PRODUCE);
        response.responses.remove(0).partition_responses.remove(0)
    }

    pub(crate) fn fetch(&mut self, topic: &str, partition: i32, offset: i64) -> PartitionData {
        only(self.call(&fetch(&[(topic, partition, offset)], 1, 0), FETCH))
    }

    /// All values of a partition, in order, by as many fetches as it takes.
    pub(crate) fn read_all(&mut self, topic: &str, partition: i32) -> BTreeMap<i64, String> {
        self.read_all_from(topic, partition, 0)
    }

    pub(crate) fn read_all_from(&mut self, topic: &str, partition: i32, from: i64) -> BTreeMap<i64, String> {
        let mut all = BTreeMap::new();
        loop {
            let next = all.last_key_value().map_or(from, |(offset, _)| offset + 1);
            let data = self.fetch(topic, partition, next);
            assert_eq!(data.error_code, 0, "{topic}-{partition} at {next}, after {all:?}: {data:?}");
            let values = values(&data);
            if values.is_empty() {
                return all;
            }
            all.extend(values.into_iter().filter(|(offset, _)| *offset >= next));
        }
    }
}

fn read<R: Request>(frame: Bytes, version: i16) -> (i32, R::Response) {
    let mut decoder = Decoder::new(frame);
    let correlation_id = decode_response_header(&mut decoder, R::API_KEY, version).unwrap();
    let response = Message::decode(&mut decoder, version).unwrap();
    assert_eq!(decoder.remaining(), 0, "the answer is whole");
    (correlation_id, response)
}

pub(crate) fn produce(topic: &str, partition: i32, records: Bytes, acks: i16) -> ProduceRequest {
    let data = PartitionProduceData { index: partition, records: Some(Records::Bytes(records)) };
    ProduceRequest {
        acks,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            name: topic.into(),
            partition_data: vec![data],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

/// A fetch outside any session, with limits that are out of the way.
pub(crate) fn fetch(partitions: &[(&str, i32, i64)], min_bytes: i32, max_wait_ms: i32) -> FetchRequest {
    let topics = partitions.iter().map(|(topic, partition, offset)| FetchTopic {
        topic: (*topic).into(),
        partitions: vec![FetchPartition {
            partition: *partition,
            fetch_offset: *offset,
            partition_max_bytes: 1 << 20,
            ..FetchPartition::default()
        }],
        ..FetchTopic::default()
    });
    FetchRequest {
        replica_id: -1,
        max_wait_ms,
        min_bytes,
        max_bytes: 50 << 20,
        session_epoch: -1,
        topics: topics.collect(),
        ..FetchRequest::default()
    }
}

pub(crate) fn only(mut response: FetchResponse) -> PartitionData {
    assert_eq!(response.error_code, 0);
    response.responses.remove(0).partitions.remove(0)
}

/// Values by offset.
pub(crate) fn values(data: &PartitionData) -> Vec<(i64, String)> {
    let bytes = data.records.as_ref().and_then(Records::as_bytes).cloned().unwrap_or_default();
    let mut values = Vec::new();
    // The last batch may be cut off by a limit: clients leave it to the next fetch.
    for batch in batches(&bytes).map_while(Result::ok) {
        for record in batch.records(1 << 20).unwrap() {
            let record = record.unwrap();
            values.push((record.offset.0, String::from_utf8(record.value.unwrap().to_vec()).unwrap()));
        }
    }
    values
}

pub(crate) fn batch(values: &[&str]) -> Bytes {
    fill(BatchBuilder::default(), values)
}

pub(crate) fn fill(builder: BatchBuilder, values: &[&str]) -> Bytes {
    fill_at(builder, values, 1_700_000_000_000)
}

pub(crate) fn batch_at(values: &[&str], timestamp_ms: i64) -> Bytes {
    fill_at(BatchBuilder::default(), values, timestamp_ms)
}

fn fill_at(mut builder: BatchBuilder, values: &[&str], timestamp_ms: i64) -> Bytes {
    for value in values {
        let record = NewRecord { timestamp_ms, value: Some(value.as_bytes()), ..NewRecord::default() };
        builder.push(&record).unwrap();
    }
    builder.build().unwrap()
}

/// What is found in time, however often one has to look.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
