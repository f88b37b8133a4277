"""The notebook runs from top to bottom in a kernel of its own, and is kept without what it printed."""

import re

import nbformat
import pytest
from nbclient import NotebookClient

from scripts.equations import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert cell.cell_type != "code" or (cell.outputs, cell.execution_count) == ([], None)


def test_quickstart_runs_from_top_to_bottom(tmp_path, monkeypatch):
    """Outside of a checkout but with linrec at hand, so that nothing is fetched and nothing is written here."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(ROOT / "notebooks" / "quickstart.ipynb", as_version=4)
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    said = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    scores = r"^seed [01]: step \d+, accuracy \d+\.\d %, \d\.\d{3} nats a label$"
    assert len(re.findall(scores, said, re.MULTILINE)) == 2
    first, last = map(float, re.findall(r"^mean square error (\S+) -> (\S+)$", said, re.MULTILINE)[0])
    assert last < first / 5
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    assert not [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]
    assert (tmp_path / "runs" / "quickstart" / "config.json").exists()
