"""The thread pool: a blocked call delays no other while there is room."""

from __future__ import annotations

import threading

from hermes.memory.plugin_thread import DaemonPool


def test_a_call_that_blocks_keeps_none_behind_it_waiting_while_there_is_room() -> None:
    pool, free = DaemonPool(4, "test"), threading.Event()
    pool.submit(int).result(60)  # its thread may just be ending
    blocked = [pool.submit(free.wait, 200) for _ in range(3)]
    assert pool.submit(str, "through").result(60) == "through"
    free.set()
    assert all(call.result(60) for call in blocked)
    pool.shutdown()


def test_there_are_never_more_threads_than_allowed_and_all_calls_are_made() -> None:
    pool, free = DaemonPool(3, "test-most"), threading.Event()
    calls = [pool.submit(free.wait, 200) for _ in range(10)]
    assert sum(thread.name == "test-most" for thread in threading.enumerate()) == 3
    free.set()
    assert all(call.result(60) for call in calls)
    pool.shutdown()


def test_calls_that_wait_for_a_thread_at_the_end_are_cancelled() -> None:
    pool, begun, free = DaemonPool(1, "test"), threading.Event(), threading.Event()

    def block() -> bool:
        begun.set()
        return free.wait(200)

    blocked, waiting = pool.submit(block), pool.submit(int)
    assert begun.wait(60)
    pool.shutdown()
    assert waiting.cancelled()
    free.set()
    assert blocked.result(60)
