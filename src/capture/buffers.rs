//! Memory of recorded bodies, used again.
//!
//! Whoever copies a body does so in between two chunks. Memory that is new to the process costs a fault of the kernel's
//! for every page, several times what the copy costs; memory that a body lay in before costs none.

use std::ops::Deref;
use std::sync::{Arc, Mutex, TryLockError};

/// Free buffers together have at most so many bytes.
const MAX_FREE_BYTES: usize = 32 << 20;
/// A longer one is not kept: it would be most of them.
const MAX_BUFFER_BYTES: usize = 4 << 20;

/// Buffers that are free.
#[derive(Debug, Default)]
pub(super) struct Buffers(Mutex<Free>);

#[derive(Debug, Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Buffers {
    /// An empty buffer, which was used before where there is one.
    pub(super) fn lend(self: &Arc<Self>) -> Lent {
        let bytes = self.free(|free| {
            let buffer = free.buffers.pop()?;
            free.bytes -= buffer.capacity();
            Some(buffer)
        });
        Lent { bytes: bytes.flatten().unwrap_or_default(), home: Arc::clone(self) }
    }

    fn take_back(&self, mut buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        if bytes == 0 || bytes > MAX_BUFFER_BYTES {
            return;
        }
        buffer.clear();
        self.free(|free| {
            if free.bytes + bytes <= MAX_FREE_BYTES {
                free.bytes += bytes;
                free.buffers.push(buffer);
            }
        });
    }

    /// None where another thread is at it: the threads that move bytes wait for nobody.
    fn free<T>(&self, change: impl FnOnce(&mut Free) -> T) -> Option<T> {
        match self.0.try_lock() {
            Ok(mut free) => Some(change(&mut free)),
            Err(TryLockError::Poisoned(free)) => Some(change(&mut free.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// A buffer, free again when it is dropped.
#[derive(Debug)]
pub(super) struct Lent {
    bytes: Vec<u8>,
    home: Arc<Buffers>,
}

impl Lent {
    pub(super) fn extend(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
    }

    /// Empty, and without memory.
    pub(super) fn give_up(&mut self) {
        self.home.take_back(std::mem::take(&mut self.bytes));
    }

    /// The bytes, which do not come back.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(buffers: &Buffers) -> (usize, usize) {
        buffers.free(|free| (free.buffers.len(), free.bytes)).unwrap()
    }

    #[test]
    fn a_buffer_is_lent_again_and_empty() {
        let buffers = Arc::new(Buffers::default());
        let mut first = buffers.lend();
        first.extend(b"hello");
        assert_eq!((&*first, free(&buffers)), (b"hello".as_slice(), (0, 0)));
        let (memory, capacity) = (first.bytes.as_ptr(), first.bytes.capacity());
        drop(first);
        assert_eq!(free(&buffers), (1, capacity));
        let again = buffers.lend();
        assert_eq!((again.bytes.as_ptr(), again.len()), (memory, 0));
        assert_eq!(free(&buffers), (0, 0));
        let mut kept = again;
        kept.extend(b"x");
        assert_eq!(kept.into_bytes(), b"x");
        assert_eq!(free(&buffers), (0, 0), "what was taken for good does not come back");
    }

    #[test]
    fn what_is_free_is_bounded() {
        let buffers = Arc::new(Buffers::default());
        drop(buffers.lend());
        assert_eq!(free(&buffers), (0, 0), "no memory");
        buffers.take_back(Vec::with_capacity(MAX_BUFFER_BYTES + 1));
        assert_eq!(free(&buffers), (0, 0), "too long");
        for _ in 0..20 {
            buffers.take_back(Vec::with_capacity(MAX_BUFFER_BYTES));
        }
        assert_eq!(free(&buffers), (8, MAX_FREE_BYTES));
    }
}
