//! What is in force, read back from the system: limits, mounts, kernel settings, the container's resources.

pub(crate) mod cgroup;
pub(crate) mod kernel;
pub(crate) mod limits;
pub(crate) mod mounts;
