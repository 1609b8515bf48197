"""What qsub says where it refuses a job, a site's hooks in their own words, and what to look at."""

BLAME = {
    r"project|account": ("account", "--account"),
    r"storage|gdata": ("storage", "--storage"),
    r"jobfs": ("partitions.{partition}.jobfs_gb_per_node", "the sizes"),
    r"ncpus.*ngpus": ("partitions.{partition}.cpus_per_gpu", "--cpus-per-task and --gpus-per-node"),
    r"ncpus|mpiprocs": ("partitions.{partition}.cores_per_node", "--cpus-per-task"),
    r"ngpus": ("partitions.{partition}.gpus_per_node", "--gpus-per-node"),
    r"walltime": ("partitions.{partition}.walltime", "--walltime"),
    r"\bmem\b|memory": ("partitions.{partition}.mem_gb_per_node", "--mem-gb"),
    r"\bselect\b|unknown resource": ("template", "--directive"),
    r"queue and/or server resource limits": ("partitions.{partition}.walltime, max_cores", "the sizes"),
    r"queue": ("partitions.{partition}.directives", "--partition"),
}
