"""What would keep a user's job from running here, looked for before it is submitted.

A probe is a function from a patient to results; it knows no other probe, and cannot stop one.
"""

from threading import Thread

from hpclaunch.doctor import environment, folders, scheduler
from hpclaunch.doctor.result import ASK_SECONDS, RUN_SECONDS, Patient, Probe, Result, one_line, problem, warning

LEFT_SECONDS = 5.0  # for a probe to report that its command took too long
PROBES: dict[str, tuple[Probe, float]] = {
    "scheduler": (scheduler.probe, 4 * ASK_SECONDS),
    "environment": (environment.probe, 2 * RUN_SECONDS),
    "folders": (folders.probe, 2 * ASK_SECONDS),
}


def examine(patient: Patient) -> list[Result]:
    """Run all probes beside each other and return what they found, in a fixed order.

    One that hangs, on a dead file system say, is left behind when its time is over.
    """
    found: dict[str, list[Result]] = {name: [] for name in PROBES}

    def run(name: str, probe: Probe) -> None:
        try:
            for result in probe(patient):
                found[name].append(result)
        except Exception as error:  # whatever it is, the other probes go on
            found[name].append(warning(name, f"cannot tell: {one_line(error)}", ""))

    # The interpreter does not wait for daemons.
    threads = {name: Thread(target=run, args=(name, probe), daemon=True) for name, (probe, _) in PROBES.items()}
    for thread in threads.values():
        thread.start()
    for name, (_, seconds) in PROBES.items():
        threads[name].join(seconds + LEFT_SECONDS)
        if threads[name].is_alive():
            remedy = "a file system may hang: try `ls` there, and report it to the site's support"
            found[name].append(problem(name, f"no answer after {seconds:g} s", remedy))
    return [result for results in found.values() for result in results]
