"""The gallery shows every figure once, under a command whose script is there."""

import re

from scripts.equations import ROOT

PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")


def test_every_figure_is_shown_once():
    shown = re.findall(r"!\[[^]]+\]\(figures/([^)]+)\)", PAGE)
    assert sorted(shown) == sorted(path.name for path in (ROOT / "docs" / "figures").glob("*.png"))


def test_every_command_is_there():
    commands = re.findall(r"^    (.+)$", PAGE, re.MULTILINE)
    modules = [command.split()[2] for command in commands if command.startswith("python -m ")]
    paths = [ROOT / module.replace(".", "/") for module in modules]
    assert all(path.with_suffix(".py").is_file() or (path / "__main__.py").is_file() for path in paths)
    targets = [command.split()[1] for command in commands if command.startswith("make ")]
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{target}:" in makefile for target in targets)
    assert len(modules) + len(targets) == len(commands) >= 3


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
