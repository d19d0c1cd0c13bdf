//! Work done side by side, its results taken in the order of the work.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

/// Results that may wait for each worker.
const WAITING: usize = 2;

/// Does `work` on every item of `items` with so many threads, and hands the results to `take` in order, on
/// the caller's thread. At most a few results for each thread are held. Ends early when `take` says false.
pub(super) fn in_order<I, T, R>(
    items: I,
    threads: usize,
    work: impl Fn(T) -> R + Sync,
    mut take: impl FnMut(R) -> bool,
) where
    I: Iterator<Item = T> + Send,
    T: Send,
    R: Send,
{
    let threads = threads.max(1);
    let (tickets, handed_out) = sync_channel::<Receiver<R>>(threads * WAITING);
    // Without tickets there are no items either: the receiver then sees the end.
    let items = Mutex::new((items, Some(tickets)));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((item, sender)) = next(&items) {
                    // Nobody may be there to take it any more.
                    let _ = sender.send(work(item));
                }
            });
        }
        // Dropped at the end of the loop, so that a worker that waits to hand out a ticket ends.
        for ticket in handed_out {
            let Ok(result) = ticket.recv() else { break };
            if !take(result) {
                break;
            }
        }
    });
}

/// The next item, and where its result goes. Both are taken together, so that tickets are in the items'
/// order.
fn next<I, T, R>(items: &Mutex<(I, Option<SyncSender<Receiver<R>>>)>) -> Option<(T, SyncSender<R>)>
where
    I: Iterator<Item = T>,
{
    let mut items = items.lock().unwrap_or_else(PoisonError::into_inner);
    let (iterator, tickets) = &mut *items;
    let item = tickets.as_ref().and_then(|_| iterator.next());
    let (sender, receiver) = sync_channel(1);
    let is_handed_out =
        item.is_some() && tickets.as_ref().is_some_and(|tickets| tickets.send(receiver).is_ok());
    let taken = item.filter(|_| is_handed_out);
    if taken.is_none() {
        *tickets = None;
    }
    taken.map(|item| (item, sender))
}

#[cfg(test)]
mod tests {
    use super::in_order;

    #[test]
    fn results_come_in_the_order_of_the_work() {
        for threads in [1, 2, 7] {
            for n in [0_u64, 1, 5, 300] {
                let mut taken = Vec::new();
                in_order(
                    0..n,
                    threads,
                    |item| {
                        // The later ones are done sooner.
                        std::thread::sleep(std::time::Duration::from_micros((n - item) % 7 * 50));
                        item * item
                    },
                    |result| {
                        taken.push(result);
                        true
                    },
                );
                assert_eq!(taken, (0..n).map(|item| item * item).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn it_ends_when_no_more_is_wanted() {
        let mut taken = 0;
        in_order(
            0_u64..,
            2,
            |item| item,
            |_| {
                taken += 1;
                taken < 10
            },
        );
        assert_eq!(taken, 10);
    }
}
