//! The metadata of the cluster: a durable log of records and the image that they give.
//!
//! Commands are decided by the controller in `machines`, one after another; what they decide is on disk before anybody sees it.
//! Readers take the newest image without a lock and keep it as long as they need it.

mod cluster_id;
pub(crate) mod effective;
mod home;
pub(crate) mod internal_topics;
mod rules;
mod store;

pub(crate) use cluster_id::{cluster_id_for, random_id};
pub(crate) use home::{HomeError, home};
pub(crate) use rules::elections;
pub(crate) use store::{MetadataStore, SubmitError};
