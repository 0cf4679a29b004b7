//! The groups of the process at the other end of a unix socket, which no crate in use asks for.
//!
//! The kernel notes them when the peer connects, so a process that changes its groups afterwards changes
//! nothing (`SO_PEERGROUPS`, Linux 4.13, socket(7)).
#![expect(unsafe_code, reason = "neither std nor tokio nor rustix asks for SO_PEERGROUPS")]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

/// Most groups that a process may have (`NGROUPS_MAX` in include/uapi/linux/limits.h).
const MOST: usize = 65_536;

/// Ids of the supplementary groups.
pub fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<libc::gid_t>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 32];
    loop {
        let mut bytes =
            libc::socklen_t::try_from(size_of_val(groups.as_slice())).map_err(io::Error::other)?;
        // SAFETY: `groups` is live for the whole call and `bytes` says how large it is; the kernel writes no
        // more than that, and says in `bytes` how much that is, or how much there would be.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                ptr::from_mut(&mut bytes),
            )
        };
        let count = usize::try_from(bytes).map_err(io::Error::other)? / size_of::<libc::gid_t>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() || count > MOST {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsFd, unix::net::UnixStream};

    use super::*;

    #[test]
    fn the_groups_of_a_peer_are_those_of_its_process() {
        let (near, _far) = UnixStream::pair().unwrap();
        let mut own: Vec<u32> =
            rustix::process::getgroups().unwrap().iter().map(|gid| gid.as_raw()).collect();
        let mut seen = groups(near.as_fd()).unwrap();
        own.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, own);
    }

    #[test]
    fn what_is_no_socket_has_none() {
        assert!(groups(tempfile::tempfile().unwrap().as_fd()).is_err());
    }
}
