"""What a data set makes, in memory."""

from pathlib import Path

from data import prepared, registry
from data.parallel import silent
from data.sources import Sources
from data.spec import DataRequest
from data.splits import MemorySplit


def made(request: DataRequest, processes: int = 1) -> tuple[dict[str, MemorySplit], dict]:
    """The splits of a generated data set as they would be stored, and the facts."""
    spec = registry.task_spec(request)
    nowhere = Sources(None, Path("/nowhere"), partial=False, progress=silent)
    generated = registry.DATA_SETS[request.task].generate(request, nowhere, processes, silent)
    splits = {
        name: MemorySplit.from_examples(examples, spec.length_of(name)) for name, examples in generated.splits.items()
    }
    return splits, generated.facts()


def in_memory(opened: prepared.Opened) -> dict[str, MemorySplit]:
    """The splits, none of which is on disk."""
    splits = {name: split for name, split in opened.splits.items() if isinstance(split, MemorySplit)}
    assert splits.keys() == opened.splits.keys()
    return splits
