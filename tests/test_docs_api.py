"""docs/api.md and the examples of the modules that it is about, executed on the run that the page makes."""

import doctest
import re
import shlex
import shutil

import pytest

from configs import lra
from scripts import export
from scripts.equations import ROOT
from tests.smoke_run import smoke_config
from training import loading, predictions
from training.config import from_config_dict

PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def commands(start):
    """The arguments of the shell commands of the page that begin so."""
    lines = PAGE.replace("\\\n", " ").splitlines()
    return [shlex.split(line.removeprefix(start)) for line in lines if line.startswith(start)]


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    """The folder that one is in after the first command of the page."""
    (config, workdir), *_ = commands("python train.py ")
    assert from_config_dict(lra.get_config(config.partition(":")[2]).to_dict()) == smoke_config()
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, workdir.removeprefix("--workdir="))
    return tmp_path


def failures(text, name):
    """How many examples of a text do not say what stands there, and of how many; what differs is printed."""
    test = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    return doctest.DocTestRunner().run(test)


@pytest.mark.usefixtures("place")
def test_every_block_of_the_page_says_what_it_does(capsys):
    for arguments in commands("python -m scripts.export "):
        export.main(["export", *arguments])
    capsys.readouterr()
    failed, tried = failures("\n".join(re.findall(r"```pycon\n(.*?)```", PAGE, re.DOTALL)), "docs/api.md")
    assert failed == 0, capsys.readouterr().out
    assert tried > 30


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("module", [loading, predictions])
def test_the_examples_of_a_module_say_what_it_does(capsys, module):
    failed, tried = failures(module.__doc__, module.__name__)
    assert failed == 0, capsys.readouterr().out
    assert tried >= 4
