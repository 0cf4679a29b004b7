//! Admission of connections to a TCP port: which one may stay, and which one is closed for another.
//!
//! Problem: every pod of a node can connect to the port, and a slow or silent peer holds places that others
//! need. The kubelet kills a daemon after three failed probes.
//!
//! Idea: a connection holds nothing scarce until its request has arrived. Before that it is *waiting*, and
//! the newest one always gets in: the oldest waiting connection of the peer that has most of them is closed
//! for it. A probe is answered at once, because its answer fits into the socket's buffer. Any other request
//! needs one of [`READERS`] places, at most [`PER_PEER`] for one peer. A connection can lose its place after
//! [`LONG`].
//!
//! Invariants: readers never cause a probe to be refused; no peer can take more than its share; there are at
//! most `WAITING + READERS` connections.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// Most connections that wait for a request, or for a probe's answer to be read.
pub(super) const WAITING: usize = 32;
/// Most connections that read a possibly long answer.
pub(super) const READERS: usize = 16;
/// Most such connections of one peer.
pub(super) const PER_PEER: usize = 4;
/// Time after which a reader can lose its place: an answer takes less.
pub(super) const LONG: Duration = Duration::from_secs(1);

/// The connections of one port.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionPlaces(Arc<Mutex<PlaceState>>);

/// Place of one connection, freed on drop.
#[derive(Debug)]
pub(super) struct ConnectionPlace {
    places: ConnectionPlaces,
    id: u64,
    /// Notified when another connection takes the place.
    taken: Arc<Notify>,
}

#[derive(Debug, Default)]
struct PlaceState {
    next: u64,
    /// In the order of arrival.
    connections: Vec<PlacedConnection>,
}

#[derive(Debug)]
struct PlacedConnection {
    id: u64,
    peer: IpAddr,
    /// Begin of its reading; `None` while it waits.
    reading: Option<Instant>,
    taken: Arc<Notify>,
}

