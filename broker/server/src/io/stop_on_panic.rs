//! A thread that panics takes the broker down with it: half a broker would leave its clients hanging.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// Shared by all threads; says at the end whether one of them panicked.
#[derive(Debug, Clone)]
pub(crate) struct PanicAlarm {
    shutdown: CancellationToken,
    rung: Arc<AtomicBool>,
}

/// Held by a thread for its whole life.
#[derive(Debug)]
pub(crate) struct StopOnPanic(PanicAlarm);

impl PanicAlarm {
    pub(crate) fn new(shutdown: CancellationToken) -> Self {
        Self { shutdown, rung: Arc::default() }
    }

    pub(crate) fn watch(&self) -> StopOnPanic {
        StopOnPanic(self.clone())
    }

    pub(crate) fn has_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed)
    }
}

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            tracing::error!(thread = %name, "a thread panicked: the broker stops");
            self.0.rung.store(true, Ordering::Relaxed);
            self.0.shutdown.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_panic_stops_the_broker() {
        let shutdown = CancellationToken::new();
        let alarm = PanicAlarm::new(shutdown.clone());
        let run = |work: fn()| {
            let watch = alarm.watch();
            std::thread::spawn(move || {
                let _watch = watch;
                work();
            })
            .join()
        };
        assert!(run(|| {}).is_ok());
        assert!(!shutdown.is_cancelled() && !alarm.has_rung());
        assert!(run(|| panic!("a bug")).is_err());
        assert!(shutdown.is_cancelled() && alarm.has_rung());
    }
}
