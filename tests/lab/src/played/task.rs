//! A background task that ends with its handle.

use std::future::Future;

/// Aborts its task when dropped.
#[derive(Debug)]
pub struct Task(tokio::task::AbortHandle);

impl Task {
    /// Runs `work` until it ends or the returned handle is dropped.
    pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work).abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
