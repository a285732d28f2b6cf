//! The ConsumerProfile solver: from a workload to client settings, a verdict per rule, and a prediction that a benchmark
//! can prove wrong. Pure: no clock, no I/O; the operator, the CLI and the bench call the same function.
//!
//! - `workload`: goals over preset over defaults, with what was read from the brokers.
//! - `settings`: the settings, and the explicit ones that people ask for.
//! - `compute`: settings that meet the workload, around the explicit ones.
//! - `rules`: each rule judges the whole; none of them changes anything.
//! - `predict`: latency and memory to expect.
//! - `render`: the settings in each client's own words.
//!
//! What must always hold: computed settings break no rule (a property test proves it), and a refusal names the rule, the
//! numbers and the largest (or smallest) value that works.

mod compute;
mod predict;
pub mod render;
pub mod rules;
pub mod settings;
pub mod workload;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;

pub use predict::Predicted;
pub use rules::{Rule, RuleVerdict, Verdict};
pub use settings::{Explicit, Settings};
pub use workload::{BrokerLimits, ClientFamily, Goals, GroupProtocol, Preset, Subscription, Workload};

/// Everything that a profile asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The consumer group's id.
    pub group: String,
    /// The client library of the members.
    pub family: ClientFamily,
    /// The group protocol of the members.
    pub protocol: GroupProtocol,
    /// A well-known workload, if one was named.
    pub preset: Option<Preset>,
    /// The workload in numbers, as far as stated.
    pub goals: Goals,
    /// Explicit settings by Kafka's (Java) names.
    pub settings: BTreeMap<String, String>,
    /// What the brokers say about the topics.
    pub subscription: Subscription,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Solution {
    /// The workload that was computed for.
    pub workload: Workload,
    /// The effective settings.
    pub settings: Settings,
    /// Each rule that has something to say, the grave ones first.
    pub verdicts: Vec<RuleVerdict>,
    /// What to expect.
    pub predicted: Predicted,
}

impl Solution {
    /// The gravest verdict.
    pub fn verdict(&self) -> Verdict {
        self.verdicts.iter().map(|verdict| verdict.verdict).max().unwrap_or(Verdict::Ok)
    }

    /// Whether applications may use the settings.
    pub fn is_accepted(&self) -> bool {
        self.verdict() < Verdict::Refused
    }

    /// The messages of the gravest verdict, in one text.
    pub fn summary(&self) -> String {
        let gravest = self.verdict();
        let messages = self.verdicts.iter().filter(|verdict| verdict.verdict == gravest);
        messages.map(|verdict| format!("{}: {}", verdict.rule.id(), verdict.message)).collect::<Vec<_>>().join("; ")
    }
}

/// Computes settings around the explicit ones and judges the whole.
pub fn solve(request: &Request) -> Solution {
    let workload = Workload::resolve(request);
    let (explicit, mut verdicts) = Explicit::parse(&request.settings, request.family);
    let settings = compute::settings(&workload, &explicit, &request.group);
    let predicted = predict::predict(&workload, &settings);
    verdicts.extend(rules::judge(&rules::Judged {
        workload: &workload,
        settings: &settings,
        explicit: &explicit,
        predicted: &predicted,
    }));
    verdicts.sort_by_key(|verdict| std::cmp::Reverse(verdict.verdict));
    Solution { workload, settings, verdicts, predicted }
}
