//! What a ConsumerProfile asks the solver. The operator and the command line ask the same, so it is said once, here.

use forebay_profile::{ClientFamily, Goals, GroupProtocol, Preset, Request, Subscription};

use crate::consumer_profile as api;
use crate::quantity::quantity_units;

/// A goal that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("spec.goals.memoryLimit is {found:?}: must be a positive quantity of bytes, for example 256Mi")]
pub struct InvalidMemoryLimit {
    /// What it says.
    pub found: String,
}

/// The group of a profile: its own name, unless it says another.
pub fn group(profile: &api::ConsumerProfile) -> String {
    profile.spec.group.clone().or_else(|| profile.metadata.name.clone()).unwrap_or_default()
}

/// The client library of a profile's members.
pub fn family(profile: &api::ConsumerProfile) -> ClientFamily {
    match profile.spec.client_family {
        api::ClientFamily::Java => ClientFamily::Java,
        api::ClientFamily::Librdkafka => ClientFamily::Librdkafka,
        api::ClientFamily::FranzGo => ClientFamily::FranzGo,
    }
}

/// The whole question, for topics as they are.
///
/// # Errors
/// A goal can't be understood.
pub fn request(profile: &api::ConsumerProfile, subscription: Subscription) -> Result<Request, InvalidMemoryLimit> {
    let spec = &profile.spec;
    Ok(Request {
        group: group(profile),
        family: family(profile),
        protocol: match spec.group_protocol {
            None | Some(api::GroupProtocol::Classic) => GroupProtocol::Classic,
            Some(api::GroupProtocol::Consumer) => GroupProtocol::Consumer,
        },
        preset: spec.preset.map(|preset| match preset {
            api::Preset::Projection => Preset::Projection,
            api::Preset::Reconciliation => Preset::Reconciliation,
            api::Preset::LowTraffic => Preset::LowTraffic,
            api::Preset::LatencyCritical => Preset::LatencyCritical,
        }),
        goals: spec.goals.as_ref().map(goals).transpose()?.unwrap_or_default(),
        settings: spec.settings.iter().map(|(name, value)| (name.clone(), value.to_string())).collect(),
        subscription,
    })
}

fn goals(goals: &api::Goals) -> Result<Goals, InvalidMemoryLimit> {
    let memory_limit = |found: &str| {
        let bytes = quantity_units(found).filter(|bytes| *bytes > 0);
        bytes.ok_or_else(|| InvalidMemoryLimit { found: found.to_owned() })
    };
    #[expect(clippy::cast_precision_loss, reason = "bounded by the schema, far below 2^53")]
    let latency_ms = goals.latency_ms.map(|ms| ms as f64);
    Ok(Goals {
        latency_ms,
        records_per_second: goals.records_per_second,
        record_bytes: goals.record_bytes,
        work_mean_ms: goals.work_mean_ms,
        work_worst_ms: goals.work_worst_ms,
        members: goals.members.map(i64::from),
        memory_limit_bytes: goals.memory_limit.as_ref().map(|limit| memory_limit(&limit.0)).transpose()?,
    })
}
