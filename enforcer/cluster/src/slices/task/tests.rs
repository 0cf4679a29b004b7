//! The pace of the writes, against a server that is played on a clock of its own.

use std::{
    future::Future,
    sync::{Arc, Mutex},
};

use enforcer_core::dra::slice::SliceDevice;
use tokio::time::sleep;

use super::{super::plan::SliceWrite, *};

/// Slices, and when they were written.
#[derive(Clone)]
struct PlayedServer {
    stored: Sender<Option<StoredSlices>>,
    begun: Arc<Mutex<Vec<Instant>>>,
    /// What the next writes meet, the last one first.
    failures: Arc<Mutex<Vec<ApiError>>>,
}

impl SliceWriter for PlayedServer {
    fn write(
        &self,
        stored: &[StoredSlice],
        wanted: &(dyn Fn(u64) -> Vec<ResourceSlice> + Sync),
        done: &mut Vec<DoneCall>,
    ) -> impl Future<Output = Result<(), ApiError>> + Send {
        self.begun.lock().unwrap().push(Instant::now());
        let failure = self.failures.lock().unwrap().pop();
        if failure.is_none() {
            let mut now = self.stored.borrow().clone().unwrap();
            for call in writes(stored, wanted) {
                let (name, slice) = match call {
                    SliceWrite::Delete(old) => {
                        now.by_name.remove(&old.name);
                        done.push(DoneCall::Deleted);
                        continue;
                    }
                    SliceWrite::Replace(old, slice) => (old.name.clone(), slice),
                    SliceWrite::Create(at, slice) => (format!("s{at}"), slice),
                };
                let kept = Some(slice.clone());
                done.push(DoneCall::Stored { sent: slice.clone(), kept });
                let slice = Some(slice);
                let stored = StoredSlice { name: name.clone(), uid: "u".into(), version: "1".into(), slice };
                now.by_name.insert(name, stored);
            }
            self.stored.send_replace(Some(now));
        }
        async { failure.map_or(Ok(()), Err) }
    }
}

/// A slice with one device of this name.
fn slices(device: &str) -> WantedSlices {
    let device = SliceDevice { name: device.into(), ..SliceDevice::default() };
    Arc::new(move |generation| {
        vec![ResourceSlice {
            driver: "d".into(),
            node: "n".into(),
            node_uid: "u".into(),
            generation,
            slice_count: 1,
            devices: vec![device.clone()],
        }]
    })
}

struct Played {
    server: PlayedServer,
    wanted: Sender<Option<WantedSlices>>,
    start: Instant,
}

impl Played {
    fn start(settings: &SliceSettings) -> Self {
        let settings = *settings;
        let server = PlayedServer {
            stored: Sender::new(Some(StoredSlices::default())),
            begun: Arc::default(),
            failures: Arc::default(),
        };
        let wanted = Sender::new(None);
        let (writer, wishes, stored) = (server.clone(), wanted.subscribe(), server.stored.subscribe());
        tokio::spawn(async move {
            let (degraded, written, list_again) = (Sender::new(None), Sender::new(0), Sender::new(()));
            let told = WriteTold { degraded: &degraded, written: &written, list_again: &list_again };
            write_changes(&writer, wishes, stored, &settings, told).await
        });
        Self { server, wanted, start: Instant::now() }
    }

    fn want(&self, device: &str) {
        self.wanted.send_replace(Some(slices(device)));
    }

    /// When writes began, in milliseconds since the start.
    fn begun(&self) -> Vec<u128> {
        self.server.begun.lock().unwrap().iter().map(|at| (*at - self.start).as_millis()).collect()
    }

    /// The device that the server has.
    fn device(&self) -> Option<String> {
        let stored = self.server.stored.borrow();
        let (_, slice) = stored.as_ref()?.by_name.first_key_value()?;
        Some(slice.slice.as_ref()?.devices[0].name.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn changes_of_a_second_are_one_write_and_there_is_one_in_ten_seconds() {
    let played = Played::start(&SliceSettings::default());
    for at in 0..200 {
        played.want(&format!("d{at}"));
        sleep(Duration::from_millis(300)).await;
    }
    sleep(Duration::from_mins(1)).await;
    let begun = played.begun();
    assert_eq!((begun[0], begun.len()), (1_000, 7), "{begun:?}");
    assert!(begun.windows(2).all(|pair| pair[1] - pair[0] >= 10_000), "{begun:?}");
    assert_eq!(played.device().as_deref(), Some("d199"), "the newest one is there in the end");
}

#[tokio::test(start_paused = true)]
async fn wiped_slices_are_back_within_two_seconds_and_equal_ones_are_not_written() {
    let first = Duration::from_secs(7);
    let played = Played::start(&SliceSettings { first, ..SliceSettings::default() });
    played.want("a");
    sleep(Duration::from_mins(1)).await;
    assert_eq!(played.begun(), [7_000], "the first write waits for its share of ten seconds");
    for _ in 0..100 {
        played.want("a");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(played.begun().len(), 1);
    // A kubelet that starts deletes the slices of its node.
    played.server.stored.send_replace(Some(StoredSlices::default()));
    sleep(Duration::from_secs(2)).await;
    assert_eq!((played.begun().len(), played.device().as_deref()), (2, Some("a")));
}

#[tokio::test(start_paused = true)]
async fn server_that_fails_is_asked_at_the_same_pace_at_most() {
    let played = Played::start(&SliceSettings::default());
    let busy = || ApiError::Busy {
        operation: "create".into(),
        code: 503,
        message: "starting".into(),
        retry_after: None,
    };
    played.server.failures.lock().unwrap().extend([busy(), busy(), busy()]);
    played.want("a");
    sleep(Duration::from_mins(2)).await;
    assert_eq!(played.begun(), [1_000, 11_000, 21_000, 31_000]);
    assert_eq!(played.device().as_deref(), Some("a"));
}
