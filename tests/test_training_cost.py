"""What a run records of its model and its memory."""

from configs import lra
from data.registry import task_spec
from training import cost
from training.config import from_config_dict
from training.files import read_sealed
from training.state import make_program


def test_facts_are_those_of_the_published_model():
    config = from_config_dict(lra.get_config("task=listops,layer=s5,preset=published").to_dict())
    facts = cost.model_facts(make_program(config, task_spec(config.data.request)))
    assert facts == {"parameters": 188_490, "state_size": 16, "steps_per_record": 2048}


def test_both_documents_of_a_pair_are_read():
    config = from_config_dict(lra.get_config("task=retrieval,layer=lru").to_dict())
    facts = cost.model_facts(make_program(config, task_spec(config.data.request)))
    assert facts["steps_per_record"] == 2 * 4000
    assert facts["parameters"] == 1_070_082


def test_the_largest_peak_of_all_processes_is_kept(tmp_path, monkeypatch):
    for peak, kept in ((5, 5), (3, 5), (8, 8)):
        monkeypatch.setattr(cost, "peak_memory", lambda peak=peak: {"peak_memory_bytes": peak, "of": "device"})
        cost.record_peak(tmp_path)
        assert read_sealed(tmp_path / cost.COST) == {"peak_memory_bytes": kept, "of": "device"}


def test_the_peak_is_that_of_the_fullest_device_or_of_the_process(monkeypatch):
    class Device:
        def __init__(self, peak):
            self.peak = peak

        def memory_stats(self):
            return None if self.peak is None else {"peak_bytes_in_use": self.peak}

    monkeypatch.setattr(cost.jax, "local_devices", lambda: [Device(3), Device(7), Device(None)])
    assert cost.peak_memory() == {"peak_memory_bytes": 7, "of": "device"}
    monkeypatch.setattr(cost.jax, "local_devices", lambda: [Device(None)])
    found = cost.peak_memory()
    assert found["of"] == "process"
    # An interpreter with jax in it: between 50 MB and all that a machine may have.
    assert 5e7 < found["peak_memory_bytes"] < 1e12
