//! Events: written only when something changed. One that can't be written (a namespace on its way out takes none) stops
//! nothing.

use forebay_crds::Reason;
use kube::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use super::apply::FIELD_MANAGER;

/// The most that the API takes.
const NOTE_BYTES_MAX: usize = 1000;

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
            note: Some(cut(&note.text)),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &object.object_ref(&())).await {
            tracing::debug!(%error, reason = note.reason.as_str(), "event not written");
        }
    }
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(NOTE_BYTES_MAX);
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
        assert_eq!(cut("short"), "short");
        let cut = cut(&"é".repeat(600));
        assert!(cut.len() <= NOTE_BYTES_MAX && cut.chars().all(|c| c == 'é'));
    }
}
