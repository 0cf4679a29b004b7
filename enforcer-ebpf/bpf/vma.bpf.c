// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * One record per mapping of a process: where it is, and which memory policy holds for it. numa_maps tells that
 * too, but walks the page tables of the whole process for it.
 *
 * The policy of shared memory that another process has set is not seen: it is in the file, not in the mapping.
 *
 * Fields are plain loads, as in task.bpf.c. The iterator holds the lock of the process's mappings for reading, so
 * a mapping and its policy stay. The policy of the first thread does not: that thread may replace it meanwhile,
 * and one mapping is then told with a policy of neither moment.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "enforcer.h"
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

static __always_inline void read_policy(struct vma_record *record, struct task_struct *task,
					struct vm_area_struct *vma)
{
	struct mempolicy *policy;
	__u32 size;

	if (!bpf_core_field_exists(vma->vm_policy) || !bpf_core_field_exists(struct mempolicy, nodes))
		return;
	record->present |= HAS_POLICY;
	policy = vma->vm_policy;
	if (!policy)
		policy = task->mempolicy;
	if (!policy)
		return;
	record->mode = policy->mode;
	size = bpf_core_field_size(policy->nodes);
	if (size > sizeof(record->nodes))
		size = sizeof(record->nodes);
	bpf_probe_read_kernel(record->nodes, size, __builtin_preserve_access_index(&policy->nodes));
}

SEC("iter/task_vma")
int vmas(struct bpf_iter__task_vma *ctx)
{
	struct task_struct *task = ctx->task;
	struct vm_area_struct *vma = ctx->vma;
	struct vma_record record = {};

	if (!task || !vma)
		return 0;
	record.tgid = task->tgid;
	/* A thread with files of its own is visited too, and has the same mappings. */
	if ((__u32)task->pid != record.tgid)
		return 0;
	record.start = vma->vm_start;
	record.end = vma->vm_end;
	if (bpf_core_field_exists(vma->vm_flags)) {
		record.flags = vma->vm_flags;
		record.present |= HAS_FLAGS;
	}
	if (vma->vm_file)
		record.present |= HAS_FILE;
	read_policy(&record, task, vma);
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
