"""A SQLite file that many threads and processes share: what every database of ours is made of.

    write(fn) ──> one writer thread ──BEGIN IMMEDIATE, all waiting writes, COMMIT (fsync)──> acknowledged
    look(fn)  ──> the writer thread, on a snapshot of its own connection
    read(fn)  ──> a reader thread, on a snapshot of its own; slow reads among themselves

`database` is the door, `writer` the thread that writes, `reading` those that read, `connection` opens the file and
waits for its locks, `faults` says what SQLite's result codes mean. What a transaction looks like to the functions that
run in it, the room above decides.
"""
