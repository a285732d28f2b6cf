//! Events: written only when something changed. One that can't be written (a namespace on its way out takes none) stops
//! nothing.

use forebay_crds::Reason;
use kube::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use parking_lot::Mutex;

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

/// Events that one recorder writes. It remembers those of its last minutes, to count repetitions, and walks over all of them at each
/// new one: thousands of Topics at a time would cost memory and time.
const EVENTS_A_RECORDER: u32 = 200;

/// Writes Events.
pub(crate) struct Events {
    client: kube::Client,
    reporter: Reporter,
    /// The present recorder, and how many it has written.
    recorder: Mutex<(Recorder, u32)>,
}

impl Events {
    pub(crate) fn new(client: kube::Client, instance: String) -> Self {
        let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: Some(instance) };
        let recorder = Mutex::new((Recorder::new(client.clone(), reporter.clone()), 0));
        Self { client, reporter, recorder }
    }

    fn recorder(&self) -> Recorder {
        let mut present = self.recorder.lock();
        if present.1 == EVENTS_A_RECORDER {
            *present = (Recorder::new(self.client.clone(), self.reporter.clone()), 0);
        }
        present.1 += 1;
        present.0.clone()
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
        if let Err(error) = self.recorder().publish(&event, &object.object_ref(&())).await {
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
    use std::convert::Infallible;

    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn a_recorder_is_replaced_before_it_remembers_thousands_of_events() {
        let answer =
            |_: http::Request<Body>| std::future::ready(Ok::<_, Infallible>(http::Response::new(Body::empty())));
        let events = Events::new(kube::Client::new(tower::service_fn(answer), "n"), "i".to_owned());
        for _ in 0..=EVENTS_A_RECORDER {
            drop(events.recorder());
        }
        assert_eq!(events.recorder.lock().1, 1);
    }

    #[test]
    fn a_long_note_is_cut_at_a_character() {
        assert_eq!(cut("short", 10), "short");
        let cut = cut(&"é".repeat(600), 999);
        assert!(cut.len() == 998 && cut.chars().all(|c| c == 'é'));
    }
}
