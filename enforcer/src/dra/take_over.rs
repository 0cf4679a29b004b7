//! The start of a driver: what an earlier daemon has left becomes its ledger.

use std::{fs, io, time::Duration};

use enforcer_core::dra::{ClaimLedger, ClaimSupply, cdi};

use super::{
    lock::{ClaimLock, ClaimStateError},
    store::{ClaimStore, StoredLedger, create_above},
};

/// The claims of the node, taken over from an earlier daemon.
#[derive(Debug)]
pub struct TakenClaims {
    /// The ledger, as it is on disk.
    pub ledger: ClaimLedger,
    /// What was wrong with the state file; then claims are in the ledger by what their files say
    /// ([`ClaimLedger::recover`]).
    pub damage: Option<String>,
    /// Whether the disk may have other claims or files than the ledger, because a write failed
    /// ([`super::ClaimDriver::with_unwritten`]).
    pub is_unwritten: bool,
    /// For the driver to hold ([`super::ClaimDriver::with_lock`]): without it another daemon may write.
    pub lock: ClaimLock,
}

impl ClaimStore {
    /// Locks the claims of this node, reads the state file and makes the files of the Container Device
    /// Interface fit it. After damage, or without a state file, claims of these files are recovered, and
    /// their files stay.
    ///
    /// # Errors
    /// If another daemon serves the claims for longer than `patience`, or a file cannot be read or kept
    /// aside.
    pub fn take_over(
        &self,
        (node, boot_id): (&str, &str),
        supply: &ClaimSupply,
        patience: Duration,
    ) -> Result<TakenClaims, ClaimStateError> {
        create_above(&self.state)?;
        let lock = ClaimLock::take(&self.state.with_added_extension("lock"), patience)?;
        let is_absent =
            fs::symlink_metadata(&self.state).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let StoredLedger { mut ledger, mut damage } = self.load(node, boot_id)?;
        if is_absent || damage.is_some() {
            for (path, uid) in self.files()? {
                let text = fs::read_to_string(&path).unwrap_or_default();
                ledger.recover(uid, &cdi::written_claim(&text).unwrap_or_default(), supply);
            }
            let claims = ledger.claims().count();
            if is_absent && claims > 0 {
                let (state, cdi) = (self.state.display(), self.cdi.display());
                damage = Some(format!("{state}: it is missing, and {claims} claims have files in {cdi}"));
            }
        }
        // A daemon that starts next finds no damage, and the claims.
        let written = if damage.is_some() { self.write(&ledger) } else { Ok(()) };
        // Both: one bad file keeps no claim from being served.
        let unwritten = written.and(self.tidy(&ledger)).err();
        if let Some(error) = &unwritten {
            tracing::warn!(
                "files of claims are not up to date: {error}; they are written with the first change"
            );
        }
        Ok(TakenClaims { ledger, damage, is_unwritten: unwritten.is_some(), lock })
    }
}

#[cfg(test)]
mod tests {
    use enforcer_core::dra::{BudgetOptions, ClaimUid};
    use numa_placement::{Inventory, settings::PlacementSettings};
    use numa_topology::{set::CpuSet, synth::Machine};
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    fn store(dir: &TempDir) -> ClaimStore {
        let (state, cdi) = (dir.path().join("state/dra.json"), dir.path().join("cdi"));
        ClaimStore { state, cdi, compatible: false, metadata: None }
    }

    fn take_over(store: &ClaimStore) -> Result<TakenClaims, ClaimStateError> {
        let machine = Machine::new().sockets(2).cores(4).build();
        let inventory = Inventory::new(machine, Vec::new(), &PlacementSettings::default()).unwrap();
        let supply = ClaimSupply::new(&inventory, &BudgetOptions::default(), &CpuSet::new());
        store.take_over(("n1", "boot"), &supply, Duration::ZERO)
    }

    /// A file that a claim with these CPUs has.
    fn put_file(store: &ClaimStore, uid: &str, cpus: &str) -> String {
        let variables = json!([format!("NUMA_ENFORCER_CLAIM_{uid}={cpus};0")]);
        let text = json!({"devices": [{"containerEdits": {"env": variables}}]}).to_string();
        let path = store.cdi.join(cdi::file_name(&ClaimUid::parse(uid).unwrap()));
        fs::create_dir_all(&store.cdi).unwrap();
        fs::write(path, &text).unwrap();
        text
    }

