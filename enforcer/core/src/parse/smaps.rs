//! `/proc/PID/smaps`: resident bytes of each mapping, and bytes referenced since the marks were cleared
//! (Documentation/filesystems/proc.rst; `show_smap` of `fs/proc/task_mmu.c`).
//!
//! The file of a large process has millions of lines, so it is read line by line. Malformed lines are
//! skipped: the running process changes the file while it is read.

/// Resident and referenced bytes of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Referenced {
    /// Address of its first byte.
    pub start: u64,
    /// Address after its last byte.
    pub end: u64,
    /// Resident bytes.
    pub resident: u64,
    /// Bytes of pages accessed since the marks were cleared (`clear_refs`).
    pub referenced: u64,
}

/// Mappings with resident pages, from the lines of the file.
#[derive(Debug, Clone, Default)]
pub struct Smaps {
    found: Vec<Referenced>,
    open: Option<Referenced>,
}

impl Smaps {
    /// Maximum number of mappings kept (`vm.max_map_count` is 65,530).
    const LIMIT: usize = 1 << 16;

    /// Parses one line.
    pub fn add_line(&mut self, line: &str) {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { return };
        if let Some((start, end)) = range(first) {
            self.close();
            self.open = Some(Referenced { start, end, resident: 0, referenced: 0 });
            return;
        }
        let Some(open) = &mut self.open else { return };
        let mut bytes = || words.next()?.parse::<u64>().ok()?.checked_mul(1024);
        match first {
            "Rss:" => open.resident = bytes().unwrap_or(0),
            "Referenced:" => open.referenced = bytes().unwrap_or(0),
            _ => {}
        }
    }

    /// All mappings with resident pages, in the order of the file.
    pub fn into_mappings(mut self) -> Vec<Referenced> {
        self.close();
        self.found
    }

    fn close(&mut self) {
        let open = self.open.take().filter(|open| open.resident > 0 && open.start < open.end);
        if self.found.len() < Self::LIMIT {
            self.found.extend(open);
        }
    }
}

/// `7f0000000000-7f0000021000`.
fn range(word: &str) -> Option<(u64, u64)> {
    let (start, end) = word.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Vec<Referenced> {
        let mut smaps = Smaps::default();
        text.lines().for_each(|line| smaps.add_line(line));
        smaps.into_mappings()
    }

    #[test]
    fn a_mapping_has_what_is_there_and_what_was_touched() {
        let text = "\
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon
Size:                328 kB
KernelPageSize:        4 kB
Rss:                 100 kB
Pss:                  50 kB
Referenced:           96 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
7f0000000000-7f0000021000 rw-p 00000000 00:00 0
Rss:                  12 kB
Referenced:            0 kB
7f1000000000-7f1000021000 ---p 00000000 00:00 0
Rss:                   0 kB
";
        let of = |start, end, resident: u64, referenced: u64| Referenced {
            start,
            end,
            resident: resident << 10,
            referenced: referenced << 10,
        };
        let expected = [of(0x40_0000, 0x45_2000, 100, 96), of(0x7f00_0000_0000, 0x7f00_0002_1000, 12, 0)];
        assert_eq!(read(text), expected);
    }

    proptest! {
        #[test]
        fn any_text_will_do(text in any::<String>(), noise in "([0-9a-f]{1,20}-[0-9a-f]{1,20} r|Rss: [0-9]{0,25} kB|Referenced: -?[0-9]{1,3}\n){0,20}") {
            for mapping in read(&text).into_iter().chain(read(&noise)) {
                prop_assert!(mapping.start < mapping.end);
            }
        }
    }
}
