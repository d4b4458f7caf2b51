"""The store's database, and order between processes.

`engine` opens the file and runs functions in transactions; `leases` and `queue` are such functions. A lease has an
owner and a fencing epoch that only grows. The queue keeps order per lane by holding the lane as a lease.
"""
