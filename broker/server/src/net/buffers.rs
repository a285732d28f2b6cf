//! Buffers for reading from sockets, kept by each network thread between the requests of its connections.
//!
//! What must hold: a buffer that is given back is in nobody's hands any more, or it is not kept; a thread keeps a bounded number of
//! bytes. New memory costs a page fault for every 4 KiB that come, which is more than copying them out of the socket does.

use std::cell::RefCell;

use bytes::BytesMut;

/// What a buffer from here holds at least.
pub(super) const BUFFER_BYTES: usize = 128 * 1024;
const KEPT_BYTES_MAX: usize = 1 << 20;

thread_local! {
    static KEPT: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn take() -> BytesMut {
    let kept = KEPT.with_borrow_mut(Vec::pop);
    kept.unwrap_or_else(|| BytesMut::with_capacity(BUFFER_BYTES))
}

/// Keeps an empty buffer for the next that needs one, unless frames cut from it are still in use.
pub(super) fn give(mut buffer: BytesMut) {
    buffer.clear();
    if !buffer.try_reclaim(BUFFER_BYTES) {
        return;
    }
    KEPT.with_borrow_mut(|kept| {
        let kept_bytes: usize = kept.iter().map(BytesMut::capacity).sum();
        if kept_bytes + buffer.capacity() <= KEPT_BYTES_MAX {
            kept.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each test has a thread of its own, and so its own buffers.
    fn on_a_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_buffer_comes_again_when_its_frames_are_gone() {
        on_a_thread(|| {
            let mut buffer = take();
            let place = buffer.as_ptr();
            buffer.extend_from_slice(b"frame");
            drop(buffer.split().freeze());
            give(buffer);
            let again = take();
            assert_eq!((again.as_ptr(), again.len(), again.capacity()), (place, 0, BUFFER_BYTES));
        });
    }

    #[test]
    fn a_buffer_whose_frames_live_is_not_used_again() {
        on_a_thread(|| {
            let mut buffer = take();
            buffer.extend_from_slice(b"frame");
            let frame = buffer.split().freeze();
            give(buffer);
            assert!(KEPT.with_borrow(Vec::is_empty));
            assert_eq!(&frame[..], b"frame");
        });
    }

    #[test]
    fn a_thread_keeps_no_more_than_its_share() {
        on_a_thread(|| {
            let buffers: Vec<_> = (0..20).map(|_| take()).collect();
            buffers.into_iter().for_each(give);
            assert_eq!(KEPT.with_borrow(Vec::len), KEPT_BYTES_MAX / BUFFER_BYTES);
        });
    }
}
