//! Work on many logs: several at a time in each directory, so that all disks are busy and none is overrun.

use std::sync::Arc;

use parking_lot::Mutex;

use super::hosted::HostedDir;

/// Calls `work` for each item, on as many threads for each directory as `threads_for` says of its items, which may wait for that disk.
/// Returns when all is done.
pub(super) fn for_each<T: Send>(
    items: Vec<T>,
    dir_of: impl Fn(&T) -> Arc<HostedDir>,
    threads_for: impl Fn(&[T]) -> usize + Sync,
    work: impl Fn(T) + Sync,
) {
    if items.len() <= 1 {
        items.into_iter().for_each(work);
        return;
    }
    let mut by_dir: Vec<Vec<T>> = Vec::new();
    for item in items {
        match by_dir.iter_mut().find(|dir| Arc::ptr_eq(&dir_of(&dir[0]), &dir_of(&item))) {
            Some(dir) => dir.push(item),
            None => by_dir.push(vec![item]),
        }
    }
    std::thread::scope(|scope| {
        for items in by_dir {
            let (threads_for, work) = (&threads_for, &work);
            scope.spawn(move || {
                let threads = threads_for(&items).clamp(1, items.len());
                let left = Mutex::new(items.into_iter());
                let work_off = || {
                    while let Some(item) = { left.lock().next() } {
                        work(item);
                    }
                };
                std::thread::scope(|scope| {
                    (1..threads).for_each(|_| drop(scope.spawn(work_off)));
                    work_off();
                });
            });
        }
    });
}
