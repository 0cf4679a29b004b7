/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The C side of common/src/task.rs and common/src/vma.rs: what the iterators write.
 *
 * The numbers are asserted here and in common/src/abi.rs, and a test of that crate compares the
 * lines below with its own.
 */
#ifndef ENFORCER_H
#define ENFORCER_H

#include <linux/types.h>

#define HAS_NUMA_BALANCING 1
#define HAS_CPUS_ALLOWED 2
#define HAS_CPU 4
#define HAS_NODE_FAULTS 8
#define MASK_WORDS 16
#define NODES 1024
#define NODE_WORDS 16
#define HAS_POLICY 1
#define HAS_FLAGS 2
#define HAS_FILE 4

struct task_record {
	__u64 cgroup;
	__u64 run_ns;
	__u64 utime_ns;
	__u64 stime_ns;
	__u64 voluntary_switches;
	__u64 involuntary_switches;
	__u64 numa_faults;
	__u32 tid;
	__u32 tgid;
	__u32 cpu;
	__u32 state;
	__s32 preferred_node;
	__u32 present;
	__u32 flags;
	__u32 policy;
	__u64 cpus_allowed[MASK_WORDS];
	char comm[16];
	__u32 fault_nodes;
	__u32 reserved;
};

struct node_faults {
	__u64 shared;
	__u64 private;
};

struct vma_record {
	__u64 start;
	__u64 end;
	__u64 flags;
	__u32 tgid;
	__u32 present;
	__u32 mode;
	__u32 reserved;
	__u64 nodes[NODE_WORDS];
};

#define ASSERT_OFFSET(type, field, offset) \
	_Static_assert(__builtin_offsetof(struct type, field) == (offset), #type "." #field)
#define ASSERT_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type)

ASSERT_OFFSET(task_record, cgroup, 0);
ASSERT_OFFSET(task_record, run_ns, 8);
ASSERT_OFFSET(task_record, utime_ns, 16);
ASSERT_OFFSET(task_record, stime_ns, 24);
ASSERT_OFFSET(task_record, voluntary_switches, 32);
ASSERT_OFFSET(task_record, involuntary_switches, 40);
ASSERT_OFFSET(task_record, numa_faults, 48);
ASSERT_OFFSET(task_record, tid, 56);
ASSERT_OFFSET(task_record, tgid, 60);
ASSERT_OFFSET(task_record, cpu, 64);
ASSERT_OFFSET(task_record, state, 68);
ASSERT_OFFSET(task_record, preferred_node, 72);
ASSERT_OFFSET(task_record, present, 76);
ASSERT_OFFSET(task_record, flags, 80);
ASSERT_OFFSET(task_record, policy, 84);
ASSERT_OFFSET(task_record, cpus_allowed, 88);
ASSERT_OFFSET(task_record, comm, 216);
ASSERT_OFFSET(task_record, fault_nodes, 232);
ASSERT_OFFSET(task_record, reserved, 236);
ASSERT_SIZE(task_record, 240);
ASSERT_OFFSET(node_faults, shared, 0);
ASSERT_OFFSET(node_faults, private, 8);
ASSERT_SIZE(node_faults, 16);
ASSERT_OFFSET(vma_record, start, 0);
ASSERT_OFFSET(vma_record, end, 8);
ASSERT_OFFSET(vma_record, flags, 16);
ASSERT_OFFSET(vma_record, tgid, 24);
ASSERT_OFFSET(vma_record, present, 28);
ASSERT_OFFSET(vma_record, mode, 32);
ASSERT_OFFSET(vma_record, reserved, 36);
ASSERT_OFFSET(vma_record, nodes, 40);
ASSERT_SIZE(vma_record, 168);

#endif
