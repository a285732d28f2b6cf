//! Memory that the host has to give first would be measured as the broker's: in virtual machines whose host takes back what is free, a new
//! page of the page cache costs up to 1 µs a KB, four times the write itself. So before each run as much is used and given back, for both makes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::Result;

const CHUNK_BYTES: usize = 1 << 20;
/// More than this is not written by any run that counts CPU.
const BYTES_MAX: u64 = 4 << 30;

/// Writes a file of so many bytes where brokers have their data, and removes it.
pub(super) fn warm(bytes: u64) -> Result<()> {
    let file: File = tempfile::tempfile()?;
    let chunk = vec![7; CHUNK_BYTES];
    (0..bytes.min(BYTES_MAX)).step_by(CHUNK_BYTES).try_for_each(|at| file.write_all_at(&chunk, at))?;
    Ok(())
}
