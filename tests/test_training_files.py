"""Files that several processes change."""

import threading

from training.files import one_at_a_time


def test_a_second_change_waits_for_the_first(tmp_path):
    begun, entered = threading.Event(), threading.Event()

    def second():
        begun.set()
        with one_at_a_time(tmp_path):
            entered.set()

    with one_at_a_time(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        assert begun.wait(10)
        assert not entered.wait(0.3)
    assert entered.wait(10)
    thread.join()
