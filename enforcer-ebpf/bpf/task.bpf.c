// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * One record per thread of the system, in one pass and one read loop: the fields that would take
 * reading /proc/PID/task/TID/{stat,status,sched,cgroup}.
 *
 * A thread with NUMA hinting faults has them behind its record, for every node id; others, which are most,
 * pay for none. There is a program per cgroup axis; the daemon loads one of them.
 *
 * The verifier knows the type of the task and of what it points to, so a field is a plain load, with an offset
 * that CO-RE relocates; a pointer that is NULL or stale reads as 0. bpf_probe_read_kernel is left for arrays with
 * a length that depends on the kernel.
 *
 * The iterator holds a reference to the task, so the task and what lives as long stay. The task runs meanwhile:
 * fields of one record may be of different moments.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "enforcer.h"
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* At most the kernel's nr_node_ids; 0 where the daemon does not know the nodes, and then no faults are read. */
const volatile __u32 NODE_IDS = 0;

/* Number of nodes with faults in one write: they are on the stack until then. */
#define NODES_AT_ONCE 8

static __always_inline __u64 unified_cgroup(struct task_struct *task)
{
	return task->cgroups->dfl_cgrp->kn->id;
}

static __always_inline __u64 cpuset_cgroup(struct task_struct *task)
{
	struct css_set *set = task->cgroups;
	/* Not subsys[index]: only constant indices are relocated. An element is a pointer anywhere. */
	void *slots = __builtin_preserve_access_index(&set->subsys);
	__u64 index = bpf_core_enum_value(enum cgroup_subsys_id, cpuset_cgrp_id);
	struct cgroup_subsys_state *css = *(struct cgroup_subsys_state **)(slots + index * sizeof(css));

	return css->cgroup->kn->id;
}

static __always_inline void read_cpu(struct task_record *record, struct task_struct *task)
{
	struct task_struct___old *old = (void *)task;

	if (bpf_core_field_exists(old->cpu))
		record->cpu = old->cpu;
	else if (bpf_core_field_exists(task->thread_info.cpu))
		record->cpu = task->thread_info.cpu;
	else
		return;
	record->present |= HAS_CPU;
}

static __always_inline void read_cpus_allowed(struct task_record *record, struct task_struct *task)
{
	__u32 size = bpf_core_field_size(task->cpus_mask);

	if (size > sizeof(record->cpus_allowed))
		size = sizeof(record->cpus_allowed);
	if (bpf_probe_read_kernel(record->cpus_allowed, size,
				  __builtin_preserve_access_index(&task->cpus_mask)) == 0)
		record->present |= HAS_CPUS_ALLOWED;
}

/*
 * Returns the kernel's array of faults, if there is one and its length is known.
 *
 * The array needs no RCU: since Linux 5.3 it is freed with the task itself (task_numa_free in
 * kernel/sched/fair.c), which the iterator holds. An exec sets it to 0 in place.
 */
static __always_inline unsigned long *read_numa(struct task_record *record, struct task_struct *task)
{
	unsigned long *faults;

	if (!bpf_core_field_exists(task->total_numa_faults))
		return 0;
	record->preferred_node = task->numa_preferred_nid;
	record->numa_faults = task->total_numa_faults;
	record->present |= HAS_NUMA_BALANCING;
	if (NODE_IDS == 0 || NODE_IDS > NODES)
		return 0;
	record->present |= HAS_NODE_FAULTS;
	faults = task->numa_faults;
	if (faults)
		record->fault_nodes = NODE_IDS;
	return faults;
}

/* The array begins with NUMA_MEM: a shared and a private counter for each node id. */
static __always_inline void write_faults(struct seq_file *seq, const unsigned long *faults)
{
	struct node_faults nodes[NODES_AT_ONCE];

	for (__u32 node = 0; node < NODES && node < NODE_IDS; node += NODES_AT_ONCE) {
		__u32 left = NODE_IDS - node;
		__u32 size = (left < NODES_AT_ONCE ? left : NODES_AT_ONCE) * sizeof(nodes[0]);

		/* What cannot be read is 0. */
		bpf_probe_read_kernel(nodes, size, faults + 2 * node);
		bpf_seq_write(seq, nodes, size);
	}
}

static __always_inline int write_record(struct bpf_iter__task *ctx, struct task_struct *task,
					__u64 cgroup)
{
	struct task_struct___old *old = (void *)task;
	struct task_record record = {};
	unsigned long *faults;

	record.cgroup = cgroup;
	record.run_ns = task->se.sum_exec_runtime;
	record.utime_ns = task->utime;
	record.stime_ns = task->stime;
	record.voluntary_switches = task->nvcsw;
	record.involuntary_switches = task->nivcsw;
	record.tid = task->pid;
	record.tgid = task->tgid;
	if (bpf_core_field_exists(task->__state))
		record.state = task->__state;
	else
		record.state = old->state;
	record.flags = task->flags;
	record.policy = task->policy;
	bpf_probe_read_kernel_str(record.comm, sizeof(record.comm),
				  __builtin_preserve_access_index(&task->comm));
	read_cpu(&record, task);
	read_cpus_allowed(&record, task);
	faults = read_numa(&record, task);
	/*
	 * A full buffer is not an error: the kernel drops what was written for this task and calls again for it
	 * with a fresh one (bpf_seq_read in kernel/bpf/bpf_iter.c).
	 */
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	if (faults)
		write_faults(ctx->meta->seq, faults);
	return 0;
}

SEC("iter/task")
int tasks_unified(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	return task ? write_record(ctx, task, unified_cgroup(task)) : 0;
}

SEC("iter/task")
int tasks_cpuset(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	return task ? write_record(ctx, task, cpuset_cgroup(task)) : 0;
}
