//! `/proc/PID/stat` and `/proc/PID/task/TID/stat` (Documentation/filesystems/proc.rst, table 1-4).
//!
//! The task chooses the second field: it may contain spaces, parentheses and newlines, so the fields after it
//! are counted from the last `)`.

use super::ParseError;

/// `PF_KTHREAD` of `include/linux/sched.h`.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// The fields that are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStat {
    /// Thread id, or process id of the process's own file.
    pub id: u32,
    /// `comm`.
    pub command: String,
    /// Is it a kernel thread?
    pub kernel_thread: bool,
    /// User time in clock ticks (`USER_HZ`, 100 per second on every supported architecture).
    pub user_ticks: u64,
    /// System time in clock ticks.
    pub system_ticks: u64,
    /// CPU it last ran on; kernels before 2.2.8 do not report it.
    pub cpu: Option<u32>,
}

/// Reads one stat file.
pub fn parse_task_stat(text: &str) -> Result<TaskStat, ParseError> {
    let malformed = || ParseError::new("a stat of /proc", text);
    let (head, tail) = text.rsplit_once(')').ok_or_else(malformed)?;
    let (id, command) = head.split_once(" (").ok_or_else(malformed)?;
    // Field N of the manual page is fields[N - 3].
    let fields: Vec<&str> = tail.split_ascii_whitespace().take(50).collect();
    let number = |n: usize| fields.get(n - 3).and_then(|field| field.parse::<u64>().ok());
    let flags = number(9).and_then(|flags| u32::try_from(flags).ok()).ok_or_else(malformed)?;
    Ok(TaskStat {
        id: id.trim_start().parse().ok().ok_or_else(malformed)?,
        command: command.to_owned(),
        kernel_thread: flags & KERNEL_THREAD != 0,
        user_ticks: number(14).ok_or_else(malformed)?,
        system_ticks: number(15).ok_or_else(malformed)?,
        cpu: number(39).and_then(|cpu| u32::try_from(cpu).ok()),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAT: &str = "12131 (cat) R 12117 12117 8794 0 -1 4194304 101 0 0 0 7 5 0 0 20 0 1 0 121799 3133440 412 \
        18446744073709551615 94547782889472 94547782909353 140728095612768 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 \
        94547782925360 94547782926976 94547858468864 140728095619611 140728095619631 140728095619631 \
        140728095621099 0\n";
    const KSOFTIRQD: &str = "15 (ksoftirqd/0) S 2 0 0 0 -1 69238848 0 0 0 0 0 3 0 0 20 0 1 0 4 0 0 18446744073709551615 0 0 0 0 0 0 0 \
        2147483647 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn reads_real_files() {
        let stat = parse_task_stat(CAT).unwrap();
        let expected = TaskStat {
            id: 12131,
            command: "cat".into(),
            kernel_thread: false,
            user_ticks: 7,
            system_ticks: 5,
            cpu: Some(1),
        };
        assert_eq!(stat, expected);
        assert!(parse_task_stat(KSOFTIRQD).unwrap().kernel_thread);
    }

    #[test]
    fn a_command_may_look_like_the_rest() {
        for command in ["a b", ") R 1 (", "((", "x) S 2 0 0", "a\nb", ""] {
            let stat = parse_task_stat(&CAT.replace("cat", command)).unwrap();
            assert_eq!((stat.command.as_str(), stat.user_ticks, stat.cpu), (command, 7, Some(1)));
        }
    }

    #[test]
    fn refuses_what_is_cut_short() {
        for text in ["", "1", "1 (a", "1 (a)", "1 (a) R 1 2", "x (a) R 1 1 1 0 -1 0 0 0 0 0 1 1"] {
            assert!(parse_task_stat(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_stat_or_an_error(text in any::<String>(), command in any::<String>()) {
            let _ = parse_task_stat(&text);
            prop_assert_eq!(parse_task_stat(&CAT.replace("cat", &command)).unwrap().command, command);
        }
    }
}
