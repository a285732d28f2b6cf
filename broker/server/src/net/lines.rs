//! The sockets of all client connections, so that a client is not left waiting on a thread that hangs in a write to a disk: its connection
//! is ended from outside, and it goes on elsewhere.

use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use socket2::SockRef;
use tokio::net::TcpStream;

/// No directory.
const NOWHERE: usize = usize::MAX;

/// One connection's socket.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) stream: TcpStream,
    /// The directory that the connection's own thread is writing to just now.
    writes_to: AtomicUsize,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    open: Mutex<Vec<Weak<Line>>>,
}

impl Line {
    /// Does a write to a directory, so that it is known where this thread hangs if it does.
    pub(crate) fn while_writing_to<T>(&self, dir: usize, write: impl FnOnce() -> T) -> T {
        self.writes_to.store(dir, Ordering::SeqCst);
        let written = write();
        self.writes_to.store(NOWHERE, Ordering::Release);
        written
    }

    fn hang_up(&self) {
        // It may be closed already.
        let _closed = SockRef::from(&self.stream).shutdown(Shutdown::Both).is_err();
    }
}

impl Lines {
    pub(crate) fn add(&self, stream: TcpStream) -> Arc<Line> {
        let line = Arc::new(Line { stream, writes_to: AtomicUsize::new(NOWHERE) });
        let mut open = self.open.lock();
        if open.len() == open.capacity() {
            open.retain(|line| line.strong_count() > 0);
        }
        open.push(Arc::downgrade(&line));
        line
    }

    /// Ends the connections whose threads are writing to a directory.
    pub(crate) fn hang_up_writers(&self, dir: usize) {
        self.each(|line| {
            if line.writes_to.load(Ordering::SeqCst) == dir {
                line.hang_up();
            }
        });
    }

    /// Ends all connections.
    pub(crate) fn hang_up_all(&self) {
        self.each(Line::hang_up);
    }

    fn each(&self, act: impl Fn(&Line)) {
        let open = self.open.lock();
        open.iter().filter_map(Weak::upgrade).for_each(|line| act(&line));
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn only_connections_that_write_to_the_directory_are_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let lines = Lines::default();
        let mut clients = Vec::new();
        let mut held = Vec::new();
        for _ in 0..2 {
            clients.push(TcpStream::connect(address).await.unwrap());
            held.push(lines.add(listener.accept().await.unwrap().0));
        }
        held[0].while_writing_to(7, || {
            lines.hang_up_writers(8);
            assert_eq!(clients[0].try_read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
            lines.hang_up_writers(7);
        });
        assert_eq!(clients[0].read(&mut [0]).await.unwrap(), 0);
        assert_eq!(clients[1].try_read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        lines.hang_up_all();
        assert_eq!(clients[1].read(&mut [0]).await.unwrap(), 0);
    }
}
