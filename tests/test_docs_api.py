"""docs/api.md and the examples of the modules that it is about, executed on the run that the page makes."""

import doctest
import re
import shlex

import pytest

from configs import lra
from scripts import export
from scripts.equations import ROOT
from tests.smoke_run import train_quietly
from training import loading, predictions

PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def commands(start):
    """The arguments of the shell commands of the page that begin so."""
    lines = PAGE.replace("\\\n", " ").splitlines()
    return [shlex.split(line.removeprefix(start)) for line in lines if line.startswith(start)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which the first command of the page was run."""
    folder = tmp_path_factory.mktemp("api")
    (config, workdir), *_ = commands("python train.py ")
    train_quietly(lra.get_config(config.partition(":")[2]), folder / workdir.removeprefix("--workdir="))
    return folder


def failures(text, name):
    """How many examples of a text do not say what stands there, and of how many; what differs is printed."""
    test = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    return doctest.DocTestRunner().run(test)


def test_every_block_of_the_page_says_what_it_does(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    for arguments in commands("python -m scripts.export "):
        export.main(["export", *arguments])
    capsys.readouterr()
    failed, tried = failures("\n".join(re.findall(r"```pycon\n(.*?)```", PAGE, re.DOTALL)), "docs/api.md")
    assert failed == 0, capsys.readouterr().out
    assert tried > 30


@pytest.mark.parametrize("module", [loading, predictions])
def test_the_examples_of_a_module_say_what_it_does(place, monkeypatch, capsys, module):
    monkeypatch.chdir(place)
    failed, tried = failures(module.__doc__, module.__name__)
    assert failed == 0, capsys.readouterr().out
    assert tried >= 4