    fn files(store: &ClaimStore) -> Vec<String> {
        let entries = fs::read_dir(&store.cdi).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn second_daemon_is_refused_with_the_lock_and_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        let first = take_over(&store).unwrap();
        let refused = take_over(&store).unwrap_err().to_string();
        let lock = store.state.with_added_extension("lock");
        let own = std::process::id();
        let expected = format!("{} is held by process {own}: another numa-enforcer", lock.display());
        assert!(refused.starts_with(&expected), "{refused}");
        drop(first);
        take_over(&store).unwrap();
        // A holder that could not note itself still holds.
        let _held = take_over(&store).unwrap();
        fs::write(&lock, "no number").unwrap();
        let refused = take_over(&store).unwrap_err().to_string();
        assert!(refused.contains("held by process unknown"), "{refused}");
    }

    #[test]
    fn damage_or_a_missing_state_file_withholds_cpus_and_keeps_files_over_restarts() {
        for damaged in [Some("{\"version\": 1"), None] {
            let dir = tempfile::tempdir().unwrap();
            let store = store(&dir);
            let text = put_file(&store, "uid-x", "1-2,5");
            put_file(&store, "uid-y", "");
            fs::write(store.cdi.join("vendor.json"), "{}").unwrap();
            let all = files(&store);
            if let Some(damaged) = damaged {
                fs::create_dir_all(store.state.parent().unwrap()).unwrap();
                fs::write(&store.state, damaged).unwrap();
            }
            let taken = take_over(&store).unwrap();
            let damage = taken.damage.unwrap();
            let words = if damaged.is_some() { "dra.json.damaged" } else { "it is missing, and 2 claims" };
            assert!(damage.contains(words), "{damage}");
            assert_eq!(taken.ledger.exclusive_cpus().to_string(), "1-2,5");
            assert_eq!(files(&store), all, "a container of a claim may start again");
            let path = store.cdi.join("numa-enforcer.io-place_claim-uid-x.json");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            drop(taken.lock);
            let again = take_over(&store).unwrap();
            assert_eq!((again.damage, again.ledger), (None, taken.ledger));
            assert_eq!(files(&store), all);
        }
    }

    #[test]
    fn first_start_and_a_tidy_one_are_no_damage() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        assert_eq!(take_over(&store).unwrap().damage, None);
        assert!(!store.state.exists(), "nothing is written before the first claim");
        store.write(&ClaimLedger::new("n1", "boot")).unwrap();
        put_file(&store, "uid-x", "1");
        let taken = take_over(&store).unwrap();
        assert_eq!((taken.damage, taken.ledger.claims().count()), (None, 0));
        assert_eq!(files(&store), Vec::<String>::new(), "the state says that it was given up");
    }

    #[test]
    fn file_that_cannot_be_put_in_order_keeps_no_daemon_from_the_claims() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        store.write(&ClaimLedger::new("n1", "boot")).unwrap();
        let name = cdi::file_name(&ClaimUid::parse("uid-x").unwrap());
        fs::create_dir_all(store.cdi.join(&name)).unwrap();
        assert!(take_over(&store).unwrap().is_unwritten, "a directory is in the place of the file");
        fs::remove_dir(store.cdi.join(&name)).unwrap();
        assert!(!take_over(&store).unwrap().is_unwritten);
    }

    #[test]
    fn many_damaged_files_keep_no_daemon_from_the_claims() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        fs::create_dir_all(store.state.parent().unwrap()).unwrap();
        for number in 0..12 {
            fs::write(&store.state, format!("damage {number}")).unwrap();
            assert!(take_over(&store).unwrap().damage.is_some());
        }
        let first = store.state.with_added_extension("damaged");
        assert_eq!(fs::read_to_string(&first).unwrap(), "damage 0");
        assert_eq!(fs::read_to_string(first.with_added_extension("8")).unwrap(), "damage 11");
    }

    #[test]
    fn lock_of_a_daemon_that_ends_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        let first = take_over(&store).unwrap();
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(first);
        });
        let taken = store.take_over(("n1", "boot"), &ClaimSupply::default(), Duration::from_mins(1));
        ending.join().unwrap();
        taken.unwrap();
    }
}
