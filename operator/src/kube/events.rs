//! Events: written only when something changed. One that can't be written (a namespace on its way out takes none) stops
//! nothing.

use forebay_crds::Reason;
use kube::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use super::apply::FIELD_MANAGER;

/// The most that the API takes.
const NOTE_BYTES_MAX: usize = 1000;
const ACTION_BYTES_MAX: usize = 120;

/// An Event to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) warning: bool,
    pub(crate) reason: Reason,
    pub(crate) text: String,
}

impl Note {
    pub(crate) fn normal(reason: Reason, text: impl Into<String>) -> Self {
        Self { warning: false, reason, text: text.into() }
    }

    pub(crate) fn warning(reason: Reason, text: impl Into<String>) -> Self {
        Self { warning: true, reason, text: text.into() }
    }
}

/// Writes Events.
#[derive(Clone)]
pub(crate) struct Events {
    recorder: Recorder,
}

impl Events {
    pub(crate) fn new(client: kube::Client, instance: String) -> Self {
        let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: Some(instance) };
        Self { recorder: Recorder::new(client, reporter) }
    }

    pub(crate) async fn publish<K: Resource<DynamicType = ()>>(&self, object: &K, note: &Note) {
        let event = Event {
            type_: if note.warning { EventType::Warning } else { EventType::Normal },
            reason: note.reason.as_str().to_owned(),
            note: Some(cut(&note.text, NOTE_BYTES_MAX)),
            // Part of what tells one series of Events from another: without it, different notes would count as repetitions.
            action: cut(&note.text, ACTION_BYTES_MAX),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &object.object_ref(&())).await {
            tracing::debug!(%error, reason = note.reason.as_str(), "event not written");
        }
    }
}

fn cut(text: &str, bytes_max: usize) -> String {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_at_a_character() {
        assert_eq!(cut("short", 10), "short");
        let cut = cut(&"é".repeat(600), 999);
        assert!(cut.len() == 998 && cut.chars().all(|c| c == 'é'));
    }
}
