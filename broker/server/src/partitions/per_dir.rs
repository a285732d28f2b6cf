//! Work on many logs: several at a time in each directory, so that all disks are busy and none is overrun.

use std::sync::Arc;

use parking_lot::Mutex;

use super::hosted::HostedDir;

/// Calls `work` for each item, on up to `threads_per_dir` threads for each directory. Returns when all is done.
pub(super) fn for_each<T: Send>(
    items: Vec<T>,
    dir_of: impl Fn(&T) -> &Arc<HostedDir>,
    threads_per_dir: usize,
    work: impl Fn(T) + Sync,
) {
    if items.len() <= 1 {
        items.into_iter().for_each(work);
        return;
    }
    let mut by_dir: Vec<Vec<T>> = Vec::new();
    for item in items {
        match by_dir.iter_mut().find(|dir| Arc::ptr_eq(dir_of(&dir[0]), dir_of(&item))) {
            Some(dir) => dir.push(item),
            None => by_dir.push(vec![item]),
        }
    }
    std::thread::scope(|scope| {
        for dir in by_dir {
            let threads = threads_per_dir.clamp(1, dir.len());
            let left = Arc::new(Mutex::new(dir.into_iter()));
            for _ in 0..threads {
                let (left, work) = (Arc::clone(&left), &work);
                scope.spawn(move || {
                    while let Some(item) = { left.lock().next() } {
                        work(item);
                    }
                });
            }
        }
    });
}