impl ConnectionPlaces {
    /// A waiting place; if all are in use, an older connection is closed.
    pub(super) fn enter(&self, address: IpAddr) -> ConnectionPlace {
        let peer = network(address);
        let taken = Arc::new(Notify::new());
        let mut held = self.held();
        if held.connections.iter().filter(|one| one.reading.is_none()).count() >= WAITING {
            let busiest = held.busiest(peer, |one| one.reading.is_none());
            held.evict(|one| one.reading.is_none() && one.peer == busiest);
        }
        let id = held.next;
        held.next += 1;
        held.connections.push(PlacedConnection { id, peer, reading: None, taken: Arc::clone(&taken) });
        drop(held);
        ConnectionPlace { places: self.clone(), id, taken }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, PlaceState> {
        // Poisoning is ignored: every change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPlace {
    /// Moves it to the readers; false if there is no place.
    pub(super) fn begin_reading(&self) -> bool {
        let now = Instant::now();
        let mut held = self.places.held();
        let Some(at) = held.connections.iter().position(|one| one.id == self.id) else { return false };
        let peer = held.connections[at].peer;
        let readers = |held: &PlaceState| held.connections.iter().filter(|one| one.reading.is_some()).count();
        let own = held.connections.iter().filter(|one| one.reading.is_some() && one.peer == peer).count();
        let slow =
            |one: &PlacedConnection| one.reading.is_some_and(|since| now.duration_since(since) >= LONG);
        let has_room = if own >= PER_PEER {
            held.evict(|one| slow(one) && one.peer == peer)
        } else if readers(&held) >= READERS {
            let busiest = held.busiest(peer, slow);
            held.evict(|one| slow(one) && one.peer == busiest)
        } else {
            true
        };
        if has_room && let Some(own) = held.connections.iter_mut().find(|one| one.id == self.id) {
            own.reading = Some(now);
        }
        has_room
    }

    /// Returns when another connection has taken the place.
    pub(super) async fn taken(&self) {
        self.taken.notified().await;
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.places.held().connections.retain(|one| one.id != self.id);
    }
}

impl PlaceState {
    /// The peer with most of these connections, counting one more for `newcomer`; on a tie the one with the
    /// oldest connection.
    fn busiest(&self, newcomer: IpAddr, counts: impl Fn(&PlacedConnection) -> bool) -> IpAddr {
        let mut busiest = (0, newcomer);
        for (at, one) in self.connections.iter().enumerate().filter(|(_, one)| counts(one)) {
            if self.connections[..at].iter().any(|before| counts(before) && before.peer == one.peer) {
                continue;
            }
            let own = self.connections.iter().filter(|other| counts(other) && other.peer == one.peer).count();
            let all = own + usize::from(one.peer == newcomer);
            if all > busiest.0 {
                busiest = (all, one.peer);
            }
        }
        busiest.1
    }

    /// Closes the oldest of these connections; false if there is none.
    fn evict(&mut self, of: impl Fn(&PlacedConnection) -> bool) -> bool {
        let Some(at) = self.connections.iter().position(of) else { return false };
        self.connections.remove(at).taken.notify_one();
        true
    }
}

/// Identity of a peer: its IPv4 address, or its IPv6 network of 64 bits, because one host has all of it.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::time::advance;

    use super::*;

    fn peer(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    fn is_taken(place: &ConnectionPlace) -> bool {
        !place.places.held().connections.iter().any(|one| one.id == place.id)
    }

    #[tokio::test(start_paused = true)]
    async fn the_peer_with_most_waiting_connections_makes_room() {
        let places = ConnectionPlaces::default();
        let quiet = places.enter(peer(1));
        let many: Vec<ConnectionPlace> = (1..WAITING).map(|_| places.enter(peer(2))).collect();
        let newcomer = places.enter(peer(3));
        assert!(is_taken(&many[0]) && !is_taken(&quiet) && !is_taken(&newcomer));
        many[0].taken().await;
        let more = places.enter(peer(2));
        assert!(is_taken(&many[1]) && !is_taken(&quiet) && !is_taken(&more));
    }

    #[tokio::test(start_paused = true)]
    async fn one_peer_cannot_take_the_places_of_others() {
        let places = ConnectionPlaces::default();
        let greedy: Vec<ConnectionPlace> = (0..READERS).map(|_| places.enter(peer(1))).collect();
        let reading: Vec<bool> = greedy.iter().map(ConnectionPlace::begin_reading).collect();
        assert_eq!(reading.iter().filter(|reads| **reads).count(), PER_PEER);
        for last in 2..=4 {
            assert!(places.enter(peer(last)).begin_reading(), "{last}");
        }
        advance(LONG).await;
        let again = places.enter(peer(1));
        assert!(again.begin_reading() && is_taken(&greedy[0]), "its own oldest one made room");
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_peers_the_one_with_most_slow_readers_makes_room() {
        let places = ConnectionPlaces::default();
        let first = places.enter(peer(100));
        assert!(first.begin_reading());
        let mut held = Vec::new();
        for at in 1..READERS {
            let place = places.enter(peer(1 + u8::try_from(at / PER_PEER).unwrap()));
            assert!(place.begin_reading());
            held.push(place);
        }
        let newcomer = places.enter(peer(200));
        assert!(!newcomer.begin_reading(), "all have begun just now");
        advance(LONG).await;
        assert!(newcomer.begin_reading());
        assert!(!is_taken(&first), "it has the only connection of its peer");
        assert_eq!(held.iter().filter(|place| is_taken(place)).count(), 1);
    }

    #[test]
    fn an_address_of_ipv6_counts_by_its_network() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("fd00:1:2:3::1"), of("fd00:1:2:3:ffff::2"));
        assert_ne!(of("fd00:1:2:3::1"), of("fd00:1:2:4::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
