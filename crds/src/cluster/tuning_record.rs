//! The record of tuning: what was changed, when and why, and what brokers measured before and after. Written on a change and when its effect
//! is known, and never in between.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// On a Cluster: why parameters are changed; it is kept with the changes that are made while it is there.
pub const TUNING_REASON_ANNOTATION: &str = "forebay.dev/tuning-reason";

/// One edit of parameters, and its effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TuningChange {
    /// When the operator saw it and began to bring it about.
    pub time: Time,
    /// Why: what the annotation `forebay.dev/tuning-reason` of the Cluster said then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was changed. The effect is that of all of them together: change one at a time to know which it was.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub changes: Vec<ParameterChange>,
    /// How many more were changed than are listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<i32>,
    /// What brokers measured just before; absent when they did not tell, or were being restarted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<MeasuredLoad>,
    /// What they measured when the change had been in force for three minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<MeasuredLoad>,
    /// Before and after in words, or why there is no figure; absent until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

/// A parameter that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParameterChange {
    /// Which, as a path in the spec, for example `threads.io` or `config.log.flush.interval.ms`.
    pub parameter: String,
    /// Its value before; absent when it had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Its value since; absent when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// What clients did on all brokers together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeasuredLoad {
    /// Over how many seconds, at most 120.
    pub seconds: i64,
    /// Records taken from producers.
    pub records_in_per_second: i64,
    /// Bytes of record batches taken from producers.
    pub bytes_in_per_second: i64,
    /// Bytes of record batches sent to consumers.
    pub bytes_out_per_second: i64,
    /// Within how many milliseconds 99 of 100 Produce requests were answered, on the broker where that took longest; absent when there
    /// were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub produce_p99_ms: Option<f64>,
}
