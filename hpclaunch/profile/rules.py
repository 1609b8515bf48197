"""Rules between the keys of a profile."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from hpclaunch.errors import did_you_mean
from hpclaunch.profile.model import Messages, Partition, Qos, Site
from hpclaunch.profile.yamlfile import Key
from hpclaunch.schedulers import SCHEDULERS, known

# What may stand in a directive or in a word of a chunk.
_NAMES = {
    "account_directive": "{account}",
    "storage_directive": "{names}",
    "gpu_directive": "{gpus}",
    "chunk": "{cpus} {gpus} {mem} {tasks}",
}
_MOST_REPEATS = 3  # a search takes time in proportion to the length of a line to the power of this plus one


def site_mistakes(site: Site) -> Iterator[tuple[Key, str]]:
    """Yield the key of each mistake and what is wrong with it."""
    if site.scheduler not in SCHEDULERS and site.scheduler not in (found := known()):
        yield ("scheduler",), f"no such scheduler{did_you_mean(site.scheduler, found)}"
    if site.default_partition not in site.partitions:
        yield ("default_partition",), f"no such partition{did_you_mean(site.default_partition, site.partitions)}"
    if site.network and site.network not in site.networks:
        yield ("network",), f"no such network{did_you_mean(site.network, site.networks)}"
    yield from _unknown(site.unconfirmed, Site, ("unconfirmed",))
    for key, pattern in _patterns(site):
        if wrong := _no_pattern(pattern):
            yield key, wrong
    yield from _words(site)
    yield from _detect_mistakes(site.detect)
    for key, message in messages_mistakes(site.messages):
        yield ("messages", *key), message
    owners: dict[str, str] = {}
    for name, partition in site.partitions.items():
        for word in (name, *partition.aliases):
            if owners.setdefault(word, name) != name:
                yield ("partitions", name), f"the name {word} is partition {owners[word]}'s already"
        for key, message in (*_words(partition), *_partition_mistakes(partition)):
            yield ("partitions", name, *key), message


def _patterns(site: Site) -> Iterator[tuple[Key, str]]:
    if site.allocation:
        yield ("allocation", "remaining"), site.allocation.remaining
    if site.account_pattern:
        yield ("account_pattern",), site.account_pattern
    for i, refused in enumerate(site.refused_directives):
        yield ("refused_directives", i, "pattern"), refused.pattern


def messages_mistakes(messages: Messages) -> Iterator[tuple[Key, str]]:
    """Yield the keys of messages that are no regular expressions, or slow ones."""
    for table in ("hints", "refusals"):
        for pattern in getattr(messages, table):
            if wrong := _no_pattern(pattern):
                yield (table, pattern), wrong


def _words(record: Site | Partition) -> Iterator[tuple[Key, str]]:
    """Yield the {names} that mean nothing in a directive or in a word of a chunk."""
    for key, names in _NAMES.items():
        value = getattr(record, key, None) or ()
        for text in [value] if isinstance(value, str) else value:
            for name in re.findall(r"[{}][^}]*}?", text):
                if name not in names.split():
                    yield (key,), f"{text}: {name} means nothing here, only {names}"


def _gpu_mistakes(partition: Partition) -> Iterator[tuple[Key, str]]:
    cores, gpus, per_gpu = partition.cores_per_node, partition.gpus_per_node, partition.cpus_per_gpu
    if gpus and cores and per_gpu and gpus * per_gpu > cores:
        yield ("cpus_per_gpu",), f"{gpus} GPUs x {per_gpu} cpus are more than the node's {cores} cores"
    if partition.compute_capability and partition.vendor in ("amd", "intel"):
        yield ("compute_capability",), f"is NVIDIA's, and the vendor is {partition.vendor}: leave it out"
    for key in ("gpu", "cpus_per_gpu", "compute_capability", "vendor", "backend") if not gpus else ():
        if getattr(partition, key):
            yield (key,), "gpus_per_node is 0: leave it out"
    if (charge := partition.charge) and charge.per == "gpu" and not gpus:
        yield ("charge", "per"), "a node without GPUs cannot be charged per gpu"


def _partition_mistakes(partition: Partition) -> Iterator[tuple[Key, str]]:
    yield from _gpu_mistakes(partition)
    if partition.charge and partition.free:
        yield ("free",), "has a charge: leave one of them out"
    for key in ("mem_gb_per_node", "jobfs_gb_per_node"):
        most, usual = getattr(partition, key), getattr(partition, f"default_{key}")
        if usual and (not most or usual > most):
            yield (f"default_{key}",), f"more than {key}, {most}"
    if partition.min_cores and partition.max_cores and partition.min_cores > partition.max_cores:
        yield ("min_cores",), f"more than max_cores, {partition.max_cores}"
    if len(names := [q.name for q in partition.qos]) != len(set(names)):
        yield ("qos",), "two of the same name"
    for i, qos in enumerate(partition.qos):
        yield from _unknown(qos.unconfirmed, Qos, ("qos", i, "unconfirmed"))
    yield from _unknown(partition.unconfirmed, Partition, ("unconfirmed",))
    for size in ("max_cores", "max_nodes"):
        sizes = [getattr(tier, size) or 10**9 for tier in partition.walltime]
        if sizes != sorted(set(sizes)) and {*sizes} != {10**9}:
            yield ("walltime",), f"{size} must rise from one tier to the next, and only the last may lack it"


def _detect_mistakes(detect: dict[str, str]) -> Iterator[tuple[Key, str]]:
    for name, value in detect.items():
        if name.startswith("/") != (value == "exists"):
            yield ("detect", name), f"expected a variable and its value, or a path and `exists` (it says {value!r})"


def _no_pattern(text: str) -> str | None:
    """Return why `text` is no regular expression or may take forever, or None if it is fine."""
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        return f"no regular expression: {error}"
    plain = re.sub(r"\\.|\[\^?\]?[^\]]*\]", "x", text)
    if re.search(r"\)[*+{]", plain):
        return "a repeat of a group may take forever; write it without"
    if len(re.findall(r"[*+]|\{\d*,", plain)) > _MOST_REPEATS:
        return f"more than {_MOST_REPEATS} repeats may take forever; write it with fewer"
    return None


def _unknown(names: list[str], model: type[Struct], key: Key) -> Iterator[tuple[Key, str]]:
    for i, name in enumerate(names):
        if name not in model.__struct_fields__:
            yield (*key, i), f"{name}: no such key{did_you_mean(name, model.__struct_fields__)}"
