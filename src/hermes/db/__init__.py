"""SQLite, made safe to share.

    write(fn) ──> one writer thread ──BEGIN IMMEDIATE, all waiting writes, COMMIT (fsync)──> acknowledged
    read(fn)  ──> one of a few reader threads, each with its own snapshot

`engine` runs functions in transactions; `leases` and `queue` are such functions. A lease has an owner and a fencing
epoch that only grows; the queue keeps order per lane by holding the lane as a lease.
"""
