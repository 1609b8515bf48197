"""Training programs that run as files, by the job's own python; nothing imports them."""
