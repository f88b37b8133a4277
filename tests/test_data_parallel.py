"""Jobs over processes: order, errors, and a worker that dies."""

import os
import signal
import time

import pytest

from data.errors import DataError
from data.parallel import AHEAD, ordered_map


def double(job):
    return 2 * job


def refuse_three(job):
    if job == 3:
        raise DataError("job 3 is refused")
    return job


def touch(path):
    path.touch()


def die(job):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_the_order_of_the_jobs(processes):
    assert list(ordered_map(double, range(20), processes)) == list(range(0, 40, 2))


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_of_a_job_arrives_in_its_place(processes):
    results = ordered_map(refuse_three, range(20), processes)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DataError, match="job 3 is refused"):
        next(results)


def test_results_do_not_pile_up_when_they_are_taken_slowly(tmp_path):
    paths = [tmp_path / str(number) for number in range(200)]
    results = ordered_map(touch, paths, 2)
    next(results)
    time.sleep(0.5)
    assert len(list(tmp_path.iterdir())) <= 2 * AHEAD + 1
    assert len(list(results)) == 199


def test_a_worker_that_dies_is_one_line():
    with pytest.raises(DataError, match="a worker process ended unexpectedly"):
        list(ordered_map(die, range(2), 2))
