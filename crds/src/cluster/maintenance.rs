//! When brokers may be restarted for a changed spec, how fast partitions move, how brokers know their racks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A weekly time in which brokers that run may be restarted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceWindow {
    /// Days on which it opens; every day when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7), extend("x-kubernetes-list-type" = "set"))]
    pub days: Vec<Day>,
    /// When it opens, `HH:MM` in UTC, for example `02:30`.
    #[schemars(regex(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub start: String,
    /// How long it is open, in minutes, at most a week (10080). A restart that has begun is finished.
    #[schemars(range(min = 1, max = 10080))]
    pub minutes: i32,
}

impl MaintenanceWindow {
    /// The days on which it opens.
    #[must_use]
    pub fn effective_days(&self) -> Vec<Day> {
        if self.days.is_empty() { Day::ALL.to_vec() } else { self.days.clone() }
    }
}

/// How brokers know where they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rack {
    /// The label of nodes that names the rack or zone, for example `topology.kubernetes.io/zone`. A broker on a node without it has no
    /// rack.
    #[schemars(
        length(min = 1, max = 317),
        regex(pattern = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub node_label: String,
}

/// What becomes of a broker whose local disk is on a node that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::without_description)]
pub enum OnNodeLost {
    /// It waits for the node; `Ready` says so.
    Wait,
    /// It begins anew on another node.
    Replace,
}

/// How partitions are moved between brokers, and between the disks of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Moves {
    /// Bytes a second that each broker sends, and takes, for moves, and copies between its disks when one is removed; 52428800 (50 MiB) when
    /// left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub bytes_per_second: Option<i64>,
    /// False when left out: brokers that are added only get replicas of new topics. True: a broker that has less than half of what the others have on average, as one that was just added, is given its share of
    /// the replicas and preferred leaders. As few move as can be, and racks stay apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_new_brokers: Option<bool>,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::without_description)]
#[expect(missing_docs, reason = "they are days")]
pub enum Day {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl Day {
    /// All days.
    pub const ALL: [Self; 7] =
        [Self::Monday, Self::Tuesday, Self::Wednesday, Self::Thursday, Self::Friday, Self::Saturday, Self::Sunday];

    /// 0 for Monday.
    #[must_use]
    pub fn number_from_monday(self) -> u8 {
        self as u8
    }

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Monday => "Monday",
            Self::Tuesday => "Tuesday",
            Self::Wednesday => "Wednesday",
            Self::Thursday => "Thursday",
            Self::Friday => "Friday",
            Self::Saturday => "Saturday",
            Self::Sunday => "Sunday",
        }
    }
}
