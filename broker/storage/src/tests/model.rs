//! A log against a vector of values: any sequence of operations gives the same on both.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<u8>),
    AppendTogether(Vec<u8>),
    Truncate(u8),
    DeleteBefore(u8),
    Roll,
    Flush,
    Reopen,
    ReopenCleanly,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 1..5).prop_map(Step::Append),
        3 => prop::collection::vec(1..4_u8, 1..6).prop_map(Step::AppendTogether),
        1 => any::<u8>().prop_map(Step::Truncate),
        1 => any::<u8>().prop_map(Step::DeleteBefore),
        1 => Just(Step::Roll),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
        1 => Just(Step::ReopenCleanly),
    ]
}

/// What the log should hold: a value per record, with the batch it is in.
#[derive(Default)]
struct Model {
    start: usize,
    values: Vec<String>,
    batch_starts: Vec<usize>,
}

impl Model {
    fn push(&mut self, values: Vec<String>) {
        self.batch_starts.push(self.values.len());
        self.values.extend(values);
    }

    fn truncate(&mut self, at: usize) {
        while self.values.len() > at {
            let start = self.batch_starts.pop().unwrap();
            self.values.truncate(start);
        }
    }

    /// A batch that lay partly before the start is gone; the offsets before the start stay used.
    fn fill_to_start(&mut self) {
        while self.values.len() < self.start {
            self.push(vec![String::new()]);
        }
    }

    fn records(&self) -> Vec<(i64, String)> {
        let all = self.values.iter().enumerate().skip(self.start);
        all.map(|(offset, value)| (i64::try_from(offset).unwrap(), value.clone())).collect()
    }
}

fn run(steps: Vec<Step>) {
    let dir = temp_dir();
    let config = LogConfig { segment_bytes: 600, ..small() };
    let (mut log, _) = open(&log_dir(dir.path()), config.clone());
    let mut model = Model::default();
    let mut counter = 0;
    let mut fresh = |count: usize| -> Vec<String> {
        (0..count)
            .map(|_| {
                counter += 1;
                format!("value {counter}")
            })
            .collect()
    };
    let build = |values: &[String]| batch(&values.iter().map(String::as_str).collect::<Vec<_>>());
    for step in steps {
        match step {
            Step::Append(sizes) => {
                let values = fresh(sizes.len());
                let appended = append(&mut log, build(&values)).unwrap();
                assert_eq!(appended.base_offset.0, i64::try_from(model.values.len()).unwrap());
                model.push(values);
            }
            Step::AppendTogether(counts) => {
                let all: Vec<_> = counts.iter().map(|count| fresh(usize::from(*count))).collect();
                let requests: Vec<_> = all.iter().map(|values| client(build(values))).collect();
                for (result, values) in log.append(&requests, LeaderEpoch(1), NOW_MS).into_iter().zip(all) {
                    assert_eq!(result.unwrap().base_offset.0, i64::try_from(model.values.len()).unwrap());
                    model.push(values);
                }
            }
            Step::Truncate(at) => {
                // Below the log's start it would begin anew there, which the model does not cover.
                let at = usize::from(at) % (model.values.len() + 1);
                if at > model.start {
                    let end = log.truncate_to(Offset(i64::try_from(at).unwrap()), NOW_MS).unwrap();
                    model.truncate(at);
                    model.fill_to_start();
                    assert_eq!(end.0, i64::try_from(model.values.len()).unwrap());
                }
            }
            Step::DeleteBefore(at) => {
                let at = usize::from(at) % (model.values.len() + 1);
                log.delete_records_before(Offset(i64::try_from(at).unwrap()), NOW_MS).unwrap();
                model.start = model.start.max(at);
            }
            Step::Roll => log.roll().unwrap(),
            Step::Flush => assert_eq!(log.flush().unwrap(), log.log_end()),
            Step::Reopen => {
                drop(log);
                log = open(&log_dir(dir.path()), config.clone()).0;
            }
            Step::ReopenCleanly => {
                log.close_clean().unwrap();
                log.log_dir().close_clean().unwrap();
                drop(log);
                let (reopened, report) = open(&log_dir(dir.path()), config.clone());
                assert_eq!(report, RecoveryReport::default());
                log = reopened;
            }
        }
        assert_eq!(log.log_end().0, i64::try_from(model.values.len()).unwrap());
        assert_eq!(read_all(&log), model.records());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_behaves_as_a_vector(steps in prop::collection::vec(step(), 1..40)) {
        run(steps);
    }
}
