"""A SQLite file that many threads and processes share: the base of all our databases.

    write(fn) ──> one writer thread ──BEGIN IMMEDIATE, all waiting writes, COMMIT (fsync)──> acknowledged
    look(fn)  ──> the writer thread, on a snapshot of its connection
    read(fn)  ──> a reader thread, on a snapshot of its own; slow reads among themselves

`database` is the entry point, `writer` the writing thread, `reading` the reading ones, `connection` opens the file and
waits for its locks, `faults` maps SQLite's result codes to errors. The packages built on this one define what a
transaction looks like to functions that run in it.
"""
