//! The settings that can be set on a node: names, files, and what "as wanted" means of each.
//!
//! `net.core.somaxconn` is none of them: it belongs to each pod's network namespace.

use std::fmt;
use std::str::FromStr;

use forebay_crds::cluster::Kernel;

/// A setting of `spec.kernel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// `vm.swappiness`, exactly.
    Swappiness,
    /// `vm.dirty_ratio`, exactly.
    DirtyRatio,
    /// `vm.dirty_background_ratio`, exactly.
    DirtyBackgroundRatio,
    /// `vm.max_map_count`, at least.
    MaxMapCount,
    /// `net.core.rmem_max`, at least; it can be written in the node's own network namespace only.
    RmemMax,
    /// `net.core.wmem_max`, at least; as above.
    WmemMax,
    /// Transparent huge pages, exactly.
    TransparentHugepage,
}

impl Setting {
    pub(super) const ALL: [Self; 7] = [
        Self::Swappiness,
        Self::DirtyRatio,
        Self::DirtyBackgroundRatio,
        Self::MaxMapCount,
        Self::RmemMax,
        Self::WmemMax,
        Self::TransparentHugepage,
    ];

    /// Its name in `spec.kernel`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Swappiness => "swappiness",
            Self::DirtyRatio => "dirtyRatio",
            Self::DirtyBackgroundRatio => "dirtyBackgroundRatio",
            Self::MaxMapCount => "maxMapCount",
            Self::RmemMax => "rmemMax",
            Self::WmemMax => "wmemMax",
            Self::TransparentHugepage => "transparentHugepage",
        }
    }

    /// Its file, below the root.
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Swappiness => "proc/sys/vm/swappiness",
            Self::DirtyRatio => "proc/sys/vm/dirty_ratio",
            Self::DirtyBackgroundRatio => "proc/sys/vm/dirty_background_ratio",
            Self::MaxMapCount => "proc/sys/vm/max_map_count",
            Self::RmemMax => "proc/sys/net/core/rmem_max",
            Self::WmemMax => "proc/sys/net/core/wmem_max",
            Self::TransparentHugepage => "sys/kernel/mm/transparent_hugepage/enabled",
        }
    }

    /// Whether more than is wanted will do.
    pub(super) fn is_at_least(self) -> bool {
        matches!(self, Self::MaxMapCount | Self::RmemMax | Self::WmemMax)
    }

    /// What a Cluster wants of it.
    pub(super) fn wanted(self, kernel: &Kernel) -> Option<String> {
        let number = match self {
            Self::Swappiness => kernel.swappiness,
            Self::DirtyRatio => kernel.dirty_ratio,
            Self::DirtyBackgroundRatio => kernel.dirty_background_ratio,
            Self::MaxMapCount => kernel.max_map_count,
            Self::RmemMax => kernel.rmem_max,
            Self::WmemMax => kernel.wmem_max,
            Self::TransparentHugepage => return kernel.transparent_hugepage.clone(),
        };
        number.map(|number| number.to_string())
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|setting| setting.name() == text);
        found.ok_or_else(|| format!("{text:?} can't be set on a node; what can: {}", known()))
    }
}
