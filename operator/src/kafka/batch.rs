//! Calls made together: who asks while a call is under way is part of the next one. Nothing waits for company, so one
//! alone is as quick as without, and a crowd costs one call for each `most` of it.
//!
//! There is no task behind it: one of those who ask makes the call for all. When that one is stopped in the middle, the
//! others get no answer and are told so.

use std::fmt;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// What is asked (`I`) and answered (`O`).
pub(crate) struct Batch<I, O> {
    waiting: Mutex<Vec<(I, oneshot::Sender<O>)>>,
    turn: tokio::sync::Mutex<()>,
    most: usize,
}

impl<I, O> fmt::Debug for Batch<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("waiting", &self.waiting.lock().len()).field("most", &self.most).finish()
    }
}

impl<I, O> Batch<I, O> {
    /// A call takes no more than `most`.
    pub(crate) fn new(most: usize) -> Self {
        Self { waiting: Mutex::default(), turn: tokio::sync::Mutex::default(), most }
    }

    /// The answer about `item`. `call` answers about each item, in their order. None: who made the call was stopped.
    pub(crate) async fn ask<F>(&self, item: I, call: impl Fn(Vec<I>) -> F) -> Option<O>
    where
        F: Future<Output = Vec<O>>,
    {
        let (sender, mut answer) = oneshot::channel();
        self.waiting.lock().push((item, sender));
        let _turn = self.turn.lock().await;
        loop {
            match answer.try_recv() {
                Ok(answer) => return Some(answer),
                Err(oneshot::error::TryRecvError::Closed) => return None,
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            let taken: Vec<_> = {
                let mut waiting = self.waiting.lock();
                let count = waiting.len().min(self.most);
                waiting.drain(..count).collect()
            };
            let (items, senders): (Vec<I>, Vec<_>) = taken.into_iter().unzip();
            for (sender, answer) in senders.into_iter().zip(call(items).await) {
                // Nobody there any more: the one who asked was stopped.
                let _ = sender.send(answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn who_comes_while_a_call_is_under_way_shares_the_next_one() {
        let (batch, calls) = (Batch::<u32, u32>::new(4), Arc::new(Mutex::new(Vec::new())));
        let call = |items: Vec<u32>| {
            calls.lock().push(items.len());
            async move {
                tokio::task::yield_now().await;
                items.into_iter().map(|item| item * 10).collect()
            }
        };
        let answers = futures::future::join_all((0..10).map(|item| batch.ask(item, &call))).await;
        assert_eq!(answers, (0..10).map(|item| Some(item * 10)).collect::<Vec<_>>());
        assert_eq!(calls.lock().iter().sum::<usize>(), 10, "each is asked once");
        assert!(calls.lock().len() <= 4, "{:?}", calls.lock());
        assert!(calls.lock().iter().all(|count| *count <= 4), "{:?}", calls.lock());
    }

    #[tokio::test]
    async fn whose_call_is_stopped_gets_no_answer_and_the_next_goes_on() {
        let batch = Batch::<u32, u32>::new(10);
        let never = |_: Vec<u32>| std::future::pending::<Vec<u32>>();
        let at_once = |items: Vec<u32>| std::future::ready(items);
        let mut stopped = Box::pin(batch.ask(1, never));
        assert!(futures::poll!(&mut stopped).is_pending());
        drop(stopped);
        assert_eq!(batch.ask(2, at_once).await, Some(2));
        let mut leader = Box::pin(batch.ask(3, never));
        assert!(futures::poll!(&mut leader).is_pending());
        let mut waiter = Box::pin(batch.ask(4, at_once));
        assert!(futures::poll!(&mut waiter).is_pending());
        drop(leader);
        assert_eq!(waiter.await, Some(4), "it makes its own call");
    }
}
