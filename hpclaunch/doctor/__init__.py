"""What would keep a user's job from running here, looked for before it is submitted.

A probe is a function from a patient to results; it asks one thing, knows no other probe, and cannot stop one.
"""

from __future__ import annotations

import threading

from hpclaunch.doctor import environment, folders, scheduler
from hpclaunch.doctor.result import ASK_SECONDS, RUN_SECONDS, Patient, Probe, Result, problem, warning

LEFT_SECONDS = 5.0  # for a probe to report that its command took too long


def examine(patient: Patient) -> list[Result]:
    """Run all probes beside each other and return what they found, in a fixed order.

    One that hangs, on a dead file system say, is left behind when its time is over.
    """
    probes: list[tuple[str, Probe, float]] = [
        *((name, probe, 3 * ASK_SECONDS) for name, probe in scheduler.PROBES.items()),
        *((name, probe, 2 * RUN_SECONDS) for name, probe in environment.PROBES.items()),
        *((name, probe, 2 * ASK_SECONDS) for name, probe in folders.PROBES.items()),
    ]
    runs = [(name, seconds, *_start(name, probe, patient)) for name, probe, seconds in probes]
    results = []
    for name, seconds, thread, found in runs:
        thread.join(seconds + LEFT_SECONDS)
        results += list(found)
        if thread.is_alive():
            remedy = "a file system may hang: try `ls` there, and tell the site's support"
            results.append(problem(name, f"no answer after {seconds:g} s", remedy))
    return results


def _start(name: str, probe: Probe, patient: Patient) -> tuple[threading.Thread, list[Result]]:
    found: list[Result] = []

    def run() -> None:
        try:
            for result in probe(patient):
                found.append(result)  # noqa: PERF402 - what it found before it hangs or fails counts
        except Exception as error:  # whatever it is, the other probes go on
            said = " ".join(str(error).split()) or type(error).__name__
            found.append(warning(name, f"cannot tell: {said}", ""))

    thread = threading.Thread(target=run, daemon=True)  # the interpreter does not wait for it
    thread.start()
    return thread, found
