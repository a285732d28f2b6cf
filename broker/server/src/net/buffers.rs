//! Buffers for reading from sockets, kept by each network thread between the requests of its connections.
//!
//! What must hold: a buffer from which frames were cut is used again only when they are gone; a thread keeps a bounded number of
//! buffers. New memory costs a page fault for every 4 KiB that come, which is more than copying them out of the socket does.

use std::cell::RefCell;
use std::collections::VecDeque;

use bytes::BytesMut;

/// What a buffer from here holds at least.
pub(super) const BUFFER_BYTES: usize = 128 * 1024;
/// Larger ones are not kept.
const KEPT_BYTES_MAX: usize = 2 * BUFFER_BYTES;
const KEPT_MAX: usize = 8;

thread_local! {
    static KEPT: RefCell<VecDeque<BytesMut>> = const { RefCell::new(VecDeque::new()) };
}

pub(super) fn take() -> BytesMut {
    KEPT.with_borrow_mut(|kept| {
        let free = kept.iter_mut().position(|buffer| buffer.try_reclaim(BUFFER_BYTES));
        free.and_then(|at| kept.remove(at)).unwrap_or_else(|| BytesMut::with_capacity(BUFFER_BYTES))
    })
}

/// Keeps an empty buffer of `bytes` for the next that needs one; when there are too many, the oldest goes.
pub(super) fn give(buffer: BytesMut, bytes: usize) {
    if (BUFFER_BYTES..=KEPT_BYTES_MAX).contains(&bytes) {
        KEPT.with_borrow_mut(|kept| {
            if kept.len() == KEPT_MAX {
                kept.pop_front();
            }
            kept.push_back(buffer);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each test has a thread of its own, and so its own buffers.
    fn on_a_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_buffer_comes_again_when_its_frames_are_gone_and_not_before() {
        on_a_thread(|| {
            let mut buffer = take();
            let place = buffer.as_ptr();
            buffer.extend_from_slice(b"frame");
            let frame = buffer.split().freeze();
            give(buffer, BUFFER_BYTES);
            assert_ne!(take().as_ptr(), place);
            assert_eq!(&frame[..], b"frame");
            drop(frame);
            let again = take();
            assert_eq!((again.as_ptr(), again.len(), again.capacity()), (place, 0, BUFFER_BYTES));
        });
    }

    #[test]
    fn a_thread_keeps_no_more_than_its_share() {
        on_a_thread(|| {
            give(BytesMut::with_capacity(KEPT_BYTES_MAX + 1), KEPT_BYTES_MAX + 1);
            assert!(KEPT.with_borrow(VecDeque::is_empty), "too large to be kept");
            let buffers: Vec<_> = (0..20).map(|_| take()).collect();
            buffers.into_iter().for_each(|buffer| give(buffer, BUFFER_BYTES));
            assert_eq!(KEPT.with_borrow(VecDeque::len), KEPT_MAX);
        });
    }
}
