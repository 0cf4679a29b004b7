use std::fs;

use super::*;

const MAGIC: u16 = 0xeb9f;
const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_STRUCT: u32 = 4;
const KIND_ENUM: u32 = 6;
const KIND_FWD: u32 = 7;
const KIND_TYPEDEF: u32 = 8;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;

/// What libbpf reads in a file of these bytes.
fn read(bytes: &[u8]) -> Result<KernelTypes, libbpf_rs::Error> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    KernelTypes::read(file.path())
}

/// A small BTF writer: types are appended, names are interned.
struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
}

impl Writer {
    fn new() -> Self {
        Self { types: Vec::new(), strings: vec![0] }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = u32::try_from(self.strings.len()).unwrap();
        self.strings.extend(name.bytes().chain([0]));
        at
    }

    fn add(&mut self, kind: u32, name: &str, target: u32, vlen: u32, extra: &[u32]) -> &mut Self {
        let name = self.name(name);
        for value in [name, kind << 24 | vlen, target].iter().chain(extra) {
            self.types.extend(value.to_ne_bytes());
        }
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        let mut out = Vec::new();
        out.extend(MAGIC.to_ne_bytes());
        out.extend([1, 0]);
        for value in [24, 0, len(&self.types), len(&self.types), len(&self.strings)] {
            out.extend(value.to_ne_bytes());
        }
        out.extend(&self.types);
        out.extend(&self.strings);
        out
    }
}

fn sample() -> Vec<u8> {
    let mut writer = Writer::new();
    let [cpu, id, info] = ["cpu", "cpuset_cgrp_id", "info"].map(|name| writer.name(name));
    writer
        .add(KIND_INT, "unsigned int", 4, 0, &[32])
        .add(KIND_STRUCT, "thread_info", 24, 1, &[cpu, 1, 160])
        // 3: an anonymous structure that embeds thread_info at byte 8
        .add(KIND_STRUCT, "", 64, 1, &[info, 2, 64])
        .add(KIND_STRUCT, "task_struct", 4096, 1, &[0, 3, 128])
        .add(KIND_ENUM, "cgroup_subsys_id", 4, 1, &[id, 7])
        // 6: (context, int, pointer)
        .add(KIND_FUNC_PROTO, "", 0, 3, &[0, 1, 0, 1, 0, 7])
        .add(KIND_PTR, "", 6, 0, &[])
        .add(KIND_TYPEDEF, "btf_trace_sched_migrate_task", 7, 0, &[])
        .add(KIND_FUNC, "task_numa_fault", 6, 0, &[])
        .add(KIND_TYPEDEF, "nodemask_t", 3, 0, &[]);
    writer.bytes()
}

#[test]
fn finds_fields_through_anonymous_structures() {
    let types = read(&sample()).unwrap();
    assert_eq!(types.offset("task_struct", &["info"]), Ok(16 + 8));
    assert_eq!(types.offset("task_struct", &["info", "cpu"]), Ok(16 + 8 + 20));
    assert_eq!(
        types.offset("task_struct", &["cpu"]),
        Err(Missing("field task_struct.cpu".into())),
        "a named structure is not searched"
    );
}

#[test]
fn finds_enumerators_and_arities() {
    let types = read(&sample()).unwrap();
    assert_eq!(types.enumerator("cgroup_subsys_id", "cpuset_cgrp_id"), Ok(7));
    assert_eq!(types.tracepoint_arity("sched_migrate_task"), Ok(2));
    assert_eq!(types.function_arity("task_numa_fault"), Ok(3));
    let takes_pointer = |argument| types.tracepoint_takes_pointer("sched_migrate_task", argument).ok();
    assert_eq!([0, 1, 2].map(takes_pointer), [Some(false), Some(true), None]);
    assert_eq!(types.size("nodemask_t"), Ok(64));
    assert_eq!(types.size("btf_trace_sched_migrate_task").ok(), None, "a pointer");
    assert_eq!(types.function_arity("no_such"), Err(Missing("function no_such".into())));
}

#[test]
fn a_structure_that_contains_itself_ends() {
    let mut writer = Writer::new();
    writer.add(KIND_STRUCT, "loop", 8, 1, &[0, 1, 0]);
    let types = read(&writer.bytes()).unwrap();
    assert!(types.offset("loop", &["x"]).is_err());
}

#[test]
fn refuses_what_is_not_btf() {
    let mut writer = Writer::new();
    writer.add(31, "future", 0, 0, &[]);
    let mut cut_off = sample();
    cut_off.truncate(60);
    for bytes in [Vec::new(), b"\x7fELF".repeat(10), writer.bytes(), cut_off] {
        assert!(read(&bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn of_types_with_the_same_name_that_of_the_right_kind_counts() {
    let mut writer = Writer::new();
    let cpu = writer.name("cpu");
    writer.add(KIND_INT, "unsigned int", 4, 0, &[32]).add(KIND_FWD, "task_struct", 0, 0, &[]).add(
        KIND_STRUCT,
        "task_struct",
        64,
        1,
        &[cpu, 1, 64],
    );
    let types = read(&writer.bytes()).unwrap();
    assert_eq!(types.offset("task_struct", &["cpu"]), Ok(8));
    assert_eq!(types.function_arity("task_struct"), Err(Missing("function task_struct".into())));
}

#[test]
fn reads_the_running_kernel() {
    let path = Path::new("/sys/kernel/btf/vmlinux");
    if !path.exists() {
        println!("skipped: this kernel has no {}", path.display());
        return;
    }
    let types = KernelTypes::read(path).unwrap();
    assert_eq!(types.tracepoint_arity("sched_migrate_task"), Ok(2));
    assert_eq!(types.offset("list_head", &["prev"]), Ok(8));
}
