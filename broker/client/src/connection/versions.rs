//! What a broker offers, and the version that both sides know.

use std::collections::HashMap;

use forebay_broker_wire::messages::Request;

use crate::error::RequestError;

/// Version ranges by API key, as a broker told them.
#[derive(Debug, Default)]
pub(super) struct Versions(HashMap<i16, (i16, i16)>);

impl FromIterator<(i16, i16, i16)> for Versions {
    fn from_iter<I: IntoIterator<Item = (i16, i16, i16)>>(ranges: I) -> Self {
        Self(ranges.into_iter().map(|(key, min, max)| (key, (min, max))).collect())
    }
}

impl Versions {
    /// The highest version of `R` that both know.
    pub(super) fn common<R: Request>(&self, address: &str) -> Result<i16, RequestError> {
        let theirs = self.0.get(&R::API_KEY.as_i16());
        let ours = R::VERSIONS;
        let unsupported = |theirs: String| RequestError::Unsupported {
            address: address.to_owned(),
            api: R::API_KEY.name(),
            theirs,
            ours: format!("{} to {}", ours.start(), ours.end()),
        };
        let &(min, max) = theirs.ok_or_else(|| unsupported("none".to_owned()))?;
        let common = max.min(*ours.end());
        if common >= min && common >= *ours.start() { Ok(common) } else { Err(unsupported(format!("{min} to {max}"))) }
    }
}
