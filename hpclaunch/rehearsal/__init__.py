"""Clusters to rehearse on: stand-ins that run on one machine and are as unkind as the real ones.

Each behaviour was seen on OpenPBS 23.06, or stands in public records of NCI Gadi. Standard library only: these programs
start often, and start where nothing else is installed.
"""
