//! The only writer to Kubernetes: children by server-side apply, status, finalizers, claims, pods, Events.

pub(crate) mod apply;
pub(crate) mod compare;
pub(crate) mod events;
pub(crate) mod status;
