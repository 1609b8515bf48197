"""Directives of batch schedulers: what they are in a script, what they ask for, and how a plan is asked for."""
