//! The directory of the daemon's journal.

use std::path::Path;

use super::writable;
use enforcer_act::journal::check_owned;
use enforcer_report::checks::Check;

/// Whether the daemon can keep its journal there. A missing directory will be created.
pub(super) fn check(state_dir: &Path) -> Check {
    let name = "state-dir";
    let nearest = state_dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let shown = state_dir.display();
    if !nearest.is_dir() {
        let detail = format!("{shown}: {} is not a directory", nearest.display());
        return Check::missing(name, detail, "choose another --state-dir");
    }
    if nearest == state_dir
        && let Err(error) = check_owned(state_dir)
    {
        return Check::missing(name, error.to_string(), "give it to root with mode 0700, or choose another");
    }
    match writable(nearest) {
        Ok(()) if nearest == state_dir => Check::ok(name, format!("{shown} may be written")),
        Ok(()) => Check::ok(name, format!("{shown} can be made")),
        Err(error) => Check::degraded(
            name,
            format!("{} may not be written: {error}", nearest.display()),
            "`run --mode enforce` and `restore` need it: run as root or choose another --state-dir",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use enforcer_report::checks::Status;

    #[test]
    fn a_directory_may_be_made_but_not_inside_a_file() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(check(root.path()).status, Status::Ok);
        assert_eq!(check(&root.path().join("a/b")).status, Status::Ok);
        assert_eq!(check(&file.join("a")).status, Status::Missing);
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(check(root.path()).status, Status::Missing, "the journal would refuse it");
    }
}
