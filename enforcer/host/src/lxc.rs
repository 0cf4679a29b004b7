//! Which controller balances the LXC containers of this host over its CPUs.

use enforcer_core::owner::LxcController;

use crate::HostRoot;

/// The controller whose files are on the host. A captured machine has none of them.
pub fn read_lxc_controller(host: &HostRoot) -> Option<LxcController> {
    let is_there = |path: &str| host.at(path).exists();
    let found = LxcController::PATHS.into_iter().find(|(path, _)| !host.captured && is_there(path));
    found.map(|(path, owner)| LxcController { owner, evidence: path.to_owned() })
}
