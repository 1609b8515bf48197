"""What sbatch says where it refuses a job, and what to look at."""

BLAME = {
    # Both come with "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)".
    "submitjob": ("partitions.{partition}.qos", "--qos and the number of your jobs (hpclaunch jobs)"),
    "maxwall": ("partitions.{partition}.walltime, qos", "--walltime and --qos"),
    "accounting/qos policy": ("partitions.{partition}.qos", "--qos and the sizes"),
    # Slurm 22.05 says "Requested node configuration is not available" after either.
    "memory": ("partitions.{partition}.mem_gb_per_node", "--mem-gb"),
    "cpu count": ("partitions.{partition}.cores_per_node", "--cpus-per-task and --tasks-per-node"),
    "account": ("account", "--account"),
    "qos": ("partitions.{partition}.qos", "--qos"),
    "node configuration": ("partitions.{partition}.gpus_per_node, cores_per_node, directives", "the sizes"),
    "partition": ("partitions.{partition}.directives", "--partition"),
    "feature": ("partitions.{partition}.directives", "--partition"),
    "gres": ("partitions.{partition}.gpus_per_node", "--gpus-per-node"),
    "time limit": ("partitions.{partition}.walltime, qos", "--walltime"),
}
