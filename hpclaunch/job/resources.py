"""What a job requests on each of its nodes, and the directives that request it in the profile's words."""

from __future__ import annotations

import re

from msgspec import Struct

from hpclaunch.profile.model import Partition, Site

# What a word of a directive may name, and the plan's value for it.
FIELDS = {
    "account": "account",
    "cpus": "cpus_per_node",
    "gpus": "gpus_per_node",
    "mem": "mem_gb_per_node",
    "tasks": "tasks_per_node",
}


class Resources(Struct, frozen=True, kw_only=True):
    """The sizes of a job, per node, with the site and the partition that they are requested of."""

    site: Site
    partition: Partition
    account: str | None
    nodes: int
    tasks_per_node: int
    gpus_per_node: int
    cpus_per_node: int
    mem_gb_per_node: int | None
    jobfs_gb_per_node: int | None
    storage: list[str]

    @property
    def cpus(self) -> int:
        """Return the number of cores of the job."""
        return self.nodes * self.cpus_per_node

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of the job."""
        return self.nodes * self.gpus_per_node

    @property
    def mem_gb(self) -> int | None:
        """Return the memory that the job asks for, or None if it asks for none."""
        return self.mem_gb_per_node and self.nodes * self.mem_gb_per_node

    @property
    def jobfs_gb(self) -> int | None:
        """Return the node-local disk that the job asks for, or None if it asks for none."""
        return self.jobfs_gb_per_node and self.nodes * self.jobfs_gb_per_node

    def filled(self, text: str) -> str:
        """Return a profile's word or directive with its {names} filled in, or "" if one of them is 0 or none."""
        values = {name: getattr(self, FIELDS[name]) for name in re.findall(r"\{(\w+)\}", text)}
        return re.sub(r"\{(\w+)\}", lambda found: str(values[found[1]]), text) if all(values.values()) else ""

    @property
    def account_directive(self) -> str:
        """Return the directive of the account, or "" if there is none."""
        return self.filled(self.site.account_form)

    @property
    def gpu_directive(self) -> str:
        """Return the directive of the GPUs of each node, or "" if there is none."""
        return self.filled(self.site.gpu_directive)

    @property
    def select(self) -> str:
        """Return the chunks that PBS is asked for, one for each node."""
        return ":".join([str(self.nodes), *filter(None, map(self.filled, self.site.chunk))])

    @property
    def storage_directive(self) -> str:
        """Return the directive of the file systems, or "" if none need to be named."""
        names = self.site.storage_join.join(self.storage if self.site.storage_roots else ())
        return self.site.storage_directive.replace("{names}", names) if names else ""
