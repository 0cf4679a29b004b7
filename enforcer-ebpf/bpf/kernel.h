/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The fields of kernel structures that the iterators read, and only those.
 *
 * Names and types matter, order and offsets do not: with preserve_access_index the loader takes them
 * from the BTF of the running kernel (CO-RE). A name after ___ is another version of the same
 * structure and is matched without that suffix.
 */
#ifndef KERNEL_H
#define KERNEL_H

#include <linux/types.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};

struct cpumask {
	unsigned long bits[1];
};

struct sched_entity {
	__u64 sum_exec_runtime;
};

struct thread_info {
	__u32 cpu;
};

struct nodemask {
	unsigned long bits[1];
};

struct mempolicy {
	unsigned short mode;
	struct nodemask nodes;
};

struct file;

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	struct file *vm_file;
	struct mempolicy *vm_policy;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	unsigned int policy;
	struct sched_entity se;
	struct cpumask cpus_mask;
	int pid;
	int tgid;
	__u64 utime;
	__u64 stime;
	unsigned long nvcsw;
	unsigned long nivcsw;
	char comm[16];
	struct css_set *cgroups;
	struct mempolicy *mempolicy;
	int numa_preferred_nid;
	unsigned long *numa_faults;
	unsigned long total_numa_faults;
};

/* Before 5.14 the state had no underscores; before 5.16 the CPU was here on some architectures. */
struct task_struct___old {
	volatile long state;
	unsigned int cpu;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
};

#pragma clang attribute pop

/* The value is a placeholder: bpf_core_enum_value asks the running kernel. */
enum cgroup_subsys_id {
	cpuset_cgrp_id = 0,
};

#endif
